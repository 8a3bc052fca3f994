//! The writing half: it masks frames into one buffer, and keeps there the bytes that the kernel did not take.

use crate::io::block::{Block, NoMemory, CACHE_LINE, LONG_FRAME};
use crate::io::errno::{would_block, Errno, CUT};
use crate::io::lock::locked;
use crate::parts::wire::Wire;
use crate::protocol::c_core::{append_masked, mask_key, CONTROL, FIN, PONG};
use crate::protocol::frame::{self, Short};
use crate::tls::channel;

/// The memory that is always kept.
const PIECE: usize = 256 * 1024;

/// Corked frames are sent as soon as they have so many bytes: more in one write gains nothing.
const GATHER: usize = 64 * 1024;

#[derive(Clone, Copy, PartialEq)]
enum Half {
    Open,
    /// The half closes when all is sent.
    Ending,
    Closed,
}

pub struct FrameWriter {
    /// Frames, without the bytes of them that were sent. With TLS, without the bytes that are encrypted: one piece at a
    /// time.
    out: Block,
    sent: usize,
    /// The payload of a PING that came while others waited to be sent. Only the latest wants an answer (RFC 6455
    /// section 5.5.3), so a peer cannot make us hoard.
    pong: Option<Short>,
    half: Half,
    /// A fragmented message is being sent.
    pub in_message: bool,
    /// The number of corks that hold data frames back.
    pub corks: u32,
    /// Counts since the connection was made: frames, their bytes, and the writes they left in.
    pub frames: u64,
    pub bytes: u64,
    pub writes: u64,
    pub gathered: u64,
    pub longest_backlog: usize,
}

/// The outcome of sending.
#[derive(Debug, PartialEq)]
pub enum Sent {
    All,
    /// The kernel has no room: the rest is kept.
    Blocked,
    /// The frame is not kept, because others wait before it.
    Full,
    /// Corked: the whole frame is kept.
    Held,
}

impl FrameWriter {
    pub fn new() -> Self {
        FrameWriter {
            out: Block::new(),
            sent: 0,
            pong: None,
            half: Half::Open,
            in_message: false,
            corks: 0,
            frames: 0,
            bytes: 0,
            writes: 0,
            gathered: 0,
            longest_backlog: 0,
        }
    }

    /// No bytes wait to be sent.
    pub fn is_idle(&self, wire: &Wire) -> bool {
        self.out.is_empty() && self.pong.is_none() && !wire.tls().is_some_and(|tls| locked(tls).wants_write())
    }

