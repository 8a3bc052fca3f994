//! The socket of a connection, and the TLS above it, if any.

use std::sync::{Mutex, OnceLock};

use crate::locked;
use crate::socket::{InUse, Socket};
use crate::tls::Session;

pub struct Wire {
    pub socket: Socket,
    session: OnceLock<Mutex<Session>>,
}

impl Wire {
    pub fn new(fd: i32) -> Self {
        Wire { socket: Socket::new(fd), session: OnceLock::new() }
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
