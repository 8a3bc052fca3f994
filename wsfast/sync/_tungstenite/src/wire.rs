//! The socket of a connection, and TLS above it if there is some.

use std::sync::{Mutex, OnceLock};

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

    /// Speaks TLS from now on.
    pub fn secure(&self, session: Session) {
        let _ = self.session.set(Mutex::new(session));
    }
}
