//! The socket of a connection, the TLS above it, if any, and the log of the control frames that pass there.

use std::sync::{Mutex, OnceLock};

use crate::io::lock::locked;
use crate::io::socket::{InUse, Socket};
use crate::parts::control_log::ControlLog;
use crate::tls::session::Session;

pub struct Wire {
    pub socket: Socket,
    pub log: ControlLog,
    session: OnceLock<Mutex<Session>>,
}

impl Wire {
    pub fn new(fd: i32) -> Self {
        Wire { socket: Socket::new(fd), log: ControlLog::default(), session: OnceLock::new() }
    }

    /// None once the socket is retired.
    pub fn enter(&self) -> Option<InUse<'_>> {
        self.socket.enter()
    }

    pub fn session(&self) -> Option<&Mutex<Session>> {
        self.session.get()
    }

    /// Speaks TLS from now on, within the TLS that there is already, if any.
    pub fn secure(&self, session: Session) {
        match self.session.get() {
            Some(outer) => locked(outer).nest(session),
            None => drop(self.session.set(Mutex::new(session))),
        }
    }
}
