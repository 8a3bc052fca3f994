//! How a connection comes to its end: the CLOSE frames of both directions, and the cause.

use std::time::{Duration, Instant};

use crate::core::Violation;
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
    Protocol(Violation),
    /// A CLOSE frame with this code.
    CloseCode(u16),
    TooBig {
        /// None if the frame said so much of it only as to be refused.
        size: Option<u64>,
        limit: u64,
        current: Option<u64>,
    },
    Text(&'static str),
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
    /// In the middle of a frame: the rest of it could not be kept.
    NoMemory,
}

impl Cause {
    /// Does it say no more than that the stream has ended, or that nothing came?
    fn is_end_of_stream(&self) -> bool {
        matches!(self, Cause::None | Cause::Eof | Cause::Os(_) | Cause::CloseTimeout)
    }

    /// The code and the reason of the CLOSE frame for a violation.
    pub fn close(&self) -> (u16, String) {
        match self {
            Cause::TooBig { .. } => (1009, Violation::TOO_BIG.reason().to_string()),
            Cause::Text(message) => (1007, message.to_string()),
            Cause::Keepalive => (1011, "keepalive ping timeout".to_string()),
            Cause::Protocol(violation) => (1002, violation.reason().to_string()),
            Cause::CloseCode(code) => (1002, format!("invalid close code {code}")),
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

    /// What was received breaks a rule. That may be found when the connection has ended already; but it was received
    /// before the end, so it is what the receiver gets to know.
    pub fn set_violation(&mut self, cause: Cause) {
        if self.cause.is_end_of_stream() {
            self.cause = cause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_counts() {
        let mut ending = Ending::default();
        ending.set_cause(Cause::Eof);
        ending.set_cause(Cause::Os(1));
        assert_eq!(ending.cause, Cause::Eof);
    }

    #[test]
    fn a_violation_is_told_even_if_the_stream_has_ended() {
        for (first, told) in [(Cause::Eof, true), (Cause::None, true), (Cause::Keepalive, false), (Cause::Local, false)]
        {
            let mut ending = Ending { cause: first, ..Ending::default() };
            ending.set_violation(Cause::Text("wrong"));
            assert_eq!(ending.cause == Cause::Text("wrong"), told);
        }
    }

    #[test]
    fn an_empty_close_has_no_code_on_the_wire() {
        assert_eq!(Close::new(1005, b"").payload(), b"");
        assert_eq!(Close::new(1000, b"bye").payload(), b"\x03\xe8bye");
    }
}
