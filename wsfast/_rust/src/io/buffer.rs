//! The bytes that arrived, in one block of memory, and the message in it that is lent to the receiver.
//!
//! The receiver uses a lent message without any lock, while other threads read on into the same buffer. So the bytes
//! that are lent must neither move nor change until they are taken back. Nothing outside this file can reach the block but
//! to read it and to fill the free room behind it; and `grow` is the only function that may move it. If something in the
//! block is lent `grow` leaves the whole block to the receiver, and goes on with a fresh one.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::io::block::{Block, NoMemory};

/// The most bytes of one recv(2): more than a pipe or a loopback hands over at once, and the pages that it does not
/// touch cost nothing.
pub const READ: usize = 128 * 1024;

/// A frame announced but not arrived makes us reserve no more than this at a time.
const TRUST: usize = 1024 * 1024;

/// A message that was put together elsewhere is not kept if it is longer.
const KEEP: usize = 2 * TRUST;

#[derive(Debug)]
enum Loan {
    Nothing,
    /// A part of the block.
    Block(Range<usize>),
    /// A part of `left`.
    Left(Range<usize>),
    /// `message`.
    Message,
}

pub struct Buffer {
    block: Block,
    /// Up to here the block is read.
    start: usize,
    loan: Loan,
    /// The block that the loan is in, if that is not `block`.
    left: Block,
    /// The lent message, if it is in no block.
    message: Vec<u8>,
}

