//! The numbers and the structures of wsfast_tungstenite.h, and what the crate says in terms of them.

use std::borrow::Cow;
use std::ffi::{c_char, c_int};
use std::time::Duration;

use crate::connection::{Connection, Options, Stop};
use crate::ending::{Cause, Close, Ending, Phase};
use crate::locked;
use crate::reader::Limits;
use crate::receiving::Received;
use crate::writer::Sent;

pub const OK: c_int = 0;
pub const INTERRUPTED: c_int = -1;
pub const TIMEOUT: c_int = -2;
pub const CLOSED: c_int = -3;
pub const PONG: c_int = -4;
pub const BLOCKED: c_int = -5;
pub const FULL: c_int = -6;
pub const BUSY: c_int = -7;
pub const EOF: c_int = -8;
pub const PANIC: c_int = -9;
pub const NO_MEMORY: c_int = -10;
pub const TEXT: c_int = -1000;

pub const RESUME: c_int = 1;
pub const STREAM: c_int = 2;
pub const VALIDATE: c_int = 4;
pub const AGAIN: c_int = 8;

#[repr(C)]
pub struct CMessage {
    pub data: *const c_char,
    pub fin: c_int,
    pub compressed: c_int,
}

impl CMessage {
    pub fn new() -> Self {
        CMessage { data: std::ptr::null(), fin: 0, compressed: 0 }
    }

    /// Returns the kind and the size of the message, as wst_recv() does.
    pub fn tell(&mut self, received: &Received) -> i64 {
        self.data = received.data.cast();
        self.fin = c_int::from(received.fin);
        self.compressed = c_int::from(received.kind.compressed);
        let size = received.size as i64;
        if received.kind.text {
            i64::from(TEXT) - size
        } else {
            size
        }
    }
}

#[repr(C)]
pub struct COptions {
    pub max_message: u64,
    pub max_fragment: u64,
    pub max_queue: u64,
    pub ping_interval: f64,
    pub ping_timeout: f64,
    pub close_timeout: f64,
    pub busy_poll: f64,
    pub max_read: u64,
    pub quickack: c_int,
    pub report_pings: c_int,
}

impl COptions {
    pub fn parse(&self) -> Options {
        Options {
            limits: Limits {
                message: self.max_message,
                fragment: self.max_fragment,
                queue: usize::try_from(self.max_queue).unwrap_or(usize::MAX),
            },
            ping_interval: seconds(self.ping_interval),
            ping_timeout: seconds(self.ping_timeout),
            close_timeout: seconds(self.close_timeout),
            busy_poll: seconds(self.busy_poll).unwrap_or_default(),
            max_read: usize::try_from(self.max_read).unwrap_or(usize::MAX),
            quickack: self.quickack != 0,
            report_pings: self.report_pings != 0,
        }
    }
}

#[repr(C)]
pub struct CStats {
    pub frames_received: u64,
    pub bytes_received: u64,
    pub reads: u64,
    pub frames_sent: u64,
    pub bytes_sent: u64,
    pub writes: u64,
    pub frames_gathered: u64,
    pub longest_backlog: u64,
    pub poll_hits: u64,
    pub poll_misses: u64,
}

impl CStats {
    pub fn tell(&mut self, connection: &Connection) {
        let counts = &connection.counts;
        let writer = locked(&connection.writer);
        *self = CStats {
            frames_received: counts.frames.get(),
            bytes_received: counts.bytes.get(),
            reads: counts.reads.get(),
            frames_sent: writer.frames,
            bytes_sent: writer.bytes,
            writes: writer.writes,
            frames_gathered: writer.gathered,
            longest_backlog: writer.longest_backlog as u64,
            poll_hits: counts.hits.get(),
            poll_misses: counts.misses.get(),
        };
    }
}

#[repr(C)]
pub struct CEnding {
    pub rcvd_code: c_int,
    pub sent_code: c_int,
    pub rcvd_then_sent: c_int,
    pub rcvd_size: c_int,
    pub sent_size: c_int,
    pub cause: c_int,
    pub number: i64,
    pub size: i64,
    pub limit: i64,
    pub current: i64,
    pub message_size: c_int,
    pub rcvd_reason: [u8; 128],
    pub sent_reason: [u8; 128],
    pub message: [u8; 256],
}

