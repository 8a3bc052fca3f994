//! The phase of a connection, and its ending: the CLOSE frames of both directions, and the cause.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::io::errno::Errno;
use crate::io::lock::locked;
use crate::protocol::c_core::Violation;
use crate::tls::session::Failure;

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
    TooBig {
        /// None if the frame said so much of it only as to be refused.
        size: Option<u64>,
        limit: u64,
        current: Option<u64>,
    },
    Keepalive,
    CloseTimeout,
    Tls(Failure),
    Local,
    Panic,
    /// There was no memory for the rest of a frame that had begun.
    NoMemory,
}

impl Cause {
    /// True if the cause is only that the stream has ended, or that no bytes came.
    fn is_end_of_stream(&self) -> bool {
        matches!(self, Cause::None | Cause::Eof | Cause::Os(_) | Cause::CloseTimeout)
    }

    /// The CLOSE frame that says so.
    pub fn close(&self) -> Close {
        let code = match self {
            Cause::TooBig { .. } => Violation::TOO_BIG.close_code(),
            Cause::Protocol(violation) => violation.close_code(),
            _ => 1011,
        };
        Close::new(code, self.to_string().as_bytes())
    }
}

/// The words for the peer, the same in every face.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::TooBig { .. } => Violation::TOO_BIG.fmt(f),
            Cause::Protocol(violation) => violation.fmt(f),
            Cause::Keepalive => f.write_str("keepalive ping timeout"),
            Cause::Tls(failure) => failure.fmt(f),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Cause {}

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

/// The known facts about the end of a connection.
#[derive(Default)]
pub struct Ending {
    pub received: Option<Close>,
    pub sent: Option<Close>,
    pub received_then_sent: bool,
    pub cause: Cause,
    /// The time limit of the closing handshake.
    timeout: Option<Duration>,
    /// When the connection is dropped, whatever the peer does.
    pub deadline: Option<Instant>,
}

impl Ending {
    /// The first cause counts: later ones are its consequences.
    pub fn set_cause(&mut self, cause: Cause) {
        if self.cause == Cause::None {
            self.cause = cause;
        }
    }

    /// A received frame breaks a rule. The receiver may find that after the end of the connection. But the frame came
    /// before the end, so the violation is the cause.
    pub fn set_violation(&mut self, cause: Cause) {
        if self.cause.is_end_of_stream() {
            self.cause = cause;
        }
    }
}

/// The phase, and the ending behind its lock. Any thread may ask for them, without holding another lock.
pub struct Lifecycle {
    phase: AtomicU8,
    ending: Mutex<Ending>,
}

impl Lifecycle {
    /// `timeout`: of the closing handshake.
    pub fn new(timeout: Option<Duration>) -> Self {
        let ending = Mutex::new(Ending { timeout, ..Ending::default() });
        Lifecycle { phase: AtomicU8::new(Phase::Connecting as u8), ending }
    }

    pub fn phase(&self) -> Phase {
        self.phase.load(Ordering::Acquire).into()
    }

    /// True if `phase()` is Draining. This is cheaper, because it is asked for every frame.
    pub fn is_draining(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Draining as u8
    }

    pub fn ending(&self) -> MutexGuard<'_, Ending> {
        locked(&self.ending)
    }

    /// Sets the time limit of closing that has not begun.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.ending().timeout = timeout;
    }

    /// The opening is over. False if the connection is, too.
    pub fn open(&self) -> bool {
        let (from, to) = (Phase::Connecting as u8, Phase::Open as u8);
        self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Goes on to `phase`, and sets the deadline. True if `close` is to be sent: it is noted that it was.
    pub fn begin(&self, close: &Close, phase: Phase) -> bool {
        let mut ending = self.ending();
        if self.phase() >= phase {
            return false;
        }
        if ending.deadline.is_none() {
            ending.deadline = ending.timeout.map(|timeout| Instant::now() + timeout);
        }
        self.phase.store(phase as u8, Ordering::Release);
        if ending.sent.is_some() {
            return false;
        }
        ending.received_then_sent = ending.received.is_some();
        ending.sent = Some(close.clone());
        true
    }

    /// The connection is over. False if it was.
    pub fn end(&self, cause: Cause) -> bool {
        let mut ending = self.ending();
        if self.phase() == Phase::Closed {
            return false;
        }
        ending.set_cause(cause);
        self.phase.store(Phase::Closed as u8, Ordering::Release);
        true
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
            ending.set_violation(Cause::Protocol(Violation::TEXT));
            assert_eq!(ending.cause == Cause::Protocol(Violation::TEXT), told);
        }
    }

    #[test]
    fn an_empty_close_has_no_code_on_the_wire() {
        assert_eq!(Close::new(1005, b"").payload(), b"");
        assert_eq!(Close::new(1000, b"bye").payload(), b"\x03\xe8bye");
    }
}
