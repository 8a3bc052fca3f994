//! Receiving: `receive` sleeps in recv(2); other threads read without sleeping, into the queue.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tungstenite::protocol::frame::coding::{Control, OpCode};

use crate::connection::Connection;
use crate::io::buffer::READ;
use crate::io::errno::{would_block, Errno, NO_MEMORY};
use crate::io::lock::locked;
use crate::io::time::{after, earliest};
use crate::parts::lifecycle::{Cause, Phase};
use crate::parts::receive_half::{Assembly, Found, Frame, Kind, Parsed, ReceiveHalf};
use crate::parts::sleep::SHORT;
use crate::parts::stamps::{Stamp, Stamping};
use crate::parts::stop::Stop;
use crate::protocol::c_core::{is_text, Violation, FIN};

/// Shares of work in one go, see `sleep`: a flood must not keep a thread from its deadline.
const SHARES: usize = 64;

/// A TLS record at its longest (RFC 8446 section 5.2), a part of which may wait to be completed.
const RECORD: usize = 5 + 16384 + 256;

/// Options of `receive`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Goes on with the same deadline.
    pub resume: bool,
    /// A frame at a time.
    pub stream: bool,
    /// Checks that text is UTF-8.
    pub validate: bool,
    /// The caller could not copy the lent frame: `receive` gives it again.
    pub again: bool,
    /// Only what has arrived: it neither reads nor sleeps.
    pub present: bool,
}

/// A message or a frame, lent to the caller.
pub struct Received {
    pub kind: Kind,
    pub fin: bool,
    pub stamp: Stamp,
    pub data: *const u8,
    pub size: usize,
}

/// The result of one attempt to read the socket.
pub(crate) enum Attempt {
    Bytes,
    Nothing,
    Signal,
}

/// Why there is no frame.
pub(crate) enum Missing {
    /// At least so many bytes are missing.
    Bytes(usize),
    Memory,
    /// A share of work was done, and more bytes may be there.
    Time,
}

/// The reason why `drain` stopped.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Drained {
    /// The socket has no more bytes now.
    Dry,
    /// There is no room for more, or no memory.
    Full,
    /// This thread has worked long enough; the socket may have more.
    Busy,
}

/// Notes that `frame` is lent, and returns where it lies.
fn lend(reader: &mut ReceiveHalf, frame: Frame) -> Received {
    reader.lent = Some(frame);
    let data = reader.buffer.lent();
    Received { kind: frame.kind, fin: frame.fin, stamp: frame.stamp, data: data.as_ptr(), size: data.len() }
}

/// Lends the frames that a call put together before it timed out, or had no memory. `again` is a frame that comes after them.
fn lend_beginning(reader: &mut ReceiveHalf, again: Option<Frame>) -> Result<Received, Stop> {
    if again.is_some() {
        reader.again = true;
        reader.put_back()?;
        reader.again = false;
    }
    let Assembly { kind, data } = reader.assembly.take().unwrap_or_else(|| Assembly::new(Kind::default()));
    reader.buffer.lend_owned(data);
    Ok(lend(reader, Frame { kind, first: true, ..Frame::default() }))
}

impl Connection {
    /// Waits for a message, or for a frame of one if `stream` or if it is compressed. See recv().
    ///
    /// A frame is lent from when it is taken until the next one is. So if there is no memory to put a message together, or
    /// the caller has none for a copy, the frame is still there, and comes next.
    pub fn receive(&self, timeout: Option<Duration>, wanted: Wanted) -> Result<Received, Stop> {
        let user = self.wire.enter();
        let mut reader = locked(&self.reader);
        let reader = &mut *reader;
        if !wanted.resume {
            reader.sleep.begin(timeout);
        }
        let mut frame = if reader.again || wanted.again { reader.take_again(wanted.again) } else { None };
        if wanted.stream && reader.assembly.is_some() {
            return lend_beginning(reader, frame);
        }
        if wanted.resume && reader.ends_share() {
            return Err(self.after_share(reader)); // it may be a frame of a compressed message each time
        }
        let mut filled = wanted.present;
        loop {
            let next = match frame.take() {
                Some(frame) => frame,
                None => self.wait_for_frame(reader, user.is_some(), &mut filled)?,
            };
            if next.is_whole() {
                if wanted.validate && next.kind.is_text() && !is_text(reader.buffer.lent()) {
                    self.refuse(reader, Cause::Protocol(Violation::TEXT));
                    continue;
                }
            } else if !wanted.stream && !next.kind.compressed {
                match self.assemble(reader, next)? {
                    Some(message) => return Ok(message),
                    None => continue,
                }
            }
            return Ok(lend(reader, next));
        }
    }

