//! The reading half: bytes that arrived, the frames in them, and the queue of frames that were read while no thread
//! received.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use crate::io::block::NoMemory;
use crate::io::buffer::Buffer;
use crate::parts::keepalive::Keepalive;
use crate::parts::lifecycle::{Cause, Phase};
use crate::parts::sleep::{Sleep, SHARE};
use crate::parts::stamps::Stamp;
use crate::protocol::c_core::{
    announced, is_plain_message, whole, Message, Next, Violation, CLOSING_PATIENCE, CLOSING_SLACK, RSV1,
};
use crate::protocol::frame::Short;

/// With so many bytes the queue is full, however few frames it has, unless a message may be longer. These are 16 messages
/// of 1 MiB, the limits by default.
const QUEUE: usize = 16 * 1024 * 1024;

/// Bytes that a queued frame counts against it, besides its payload.
const OVERHEAD: usize = 64;
/// The time for which a full queue waits for its receiver while the connection closes.
const PATIENCE: Duration = Duration::from_millis(CLOSING_PATIENCE);

pub struct Limits {
    pub message: u64,
    pub fragment: u64,
    /// Frames; the largest number means that there is no limit, not of bytes either.
    pub queue: usize,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kind {
    pub text: bool,
    /// The caller inflates it (wsfast/sync/_messaging.pyx), and checks that it is text.
    pub compressed: bool,
}

impl Kind {
    /// True for text that is not compressed.
    pub fn is_text(self) -> bool {
        self.text && !self.compressed
    }
}

/// A data frame, but for its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Frame {
    pub kind: Kind,
    pub first: bool,
    pub fin: bool,
    pub stamp: Stamp,
}

impl Frame {
    pub fn is_whole(self) -> bool {
        self.first && self.fin
    }
}

/// A data frame in the buffer.
#[derive(Debug, PartialEq)]
pub struct Found {
    pub frame: Frame,
    pub place: Range<usize>,
}

/// A data frame that was read while no thread received.
struct Queued {
    frame: Frame,
    data: Vec<u8>,
}

#[derive(Debug, PartialEq)]
pub enum Parsed {
    Data(Found),
    Control(Control, Short),
    /// Bytes that are missing, at least.
    More(usize),
    Violation(Cause),
    /// There is no memory for the copy of the next frame.
    NoMemory,
}

/// The frames that `receive` has taken so far of a fragmented message that is not compressed.
pub struct Assembly {
    pub kind: Kind,
    pub data: Vec<u8>,
}

impl Assembly {
    pub fn new(kind: Kind) -> Self {
        Assembly { kind, data: Vec::new() }
    }

    pub fn add(&mut self, data: &[u8]) -> Result<(), NoMemory> {
        self.data.try_reserve(data.len()).map_err(|_| NoMemory)?;
        self.data.extend_from_slice(data);
        Ok(())
    }
}

pub struct ReceiveHalf {
    /// The bytes that arrived, and the part of them that is lent to the receiver.
    pub buffer: Buffer,
    /// The lent frame.
    pub lent: Option<Frame>,
    /// The next frame is one that was lent already: see `take_again`.
    pub again: bool,
    /// It is `lent`, and those of `rest` come after it.
    lent_is_next: bool,
    /// Where the messages end that were lent together with that frame, in its block.
    pub together: usize,
    /// Those of them that the caller did not get, and that come next: their bytes, up to `together`.
    rest: Range<usize>,
    /// The rules, and the state of the message that is arriving.
    pub message: Message,
    /// Frames; see `Limits`.
    most: usize,
    queue: VecDeque<Queued>,
    queued: usize,
    full_since: Option<Instant>,
    /// No thread receives while the connection closes, so data frames are dropped.
    pub dropping: bool,
    pub assembly: Option<Assembly>,
    pub sleep: Sleep,
    /// Frames since the last share of work was done.
    share: usize,
    /// Ciphertext that is not decrypted yet, where there is TLS.
    pub wire: Vec<u8>,
    /// TLS said that nothing follows.
    pub ended: bool,
    pub keepalive: Keepalive,
    /// The stamp of the last read.
    pub stamp: Stamp,
}

impl ReceiveHalf {
    pub fn new(limits: &Limits, keepalive: Keepalive) -> Self {
        ReceiveHalf {
            buffer: Buffer::new(),
            lent: None,
            again: false,
            lent_is_next: false,
            together: 0,
            rest: 0..0,
            message: Message::new(limits.message, limits.fragment),
            most: limits.queue,
            queue: VecDeque::new(),
            queued: 0,
            full_since: None,
            dropping: false,
            assembly: None,
            sleep: Sleep::default(),
            share: 0,
            wire: Vec::new(),
            ended: false,
            keepalive,
            stamp: Stamp::default(),
        }
    }

