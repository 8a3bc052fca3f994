//! The receiving half: bytes that arrived, the frames in them, and frames that were read while nobody received.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use crate::core::Utf8;
use crate::ending::{Cause, Phase};
use crate::frame::{self, Head};

/// What one recv(2) may bring: more than a pipe or a loopback hands over at once, and the pages that it does not
/// touch cost nothing.
const READ: usize = 128 * 1024;

/// A frame announced but not arrived makes us reserve no more than this at a time.
const TRUST: usize = 1024 * 1024;

/// A buffer that grew over this for one long message is not kept.
const KEEP: usize = 2 * TRUST;

/// While the connection closes, this much more is read past a full queue: the peer's CLOSE is behind it.
const SLACK: usize = 1024 * 1024;
/// What a queued frame counts against it besides its payload.
const OVERHEAD: usize = 64;
/// Then the receiver has so long to take a message, or what comes is dropped.
const PATIENCE: Duration = Duration::from_millis(250);

pub struct Limits {
    pub message: u64,
    pub fragment: u64,
    pub fragments: u64,
    pub queue: usize,
}

/// What a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kind {
    pub text: bool,
    /// Whoever calls inflates it (wsfast/sync/_connection.pyx), and checks that it is text.
    pub compressed: bool,
}

impl Kind {
    /// Is it text as it stands?
    pub fn is_text(self) -> bool {
        self.text && !self.compressed
    }
}

/// A data frame that was read while nobody received.
pub struct Queued {
    pub kind: Kind,
    pub first: bool,
    pub fin: bool,
    pub data: Vec<u8>,
}

/// A data frame in the buffer.
#[derive(Debug, PartialEq)]
pub struct Found {
    pub kind: Kind,
    pub first: bool,
    pub fin: bool,
    pub start: usize,
    pub end: usize,
}

#[derive(Debug, PartialEq)]
pub enum Parsed {
    Data(Found),
    Control {
        opcode: Control,
        start: usize,
        end: usize,
    },
    /// Bytes that are missing, at least.
    More(usize),
    Violation(Cause),
}

/// What `receive` has had so far of a message in several frames.
pub struct Assembly {
    pub kind: Kind,
    /// Nothing of a compressed message, whose frames are given as they are.
    pub data: Vec<u8>,
}

impl Assembly {
    pub fn new(kind: Kind) -> Self {
        Assembly { kind, data: Vec::new() }
    }
}

/// A message of which not all frames arrived.
struct Begun {
    kind: Kind,
    frames: u64,
    size: u64,
    utf8: Utf8,
}

/// A frame of text of which not all bytes arrived.
struct Ahead {
    utf8: Utf8,
    checked: usize,
}

pub struct Reader {
    /// What arrived; up to `start` it is read.
    pub data: Vec<u8>,
    pub start: usize,
    /// A message in `data` is lent to the receiver: until it asks for the next, `data` must not move.
    pub lent: bool,
    /// A buffer that was left to the receiver, or a message that is lent and not in `data`.
    pub kept: Vec<u8>,
    begun: Option<Begun>,
    ahead: Option<Ahead>,
    /// Compression was negotiated.
    pub deflate: bool,
    /// Nothing that arrives has a meaning any more.
    pub discard: bool,
    pub limits: Limits,
    queue: VecDeque<Queued>,
    queued: usize,
    full_since: Option<Instant>,
    /// Nobody receives while the connection closes: no data frame is delivered any more.
    pub dropping: bool,
    pub assembly: Option<Assembly>,
    /// Until when `wst_recv` may wait, and may spin; kept for when it goes on after a signal.
    pub deadline: Option<Instant>,
    pub spin_until: Option<Instant>,
    /// SO_RCVTIMEO; zero if it was never set, or if there is no limit.
    pub armed: Duration,
    /// recv(2) has slept for so long in vain.
    pub idle: bool,
    /// Ciphertext, where there is TLS.
    pub wire: Vec<u8>,
    /// TLS said that nothing follows.
    pub ended: bool,
    pub keepalive: Keepalive,
}