    /// A message is lent: lends, by `more`, the whole messages behind it that have arrived: up to `room` of them, or until
    /// all together have `size` bytes. True if others may have arrived.
    pub fn receive_behind(&self, validate: bool, room: usize, size: usize, more: impl FnMut(Received)) -> bool {
        let mut reader = locked(&self.reader);
        reader.begin_run();
        let left = size.saturating_sub(reader.buffer.lent().len());
        let ended = reader.lends_first_of_many() && self.lend_more(&mut reader, validate, room, left, more);
        !ended && reader.has_more()
    }

    /// Of the messages that are lent together the caller got so many: the others come next.
    pub fn give_again_from(&self, got: usize) {
        locked(&self.reader).give_again_from(got);
    }

    /// Lends the messages behind the lent one. True if it has come to a frame that is incomplete.
    fn lend_more(
        &self,
        reader: &mut ReceiveHalf,
        validate: bool,
        room: usize,
        mut left: usize,
        mut more: impl FnMut(Received),
    ) -> bool {
        let mut frames = 0;
        let ended = loop {
            if frames == room || left == 0 {
                break false;
            }
            let Found { frame, place } = match reader.parse_message() {
                None => break false,
                Some(Parsed::Data(found)) => found,
                Some(Parsed::More(_)) => break true,
                Some(Parsed::Violation(cause)) => {
                    self.violate(reader, cause);
                    break true;
                }
                Some(_) => break false, // never
            };
            frames += 1;
            let end = place.end;
            let data = reader.buffer.at(place);
            if validate && frame.kind.is_text() && !is_text(data) {
                self.refuse(reader, Cause::Protocol(Violation::TEXT));
                break true;
            }
            left = left.saturating_sub(data.len());
            more(Received { kind: frame.kind, fin: true, stamp: frame.stamp, data: data.as_ptr(), size: data.len() });
            reader.together = end;
        };
        self.counts.frames.add(frames);
        ended
    }

    /// Takes the next frame, and sleeps for it at most once in a call of `receive`: that is when it sets `filled`.
    #[inline]
    fn wait_for_frame(&self, reader: &mut ReceiveHalf, is_open: bool, filled: &mut bool) -> Result<Frame, Stop> {
        loop {
            reader.lent = None;
            reader.buffer.take_back();
            let missing = match self.next_frame(reader) {
                Ok(frame) => return Ok(frame),
                Err(missing) => missing,
            };
            if self.has_news() {
                return Err(Stop::Pong);
            }
            let need = match missing {
                Missing::Time => return Err(self.after_share(reader)),
                Missing::Bytes(need) => need,
                Missing::Memory => 1, // never: nothing was copied
            };
            if self.has_failed(reader) {
                self.drain(reader);
                continue;
            }
            if !is_open || self.phase() == Phase::Closed {
                return Err(Stop::Closed);
            }
            if *filled {
                // A signal may have come while this thread did not sleep, and would not wake it from the next sleep.
                return Err(Stop::Interrupted);
            }
            self.fill(reader, need)?;
            *filled = true;
        }
    }