    fn enqueue(&mut self, frame: Frame, data: Vec<u8>) {
        self.queued += data.len() + OVERHEAD;
        self.queue.push_back(Queued { frame, data });
    }

    /// The frame that comes next, lent; None if there is none that was read before.
    pub fn take(&mut self) -> Option<Frame> {
        let Queued { frame, data } = self.queue.pop_front()?;
        self.queued -= data.len() + OVERHEAD;
        self.full_since = None;
        self.buffer.lend_owned(data);
        Some(frame)
    }

    /// Makes the lent frame the first one of the queue.
    pub fn put_back(&mut self) -> Result<(), NoMemory> {
        if let Some(frame) = self.lent {
            let lent = self.buffer.lent();
            let mut data = Vec::new();
            data.try_reserve_exact(lent.len()).and_then(|()| self.queue.try_reserve(1)).map_err(|_| NoMemory)?;
            data.extend_from_slice(lent);
            self.queued += data.len() + OVERHEAD;
            self.queue.push_front(Queued { frame, data });
            self.lent = None;
        }
        Ok(())
    }

    /// Copies the next frame in the buffer, if it is a data frame, into the queue.
    pub fn parse_into_queue(&mut self) -> Parsed {
        let mut data = Vec::new();
        if self.queue.try_reserve(1).is_err() {
            return Parsed::NoMemory;
        }
        let parsed = self.parse_and_copy(Some(&mut data));
        if let Parsed::Data(Found { frame, .. }) = parsed {
            if !self.dropping {
                self.enqueue(frame, data);
            }
        }
        parsed
    }

    /// Counts a frame that completes no message. True at the end of a share of work.
    pub fn ends_share(&mut self) -> bool {
        self.share += 1;
        let ends = self.share >= SHARE;
        if ends {
            self.share = 0;
        }
        ends
    }

    /// True if more may be read.
    pub fn has_room(&mut self, phase: Phase) -> bool {
        let unlimited = self.most == usize::MAX;
        let few = self.queue.len() < self.most
            && (unlimited || (self.queued as u64) < self.message.max_message().max(QUEUE as u64));
        if few || self.message.is_over() || self.dropping || phase > Phase::Closing {
            return true;
        }
        if phase == Phase::Open {
            return false;
        }
        if self.queued < CLOSING_SLACK {
            return true;
        }
        self.dropping = self.full_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE;
        if self.dropping {
            self.message.forget();
        }
        self.dropping
    }

    /// Drops everything that was received.
    pub fn forget_received(&mut self) {
        self.queue.clear();
        self.queued = 0;
        self.full_since = None;
        self.assembly = None;
        self.again = false;
        self.rest = 0..0;
    }

    /// A message is lent, and others may be together with it.
    pub fn begin_run(&mut self) {
        if self.rest.is_empty() {
            self.together = self.buffer.lent_to();
        }
    }

    /// Of the messages that were lent together the caller got so many: the others come next.
    pub fn give_again_from(&mut self, got: usize) {
        self.rest = self.buffer.lent_to()..self.together;
        for _ in 1..got {
            self.next_of_rest();
        }
        self.lent_is_next = got == 0;
        self.again = self.lent_is_next || !self.rest.is_empty();
    }

    /// The next frame, if `again`, or if the caller could not copy the lent one.
    #[cold]
    pub fn take_again(&mut self, lent_is_next: bool) -> Option<Frame> {
        let of_rest = !(lent_is_next || self.lent_is_next || self.rest.is_empty());
        let frame = if of_rest { Some(self.next_of_rest()) } else { self.lent };
        self.lent_is_next = false;
        self.again = !self.rest.is_empty();
        frame
    }

    /// The next one of the messages that were lent together, lent.
    fn next_of_rest(&mut self) -> Frame {
        let (text, place) = whole(self.buffer.beside_lent(self.rest.clone()));
        let place = self.rest.start + place.start..self.rest.start + place.end;
        self.rest.start = place.end;
        self.buffer.lend_beside(place);
        let behind =
            if self.rest.is_empty() { self.buffer.unread() } else { self.buffer.beside_lent(self.rest.clone()) };
        let stamp = self.lent.map_or(self.stamp, |frame| frame.stamp).of_frame(behind);
        Frame { kind: Kind { text, compressed: false }, first: true, fin: true, stamp }
    }

    /// The next frame, lent together with those before, if it is a whole message and nothing comes before it.
    #[inline]
    pub fn parse_message(&mut self) -> Option<Parsed> {
        if !is_plain_message(self.buffer.unread()) || self.dropping {
            return None;
        }
        Some(self.parse())
    }

    /// May the messages behind the lent one be lent together with it?
    pub fn lends_first_of_many(&self) -> bool {
        self.buffer.lends_last_read()
            && self.queue.is_empty()
            && self.rest.is_empty()
            && self.lent.is_some_and(|frame| frame.is_whole() && !frame.kind.compressed)
    }

