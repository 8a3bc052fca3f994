//! The numbers and structures of wsfast_rust.h, which build.rs makes, and the conversions of the crate's types.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::time::Duration;

use rustls::{CommonState, HandshakeKind};

use crate::connection::receive::Received;
use crate::connection::{Connection, Options};
use crate::parts::frame_writer::Sent;
use crate::parts::lifecycle::{Cause, Close, Ending, Phase};
use crate::parts::receive_half::Limits;
use crate::parts::stamps::Stamping;
use crate::parts::stop::Stop;
use crate::tls::session::{Failure, Step};
use crate::tls::settings::Settings;
use crate::tls::stream::Stream;
use crate::tls::tickets::Client;

include!(concat!(env!("OUT_DIR"), "/border.rs"));

/// The object that Python holds. Python decides which thread is the receiver, and only that thread may touch `message`.
pub struct Handle {
    pub connection: Connection,
    pub message: UnsafeCell<wst_message>,
}

// SAFETY: a connection may be used by any thread, and the message is only used by the receiver.
unsafe impl Sync for Handle {}

/// The objects of which the caller knows only the names.
#[allow(non_camel_case_types)]
pub type wst_connection = Handle;
#[allow(non_camel_case_types)]
pub type wst_stream = Stream;
#[allow(non_camel_case_types)]
pub type wst_tls_config = Client;

impl wst_message {
    pub fn fill(&mut self, received: &Received) {
        *self = wst_message {
            data: received.data.cast(),
            size: received.size,
            text: c_int::from(received.kind.text),
            fin: c_int::from(received.fin),
            compressed: c_int::from(received.kind.compressed),
            last: c_int::from(received.stamp.last),
            returned: received.stamp.returned,
            received: received.stamp.received,
        };
    }
}

impl wst_tls_settings {
    /// # Safety
    /// The pointers obey the rules of wsfast_rust.h.
    pub unsafe fn parse(&self) -> Settings<'_> {
        let key = || (bytes(self.chain, self.chain_size), bytes(self.key, self.key_size));
        Settings {
            context: self.context,
            check_name: self.check_name != 0,
            tls12: self.versions & 1 != 0,
            tls13: self.versions & 2 != 0,
            alpn: bytes(self.alpn, self.alpn_size),
            client: (self.chain_size > 0).then(key),
            keylog: self.keylog != 0,
            resume_for: seconds(self.resume_for).unwrap_or_default(),
        }
    }
}

impl wst_options {
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
            stamping: match self.stamps {
                WST_STAMPS_KERNEL => Stamping::Receipts,
                WST_STAMPS_USER => Stamping::Returns,
                _ => Stamping::Nothing,
            },
        }
    }
}

