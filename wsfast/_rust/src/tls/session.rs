//! TLS with one peer, without input or output: takes received records, and makes the records to send.
//!
//! The caller may hold locks, because no Python runs here.

use std::fmt;
use std::mem::MaybeUninit;

use rustls::CommonState;

/// The plaintext of a record, at most (RFC 8446 section 5.1).
pub const RECORD: usize = 16 * 1024;

/// The room that `Session::write` needs beyond the plaintext: a header, a nonce and a tag for each record, and a KeyUpdate.
pub fn overhead(size: usize) -> usize {
    (size / RECORD + 1) * 32 + 64
}

/// Why TLS has failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The text, in OpenSSL's words.
    pub message: String,
    /// OpenSSL's code, if it refused a certificate.
    pub certificate: Option<i32>,
}

impl Failure {
    pub fn no_memory() -> Self {
        Failure::new("out of memory")
    }

    pub fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into(), certificate: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// More must be received.
    Wants,
    /// There is more plaintext than room.
    Full,
    /// The peer said that nothing follows.
    Ended,
    /// See `Session::failure`.
    Failed,
    /// The proxy said that nothing follows, and the server did not.
    Cut,
}

pub trait Session: Send {
    /// The parameters that rustls has negotiated; None for OpenSSL, which Python asks itself.
    fn state(&self) -> Option<&CommonState>;

    fn is_handshaking(&self) -> bool;

    /// Takes all of `wire`, overwrites it, and puts the plaintext into `plain`.
    fn read(&mut self, wire: &mut [u8], plain: &mut Room<'_>) -> Step;

    /// Encrypts into `out`, behind the bytes that `take` gives. None if that failed: `take` then gives an alert that
    /// nothing follows.
    fn write(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize>;

    /// Tells the peer that nothing follows.
    fn write_end(&mut self);

    /// The number of bytes to send before the next `write`.
    fn to_send(&self) -> usize;

    /// Moves these bytes, as many as fit, into `out`.
    fn take(&mut self, out: &mut [u8]) -> usize;

    fn failure(&self) -> Option<&Failure>;
}

/// Memory of the caller, for plaintext.
pub struct Room<'p> {
    memory: &'p mut [MaybeUninit<u8>],
    filled: usize,
}

impl<'p> Room<'p> {
    pub fn new(memory: &'p mut [MaybeUninit<u8>]) -> Self {
        Room { memory, filled: 0 }
    }

    /// Appends as much of `plain` as fits, and returns how much that is.
    pub fn append(&mut self, plain: &[u8]) -> usize {
        let free = self.free();
        let size = plain.len().min(free.len());
        // SAFETY: both have so many bytes, and the room is nobody else's.
        unsafe { std::ptr::copy_nonoverlapping(plain.as_ptr(), free.as_mut_ptr().cast(), size) };
        self.filled += size;
        size
    }

    pub fn free(&mut self) -> &mut [MaybeUninit<u8>] {
        &mut self.memory[self.filled..]
    }

    /// # Safety
    /// The first `size` bytes of `free` are written.
    pub unsafe fn advance(&mut self, size: usize) {
        self.filled += size;
    }

    /// The number of written bytes.
    pub fn filled(&self) -> usize {
        self.filled
    }
}

/// Plaintext that had no room.
#[derive(Default)]
pub struct Leftover {
    plain: Vec<u8>,
    from: usize,
}

impl Leftover {
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty()
    }

    /// Puts `plain` into `room`, unless earlier plaintext is left over. The rest is left over, too.
    pub fn give(&mut self, plain: &[u8], room: &mut Room<'_>) {
        let taken = if self.is_empty() { room.append(plain) } else { 0 };
        self.plain.extend_from_slice(&plain[taken..]);
    }

    /// Puts the leftover into `room`.
    pub fn give_rest(&mut self, room: &mut Room<'_>) {
        if !self.is_empty() {
            self.from += room.append(&self.plain[self.from..]);
            if self.from == self.plain.len() {
                *self = Leftover::default();
            }
        }
    }

    /// Puts `plain` before the leftover.
    pub fn put_back(&mut self, plain: &[u8]) {
        self.plain.splice(..self.from, plain.iter().copied());
        self.from = 0;
    }
}
