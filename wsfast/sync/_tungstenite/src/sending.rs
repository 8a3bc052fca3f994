//! Sending, and the pings that are sent.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::buffer::NoMemory;
use crate::connection::{Connection, Ping, Pings, Stop, TURN};
use crate::core::mask_key;
use crate::ending::{Cause, Close, Phase};
use crate::frame::{self, Short};
use crate::keepalive::Due;
use crate::locked;
use crate::reader::Reader;
use crate::socket::{Errno, NO_MEMORY};
use crate::writer::{Sent, Writer};

impl Connection {
    /// See wst_send(). `Ok(Sent::Blocked)`: queued.
    pub fn send(&self, head: u8, payload: &[u8]) -> Result<Option<Sent>, Stop> {
        let _user = self.socket.enter().ok_or(Stop::Closed)?;
        let sent = {
            let mut writer = locked(&self.writer);
            if self.phase() != Phase::Open {
                return Err(Stop::Closed);
            }
            // The frames of a message may have control frames between them, and nothing else (section 5.4).
            let opcode = head & 0x0F;
            if writer.in_message && (opcode == frame::TEXT || opcode == frame::BINARY) {
                return Err(Stop::Busy);
            }
            let sent = self.put(&mut writer, head, payload);
            if opcode < frame::CLOSE && !matches!(sent, Ok(None)) {
                writer.in_message = head & frame::FIN == 0;
            }
            sent
        };
        sent.map_err(|errno| self.broken(errno))
    }

    /// None if others are before it.
    pub(crate) fn put(&self, writer: &mut Writer, head: u8, payload: &[u8]) -> Result<Option<Sent>, Errno> {
        if self.residue.load(Ordering::Acquire) && !writer.holds_back() && self.flush_writer(writer)? == Sent::Blocked {
            return Ok(None);
        }
        let sent = writer.put(&self.socket, self.session(), head, payload)?;
        if sent != Sent::All {
            self.residue.store(true, Ordering::Release);
        }
        Ok(Some(sent))
    }

    /// Holds data frames back, so that they leave together, or lets them go. See wst_cork().
    pub fn cork(&self, corked: bool) -> Result<Option<Sent>, Stop> {
        let mut writer = locked(&self.writer);
        if corked {
            writer.corks += 1;
            return Ok(Some(Sent::All));
        }
        writer.corks -= 1;
        let Some(_user) = self.socket.enter() else { return Ok(Some(Sent::All)) };
        if writer.corks > 0 || !writer.has_gathered() {
            return Ok(Some(Sent::All));
        }
        writer.writes += 1;
        let sent = self.flush_writer(&mut writer);
        drop(writer);
        sent.map(Some).map_err(|errno| self.broken(errno))
    }

    pub(crate) fn flush_writer(&self, writer: &mut Writer) -> Result<Sent, Errno> {
        let sent = writer.flush(&self.socket, self.session())?;
        self.residue.store(sent == Sent::Blocked, Ordering::Release);
        Ok(sent)
    }

    /// Sends what waits. If that fails the reading half will tell, for it may have more to say first.
    pub(crate) fn flush_quietly(&self) {
        let Some(_user) = self.socket.enter() else { return };
        if self.flush_writer(&mut locked(&self.writer)).is_err() {
            self.residue.store(false, Ordering::Release);
        }
    }

    /// Sends a ping of the user's.
    pub fn send_ping(&self, payload: &[u8]) -> Result<Option<Sent>, Stop> {
        self.remember(payload, true)?;
        let sent = self.send(frame::FIN | frame::PING, payload);
        if !matches!(sent, Ok(Some(_))) {
            locked(&self.pings).sent.retain(|ping| ping.payload.bytes() != payload);
        }
        sent
    }

    /// Sends what waits, or sleeps once until more of it can be sent. See wst_flush().
    pub fn flush(&self) -> Result<(), Stop> {
        let _user = self.socket.enter().ok_or(Stop::Closed)?;
        let flushed = self.flush_writer(&mut locked(&self.writer));
        if flushed.map_err(|errno| self.broken(errno))? == Sent::All {
            return Ok(());
        }
        let now = Instant::now();
        // The peer may not read on before we do.
        let (reads, wake) = match self.try_reader() {
            None => (false, None),
            Some(mut reader) => {
                let room = self.drain(&mut reader);
                (room, self.timers(&mut reader, now)?)
            }
        };
        if self.pongs.load(Ordering::Acquire) {
            return Err(Stop::Pong);
        }
        // Even if another thread has sent all by now: then this wakes at once.
        Err(self.wait(reads, true, wake, now))
    }