    /// Appends the lent frame to its message, and lends the message if it is complete.
    fn assemble(&self, reader: &mut ReceiveHalf, frame: Frame) -> Result<Option<Received>, Stop> {
        let assembly = reader.assembly.get_or_insert_with(|| Assembly::new(frame.kind));
        if assembly.add(reader.buffer.lent()).is_err() {
            (reader.lent, reader.again) = (Some(frame), true);
            return Err(Stop::NoMemory);
        }
        if !frame.fin {
            return if reader.ends_share() { Err(self.after_share(reader)) } else { Ok(None) };
        }
        Ok(reader.assembly.take().map(|Assembly { kind, data }| {
            reader.buffer.lend_owned(data);
            lend(reader, Frame { kind, first: true, ..frame })
        }))
    }

    /// `receive` has worked for a while, and has no message yet.
    #[cold]
    fn after_share(&self, reader: &mut ReceiveHalf) -> Stop {
        if reader.sleep.is_over(Instant::now()) && !reader.sleep.may_go_on() {
            Stop::Timeout
        } else {
            Stop::Interrupted
        }
    }

    /// Takes the next data frame, and lends it.
    fn next_frame(&self, reader: &mut ReceiveHalf) -> Result<Frame, Missing> {
        if let Some(frame) = reader.take() {
            return Ok(frame);
        }
        let Found { frame, place } = self.parse(reader, ReceiveHalf::parse)?;
        reader.buffer.lend(place);
        Ok(frame)
    }

    /// The next data frame in the buffer, by `parse`; control frames are dealt with.
    pub(crate) fn parse(
        &self,
        reader: &mut ReceiveHalf,
        parse: fn(&mut ReceiveHalf) -> Parsed,
    ) -> Result<Found, Missing> {
        loop {
            if reader.message.is_over() {
                reader.buffer.forget_unread();
                return Err(Missing::Bytes(1));
            }
            match parse(reader) {
                Parsed::Data(found) => {
                    self.counts.frames.add(1);
                    if !reader.dropping {
                        return Ok(found);
                    }
                    if reader.ends_share() {
                        return Err(Missing::Time);
                    }
                }
                Parsed::More(need) => return Err(Missing::Bytes(need)),
                Parsed::NoMemory => return Err(Missing::Memory),
                Parsed::Violation(cause) => self.violate(reader, cause),
                Parsed::Control(opcode, payload) => {
                    self.counts.frames.add(1);
                    self.wire.log.note(FIN | u8::from(OpCode::Control(opcode)), payload.bytes(), false);
                    match opcode {
                        Control::Ping => self.sender.answer(&self.wire, &self.lifecycle, payload.bytes()),
                        Control::Pong => self.pings.answer(payload.bytes()),
                        _ => self.close_received(payload.bytes()),
                    }
                    if reader.ends_share() {
                        return Err(Missing::Time);
                    }
                }
            }
        }
    }

    /// Sleeps once until bytes arrive. Then the caller checks for signals.
    fn fill(&self, reader: &mut ReceiveHalf, need: usize) -> Result<(), Stop> {
        reader.buffer.make_room(need)?;
        let had = reader.buffer.unread().len();
        let now = Instant::now();
        let wake = earliest(self.timers(reader, now)?, reader.sleep.deadline);
        if reader.buffer.unread().len() > had {
            return Ok(()); // the timers have read, for a sign of life
        }
        let left = wake.map(|wake| wake.saturating_duration_since(now));
        let mut flags = libc::MSG_DONTWAIT;
        let over = reader.sleep.is_over(now);
        if over {
            // One attempt, without sleeping.
            if !reader.sleep.may_go_on() {
                return Err(Stop::Timeout);
            }
        } else if self.sender.has_backlog() {
            match self.wire.socket.poll(libc::POLLIN | libc::POLLOUT, left) {
                Err(libc::EINTR) => return Err(Stop::Interrupted),
                Ok(events) if events & libc::POLLOUT != 0 => self.sender.flush_quietly(&self.wire),
                _ => {}
            }
        } else if reader.sleep.may_spin(self.options.busy_poll, now) {
            return self.spin(reader, now, left);
        } else if left.is_some_and(|left| left < SHORT) {
            if let Err(libc::EINTR) = self.wire.socket.poll(libc::POLLIN, left) {
                return Err(Stop::Interrupted);
            }
        } else {
            if let Some(timeout) = reader.sleep.arm(left) {
                self.wire.socket.set_receive_timeout(timeout);
            }
            flags = 0;
        }
        match self.attempt(reader, flags)? {
            Attempt::Bytes => Ok(()),
            Attempt::Nothing => {
                reader.sleep.idle = flags == 0;
                Err(if over { Stop::Timeout } else { Stop::Interrupted })
            }
            Attempt::Signal => Err(Stop::Interrupted),
        }
    }

