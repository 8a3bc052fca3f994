//! Receiving: by `receive`, which sleeps in recv(2), and into the queue by whoever else reads.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tungstenite::protocol::frame::coding::Control;

use crate::connection::{after, earliest, Connection, Stop};
use crate::core::Utf8;
use crate::ending::{Cause, Phase};
use crate::locked;
use crate::reader::{Assembly, Found, Kind, Parsed, Queued, Reader};
use crate::socket::{would_block, Errno};

/// SO_RCVTIMEO counts in ticks of the kernel, up to 10 ms long; what is shorter than this waits in poll(2).
const SHORT: Duration = Duration::from_millis(50);
const TICK: Duration = Duration::from_millis(10);

/// A thread that spins looks for signals this often.
const SPIN: Duration = Duration::from_millis(5);

/// Reads without sleeping in one go: a flood must not keep anybody from its deadline.
const READS: usize = 64;

/// What `receive` found.
pub struct Received {
    pub kind: Kind,
    pub fin: bool,
    pub data: *const u8,
    pub size: usize,
}

impl Received {
    fn new(kind: Kind, fin: bool, data: &[u8]) -> Self {
        Received { kind, fin, data: data.as_ptr(), size: data.len() }
    }
}

impl Connection {
    /// Waits for a message, or for a frame of one if `stream` or if it is compressed. See wst_recv().
    pub fn receive(&self, timeout: Option<f64>, resume: bool, stream: bool, validate: bool) -> Result<Received, Stop> {
        let user = self.socket.enter();
        let mut reader = locked(&self.reader);
        let reader = &mut *reader;
        reader.take_back();
        if !resume {
            reader.deadline = timeout.and_then(after);
            reader.spin_until = None;
        }
        if stream {
            // A call that timed out may have put the beginning together.
            if let Some(Assembly { kind: kind @ Kind { compressed: false, .. }, data, .. }) = reader.assembly.take() {
                reader.lend(data);
                return Ok(Received::new(kind, false, &reader.kept));
            }
        }
        let mut filled = false;
        loop {
            let queued = reader.take();
            let in_buffer = queued.is_none();
            let (kind, first, fin, data) = if let Some(Queued { kind, first, fin, data }) = queued {
                reader.lend(data);
                (kind, first, fin, &reader.kept[..])
            } else {
                match self.parse(reader) {
                    Ok(Found { kind, first, fin, start, end }) => (kind, first, fin, &reader.data[start..end]),
                    Err(need) => {
                        if self.pongs.load(Ordering::Acquire) {
                            return Err(Stop::Pong);
                        }
                        if user.is_none() || self.phase() == Phase::Closed {
                            return Err(Stop::Closed);
                        }
                        if filled {
                            // A signal may have come while this thread did not sleep, and would not wake it from the
                            // next sleep.
                            return Err(Stop::Interrupted);
                        }
                        self.fill(reader, need)?;
                        filled = true;
                        continue;
                    }
                }
            };
            if first && fin {
                if validate && kind.is_text() && !Utf8::is_text(data) {
                    self.refuse(reader, Cause::Text("message is not UTF-8".to_string()));
                    continue;
                }
            } else if !stream {
                let assembly = reader.assembly.get_or_insert_with(|| Assembly::new(kind));
                if !kind.compressed {
                    assembly.data.extend_from_slice(data);
                }
                if !kind.compressed && !fin {
                    continue;
                }
                if fin {
                    if let Some(Assembly { data, .. }) = reader.assembly.take().filter(|_| !kind.compressed) {
                        reader.lend(data);
                        return Ok(Received::new(kind, true, &reader.kept));
                    }
                }
            }
            let received = Received::new(kind, fin, data);
            reader.lent = in_buffer;
            return Ok(received);
        }
    }

    /// The next data frame in the buffer; control frames are dealt with. The error says how many bytes are missing.
    pub(crate) fn parse(&self, reader: &mut Reader) -> Result<Found, usize> {
        loop {
            if reader.discard || self.phase() == Phase::Draining {
                reader.forget_unread();
                return Err(1);
            }
            match reader.parse() {
                Parsed::Data(_) if reader.dropping => {}
                Parsed::Data(found) => return Ok(found),
                Parsed::More(need) => return Err(need),
                Parsed::Violation(cause) => self.violate(reader, cause),
                Parsed::Control { opcode, start, end } => {
                    let payload = reader.data[start..end].to_vec();
                    match opcode {
                        Control::Ping => self.answer(&payload),
                        Control::Pong => self.answered(&payload),
                        _ => self.close_received(reader, &payload),
                    }
                }
            }
        }
    }

    /// Sleeps until something arrives; once, and then it is the caller's turn.
    pub(crate) fn fill(&self, reader: &mut Reader, need: usize) -> Result<(), Stop> {
        reader.make_room(need);
        let had = reader.data.len();
        let now = Instant::now();
        let wake = earliest(self.timers(reader, now)?, reader.deadline);
        if reader.data.len() > had {
            return Ok(()); // the timers had to look for a sign of life
        }
        let left = wake.map(|wake| wake.saturating_duration_since(now));
        let mut flags = libc::MSG_DONTWAIT;
        let over = reader.deadline.is_some_and(|deadline| deadline <= now);
        if over {
            // One look at what is there.
        } else if self.residue.load(Ordering::Acquire) {
            match self.socket.poll(libc::POLLIN | libc::POLLOUT, left) {
                Err(libc::EINTR) => return Err(Stop::Interrupted),
                Ok(events) if events & libc::POLLOUT != 0 => self.flush_quietly(),
                _ => {}
            }
        } else if !self.busy_poll.is_zero() && self.may_spin(reader, now) {
            return self.spin(reader, now, left);
        } else if left.is_some_and(|left| left < SHORT) {
            if let Err(libc::EINTR) = self.socket.poll(libc::POLLIN, left) {
                return Err(Stop::Interrupted);
            }
        } else {
            self.arm(reader, left);
            flags = 0;
        }
        match self.read(reader, flags) {
            Ok(0) => {
                self.end_of_stream(reader);
                Err(Stop::Closed)
            }
            Ok(_) => Ok(()),
            Err(errno) if would_block(errno) => {
                reader.idle = flags == 0;
                Err(if over { Stop::Timeout } else { Stop::Interrupted })
            }
            Err(libc::EINTR) => Err(Stop::Interrupted),
            Err(errno) => Err(self.lost(errno)),
        }
    }

