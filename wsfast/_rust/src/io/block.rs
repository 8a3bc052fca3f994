//! Bytes in one piece of memory that begins at a cache line, where the kernel and the masks are fastest
//! (bench/machine/offsets.c). A `Vec` begins where its allocator likes: for long frames, 16 bytes behind a page.
//!
//! No allocation here aborts the process: a peer decides how large they are, and `NoMemory` is an answer.

use std::alloc::{alloc, dealloc, Layout};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::{copy, copy_nonoverlapping, NonNull};
use std::slice;

use crate::io::errno::{Errno, NO_MEMORY};

pub const CACHE_LINE: usize = 64;

/// A frame up to this size is read at once, if it is there, and written at once: memory for it is kept while such frames
/// come.
pub const LONG_FRAME: usize = 4 * 1024 * 1024;

/// When there was no long frame so many times, the memory is given back.
const SHORT_AFTER: u32 = 1024;

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

pub struct Block {
    data: NonNull<u8>,
    capacity: usize,
    /// The first of them are written.
    len: usize,
    /// The number of times that it was emptied without having held a long frame.
    short: u32,
}

// SAFETY: it owns its memory, and shares it by references alone.
unsafe impl Send for Block {}
// SAFETY: the same.
unsafe impl Sync for Block {}

impl Block {
    pub const fn new() -> Self {
        Block { data: NonNull::dangling(), capacity: 0, len: 0, short: 0 }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn layout(capacity: usize) -> Result<Layout, NoMemory> {
        Layout::from_size_align(capacity, CACHE_LINE).map_err(|_| NoMemory)
    }

    /// Makes room for `more` bytes. If there was none, the bytes move, and the block doubles.
    #[inline]
    pub fn reserve(&mut self, more: usize) -> Result<(), NoMemory> {
        if self.capacity - self.len >= more {
            return Ok(());
        }
        self.grow(more.max(self.capacity))
    }

    /// Makes room for `more` bytes, and no more.
    pub fn reserve_exact(&mut self, more: usize) -> Result<(), NoMemory> {
        if self.capacity - self.len >= more {
            return Ok(());
        }
        self.grow(more)
    }

    #[cold]
    fn grow(&mut self, more: usize) -> Result<(), NoMemory> {
        let capacity = self.len.checked_add(more).ok_or(NoMemory)?;
        let layout = Self::layout(capacity)?;
        // SAFETY: its size is not 0, for it is more than before.
        let data = NonNull::new(unsafe { alloc(layout) }).ok_or(NoMemory)?;
        // SAFETY: both hold so many bytes, and the new one is nobody else's.
        unsafe { copy_nonoverlapping(self.data.as_ptr(), data.as_ptr(), self.len) };
        let len = self.len;
        *self = Block { data, capacity, len, short: 0 };
        Ok(())
    }

    /// Appends `bytes`.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        self.reserve(bytes.len())?;
        // SAFETY: there is room, and `bytes` cannot lie in it.
        unsafe { copy_nonoverlapping(bytes.as_ptr(), self.data.as_ptr().add(self.len), bytes.len()) };
        self.len += bytes.len();
        Ok(())
    }

    /// The free room behind the bytes; see `filled`.
    #[inline]
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the memory from `len` on is ours, and nothing is asked of its content.
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr().add(self.len).cast(), self.capacity - self.len) }
    }

    /// # Safety
    /// The first `size` bytes of `spare` are written.
    #[inline]
    pub unsafe fn filled(&mut self, size: usize) {
        debug_assert!(size <= self.capacity - self.len);
        self.len += size;
    }

    /// Forgets the first `size` bytes: the others move to the front.
    pub fn remove(&mut self, size: usize) {
        assert!(size <= self.len);
        self.len -= size;
        // SAFETY: source and target are within the bytes there were.
        unsafe { copy(self.data.as_ptr().add(size), self.data.as_ptr(), self.len) };
    }

    /// Forgets all bytes. Keeps at most `usual` bytes of memory, or as many as recent long frames needed.
    #[inline]
    pub fn clear(&mut self, usual: usize) {
        let len = self.len;
        self.len = 0;
        if self.capacity > usual {
            self.shrink(len, usual);
        }
    }

    fn shrink(&mut self, len: usize, usual: usize) {
        self.short = if len > usual { 0 } else { self.short + 1 };
        if self.short > SHORT_AFTER || self.capacity > LONG_FRAME + usual {
            *self = Block::new();
        }
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are written.
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let (true, Ok(layout)) = (self.capacity > 0, Self::layout(self.capacity)) {
            // SAFETY: that is how it was allocated.
            unsafe { dealloc(self.data.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_begins_at_a_cache_line_and_keeps_its_bytes() {
        let mut block = Block::new();
        assert!(block.is_empty());
        let mut expected = Vec::new();
        for size in [1, 3, 100, 4096, 70_000] {
            let bytes = vec![size as u8; size];
            block.extend(&bytes).unwrap();
            expected.extend_from_slice(&bytes);
            assert_eq!(block.as_ptr() as usize % CACHE_LINE, 0);
            assert_eq!(*block, *expected);
        }
        block.remove(5);
        assert_eq!(*block, expected[5..]);
        block.reserve(usize::MAX).unwrap_err();
        block.reserve(isize::MAX as usize).unwrap_err();
        assert_eq!(*block, expected[5..]);
        block.remove(block.len());
        assert!(block.is_empty());
    }

    #[test]
    fn memory_of_long_frames_is_kept_while_they_come() {
        let mut block = Block::new();
        for size in [1000, LONG_FRAME, 10] {
            block.reserve(size).unwrap();
            // SAFETY: the bytes are not read.
            unsafe { block.filled(size) };
            block.clear(1000);
        }
        assert!(block.capacity() >= LONG_FRAME);
        for round in 0..SHORT_AFTER {
            assert!(block.capacity() >= LONG_FRAME, "{round}");
            block.extend(b"short").unwrap();
            block.clear(1000);
        }
        assert_eq!(block.capacity(), 0);
        block.reserve(LONG_FRAME + 2000).unwrap();
        block.clear(1000);
        assert_eq!(block.capacity(), 0, "longer than what is kept");
    }
}