    /// May more have arrived than is lent?
    pub fn has_more(&self) -> bool {
        !(self.queue.is_empty() && self.rest.is_empty() && self.buffer.unread().is_empty())
    }

    /// Takes the next frame out of the buffer.
    pub fn parse(&mut self) -> Parsed {
        self.parse_and_copy(None)
    }

    /// `parse`, which copies a data frame before it takes it, so that no frame is lost if there is no memory.
    #[inline]
    fn parse_and_copy(&mut self, copy: Option<&mut Vec<u8>>) -> Parsed {
        let unread = self.buffer.unread();
        if unread.is_empty() {
            return Parsed::More(1);
        }
        let next = if copy.is_some() { self.message.next(unread) } else { self.message.receive(unread) };
        let head = match next {
            Ok(Next::Frame(head)) => head,
            Ok(Next::Part(head)) => {
                let missing = head.payload_len - (unread.len() - usize::from(head.header_len)) as u64;
                return Parsed::More(usize::try_from(missing).unwrap_or(usize::MAX));
            }
            Ok(Next::Incomplete | Next::Over) => return Parsed::More(1),
            Err(violation) => return Parsed::Violation(self.cause(violation)),
        };
        let start = usize::from(head.header_len);
        let payload = &unread[start..][..head.payload_len as usize];
        let opcode = OpCode::from(head.opcode); // which panics at no legal one
        if let Some(copy) = copy {
            if matches!(opcode, OpCode::Data(_)) && !self.dropping {
                if copy.try_reserve_exact(payload.len()).is_err() {
                    return Parsed::NoMemory;
                }
                copy.extend_from_slice(payload);
            }
            if let Err(violation) = self.message.take(&head, payload) {
                return Parsed::Violation(self.cause(violation));
            }
        }
        match opcode {
            OpCode::Control(opcode) => {
                let payload = Short::new(payload);
                self.buffer.advance(start + payload.bytes().len());
                Parsed::Control(opcode, payload)
            }
            OpCode::Data(opcode) => {
                let (first, fin) = (opcode != Data::Continue, head.fin != 0);
                let (text, compressed) =
                    if first { (opcode == Data::Text, head.rsv & RSV1 != 0) } else { self.message.kind() };
                let place = self.buffer.advance(start + payload.len());
                let stamp = self.stamp.of_frame(self.buffer.unread());
                let frame = Frame { kind: Kind { text, compressed }, first, fin, stamp };
                Parsed::Data(Found { frame, place: place.start + start..place.end })
            }
        }
    }

