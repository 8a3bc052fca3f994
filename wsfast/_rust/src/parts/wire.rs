//! The socket of a connection, the TLS above it, if any, and the log of the control frames that pass there.

use std::sync::{Mutex, OnceLock};

use crate::io::lock::locked;
use crate::io::socket::{InUse, Socket};
use crate::parts::control_log::ControlLog;
use crate::tls::channel::Channel;

pub struct Wire {
    pub socket: Socket,
    pub log: ControlLog,
    tls: OnceLock<Mutex<Channel>>,
}

impl Wire {
    pub fn new(fd: i32) -> Self {
        Wire { socket: Socket::new(fd), log: ControlLog::default(), tls: OnceLock::new() }
    }

    /// None once the socket is retired.
    pub fn enter(&self) -> Option<InUse<'_>> {
        self.socket.enter()
    }

    pub fn tls(&self) -> Option<&Mutex<Channel>> {
        self.tls.get()
    }

    /// Speaks TLS from now on, within the TLS that there is already, if any.
    pub fn secure(&self, tls: Channel) {
        match self.tls.get() {
            Some(outer) => locked(outer).carry(tls),
            None => drop(self.tls.set(Mutex::new(tls))),
        }
    }
}
