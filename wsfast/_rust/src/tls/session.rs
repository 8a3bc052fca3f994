//! The TLS of one connection: by rustls, or by OpenSSL for whoever has an ssl.SSLContext.

use rustls::CommonState;

use crate::io::buffer::Buffer;
use crate::io::errno::{Errno, NO_MORE_RECORDS};
use crate::io::socket::Socket;
use crate::parts::lifecycle::Cause;
use crate::tls::nested_session::NestedSession;
use crate::tls::openssl::Pointer;
use crate::tls::openssl_session::OpenSslSession;
use crate::tls::rustls_session::RustlsSession;
use crate::tls::tickets::Client;

/// It does no input, and output only in `flush`. Whoever uses it may hold locks: no Python runs in it.
#[allow(clippy::large_enum_variant)] // there is one for each connection, and a Box would be one more step to the keys
pub enum Session {
    Rustls(RustlsSession),
    OpenSsl(OpenSslSession),
    Nested(Box<NestedSession>),
    /// While another one is made of it.
    Empty,
}

impl Session {
    pub fn new(client: &Client, name: &str, port: u16) -> Result<Self, String> {
        RustlsSession::new(client, name, port).map(Session::Rustls)
    }

    /// # Safety
    /// As for OpenSslSession.
    pub unsafe fn adopt(ssl: Pointer, context: Pointer) -> Result<Self, String> {
        OpenSslSession::new(ssl, context).map(Session::OpenSsl)
    }

    /// Makes this the outer one of two.
    pub fn nest(&mut self, inner: Session) {
        // What stands here meanwhile does nothing: the session is replaced under its lock.
        let outer = std::mem::replace(self, Session::Empty);
        *self = Session::Nested(Box::new(NestedSession::new(outer, inner)));
    }

    /// Appends the records that are to be sent, instead of sending them.
    pub fn take(&mut self, records: &mut Vec<u8>) {
        match self {
            Session::Rustls(session) => session.take(records),
            Session::OpenSsl(session) => session.take(records),
            Session::Nested(_) | Session::Empty => {}
        }
    }

    /// What was agreed with the server, if rustls did.
    pub fn state(&self) -> Option<&CommonState> {
        match self {
            Session::Rustls(session) => Some(session.state()),
            Session::Nested(session) => session.state(),
            Session::OpenSsl(_) | Session::Empty => None,
        }
    }

    /// Why it cannot send, if it cannot.
    pub fn errno(&self) -> Errno {
        match self {
            Session::Rustls(_) => NO_MORE_RECORDS,
            Session::OpenSsl(session) => session.errno,
            Session::Nested(_) | Session::Empty => libc::EIO,
        }
    }

    pub fn is_handshaking(&self) -> bool {
        match self {
            Session::Rustls(session) => session.is_handshaking(),
            Session::OpenSsl(_) => false,
            Session::Nested(session) => session.is_handshaking(),
            Session::Empty => false,
        }
    }

    /// Takes what was received, and appends what it says. True at the end: the peer said that nothing follows.
    pub fn read(&mut self, wire: &[u8], plain: &mut Buffer) -> Result<bool, Cause> {
        match self {
            Session::Rustls(session) => session.read(wire, plain),
            Session::OpenSsl(session) => session.read(wire, plain),
            Session::Nested(session) => session.read(wire, plain),
            Session::Empty => Ok(true),
        }
    }

    /// Encrypts; `flush` sends.
    pub fn write(&mut self, plain: &[u8]) {
        match self {
            Session::Rustls(session) => session.write(plain),
            Session::OpenSsl(session) => session.write(plain),
            Session::Nested(session) => session.write(plain),
            Session::Empty => {}
        }
    }

    pub fn write_end(&mut self) {
        match self {
            Session::Rustls(session) => session.write_end(),
            Session::OpenSsl(session) => session.write_end(),
            Session::Nested(session) => session.write_end(),
            Session::Empty => {}
        }
    }

    /// Is there something that was not sent?
    pub fn wants_write(&self) -> bool {
        match self {
            Session::Rustls(session) => session.wants_write(),
            Session::OpenSsl(session) => session.wants_write(),
            Session::Nested(session) => session.wants_write(),
            Session::Empty => false,
        }
    }

    /// Sends what the kernel takes; true if that was all.
    pub fn flush(&mut self, socket: &Socket) -> Result<bool, Errno> {
        match self {
            Session::Rustls(session) => session.flush(socket),
            Session::OpenSsl(session) => session.flush(socket),
            Session::Nested(session) => session.flush(socket),
            Session::Empty => Ok(true),
        }
    }
}