impl CEnding {
    pub fn tell(&mut self, ending: &Ending) {
        let describe = |close: &Option<Close>, reason: &mut [u8]| match close {
            None => (-1, 0),
            Some(close) => (c_int::from(close.code), copy_text(reason, &close.reason)),
        };
        (self.rcvd_code, self.rcvd_size) = describe(&ending.received, &mut self.rcvd_reason);
        (self.sent_code, self.sent_size) = describe(&ending.sent, &mut self.sent_reason);
        self.rcvd_then_sent = c_int::from(ending.received_then_sent);
        (self.number, self.size, self.limit, self.current) = (0, 0, 0, -1);
        let mut message = Cow::Borrowed("");
        self.cause = match &ending.cause {
            Cause::None => 0,
            Cause::Eof => 1,
            Cause::Os(errno) => {
                self.number = i64::from(*errno);
                2
            }
            Cause::Protocol(violation) => {
                message = violation.reason().into();
                3
            }
            Cause::CloseCode(_) => {
                message = ending.cause.close().1.into();
                3
            }
            Cause::TooBig { size, limit, current } => {
                self.size = size.map_or(-1, |size| size as i64);
                self.limit = *limit as i64;
                self.current = current.map_or(-1, |current| current as i64);
                4
            }
            Cause::NoMemory => 5,
            Cause::Text(text) => {
                message = (*text).into();
                6
            }
            Cause::Keepalive => 7,
            Cause::CloseTimeout => 8,
            Cause::Tls(text) => {
                message = text.into();
                9
            }
            Cause::Certificate { code, message: text } => {
                self.number = i64::from(*code);
                message = text.into();
                10
            }
            Cause::Local => 11,
            Cause::Panic => 12,
        };
        self.message_size = copy_text(&mut self.message, message.as_bytes());
    }
}

pub fn code(stop: Stop) -> c_int {
    match stop {
        Stop::Interrupted => INTERRUPTED,
        Stop::Timeout => TIMEOUT,
        Stop::Closed => CLOSED,
        Stop::Pong => PONG,
        Stop::Busy => BUSY,
        Stop::Eof => EOF,
        Stop::NoMemory => NO_MEMORY,
    }
}

pub fn result(result: Result<(), Stop>) -> c_int {
    result.map_or_else(code, |()| OK)
}

pub fn sent(result: Result<Option<Sent>, Stop>) -> c_int {
    match result {
        Ok(Some(Sent::All | Sent::Held)) => OK,
        Ok(Some(Sent::Blocked)) => BLOCKED,
        Ok(None) => FULL,
        Err(stop) => code(stop),
    }
}

pub fn state(phase: Phase) -> c_int {
    match phase {
        Phase::Connecting => 0,
        Phase::Open => 1,
        Phase::Closing | Phase::Draining => 2,
        Phase::Closed => 3,
    }
}

pub fn close_frame(code: c_int, reason: &[u8]) -> Close {
    // An empty CLOSE is one with the code that never travels.
    Close::new(if code == 0 { 1005 } else { code as u16 }, reason)
}

/// Three centuries: a longer time is as good as that, and an Instant cannot hold every sum.
const FAR: f64 = 1e10;

/// None if there is no limit.
pub fn seconds(seconds: f64) -> Option<Duration> {
    (seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(FAR)))
}

/// Copies what fits of `text`; returns how much that is.
pub fn copy_text(target: &mut [u8], text: &[u8]) -> c_int {
    let size = text.len().min(target.len());
    target[..size].copy_from_slice(&text[..size]);
    size as c_int
}

/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
pub unsafe fn bytes<'a>(data: *const c_char, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data.cast(), size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARATIONS: &str = include_str!("../wsfast_tungstenite.h");

    fn declared(name: &str) -> c_int {
        let after = DECLARATIONS.split(&format!("{name} = ")).nth(1).expect(name);
        let digits: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
        digits.parse().expect(name)
    }

    #[test]
    fn numbers_are_those_of_the_declarations() {
        let numbers = [
            ("WST_TEXT", TEXT),
            ("WST_OK", OK),
            ("WST_INTERRUPTED", INTERRUPTED),
            ("WST_TIMEOUT", TIMEOUT),
            ("WST_CLOSED", CLOSED),
            ("WST_PONG", PONG),
            ("WST_BLOCKED", BLOCKED),
            ("WST_FULL", FULL),
            ("WST_BUSY", BUSY),
            ("WST_EOF", EOF),
            ("WST_PANIC", PANIC),
            ("WST_NO_MEMORY", NO_MEMORY),
            ("WST_RESUME", RESUME),
            ("WST_STREAM", STREAM),
            ("WST_VALIDATE", VALIDATE),
            ("WST_AGAIN", AGAIN),
        ];
        for (name, number) in numbers {
            assert_eq!(declared(name), number, "{name}");
        }
    }

    #[test]
    fn fields_are_those_of_the_declarations() {
        let fields = |name: &str| -> Vec<String> {
            let end = DECLARATIONS.find(&format!("}} {name};")).expect(name);
            let body = &DECLARATIONS[DECLARATIONS[..end].rfind('{').unwrap() + 1..end];
            let lines = body.lines().map(|line| line.split(';').next().unwrap().trim());
            let names = lines.filter(|line| !line.is_empty()).map(|line| line.rsplit([' ', '*']).next().unwrap());
            names.map(|name| name.split('[').next().unwrap().to_string()).collect()
        };
        let here = include_str!("abi.rs");
        for (c, rust) in [
            ("wst_options", "COptions"),
            ("wst_message", "CMessage"),
            ("wst_ending", "CEnding"),
            ("wst_stats", "CStats"),
        ] {
            let body = here.split(&format!("pub struct {rust} {{\n")).nth(1).unwrap().split("\n}").next().unwrap();
            let names: Vec<_> = body
                .lines()
                .map(|line| line.trim().trim_start_matches("pub ").split(':').next().unwrap().to_string())
                .collect();
            assert_eq!(names, fields(c), "{c}");
        }
    }
}