    /// Sleeps without any lock, for a `TURN` at the most, and then it is the caller's turn: whatever woke it, a signal
    /// may have come meanwhile.
    pub(crate) fn wait(&self, reads: bool, writes: bool, wake: Option<Instant>, now: Instant) -> Stop {
        let mut events = if reads { libc::POLLIN } else { 0 };
        let left = wake.map_or(TURN, |wake| wake.saturating_duration_since(now).min(TURN));
        if writes || self.residue.load(Ordering::Acquire) {
            events |= libc::POLLOUT;
        }
        if self.socket.poll(events, Some(left)).is_ok_and(|happened| happened & libc::POLLOUT != 0) {
            self.flush_quietly();
        }
        Stop::Interrupted
    }

    pub(crate) fn remember(&self, payload: &[u8], reported: bool) -> Result<(), NoMemory> {
        let mut pings = locked(&self.pings);
        // Also for when it is answered.
        let most = pings.sent.len() + 1;
        pings.sent.try_reserve(1).and_then(|()| pings.answered.try_reserve(most)).map_err(|_| NoMemory)?;
        pings.sent.push(Ping { payload: Short::new(payload), at: Instant::now(), reported });
        Ok(())
    }

    pub(crate) fn answer(&self, payload: &[u8]) {
        let Some(_user) = self.socket.enter() else { return };
        let mut writer = locked(&self.writer);
        match writer.pong(&self.socket, self.session(), payload) {
            Ok(sent) => self.residue.store(sent == Sent::Blocked, Ordering::Release),
            Err(_) => self.residue.store(false, Ordering::Release),
        }
    }

    /// A PONG answers its PING and all before it.
    pub(crate) fn answered(&self, payload: &[u8]) {
        let mut pings = locked(&self.pings);
        let Pings { sent, answered } = &mut *pings;
        let Some(index) = sent.iter().position(|ping| ping.payload.bytes() == payload) else {
            return;
        };
        let now = Instant::now();
        let latency = |ping: &Ping| now.saturating_duration_since(ping.at).as_secs_f64();
        self.latency.store(latency(&sent[index]).to_bits(), Ordering::Relaxed);
        let reported = sent.drain(..=index).filter(|ping| ping.reported);
        answered.extend(reported.map(|ping| (ping.payload, latency(&ping))));
        if !answered.is_empty() {
            self.pongs.store(true, Ordering::Release);
        }
    }

    pub fn take_pong(&self) -> Option<(Short, f64)> {
        let mut pings = locked(&self.pings);
        let payload = pings.answered.pop_front();
        if payload.is_none() {
            self.pongs.store(false, Ordering::Release);
        }
        payload
    }

    /// What is due by the clock. Returns when to ask again; an error once the connection is closed.
    pub(crate) fn timers(&self, reader: &mut Reader, now: Instant) -> Result<Option<Instant>, Stop> {
        self.take_settings(reader, now);
        match self.phase() {
            Phase::Closed => Err(Stop::Closed),
            Phase::Closing | Phase::Draining => {
                let deadline = self.ending().deadline;
                if deadline.is_some_and(|deadline| deadline <= now) {
                    self.finalize(Cause::CloseTimeout);
                    return Err(Stop::Closed);
                }
                Ok(deadline)
            }
            _ => loop {
                match reader.keepalive.due(now) {
                    Due::Wake(wake) => return Ok(wake),
                    Due::Ping => self.keepalive_ping(reader, now),
                    Due::Overdue => {
                        // Nobody may have looked for a long time, so look first.
                        match self.read(reader, libc::MSG_DONTWAIT) {
                            Err(NO_MEMORY) => return Err(Stop::NoMemory),
                            Ok(size) if size > 0 => {
                                // It is to be parsed before anybody sleeps.
                                return Ok(Some(now));
                            }
                            _ => {
                                let (code, reason) = Cause::Keepalive.close();
                                self.close_sent(Close::new(code, reason.as_bytes()), Phase::Draining);
                                self.finalize(Cause::Keepalive);
                                return Err(Stop::Closed);
                            }
                        }
                    }
                }
            },
        }
    }

    pub(crate) fn keepalive_ping(&self, reader: &mut Reader, now: Instant) {
        reader.keepalive.pinged(now);
        let payload = mask_key().unwrap_or(0).to_ne_bytes();
        if self.remember(&payload, self.report_pings).is_err() {
            return; // any other sign of life will do
        }
        let mut writer = locked(&self.writer);
        // While others wait to be sent, what matters is whether the peer shows a sign of life, and it may without.
        if !matches!(self.put(&mut writer, frame::FIN | frame::PING, &payload), Ok(Some(_))) {
            locked(&self.pings).sent.retain(|ping| ping.payload.bytes() != payload);
        }
    }
}