impl Reader {
    pub fn new(limits: Limits, keepalive: Keepalive) -> Self {
        Reader {
            data: Vec::new(),
            start: 0,
            lent: false,
            kept: Vec::new(),
            begun: None,
            ahead: None,
            deflate: false,
            discard: false,
            limits,
            queue: VecDeque::new(),
            queued: 0,
            full_since: None,
            dropping: false,
            assembly: None,
            deadline: None,
            spin_until: None,
            armed: Duration::ZERO,
            idle: false,
            wire: Vec::new(),
            ended: false,
            keepalive,
        }
    }

    pub fn unread(&self) -> &[u8] {
        &self.data[self.start..]
    }

    pub fn put(&mut self, frame: Queued) {
        self.queued += frame.data.len() + OVERHEAD;
        self.queue.push_back(frame);
    }

    pub fn take(&mut self) -> Option<Queued> {
        let frame = self.queue.pop_front()?;
        self.queued -= frame.data.len() + OVERHEAD;
        self.full_since = None;
        Some(frame)
    }

    /// Is there room for what would be read?
    pub fn has_room(&mut self, phase: Phase) -> bool {
        if self.queue.len() < self.limits.queue || self.discard || self.dropping || phase > Phase::Closing {
            return true;
        }
        if phase == Phase::Open {
            return false;
        }
        if self.queued < SLACK {
            return true;
        }
        self.dropping = self.full_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE;
        self.dropping
    }

    /// The receiver has copied what it was lent.
    pub fn take_back(&mut self) {
        self.lent = false;
        if self.kept.capacity() > KEEP {
            self.kept = Vec::new();
        }
        if self.start == self.data.len() {
            self.start = 0;
            if self.data.capacity() > KEEP {
                self.data = Vec::new();
            } else {
                self.data.clear();
            }
        }
    }

    /// Lends a message that is not in `data`.
    pub fn lend(&mut self, message: Vec<u8>) {
        debug_assert!(!self.lent);
        self.kept = message;
    }

    /// What was received has no meaning any more.
    pub fn forget_received(&mut self) {
        self.queue.clear();
        self.queued = 0;
        self.full_since = None;
        self.assembly = None;
    }

    pub fn forget_unread(&mut self) {
        self.start = self.data.len();
    }

    /// Makes room behind the data, if `need` bytes of a frame are missing.
    pub fn make_room(&mut self, need: usize) {
        let unread = self.data.len() - self.start;
        let want = if need <= READ { READ } else { need.min(unread.max(TRUST)) };
        // A short rest of the buffer will do for a short rest of a frame.
        let enough = need.clamp(READ / 4, READ);
        if self.data.capacity() - self.data.len() >= enough {
            return;
        }
        if self.lent {
            let mut fresh = Vec::with_capacity(unread + want);
            fresh.extend_from_slice(self.unread());
            self.kept = std::mem::replace(&mut self.data, fresh);
            self.start = 0;
            self.lent = false; // the receiver has `kept`
            return;
        }
        if self.start > 0 {
            self.data.drain(..self.start);
            self.start = 0;
        }
        // Grows by doubling where frames are long, so no byte is copied more than twice.
        self.data.reserve_exact(want);
    }

    /// Takes the next frame out of the data. Never called once `discard` is set.
    pub fn parse(&mut self) -> Parsed {
        let unread = self.data.len() - self.start;
        let head = match frame::parse(self.unread(), self.deflate) {
            Ok(Some(head)) => head,
            Ok(None) => return Parsed::More(1),
            Err(reason) => return Parsed::Violation(Cause::Protocol(reason)),
        };
        if let OpCode::Data(opcode) = head.opcode {
            if let Err(cause) = self.check(&head, opcode) {
                return Parsed::Violation(cause);
            }
        }
        let have = unread - head.size;
        if (have as u64) < head.length {
            if let Err(cause) = self.look_ahead(&head) {
                return Parsed::Violation(cause);
            }
            return Parsed::More(usize::try_from(head.length - have as u64).unwrap_or(usize::MAX));
        }
        let start = self.start + head.size;
        let end = start + head.length as usize;
        self.start = end;
        self.ahead = None;
        match head.opcode {
            OpCode::Control(opcode) => Parsed::Control { opcode, start, end },
            OpCode::Data(opcode) => {
                let kind = Kind { text: opcode == Data::Text, compressed: head.compressed };
                self.data_frame(opcode, kind, head.fin, start, end)
            }
        }
    }

