//! How a connection comes to its end: the CLOSE frames of both directions, and the cause.

use std::time::{Duration, Instant};

use crate::socket::Errno;

/// The life of a connection. Each step goes down.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Phase {
    Connecting,
    Open,
    /// CLOSE was sent; messages are still received until the peer's.
    Closing,
    /// Nothing is received any more, but the end of the stream.
    Draining,
    Closed,
}

impl From<u8> for Phase {
    fn from(number: u8) -> Self {
        match number {
            0 => Phase::Connecting,
            1 => Phase::Open,
            2 => Phase::Closing,
            3 => Phase::Draining,
            _ => Phase::Closed,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cause {
    #[default]
    None,
    Eof,
    Os(Errno),
    Protocol(String),
    TooBig {
        size: u64,
        limit: u64,
        current: Option<u64>,
    },
    Fragments(u64),
    Text(String),
    Keepalive,
    CloseTimeout,
    Tls(String),
    /// OpenSSL's code of why it does not verify.
    Certificate {
        code: i32,
        message: String,
    },
    Local,
    Panic,
}

impl Cause {
    /// The code and the reason of the CLOSE frame for a violation.
    pub fn close(&self) -> (u16, String) {
        match self {
            Cause::TooBig { size, limit, current } => {
                let before = current.map_or(String::new(), |n| format!("after reading {n} bytes "));
                let limit = limit + current.unwrap_or(0);
                (1009, format!("frame with {size} bytes {before}exceeds limit of {limit} bytes"))
            }
            Cause::Fragments(limit) => (1009, format!("fragmented message exceeds limit of {limit} frames")),
            Cause::Text(message) => (1007, message.clone()),
            Cause::Keepalive => (1011, "keepalive ping timeout".to_string()),
            Cause::Protocol(message) => (1002, message.clone()),
            _ => (1011, String::new()),
        }
    }
}

/// The code and the reason of a CLOSE frame; 1005 stands for an empty one.
#[derive(Clone, Debug, PartialEq)]
pub struct Close {
    pub code: u16,
    pub reason: Vec<u8>,
}

impl Close {
    pub fn new(code: u16, reason: &[u8]) -> Self {
        Close { code, reason: reason.to_vec() }
    }

    pub fn payload(&self) -> Vec<u8> {
        if self.code == 1005 {
            return Vec::new();
        }
        [&self.code.to_be_bytes()[..], &self.reason].concat()
    }
}

#[derive(Default)]
pub struct Ending {
    pub received: Option<Close>,
    pub sent: Option<Close>,
    pub received_then_sent: bool,
    pub cause: Cause,
    /// When the connection is dropped, whatever the peer does.
    pub deadline: Option<Instant>,
}

impl Ending {
    /// The closing handshake begins.
    pub fn begin(&mut self, close_timeout: Option<Duration>) {
        if self.deadline.is_none() {
            self.deadline = close_timeout.map(|timeout| Instant::now() + timeout);
        }
    }

    /// The first cause counts: what follows is its consequence.
    pub fn set_cause(&mut self, cause: Cause) {
        if self.cause == Cause::None {
            self.cause = cause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_say_whose_limit() {
        let cause = Cause::TooBig { size: 20, limit: 10, current: None };
        assert_eq!(cause.close(), (1009, "frame with 20 bytes exceeds limit of 10 bytes".to_string()));
        let cause = Cause::TooBig { size: 20, limit: 4, current: Some(6) };
        let reason = "frame with 20 bytes after reading 6 bytes exceeds limit of 10 bytes";
        assert_eq!(cause.close(), (1009, reason.to_string()));
    }

    #[test]
    fn the_first_cause_counts() {
        let mut ending = Ending::default();
        ending.set_cause(Cause::Eof);
        ending.set_cause(Cause::Os(1));
        assert_eq!(ending.cause, Cause::Eof);
    }

    #[test]
    fn an_empty_close_has_no_code_on_the_wire() {
        assert_eq!(Close::new(1005, b"").payload(), b"");
        assert_eq!(Close::new(1000, b"bye").payload(), b"\x03\xe8bye");
    }
}