impl wst_stats {
    pub fn fill(&mut self, connection: &Connection) {
        let counts = &connection.counts;
        let writer = connection.sender.writer();
        *self = wst_stats {
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

impl wst_stream_state {
    pub fn fill(&mut self, connection: &CommonState, failure: Option<&Failure>) {
        self.handshaking = c_int::from(connection.is_handshaking());
        self.version = connection.protocol_version().map_or(0, |version| c_int::from(u16::from(version)));
        self.resumed = c_int::from(connection.handshake_kind() == Some(HandshakeKind::Resumed));
        let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
        let cipher = suite.and_then(|suite| suite.as_str()).unwrap_or_default();
        self.cipher_size = copy_text(&mut self.cipher, cipher.as_bytes());
        self.alpn_size = copy_text(&mut self.alpn, connection.alpn_protocol().unwrap_or_default());
        (self.cause, self.number) = failure.map_or((WST_CAUSE_NONE, 0), tls_cause);
        let message = failure.map_or("", |failure| &failure.message);
        self.message_size = copy_text(&mut self.message, message.as_bytes());
    }
}

impl wst_ending {
    pub fn fill(&mut self, ending: &Ending) {
        let describe = |close: &Option<Close>, reason: &mut [u8]| match close {
            None => (-1, 0),
            Some(close) => (c_int::from(close.code), copy_text(reason, &close.reason)),
        };
        (self.rcvd_code, self.rcvd_size) = describe(&ending.received, &mut self.rcvd_reason);
        (self.sent_code, self.sent_size) = describe(&ending.sent, &mut self.sent_reason);
        self.rcvd_then_sent = c_int::from(ending.received_then_sent);
        (self.number, self.size, self.limit, self.current) = (0, 0, 0, -1);
        self.cause = match &ending.cause {
            Cause::None => WST_CAUSE_NONE,
            Cause::Eof => WST_CAUSE_EOF,
            Cause::Os(errno) => {
                self.number = i64::from(*errno);
                WST_CAUSE_OS
            }
            Cause::Protocol(violation) if violation.close_code() == 1007 => WST_CAUSE_TEXT,
            Cause::Protocol(_) => WST_CAUSE_PROTOCOL,
            Cause::TooBig { size, limit, current } => {
                self.size = size.map_or(-1, |size| size as i64);
                self.limit = *limit as i64;
                self.current = current.map_or(-1, |current| current as i64);
                WST_CAUSE_TOO_BIG
            }
            Cause::NoMemory => WST_CAUSE_NO_MEMORY,
            Cause::Keepalive => WST_CAUSE_KEEPALIVE,
            Cause::CloseTimeout => WST_CAUSE_CLOSE_TIMEOUT,
            Cause::Tls(failure) => {
                let cause;
                (cause, self.number) = tls_cause(failure);
                cause
            }
            Cause::Local => WST_CAUSE_LOCAL,
            Cause::Panic => WST_CAUSE_PANIC,
        };
        self.message_size = copy_text(&mut self.message, ending.cause.to_string().as_bytes());
    }
}

fn tls_cause(failure: &Failure) -> (c_int, i64) {
    match failure.certificate {
        Some(code) => (WST_CAUSE_CERTIFICATE, i64::from(code)),
        None => (WST_CAUSE_TLS, 0),
    }
}

pub fn code(stop: Stop) -> c_int {
    match stop {
        Stop::Interrupted => WST_INTERRUPTED,
        Stop::Timeout => WST_TIMEOUT,
        Stop::Closed => WST_CLOSED,
        Stop::Pong => WST_PONG,
        Stop::Busy => WST_BUSY,
        Stop::Eof => WST_EOF,
        Stop::NoMemory => WST_NO_MEMORY,
    }
}

pub fn result(result: Result<(), Stop>) -> c_int {
    result.map_or_else(code, |()| WST_OK)
}

pub fn sent(result: Result<Sent, Stop>) -> c_int {
    match result {
        Ok(Sent::All | Sent::Held) => WST_OK,
        Ok(Sent::Blocked) => WST_BLOCKED,
        Ok(Sent::Full) => WST_FULL,
        Err(stop) => code(stop),
    }
}

pub fn step(step: Step) -> c_int {
    match step {
        Step::Wants => WST_OK,
        Step::Full => WST_MORE,
        Step::Ended => WST_EOF,
        Step::Failed | Step::Cut => WST_CLOSED,
    }
}

pub fn state(phase: Phase) -> c_int {
    match phase {
        Phase::Connecting => WST_STATE_CONNECTING,
        Phase::Open => WST_STATE_OPEN,
        Phase::Closing | Phase::Draining => WST_STATE_CLOSING,
        Phase::Closed => WST_STATE_CLOSED,
    }
}

pub fn close_frame(code: c_int, reason: &[u8]) -> Close {
    // An empty CLOSE is represented by 1005, the code that is never sent (RFC 6455 section 7.4.1).
    Close::new(if code == 0 { 1005 } else { code as u16 }, reason)
}

/// Three centuries. Longer times are cut to this, because an Instant cannot hold every sum.
const FAR: f64 = 1e10;

/// None if there is no limit.
pub fn seconds(seconds: f64) -> Option<Duration> {
    (seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(FAR)))
}

/// Copies as much of `text` as fits, and returns the number of bytes.
pub fn copy_text(target: &mut [u8], text: &[u8]) -> c_int {
    let size = text.len().min(target.len());
    target[..size].copy_from_slice(&text[..size]);
    size as c_int
}

/// # Safety
/// `data` points to `size` bytes that no other thread uses, or `size` is 0. Its bytes are written before they are read.
pub unsafe fn room<'a, T>(data: *mut c_char, size: usize) -> &'a mut [T] {
    if size == 0 {
        &mut []
    } else {
        std::slice::from_raw_parts_mut(data.cast(), size)
    }
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
    const DECLARATIONS: &str = include_str!("../../wsfast_rust.h");

    #[test]
    fn every_number_of_the_declarations_is_here() {
        let here = include_str!(concat!(env!("OUT_DIR"), "/border.rs"));
        let names: Vec<_> = DECLARATIONS
            .lines()
            .map(|line| line.split("/*").next().unwrap().trim())
            .filter(|line| line.starts_with("WST_"))
            .map(|line| line.split(' ').next().unwrap())
            .collect();
        assert!(names.len() > 30);
        for name in names {
            assert!(here.contains(&format!("pub const {name}: ")), "{name}");
        }
    }
}