impl Buffer {
    pub fn new() -> Self {
        Buffer { block: Block::new(), start: 0, loan: Loan::Nothing, left: Block::new(), message: Vec::new() }
    }

    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.block[self.start..]
    }

    /// The next `size` bytes are read. Returns where they are: until the buffer grows.
    #[inline]
    pub fn advance(&mut self, size: usize) -> Range<usize> {
        let from = self.start;
        let to = from + size;
        assert!(from <= to && to <= self.block.len());
        self.start = to;
        from..to
    }

    /// All is read.
    pub fn forget_unread(&mut self) {
        self.start = self.block.len();
    }

    /// The bytes at a place that `advance` returned.
    pub fn at(&self, place: Range<usize>) -> &[u8] {
        &self.block[place]
    }

    // ---- lending

    /// Lends the bytes at a place that `advance` returned.
    #[inline]
    pub fn lend(&mut self, place: Range<usize>) {
        assert!(place.start <= place.end && place.end <= self.block.len());
        self.loan = Loan::Block(place);
    }

    /// Lends a message that is not in the block. The message that was lent before is taken back.
    pub fn lend_owned(&mut self, message: Vec<u8>) {
        self.loan = Loan::Message;
        self.message = message;
    }

    /// The lent bytes. They stay in place until something else is lent, or they are taken back.
    #[inline]
    pub fn lent(&self) -> &[u8] {
        match &self.loan {
            Loan::Nothing => &[],
            Loan::Block(place) => &self.block[place.clone()],
            Loan::Left(place) => &self.left[place.clone()],
            Loan::Message => &self.message,
        }
    }

    /// True if a part of the block is lent, and the unread bytes follow it.
    pub fn lends_last_read(&self) -> bool {
        matches!(&self.loan, Loan::Block(place) if place.end == self.start)
    }

    /// Where the lent message ends, in the block that it is in.
    pub fn lent_to(&self) -> usize {
        match &self.loan {
            Loan::Block(place) | Loan::Left(place) => place.end,
            _ => 0,
        }
    }

    /// Bytes of the block that the lent message is in.
    pub fn beside_lent(&self, place: Range<usize>) -> &[u8] {
        match self.loan {
            Loan::Block(_) => &self.block[place],
            Loan::Left(_) => &self.left[place],
            _ => &[],
        }
    }

    /// Lends these bytes instead, of the same block.
    pub fn lend_beside(&mut self, place: Range<usize>) {
        if let Loan::Block(lent) | Loan::Left(lent) = &mut self.loan {
            *lent = place;
        }
    }

    /// Takes the lent message back: the receiver has copied it.
    #[inline]
    pub fn take_back(&mut self) {
        match std::mem::replace(&mut self.loan, Loan::Nothing) {
            Loan::Message if self.message.capacity() > KEEP => self.message = Vec::new(),
            Loan::Left(_) => self.left = Block::new(),
            _ => {}
        }
        if self.start == self.block.len() {
            self.start = 0;
            self.block.clear(READ);
        }
    }

    // ---- filling

    /// The free room behind the data; see `filled`.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        self.block.spare()
    }

    /// # Safety
    /// The first `size` bytes of `spare` are written.
    pub unsafe fn filled(&mut self, size: usize) {
        self.block.filled(size);
    }

    #[cfg(test)]
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        self.reserve(bytes.len())?;
        self.block.extend(bytes) // there is room, so nothing moves
    }

    /// Makes room behind the data, if `need` bytes of a frame are missing.
    pub fn make_room(&mut self, need: usize) -> Result<(), NoMemory> {
        // A short rest of the buffer will do for a short rest of a frame.
        if self.room() >= need.clamp(READ / 4, READ) {
            return Ok(());
        }
        // Grows by doubling where frames are long, so no byte is copied more than twice.
        self.grow(if need <= READ { READ } else { need.min(self.unread().len().max(TRUST)) })
    }

    /// Makes room for `size` bytes.
    pub fn reserve(&mut self, size: usize) -> Result<(), NoMemory> {
        if self.room() >= size {
            return Ok(());
        }
        self.grow(size.max(READ))
    }

    fn room(&self) -> usize {
        self.block.capacity() - self.block.len()
    }

    /// Makes room for `size` bytes: the only place where the block moves.
    fn grow(&mut self, size: usize) -> Result<(), NoMemory> {
        if let Loan::Block(place) = &self.loan {
            let place = place.clone();
            let mut fresh = Block::new();
            fresh.reserve_exact(self.unread().len().saturating_add(size))?;
            fresh.extend(self.unread())?;
            self.left = std::mem::replace(&mut self.block, fresh);
            self.start = 0;
            self.loan = Loan::Left(place);
            return Ok(());
        }
        if self.start > 0 {
            self.block.remove(self.start);
            self.start = 0;
        }
        self.block.reserve_exact(size)
    }

    /// Puts `bytes` before the unread ones. No message may be lent.
    pub fn prepend(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut fresh = Block::new();
        fresh.reserve_exact((bytes.len() + self.unread().len()).max(READ))?;
        fresh.extend(bytes)?;
        fresh.extend(self.unread())?;
        assert!(matches!(self.loan, Loan::Nothing));
        self.block = fresh;
        self.start = 0;
        Ok(())
    }

    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.block.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::block::{CACHE_LINE, LONG_FRAME};

    #[test]
    fn what_is_lent_does_not_move() {
        let mut buffer = Buffer::new();
        buffer.append(b"abcdefgh").unwrap();
        let place = buffer.advance(3);
        buffer.lend(place);
        let lent = buffer.lent() as *const [u8];
        // Whatever makes the buffer grow: more than it holds, or more than there will ever be.
        for size in [1, READ, 3 * READ, 10 * TRUST] {
            buffer.append(&vec![b'x'; size]).unwrap();
            buffer.make_room(size).unwrap();
            buffer.reserve(size).unwrap();
            // SAFETY: the test asks whether they are still there.
            assert_eq!(unsafe { &*lent }, b"abc");
            assert_eq!(buffer.lent() as *const [u8], lent);
            assert_eq!(&buffer.unread()[..6], b"defghx");
        }
        buffer.take_back();
        assert_eq!(buffer.lent(), b"");
    }

    #[test]
    fn an_owned_message_is_lent_while_the_block_moves() {
        let mut buffer = Buffer::new();
        buffer.append(b"abc").unwrap();
        buffer.lend_owned(b"owned".to_vec());
        let lent = buffer.lent().as_ptr();
        buffer.make_room(10 * TRUST).unwrap();
        assert_eq!((buffer.lent(), buffer.lent().as_ptr()), (&b"owned"[..], lent));
        assert_eq!(buffer.unread(), b"abc");
    }

    #[test]
    fn an_announced_frame_reserves_little() {
        let mut buffer = Buffer::new();
        buffer.append(b"\x82").unwrap();
        buffer.make_room(usize::MAX).unwrap();
        assert!(buffer.capacity() <= 2 * TRUST);
    }

    #[test]
    fn a_very_long_message_leaves_no_long_block_behind() {
        let mut buffer = Buffer::new();
        buffer.append(&vec![0; 2 * LONG_FRAME]).unwrap();
        let place = buffer.advance(2 * LONG_FRAME);
        buffer.lend(place);
        buffer.make_room(1).unwrap();
        buffer.take_back();
        assert!(buffer.capacity() <= LONG_FRAME && buffer.left.capacity() == 0);
    }

    #[test]
    fn long_messages_are_read_at_once_and_into_the_same_memory() {
        let mut buffer = Buffer::new();
        let mut place = std::ptr::null();
        for round in 0..5 {
            buffer.make_room(LONG_FRAME).unwrap();
            if round > 1 {
                assert!(buffer.spare().len() >= LONG_FRAME);
                assert_eq!(buffer.spare().as_ptr().cast(), place);
            }
            buffer.append(&vec![0; LONG_FRAME]).unwrap();
            let taken = buffer.advance(LONG_FRAME);
            buffer.lend(taken);
            place = buffer.lent().as_ptr();
            assert_eq!(place as usize % CACHE_LINE, 0);
            buffer.take_back();
        }
    }

    #[test]
    fn what_cannot_be_had_changes_nothing() {
        let mut buffer = Buffer::new();
        buffer.append(b"abc").unwrap();
        let place = buffer.advance(1);
        assert_eq!(buffer.reserve(isize::MAX as usize), Err(NoMemory));
        assert_eq!(buffer.unread(), b"bc");
        buffer.prepend(b"z").unwrap();
        assert_eq!(buffer.unread(), b"zbc");
        let place = (buffer.advance(1), place).0;
        buffer.lend(place);
        assert_eq!(buffer.reserve(isize::MAX as usize), Err(NoMemory));
        assert_eq!((buffer.lent(), buffer.unread()), (&b"z"[..], &b"bc"[..]));
    }
}