    #[cold]
    fn cause(&self, violation: Violation) -> Cause {
        if violation != Violation::TOO_BIG {
            return Cause::Protocol(violation);
        }
        // The verdict may be known before the length is.
        let size = announced(self.buffer.unread());
        Cause::TooBig { size, limit: self.message.left(), current: self.message.size() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Kind = Kind { text: true, compressed: false };

    fn reader(bytes: &[u8]) -> ReceiveHalf {
        let limits = Limits { message: 10, fragment: 8, queue: 2 };
        let mut reader = ReceiveHalf::new(&limits, Keepalive::new(None, None));
        reader.buffer.append(bytes).unwrap();
        reader
    }

    fn found(kind: Kind, first: bool, fin: bool, place: Range<usize>) -> Parsed {
        Parsed::Data(Found { frame: Frame { kind, first, fin, ..Frame::default() }, place })
    }

    fn is_frame(parsed: &Parsed, first: bool, fin: bool) -> bool {
        matches!(parsed, Parsed::Data(Found { frame, .. }) if *frame == Frame { kind: TEXT, first, fin, ..Frame::default() })
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
        assert_eq!(reader.parse(), found(Kind::default(), true, true, 2..5));
        assert_eq!(reader.parse(), Parsed::Control(Control::Ping, Short::new(b"p")));
        assert_eq!(reader.parse(), Parsed::More(2));
        assert_eq!(reader.parse(), Parsed::More(2));
    }

    #[test]
    fn limits() {
        assert_eq!(violation(b"\x82\x09"), Cause::TooBig { size: Some(9), limit: 8, current: None });
        let twice = b"\x02\x06abcdef\x80\x05";
        assert_eq!(violation(twice), Cause::TooBig { size: Some(5), limit: 4, current: Some(6) });
        let early = [0x82, 127, 0, 1];
        assert_eq!(violation(&early), Cause::TooBig { size: None, limit: 8, current: None });
        let most = [0x82, 127, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
        assert_eq!(violation(&most), Cause::TooBig { size: Some(i64::MAX as u64), limit: 8, current: None });
    }

    #[test]
    fn a_compressed_message_is_not_looked_into() {
        let mut reader = reader(b"\x41\x09\xff\xff345678\xff\x80\x02\xff\xff");
        reader.message.inflate();
        let kind = Kind { text: true, compressed: true };
        assert_eq!(reader.parse(), found(kind, true, false, 2..11));
        assert_eq!(reader.parse(), found(kind, false, true, 13..15));
        reader.buffer.append(b"\xC2\x7E\x04\x0A").unwrap();
        let Parsed::Violation(cause) = reader.parse() else { panic!() };
        assert_eq!(cause, Cause::TooBig { size: Some(1034), limit: 8, current: None });
    }

    #[test]
    fn sequences() {
        for bytes in [&b"\x80\x00"[..], b"\x01\x00\x82\x00"] {
            let Cause::Protocol(violation) = violation(bytes) else { panic!() };
            assert_eq!(violation.close_code(), 1002);
        }
        assert!(matches!(violation(b"\x01\x01\xff"), Cause::Protocol(Violation::TEXT)));
        assert!(matches!(violation(b"\x01\x01\xc3\x80\x00"), Cause::Protocol(Violation::TEXT)));
        // A character may be split between frames, and a control frame may stand there.
        let mut reader = reader(b"\x01\x01\xc3\x89\x00\x80\x01\xbc");
        assert!(is_frame(&reader.parse(), true, false));
        assert!(matches!(reader.parse(), Parsed::Control { .. }));
        assert!(is_frame(&reader.parse(), false, true));
    }

    #[test]
    fn text_is_checked_before_its_frame_is_complete() {
        let text = |bytes: &[u8]| assert!(matches!(violation(bytes), Cause::Protocol(Violation::TEXT)), "{bytes:x?}");
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
                reader.buffer.append(&[byte]).unwrap();
                assert!(matches!(reader.parse(), Parsed::More(_)));
            }
            reader.buffer.append(&[0xA9]).unwrap();
            assert!(matches!(reader.parse(), Parsed::Data(_)));
        }
        for &byte in b"\x81\x04\xc3" {
            reader.buffer.append(&[byte]).unwrap();
            assert!(matches!(reader.parse(), Parsed::More(_)));
        }
        reader.buffer.append(&[0xC3]).unwrap();
        assert!(matches!(reader.parse(), Parsed::Violation(Cause::Protocol(Violation::TEXT))));
    }

    #[test]
    fn while_the_connection_closes_a_full_queue_waits_for_its_receiver_and_then_no_more() {
        let mut reader = reader(b"");
        let frame = Frame { kind: TEXT, first: true, fin: true, ..Frame::default() };
        reader.enqueue(frame, Vec::new());
        assert!(reader.has_room(Phase::Open));
        reader.enqueue(frame, Vec::new());
        assert!(!reader.has_room(Phase::Open));
        assert!(reader.has_room(Phase::Closing), "there is some slack");
        reader.enqueue(frame, vec![b'a'; CLOSING_SLACK]);
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
    fn a_queue_is_full_by_frames_and_by_bytes() {
        let mut reader = reader(b"");
        reader.most = 1000;
        reader.enqueue(Frame::default(), vec![0; QUEUE - OVERHEAD - 1]);
        assert!(reader.has_room(Phase::Open));
        reader.enqueue(Frame::default(), Vec::new());
        assert!(!reader.has_room(Phase::Open));
        reader.message = Message::new(u64::MAX, 8);
        assert!(reader.has_room(Phase::Open), "a program without a limit may have to queue long messages");
        reader.message = Message::new(10, 8);
        reader.most = usize::MAX;
        assert!(reader.has_room(Phase::Open), "there is no limit");
    }

    #[test]
    fn fragments_without_a_payload_hold_nothing() {
        let mut reader = reader(&[&b"\x02\x00"[..], &b"\x00\x00".repeat(50_000), b"\x80\x01x"].concat());
        let mut assembly = Assembly::new(Kind::default());
        loop {
            let Parsed::Data(Found { frame, place }) = reader.parse() else { panic!() };
            assembly.add(reader.buffer.at(place)).unwrap();
            if frame.fin {
                break;
            }
            assert_eq!(assembly.data.capacity(), 0);
        }
        assert_eq!(assembly.data, b"x");
    }

    #[test]
    fn what_is_put_back_comes_next() {
        let mut reader = reader(b"\x82\x01a\x82\x01b");
        let Parsed::Data(Found { frame, place }) = reader.parse() else { panic!() };
        reader.buffer.lend(place);
        reader.lent = Some(frame);
        assert!(matches!(reader.parse_into_queue(), Parsed::Data(_)));
        reader.put_back().unwrap();
        for expected in [b"a", b"b"] {
            assert_eq!(reader.take(), Some(frame));
            assert_eq!(reader.buffer.lent(), expected);
        }
        assert_eq!(reader.queued, 0);
    }
}