    /// Reads once. The connection is closed if the stream has ended or is broken. After `Stop::NoMemory` the same may be
    /// tried again.
    #[inline]
    fn attempt(&self, reader: &mut ReceiveHalf, flags: i32) -> Result<Attempt, Stop> {
        match self.read(reader, flags) {
            Ok(0) => {
                reader.ended = true;
                Err(self.over(self.unless_draining(Cause::Eof)))
            }
            Ok(_) => Ok(Attempt::Bytes),
            Err(errno) if would_block(errno) => Ok(Attempt::Nothing),
            Err(libc::EINTR) => Ok(Attempt::Signal),
            Err(NO_MEMORY) => Err(Stop::NoMemory),
            Err(errno) => Err(self.lost(errno)),
        }
    }

    /// Asks the socket again and again, without sleeping.
    fn spin(&self, reader: &mut ReceiveHalf, start: Instant, left: Option<Duration>) -> Result<(), Stop> {
        let until = reader.sleep.spins_until(start, left);
        loop {
            if let Attempt::Bytes = self.attempt(reader, libc::MSG_DONTWAIT)? {
                self.counts.hits.add(1);
                return Ok(());
            }
            self.counts.misses.add(1);
            if Instant::now() >= until {
                return Err(Stop::Interrupted); // the next call sleeps, if the time for spinning is over
            }
        }
    }

    /// Reads once. 0 is the end of the stream; a TLS alert is that too. NO_MEMORY: nothing is lost, the same may be tried
    /// again.
    pub(crate) fn read(&self, reader: &mut ReceiveHalf, flags: i32) -> Result<usize, Errno> {
        let Some(tls) = self.wire.tls() else {
            reader.buffer.reserve(1)?;
            let spare = reader.buffer.spare();
            let room = spare.len().min(self.options.max_read);
            let mut receipt = 0;
            let size = match self.options.stamping {
                Stamping::Receipts => self.wire.socket.recv_stamped(&mut spare[..room], flags, &mut receipt)?,
                _ => self.wire.socket.recv_into(&mut spare[..room], flags)?,
            };
            // SAFETY: the kernel has written so many bytes.
            unsafe { reader.buffer.filled(size) };
            if size > 0 {
                self.heard(reader, receipt);
                self.has_read(size);
            }
            return Ok(size);
        };
        if reader.ended {
            return Ok(0);
        }
        if reader.wire.is_empty() {
            reader.wire.try_reserve(READ).map_err(|_| NO_MEMORY)?;
            if self.wire.socket.recv(&mut reader.wire, self.options.max_read, flags)? == 0 {
                return Ok(0);
            }
            self.heard(reader, 0);
        }
        // Room for all plaintext is made before decrypting, so nothing is lost without memory: also for the record that
        // OpenSSL tries to find at the end.
        let size = reader.wire.len();
        reader.buffer.reserve(size + 2 * RECORD)?;
        let before = reader.buffer.unread().len();
        let (ended, answer) = {
            let mut tls = locked(tls);
            (tls.read(&mut reader.wire, &mut reader.buffer), tls.wants_write())
        };
        reader.wire.clear();
        let got = reader.buffer.unread().len() - before;
        if got > 0 {
            self.has_read(got);
        }
        if answer && self.phase() != Phase::Connecting {
            self.sender.flush_quietly(&self.wire);
        }
        match ended {
            Ok(ended) => reader.ended = ended,
            Err(failure) => {
                // The bytes before the error, of the same read, are still to be parsed.
                let parsed = got > 0 && self.phase() != Phase::Connecting;
                let _ = locked(tls).flush(&self.wire.socket);
                self.finalize(Cause::Tls(failure));
                return Ok(if parsed { size } else { 0 });
            }
        }
        Ok(size)
    }