    /// Sets how long recv(2) sleeps, if that is too long: to half of what is left, so that the next calls, which have less
    /// left, need not set it again. Once it has slept for so long in vain, to all that is left.
    fn arm(&self, reader: &mut Reader, left: Option<Duration>) {
        let idle = std::mem::take(&mut reader.idle);
        let timeout = match left {
            None if !idle => return,
            None => Duration::ZERO,
            Some(left) if idle => left - TICK,
            Some(left) if reader.armed.is_zero() || reader.armed > left => (left / 2).max(SHORT - TICK),
            Some(_) => return,
        };
        reader.armed = timeout;
        self.socket.set_receive_timeout(timeout);
    }

    pub(crate) fn may_spin(&self, reader: &mut Reader, now: Instant) -> bool {
        now < *reader.spin_until.get_or_insert(now + self.busy_poll)
    }

    /// Asks the socket again and again, without sleeping.
    pub(crate) fn spin(&self, reader: &mut Reader, start: Instant, left: Option<Duration>) -> Result<(), Stop> {
        let spin_until = reader.spin_until.unwrap_or(start);
        let until = earliest(left.map(|left| start + left), Some(spin_until.min(start + SPIN))).unwrap_or(start);
        loop {
            match self.read(reader, libc::MSG_DONTWAIT) {
                Ok(0) => {
                    self.end_of_stream(reader);
                    return Err(Stop::Closed);
                }
                Ok(_) => return Ok(()),
                Err(errno) if would_block(errno) || errno == libc::EINTR => {}
                Err(errno) => return Err(self.lost(errno)),
            }
            if Instant::now() >= until {
                return Err(Stop::Interrupted); // the next call sleeps, if the time for spinning is over
            }
        }
    }

    /// Reads once. 0 is the end of the stream; a TLS alert is that too.
    pub(crate) fn read(&self, reader: &mut Reader, flags: i32) -> Result<usize, Errno> {
        let Some(session) = self.session() else {
            if reader.data.capacity() == reader.data.len() {
                reader.make_room(1);
            }
            let size = self.socket.recv(&mut reader.data, flags)?;
            if size > 0 {
                reader.keepalive.heard();
            }
            return Ok(size);
        };
        if reader.ended {
            return Ok(0);
        }
        reader.wire.clear();
        reader.wire.reserve(128 * 1024);
        let size = self.socket.recv(&mut reader.wire, flags)?;
        if size == 0 {
            return Ok(0);
        }
        reader.keepalive.heard();
        if reader.lent {
            // The plaintext may need more room than there is, and then the buffer moves.
            reader.make_room(reader.wire.len());
        }
        let before = reader.data.len();
        let (ended, answer) = {
            let mut session = locked(session);
            (session.read(&reader.wire, &mut reader.data), session.wants_write())
        };
        if answer && self.phase() != Phase::Connecting {
            self.flush_quietly();
        }
        match ended {
            Ok(ended) => reader.ended = ended,
            Err(cause) => {
                // What came before in the same read is to be parsed still.
                let told = reader.data.len() > before && self.phase() != Phase::Connecting;
                let _ = locked(session).flush(&self.socket);
                self.finalize(cause);
                return Ok(if told { size } else { 0 });
            }
        }
        Ok(size)
    }

    /// Reads what is there, and queues the messages in it, as long as there is room: false if there is none. Never
    /// sleeps.
    pub(crate) fn drain(&self, reader: &mut Reader) -> bool {
        for _ in 0..READS {
            let need = loop {
                if !reader.has_room(self.phase()) {
                    return false;
                }
                match self.parse(reader) {
                    Ok(Found { kind, first, fin, start, end }) => {
                        let data = reader.data[start..end].to_vec();
                        reader.put(Queued { kind, first, fin, data });
                    }
                    Err(need) => break need,
                }
            };
            if self.phase() == Phase::Closed {
                return true;
            }
            reader.make_room(need);
            match self.read(reader, libc::MSG_DONTWAIT) {
                Ok(0) => {
                    self.end_of_stream(reader);
                    return true;
                }
                Ok(_) => {}
                Err(libc::EINTR) => {}
                Err(errno) if would_block(errno) => return true,
                Err(errno) => {
                    self.lost(errno);
                    return true;
                }
            }
        }
        true
    }

    /// Reads what is there into the queue, and sleeps once until there is more. See wst_pump().
    pub fn pump(&self, timeout: Option<f64>) -> Result<(), Stop> {
        let deadline = timeout.and_then(after);
        let _user = self.socket.enter().ok_or(Stop::Closed)?;
        let mut reader = self.try_reader().ok_or(Stop::Busy)?;
        let room = self.drain(&mut reader);
        if self.pongs.load(Ordering::Acquire) {
            return Err(Stop::Pong);
        }
        let now = Instant::now();
        let timers = self.timers(&mut reader, now)?;
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Err(Stop::Timeout);
        }
        drop(reader);
        Err(self.wait(room, false, earliest(timers, deadline), now))
    }
}