    /// The sequence of frames, and their sizes: as soon as the header is there.
    fn check(&self, head: &Head, opcode: Data) -> Result<(), Cause> {
        match (opcode, &self.begun) {
            (Data::Continue, None) => return Err(Cause::Protocol(frame::unexpected_continuation())),
            (Data::Text | Data::Binary, Some(_)) => {
                return Err(Cause::Protocol(frame::expected_continuation(opcode)));
            }
            _ => {}
        }
        let current = self.begun.as_ref().map(|begun| begun.size).filter(|&size| size > 0);
        let limit = self.limits.message.saturating_sub(current.unwrap_or(0)).min(self.limits.fragment);
        let compressed = self.begun.as_ref().map_or(head.compressed, |begun| begun.kind.compressed);
        // The limits are those of what is inflated, and what cannot be compressed gets longer.
        let longest = if compressed { limit.saturating_add(limit / 8).saturating_add(1024) } else { limit };
        if head.length > longest {
            return Err(Cause::TooBig { size: head.length, limit, current });
        }
        Ok(())
    }

    /// Text that is wrong fails at once (RFC 6455 section 8.1), and not when a server pleases to send the rest of its
    /// frame. The frame is checked again when it is complete.
    fn look_ahead(&mut self, head: &Head) -> Result<(), Cause> {
        let (is_text, so_far) = match (&self.begun, head.opcode) {
            (Some(begun), OpCode::Data(Data::Continue)) => (begun.kind.is_text(), begun.utf8),
            (None, OpCode::Data(Data::Text)) => (!head.compressed, Utf8::default()),
            _ => return Ok(()),
        };
        if !is_text {
            return Ok(());
        }
        let ahead = self.ahead.get_or_insert(Ahead { utf8: so_far, checked: 0 });
        let payload = &self.data[self.start + head.size..];
        let valid = ahead.utf8.feed(&payload[ahead.checked..]);
        ahead.checked = payload.len();
        if valid {
            Ok(())
        } else {
            Err(not_text())
        }
    }

    fn data_frame(&mut self, opcode: Data, kind: Kind, fin: bool, start: usize, end: usize) -> Parsed {
        let first = opcode != Data::Continue;
        if first && fin {
            // Most messages. If text, whoever takes it checks it.
            return Parsed::Data(Found { kind, first, fin, start, end });
        }
        if first {
            self.begun = Some(Begun { kind, frames: 0, size: 0, utf8: Utf8::default() });
        }
        let Some(begun) = &mut self.begun else {
            return Parsed::Violation(Cause::Protocol(frame::unexpected_continuation()));
        };
        let kind = begun.kind;
        begun.frames += 1;
        if !fin && begun.frames >= self.limits.fragments {
            return Parsed::Violation(Cause::Fragments(self.limits.fragments));
        }
        if !kind.compressed {
            // Whoever inflates a message knows how long it is.
            begun.size += (end - start) as u64;
        }
        if kind.is_text() && !(begun.utf8.feed(&self.data[start..end]) && (!fin || begun.utf8.complete())) {
            return Parsed::Violation(not_text());
        }
        if fin {
            self.begun = None;
        }
        Parsed::Data(Found { kind, first, fin, start, end })
    }
}

fn not_text() -> Cause {
    Cause::Text("message is not UTF-8".to_string())
}

/// Pings by the clock. Whoever waits asks it when to wake.
pub struct Keepalive {
    pub interval: Option<Duration>,
    pub timeout: Option<Duration>,
    pub next: Option<Instant>,
    /// When the ping was sent of which no sign of life was seen since.
    pub unanswered: Option<Instant>,
}

#[derive(Debug, PartialEq)]
pub enum Due {
    /// Nothing before then; None: never.
    Wake(Option<Instant>),
    Ping,
    /// The peer must have shown a sign of life by now.
    Overdue,
}

impl Keepalive {
    pub fn new(interval: Option<Duration>, timeout: Option<Duration>) -> Self {
        Keepalive { interval, timeout, next: None, unanswered: None }
    }

    pub fn start(&mut self, now: Instant) {
        self.next = self.interval.map(|interval| now + interval);
    }

