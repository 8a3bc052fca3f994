//! TLS for a connection that reads and writes its socket here: the blocking client's.

use rustls::CommonState;

use crate::io::buffer::Buffer;
use crate::io::errno::{would_block, Errno, CUT, TLS_FAILED};
use crate::io::socket::Socket;
use crate::tls::session::{overhead, Failure, Room, Session, Step};
use crate::tls::stream::Stream;

/// The plaintext that is encrypted and sent at once, at most.
pub const PIECE: usize = 128 * 1024;

/// The memory that there always is to send the records that TLS itself makes.
const LEAST: usize = 1024;

pub struct Channel {
    stream: Stream,
    /// Records on their way to the kernel are those between `sent` and `end`.
    records: Vec<u8>,
    sent: usize,
    end: usize,
    /// Why nothing can be sent any more.
    errno: Option<Errno>,
}

impl Channel {
    pub fn new(session: impl Session + 'static) -> Self {
        Channel { stream: Stream::new(session), records: vec![0; LEAST], sent: 0, end: 0, errno: None }
    }

    /// Makes this channel, whose handshake is done, carry that of `inner`.
    pub fn carry(&mut self, inner: Channel) {
        self.stream.carry(inner.stream);
    }

    pub fn state(&self) -> Option<&CommonState> {
        self.stream.session.state()
    }

    pub fn is_handshaking(&self) -> bool {
        self.stream.session.is_handshaking()
    }

    /// Decrypts `wire`, and overwrites it. True at the end: the peer said that nothing follows.
    pub fn read(&mut self, mut wire: &mut [u8], plain: &mut Buffer) -> Result<bool, Failure> {
        loop {
            plain.reserve(1).map_err(|_| Failure::no_memory())?;
            let mut room = Room::new(plain.spare());
            let step = self.stream.read(wire, &mut room);
            let size = room.filled();
            // SAFETY: so many bytes are written.
            unsafe { plain.filled(size) };
            match step {
                Step::Full => wire = &mut [],
                Step::Wants => return Ok(false),
                Step::Ended | Step::Cut => return Ok(true),
                Step::Failed => return Err(self.failure()),
            }
        }
    }

    pub fn failure(&self) -> Failure {
        self.stream.failure().cloned().unwrap_or_else(|| Failure::new("TLS failed without a reason"))
    }

    /// Encrypts at most a `PIECE`. If that fails, `flush` returns the error.
    pub fn write(&mut self, plain: &[u8]) {
        if self.errno.is_some() {
            return;
        }
        let needed = self.end + self.stream.to_send() + plain.len() + 2 * overhead(plain.len());
        if !self.make_room(needed) {
            self.errno = Some(CUT);
            return;
        }
        self.end += self.stream.take(&mut self.records[self.end..]);
        match self.stream.write(plain, &mut self.records[self.end..]) {
            Some(size) => self.end += size,
            None if self.failure() == Failure::no_memory() => self.errno = Some(CUT),
            None => self.errno = Some(TLS_FAILED),
        }
    }

    /// False if there is no memory.
    fn make_room(&mut self, needed: usize) -> bool {
        let more = needed.saturating_sub(self.records.len());
        if more > 0 {
            if self.records.try_reserve(more).is_err() {
                return false;
            }
            self.records.resize(self.records.capacity(), 0);
        }
        true
    }

    pub fn write_end(&mut self) {
        if self.errno.is_none() {
            self.stream.write_end();
        }
    }

    /// True if `flush` would do anything.
    pub fn wants_write(&self) -> bool {
        self.sent < self.end || self.errno.is_some() || self.stream.to_send() > 0
    }

    /// Sends the records that the kernel takes. True if those were all.
    pub fn flush(&mut self, socket: &Socket) -> Result<bool, Errno> {
        loop {
            while self.sent < self.end {
                match socket.send(&self.records[self.sent..self.end]) {
                    Ok(size) => self.sent += size,
                    Err(libc::EINTR) => {}
                    Err(errno) if would_block(errno) => return Ok(false),
                    Err(errno) => return Err(errno),
                }
            }
            (self.sent, self.end) = (0, self.stream.take(&mut self.records));
            if self.end == 0 {
                return self.errno.map_or(Ok(true), Err);
            }
        }
    }
}