    /// Bytes of the wire were received: a sign of life, whatever they are. `receipt`: see `Stamp::now`.
    fn heard(&self, reader: &mut ReceiveHalf, receipt: i64) {
        reader.keepalive.heard();
        let stamps = self.options.stamping != Stamping::Nothing;
        if stamps || reader.keepalive.interval.is_some() {
            let stamp = Stamp::now(receipt);
            self.counts.last_received.store(stamp.returned, Ordering::Relaxed);
            if stamps {
                reader.stamp = stamp;
            }
        }
    }

    fn has_read(&self, size: usize) {
        self.counts.reads.add(1);
        self.counts.bytes.add(size);
        if self.options.quickack {
            self.wire.socket.acknowledge();
        }
    }

    /// True if the program has failed the connection while another thread had the reading half. Messages that have arrived
    /// are still to be read.
    fn has_failed(&self, reader: &ReceiveHalf) -> bool {
        self.lifecycle.is_draining() && !reader.message.is_over()
    }

    /// Reads as long as bytes are there, for a while, and queues the messages in them while there is room. Never sleeps.
    pub(crate) fn drain(&self, reader: &mut ReceiveHalf) -> Drained {
        let drained = self.read_to_queue(reader);
        if self.has_failed(reader) {
            self.queue_all(reader);
            reader.message.end();
        }
        drained
    }

    fn read_to_queue(&self, reader: &mut ReceiveHalf) -> Drained {
        for _ in 0..SHARES {
            let need = loop {
                let phase = if self.has_failed(reader) { Phase::Open } else { self.phase() };
                if !reader.has_room(phase) {
                    return Drained::Full;
                }
                match self.parse(reader, ReceiveHalf::parse_into_queue) {
                    Ok(_) if reader.ends_share() => break None,
                    Ok(_) => {}
                    Err(Missing::Bytes(need)) => break Some(need),
                    Err(Missing::Time) => break None,
                    Err(Missing::Memory) => return Drained::Full, // as good as no room
                }
            };
            if self.phase() == Phase::Closed {
                return Drained::Dry;
            }
            let Some(need) = need else { continue };
            if reader.buffer.make_room(need).is_err() {
                return Drained::Full;
            }
            match self.attempt(reader, libc::MSG_DONTWAIT) {
                Ok(Attempt::Bytes | Attempt::Signal) => {}
                Err(Stop::NoMemory) => return Drained::Full,
                Ok(Attempt::Nothing) | Err(_) => return Drained::Dry,
            }
        }
        Drained::Busy
    }

    /// Queues the frames in the buffer, whether or not there is room: nothing more will be read.
    pub(crate) fn queue_all(&self, reader: &mut ReceiveHalf) {
        while matches!(self.parse(reader, ReceiveHalf::parse_into_queue), Ok(_) | Err(Missing::Time)) {}
    }

    /// Reads into the queue, and sleeps once until there is more to read. See wst_pump().
    pub fn pump(&self, timeout: Option<Duration>, for_pong: bool) -> Result<(), Stop> {
        let deadline = after(timeout);
        let _user = self.wire.enter().ok_or(Stop::Closed)?;
        let mut reader = self.try_reader();
        let drained = reader.as_mut().map(|reader| self.drain(reader));
        if self.has_news() {
            return Err(Stop::Pong);
        }
        if for_pong && self.lifecycle.is_draining() {
            return Err(Stop::Closed);
        }
        let (Some(mut reader), Some(drained)) = (reader, drained) else { return Err(Stop::Busy) };
        let now = Instant::now();
        let timers = self.timers(&mut reader, now)?;
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Err(Stop::Timeout);
        }
        drop(reader);
        // No event wakes this thread if another one fails the connection.
        let nap = for_pong.then_some(now + SHORT);
        Err(self.wait(drained, false, earliest(nap, earliest(timers, deadline)), now))
    }
}
