//! The bytes that arrived, in one block of memory, and the message in it that is lent.
//!
//! The receiver looks at a lent message without any lock, while other threads read on into the same buffer. So the bytes
//! that are lent must neither move nor change until they are taken back. Nothing outside this file can reach the block but
//! to read it and to fill what is free behind it; and `grow` is the only function that may move it. If something in the
//! block is lent `grow` leaves the whole block to the receiver, and goes on with a fresh one.
//!
//! No allocation here aborts the process: a peer decides how large they are, and `NoMemory` is an answer.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::socket::{Errno, NO_MEMORY};

/// What one recv(2) may bring: more than a pipe or a loopback hands over at once, and the pages that it does not
/// touch cost nothing.
pub const READ: usize = 128 * 1024;

/// A frame announced but not arrived makes us reserve no more than this at a time.
const TRUST: usize = 1024 * 1024;

/// A block that grew over this for one long message is not kept.
const KEEP: usize = 2 * TRUST;

/// There is no memory. Nothing has changed: the same may be tried again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoMemory;

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no memory")
    }
}

impl std::error::Error for NoMemory {}

impl From<NoMemory> for Errno {
    fn from(_: NoMemory) -> Errno {
        NO_MEMORY
    }
}

#[derive(Debug)]
enum Loan {
    Nothing,
    /// A part of the block.
    Block(Range<usize>),
    /// A part of `held`.
    Held(Range<usize>),
}

pub struct Buffer {
    block: Vec<u8>,
    /// Up to here the block is read.
    start: usize,
    loan: Loan,
    /// What is lent, or the block that it is in, if that is not `block`.
    held: Vec<u8>,
}

impl Buffer {
    pub fn new() -> Self {
        Buffer { block: Vec::new(), start: 0, loan: Loan::Nothing, held: Vec::new() }
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

    /// What `advance` told.
    pub fn at(&self, place: Range<usize>) -> &[u8] {
        &self.block[place]
    }

    // ---- lending

    /// Lends what `advance` told.
    #[inline]
    pub fn lend(&mut self, place: Range<usize>) {
        assert!(place.start <= place.end && place.end <= self.block.len());
        self.loan = Loan::Block(place);
    }

    /// Lends a message that is not in the block. What was lent before is taken back.
    pub fn lend_owned(&mut self, message: Vec<u8>) {
        self.loan = Loan::Held(0..message.len());
        self.held = message;
    }

    /// It stays where it is until something else is lent, or it is taken back.
    #[inline]
    pub fn lent(&self) -> &[u8] {
        match &self.loan {
            Loan::Nothing => &[],
            Loan::Block(place) => &self.block[place.clone()],
            Loan::Held(place) => &self.held[place.clone()],
        }
    }

    /// The receiver has copied what it was lent.
    #[inline]
    pub fn take_back(&mut self) {
        self.loan = Loan::Nothing;
        if self.held.capacity() > KEEP {
            self.held = Vec::new();
        }
        if self.start == self.block.len() {
            self.start = 0;
            if self.block.capacity() > KEEP {
                self.block = Vec::new();
            } else {
                self.block.clear();
            }
        }
    }

    // ---- filling

    /// What may be written to, behind the data; see `filled`.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        self.block.spare_capacity_mut()
    }

    /// # Safety
    /// The first `size` bytes of `spare` are written.
    pub unsafe fn filled(&mut self, size: usize) {
        debug_assert!(size <= self.block.capacity() - self.block.len());
        self.block.set_len(self.block.len() + size);
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        self.reserve(bytes.len())?;
        self.block.extend_from_slice(bytes); // there is room, so nothing moves
        Ok(())
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
            let mut fresh = Vec::new();
            fresh.try_reserve_exact(self.unread().len().saturating_add(size)).map_err(|_| NoMemory)?;
            fresh.extend_from_slice(self.unread());
            self.held = std::mem::replace(&mut self.block, fresh);
            self.start = 0;
            self.loan = Loan::Held(place);
            return Ok(());
        }
        if self.start > 0 {
            self.block.drain(..self.start);
            self.start = 0;
        }
        self.block.try_reserve_exact(size).map_err(|_| NoMemory)
    }

    /// Puts `bytes` before what is unread. Nothing must be lent.
    pub fn prepend(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut fresh = Vec::new();
        fresh.try_reserve_exact((bytes.len() + self.unread().len()).max(READ)).map_err(|_| NoMemory)?;
        fresh.extend_from_slice(bytes);
        fresh.extend_from_slice(self.unread());
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
            // SAFETY: that is what is asked.
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
    fn a_long_message_leaves_no_long_block_behind() {
        let mut buffer = Buffer::new();
        buffer.append(&vec![0; 2 * KEEP]).unwrap();
        let place = buffer.advance(2 * KEEP);
        buffer.lend(place);
        buffer.make_room(1).unwrap();
        buffer.take_back();
        assert!(buffer.capacity() <= KEEP && buffer.held.capacity() == 0);
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
