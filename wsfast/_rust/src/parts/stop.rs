//! The reasons why a call returns without a result.

use std::fmt;

use crate::io::block::NoMemory;

/// Why a call returns without a result.
#[derive(Debug, PartialEq)]
pub enum Stop {
    Interrupted,
    Timeout,
    Closed,
    Pong,
    Busy,
    Eof,
    /// No bytes are lost, unless the connection is closed now.
    NoMemory,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Interrupted => "a signal may have come",
            Stop::Timeout => "the time-out has passed",
            Stop::Closed => "the connection is closed",
            Stop::Pong => "pings were answered, or control frames are to be logged",
            Stop::Busy => "another thread is doing it",
            Stop::Eof => "the peer closed the connection during the opening",
            Stop::NoMemory => return NoMemory.fmt(f),
        })
    }
}

impl std::error::Error for Stop {}

impl From<NoMemory> for Stop {
    fn from(_: NoMemory) -> Stop {
        Stop::NoMemory
    }
}
