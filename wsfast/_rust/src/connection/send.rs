//! Sending, for the program.

use std::time::Instant;

use crate::connection::receive::Drained;
use crate::connection::{Connection, NAP};
use crate::parts::frame_writer::Sent;
use crate::parts::stop::Stop;
use crate::protocol::c_core::{FIN, PING};

impl Connection {
    /// See send(). `Sent::Blocked`: queued.
    pub fn send(&self, head: u8, payload: &[u8]) -> Result<Sent, Stop> {
        let _user = self.wire.enter().ok_or(Stop::Closed)?;
        let sent = self.sender.send(&self.wire, &self.closer, head, payload)?;
        sent.map_err(|errno| self.broken(errno))
    }

    /// Holds data frames back, so that they leave together, or lets them go. See cork().
    pub fn cork(&self, corked: bool) -> Result<Sent, Stop> {
        self.sender.cork(&self.wire, corked).map_err(|errno| self.broken(errno))
    }

    /// Sends a ping of the program's.
    pub fn send_ping(&self, payload: &[u8]) -> Result<Sent, Stop> {
        self.pings.remember(payload, true, false)?;
        let sent = self.send(FIN | PING, payload);
        if !matches!(sent, Ok(Sent::All | Sent::Blocked | Sent::Held)) {
            self.pings.forget(payload);
        }
        sent
    }

    /// Sends the bytes that wait, or sleeps once until the kernel takes more of them. See wst_flush().
    pub fn flush(&self) -> Result<(), Stop> {
        let _user = self.wire.enter().ok_or(Stop::Closed)?;
        if self.sender.flush(&self.wire).map_err(|errno| self.broken(errno))? == Sent::All {
            return Ok(());
        }
        let now = Instant::now();
        // The peer may not read on before we do.
        let (drained, wake) = match self.try_reader() {
            None => (Drained::Full, None),
            Some(mut reader) => {
                let drained = self.drain(&mut reader);
                (drained, self.timers(&mut reader, now)?)
            }
        };
        if self.has_news() {
            return Err(Stop::Pong);
        }
        // Even if another thread has sent all by now: then this wakes at once.
        Err(self.wait(drained, true, wake, now))
    }

    /// Sleeps without any lock, for a `NAP` at most. Then the caller checks for signals: one may have come, whatever ended
    /// the sleep.
    pub(crate) fn wait(&self, drained: Drained, writes: bool, wake: Option<Instant>, now: Instant) -> Stop {
        if drained == Drained::Busy {
            return Stop::Interrupted;
        }
        let mut events = if drained == Drained::Dry { libc::POLLIN } else { 0 };
        let left = wake.map_or(NAP, |wake| wake.saturating_duration_since(now).min(NAP));
        if writes || self.sender.has_backlog() {
            events |= libc::POLLOUT;
        }
        if self.wire.socket.poll(events, Some(left)).is_ok_and(|happened| happened & libc::POLLOUT != 0) {
            self.sender.flush_quietly(&self.wire);
        }
        Stop::Interrupted
    }
}