    /// Something arrived: any byte is a sign of life.
    pub fn heard(&mut self) {
        self.unanswered = None;
    }

    pub fn pinged(&mut self, now: Instant) {
        self.start(now);
        self.unanswered = self.timeout.map(|_| now);
    }

    pub fn due(&self, now: Instant) -> Due {
        if let (Some(sent), Some(timeout)) = (self.unanswered, self.timeout) {
            return if now >= sent + timeout { Due::Overdue } else { Due::Wake(Some(sent + timeout)) };
        }
        match self.next {
            Some(next) if now >= next => Due::Ping,
            next => Due::Wake(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Kind = Kind { text: true, compressed: false };

    fn reader(bytes: &[u8]) -> Reader {
        let limits = Limits { message: 10, fragment: 8, fragments: 4, queue: 2 };
        let mut reader = Reader::new(limits, Keepalive::new(None, None));
        reader.data.extend_from_slice(bytes);
        reader
    }

    fn violation(bytes: &[u8]) -> Cause {
        let mut reader = reader(bytes);
        loop {
            match reader.parse() {
                Parsed::Violation(cause) => return cause,
                Parsed::More(_) => panic!("no violation"),
                _ => {}
            }
        }
    }

    #[test]
    fn frames_are_found_where_they_are() {
        let mut reader = reader(b"\x82\x03abc\x89\x01p\x81\x02");
        let found = Found { kind: Kind::default(), first: true, fin: true, start: 2, end: 5 };
        assert_eq!(reader.parse(), Parsed::Data(found));
        assert_eq!(reader.parse(), Parsed::Control { opcode: Control::Ping, start: 7, end: 8 });
        assert_eq!(reader.parse(), Parsed::More(2));
        assert_eq!(reader.parse(), Parsed::More(2));
    }

    #[test]
    fn limits() {
        assert_eq!(violation(b"\x82\x09"), Cause::TooBig { size: 9, limit: 8, current: None });
        let twice = b"\x02\x06abcdef\x80\x05";
        assert_eq!(violation(twice), Cause::TooBig { size: 5, limit: 4, current: Some(6) });
        let four = [&b"\x02\x00"[..], &b"\x00\x00".repeat(3)].concat();
        assert_eq!(violation(&four), Cause::Fragments(4));
        let most = [0x82, 127, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
        assert_eq!(violation(&most), Cause::TooBig { size: i64::MAX as u64, limit: 8, current: None });
    }

    #[test]
    fn a_compressed_message_is_not_looked_into() {
        let mut reader = reader(b"\x41\x09\xff\xff345678\xff\x80\x02\xff\xff");
        reader.deflate = true;
        let kind = Kind { text: true, compressed: true };
        assert_eq!(reader.parse(), Parsed::Data(Found { kind, first: true, fin: false, start: 2, end: 11 }));
        assert_eq!(reader.parse(), Parsed::Data(Found { kind, first: false, fin: true, start: 13, end: 15 }));
        reader.data.extend_from_slice(b"\xC2\x7E\x04\x0A");
        let Parsed::Violation(cause) = reader.parse() else { panic!() };
        assert_eq!(cause, Cause::TooBig { size: 1034, limit: 8, current: None });
    }

    #[test]
    fn sequences() {
        assert!(matches!(violation(b"\x80\x00"), Cause::Protocol(_)));
        assert!(matches!(violation(b"\x01\x00\x82\x00"), Cause::Protocol(_)));
        assert!(matches!(violation(b"\x01\x01\xff"), Cause::Text(_)));
        assert!(matches!(violation(b"\x01\x01\xc3\x80\x00"), Cause::Text(_)));
        // A character may be split between frames, and a control frame may stand there.
        let mut reader = reader(b"\x01\x01\xc3\x89\x00\x80\x01\xbc");
        assert!(matches!(reader.parse(), Parsed::Data(Found { kind: TEXT, first: true, fin: false, .. })));
        assert!(matches!(reader.parse(), Parsed::Control { .. }));
        assert!(matches!(reader.parse(), Parsed::Data(Found { kind: TEXT, first: false, fin: true, .. })));
    }

    #[test]
    fn text_is_checked_before_its_frame_is_complete() {
        let text = |bytes: &[u8]| assert!(matches!(violation(bytes), Cause::Text(_)), "{bytes:x?}");
        text(b"\x81\x05a\xff");
        text(b"\x01\x01\xc3\x80\x03a");
        text(b"\x01\x01\xc3\x89\x00\x80\x03\xa9\xa9");
        for fine in [&b"\x81\x05a\xc3"[..], b"\x82\x05\xff", b"\x01\x01\xc3\x80\x03\xa9", b"\x89\x02\xff"] {
            let mut reader = reader(fine);
            while !matches!(reader.parse(), Parsed::More(_)) {}
        }
        // Byte by byte, nothing is looked at twice, and no frame is taken for the one before it.
        let mut reader = reader(b"");
        for _ in 0..2 {
            for &byte in b"\x81\x04\xc3\xa9\xc3" {
                reader.data.push(byte);
                assert!(matches!(reader.parse(), Parsed::More(_)));
            }
            reader.data.push(0xA9);
            assert!(matches!(reader.parse(), Parsed::Data(_)));
        }
        for &byte in b"\x81\x04\xc3" {
            reader.data.push(byte);
            assert!(matches!(reader.parse(), Parsed::More(_)));
        }
        reader.data.push(0xC3);
        assert!(matches!(reader.parse(), Parsed::Violation(Cause::Text(_))));
    }

    #[test]
    fn while_the_connection_closes_a_full_queue_waits_for_its_receiver_and_then_no_more() {
        let mut reader = reader(b"");
        let frame = |size| Queued { kind: TEXT, first: true, fin: true, data: vec![b'a'; size] };
        reader.put(frame(0));
        assert!(reader.has_room(Phase::Open));
        reader.put(frame(0));
        assert!(!reader.has_room(Phase::Open));
        assert!(reader.has_room(Phase::Closing), "there is some slack");
        reader.put(frame(SLACK));
        assert!(!reader.has_room(Phase::Closing));
        reader.full_since = Instant::now().checked_sub(PATIENCE);
        reader.take();
        assert!(!reader.has_room(Phase::Closing), "somebody receives");
        reader.full_since = Instant::now().checked_sub(PATIENCE);
        assert!(reader.has_room(Phase::Closing) && reader.dropping);
        reader.forget_received();
        assert!(reader.dropping, "for good");
    }

    #[test]
    fn a_lent_message_does_not_move() {
        let mut reader = reader(b"");
        reader.make_room(1);
        reader.data.extend_from_slice(b"\x82\x03abc\x82\x7e\x00\xff");
        let Parsed::Data(found) = reader.parse() else { panic!() };
        let lent = reader.data[found.start..found.end].as_ptr();
        reader.lent = true;
        let filler = reader.data.capacity() - reader.data.len();
        reader.data.resize(reader.data.len() + filler, 0);
        reader.make_room(1000);
        assert!(reader.data.capacity() - reader.data.len() >= 1000);
        assert_eq!(unsafe { std::slice::from_raw_parts(lent, 3) }, b"abc");
        assert_eq!(&reader.unread()[..4], b"\x82\x7e\x00\xff");
        reader.make_room(10_000_000);
        assert_eq!(unsafe { std::slice::from_raw_parts(lent, 3) }, b"abc");
    }

    #[test]
    fn an_announced_frame_reserves_little() {
        let mut reader = reader(b"\x82");
        reader.make_room(usize::MAX);
        assert!(reader.data.capacity() <= 2 * TRUST);
    }

    #[test]
    fn keepalive() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut keepalive = Keepalive::new(Some(20 * second), Some(5 * second));
        keepalive.start(start);
        assert_eq!(keepalive.due(start), Due::Wake(Some(start + 20 * second)));
        assert_eq!(keepalive.due(start + 20 * second), Due::Ping);
        keepalive.pinged(start + 20 * second);
        assert_eq!(keepalive.due(start + 21 * second), Due::Wake(Some(start + 25 * second)));
        assert_eq!(keepalive.due(start + 25 * second), Due::Overdue);
        keepalive.heard();
        assert_eq!(keepalive.due(start + 25 * second), Due::Wake(Some(start + 40 * second)));
        assert_eq!(Keepalive::new(None, None).due(start), Due::Wake(None));
    }
}