    /// Sends a frame, or keeps the bytes of it that the kernel did not take. Whole frames may wait before it.
    ///
    /// The error may be NO_MEMORY, or, if there is none for the rest of a frame that has begun, CUT.
    pub fn write_frame(&mut self, wire: &Wire, head: u8, payload: &[u8]) -> Result<Sent, Errno> {
        let key = mask_key().ok_or(libc::EIO)?;
        // A longer payload is masked and sent piece by piece. A multiple of four, so the mask key need not be turned.
        let longest = payload.len().min(LONG_FRAME);
        self.out.reserve(CACHE_LINE + longest)?;
        let (line, start) = frame::header(head, payload.len(), key);
        if self.out.is_empty() {
            // So the payload is masked to a cache line.
            self.out.extend(&line)?;
            self.sent = start;
        } else {
            self.out.extend(&line[start..])?;
        }
        self.frames += 1;
        self.bytes += (CACHE_LINE - start + payload.len()) as u64;
        if head & CONTROL != 0 {
            wire.log.note(head, payload, true); // before it leaves: another thread may receive the answer at once
        } else if self.corks > 0 {
            self.gathered += 1;
            if self.out.len() + payload.len() < self.sent + GATHER {
                append_masked(&mut self.out, payload, key).map_err(|NoMemory| CUT)?;
                return Ok(Sent::Held);
            }
        }
        let mut rest = payload;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(longest));
            append_masked(&mut self.out, piece, key).map_err(|NoMemory| CUT)?;
            rest = after;
            self.writes += 1;
            let sent = self.send(wire)?;
            if rest.is_empty() {
                return Ok(sent);
            }
            if sent == Sent::Blocked {
                // The whole rest, so that the caller's memory is free again and `out` ends with a whole frame.
                append_masked(&mut self.out, rest, key).map_err(|NoMemory| CUT)?;
                return Ok(sent);
            }
        }
    }

    /// Corked, and there is room for more.
    pub fn holds_back(&self) -> bool {
        self.corks > 0 && self.out.len() < self.sent + GATHER
    }

    /// Answers a PING, at once if possible.
    pub fn pong(&mut self, wire: &Wire, payload: &[u8]) -> Result<Sent, Errno> {
        if !self.is_idle(wire) {
            self.pong = Some(Short::new(payload));
            return self.flush(wire);
        }
        self.write_frame(wire, FIN | PONG, payload)
    }

    /// Gives up an answer that waits: CLOSE is next.
    pub fn forget_pong(&mut self) {
        self.pong = None;
    }

    /// Closes this direction of the connection once all is sent.
    pub fn end(&mut self) {
        if self.half == Half::Open {
            self.half = Half::Ending;
        }
    }

    /// Sends all bytes that wait.
    pub fn flush(&mut self, wire: &Wire) -> Result<Sent, Errno> {
        loop {
            if self.send(wire)? == Sent::Blocked {
                return Ok(Sent::Blocked);
            }
            if let Some(payload) = self.pong.take() {
                if let Err(errno) = self.write_frame(wire, FIN | PONG, payload.bytes()) {
                    self.pong = Some(payload);
                    return Err(errno);
                }
                continue;
            }
            if self.half != Half::Ending {
                return Ok(Sent::All);
            }
            self.half = Half::Closed;
            if let Some(tls) = wire.tls() {
                let mut tls = locked(tls);
                tls.write_end();
                // If this blocks, the connection is dropped without it. The CLOSE frames have said the same.
                tls.flush(&wire.socket)?;
            }
            wire.socket.shutdown(libc::SHUT_WR);
        }
    }

    /// Queues bytes that are no frame: the upgrade request.
    pub fn write_raw(&mut self, data: &[u8]) -> Result<(), NoMemory> {
        self.out.extend(data)
    }

    fn send(&mut self, wire: &Wire) -> Result<Sent, Errno> {
        if let Some(tls) = wire.tls() {
            let mut tls = locked(tls);
            loop {
                if tls.wants_write() && !tls.flush(&wire.socket)? {
                    return Ok(self.blocked());
                }
                if self.sent == self.out.len() {
                    self.clear();
                    return Ok(Sent::All);
                }
                let end = self.out.len().min(self.sent + channel::PIECE);
                tls.write(&self.out[self.sent..end]);
                self.sent = end;
            }
        }
        while self.sent < self.out.len() {
            match wire.socket.send(&self.out[self.sent..]) {
                Ok(size) => self.sent += size,
                Err(libc::EINTR) => {}
                Err(errno) if would_block(errno) => return Ok(self.blocked()),
                Err(errno) => return Err(errno),
            }
        }
        self.clear();
        Ok(Sent::All)
    }

    /// Gives back the memory of the sent part of a long frame.
    fn blocked(&mut self) -> Sent {
        self.longest_backlog = self.longest_backlog.max(self.out.len() - self.sent);
        if self.sent > PIECE && self.sent * 2 > self.out.len() {
            self.out.remove(self.sent);
            self.sent = 0;
        }
        Sent::Blocked
    }

    fn clear(&mut self) {
        self.sent = 0;
        self.out.clear(PIECE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Wire, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Wire::new(ours.into_raw_fd()), theirs)
    }

    #[test]
    fn a_frame_that_blocks_is_kept_whole() {
        let (wire, mut theirs) = pair();
        wire.log.start();
        let mut writer = FrameWriter::new();
        let payload = vec![7; 3_000_000];
        assert_eq!(writer.write_frame(&wire, FIN | 2, &payload), Ok(Sent::Blocked));
        assert!(!writer.is_idle(&wire));
        // Two pings: the answer to the later one goes out after the frame.
        assert_eq!(writer.pong(&wire, b"1"), Ok(Sent::Blocked));
        assert_eq!(writer.pong(&wire, b"2"), Ok(Sent::Blocked));
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).unwrap();
            got
        });
        while writer.flush(&wire) == Ok(Sent::Blocked) {
            wire.socket.poll(libc::POLLOUT, None).unwrap();
        }
        assert!(writer.is_idle(&wire));
        writer.end();
        assert_eq!(writer.flush(&wire), Ok(Sent::All));
        let got = reader.join().unwrap();
        assert_eq!(got.len(), 14 + payload.len() + 6 + 1);
        let key = &got[10..14];
        assert!(got[14..14 + payload.len()].iter().enumerate().all(|(i, byte)| byte ^ key[i % 4] == 7));
        let pong = &got[14 + payload.len()..];
        assert_eq!((pong[0], pong[1], pong[6] ^ pong[2]), (0x8A, 0x81, b'2'));
        assert!(wire.log.take().is_some_and(|frame| frame.sent && frame.payload.bytes() == b"2"));
        assert!(wire.log.take().is_none(), "the log has what left");
    }

    #[test]
    fn a_broken_connection_is_an_error() {
        let (wire, theirs) = pair();
        drop(theirs);
        let mut writer = FrameWriter::new();
        assert_eq!(writer.write_frame(&wire, FIN | 1, b"x"), Err(libc::EPIPE));
    }
}
