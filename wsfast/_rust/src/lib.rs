//! The engine of wsfast.sync, and TLS for all clients.
//!
//! tungstenite provides the lower layer: opcodes, and the headers of the frames that are sent. Its `WebSocket` could not
//! serve here. It needs the connection for itself (`&mut self`), so one thread could not send while another receives. It
//! clears its whole buffer before every read. It has no time-outs, and it sends no CLOSE after a violation. So this
//! crate keeps the state of a connection itself, in a reading half and a writing half. The rules for
//! received frames are the C core's.
//!
//! A folder uses only those below it:
//!
//! | folder | contents |
//! |---|---|
//! | `border` | the functions and the structures of wsfast_rust.h |
//! | `connection` | the methods that any thread may call, a file for each operation, and the order of the locks |
//! | `parts` | the parts of a connection, each with a lock or atomics of its own |
//! | `tls` | TLS by rustls or OpenSSL, alone or within TLS; OpenSSL's verdict on certificates |
//! | `protocol` | the rules, by the C core; headers, by tungstenite |
//! | `io` | the system calls on a socket, and the memory that bytes are received into |

#![allow(clippy::missing_safety_doc)]

mod border;
mod connection;
mod io;
mod parts;
mod protocol;
mod tls;
