//! Keepalive, and the other deadlines of a connection. Each thread that waits checks them before it sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::connection::{Connection, Stop};
use crate::io::lock::locked;
use crate::io::socket::NO_MEMORY;
use crate::parts::frame_writer::Sent;
use crate::parts::lifecycle::{Cause, Phase};
use crate::parts::receive_half::Reader;
use crate::protocol::c_core::{mask_key, FIN, PING};

/// Pings by the clock. A thread that waits asks it when to wake.
pub struct Keepalive {
    pub interval: Option<Duration>,
    pub timeout: Option<Duration>,
    pub next: Option<Instant>,
    /// When the ping was sent of which no sign of life was seen since.
    pub unanswered: Option<Instant>,
}

#[derive(Debug, PartialEq)]
pub enum Due {
    /// Nothing before then; None: never.
    Wake(Option<Instant>),
    Ping,
    /// The peer must have shown a sign of life by now.
    Overdue,
}

impl Keepalive {
    pub fn new(interval: Option<Duration>, timeout: Option<Duration>) -> Self {
        Keepalive { interval, timeout, next: None, unanswered: None }
    }

    pub fn start(&mut self, now: Instant) {
        self.next = self.interval.map(|interval| now + interval);
    }

    /// Something arrived: any byte is a sign of life.
    pub fn heard(&mut self) {
        self.unanswered = None;
    }

    pub fn pinged(&mut self, now: Instant) {
        self.start(now);
        self.unanswered = self.timeout.map(|_| now);
    }

    pub fn due(&self, now: Instant) -> Due {
        if let (Some(sent), Some(timeout)) = (self.unanswered, self.timeout) {
            return if now >= sent + timeout { Due::Overdue } else { Due::Wake(Some(sent + timeout)) };
        }
        match self.next {
            Some(next) if now >= next => Due::Ping,
            next => Due::Wake(next),
        }
    }
}

/// A keepalive with new settings, until the reading half takes it over. The receiver may hold the lock of that half for
/// long, so no thread waits for it.
#[derive(Default)]
pub struct NewPinging {
    waiting: Mutex<Option<Keepalive>>,
    is_set: AtomicBool,
}

impl NewPinging {
    pub fn set(&self, keepalive: Keepalive) {
        *locked(&self.waiting) = Some(keepalive);
        self.is_set.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<Keepalive> {
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        self.is_set.store(false, Ordering::Relaxed);
        locked(&self.waiting).take()
    }
}

impl Connection {
    /// Does what is due by the clock. Returns when to ask again, or an error once the connection is closed.
    pub(crate) fn timers(&self, reader: &mut Reader, now: Instant) -> Result<Option<Instant>, Stop> {
        if let Some(keepalive) = self.new_pinging.take() {
            reader.keepalive = keepalive;
            reader.keepalive.start(now);
        }
        match self.phase() {
            Phase::Closed => Err(Stop::Closed),
            Phase::Closing | Phase::Draining => {
                let deadline = self.ending().deadline;
                if deadline.is_some_and(|deadline| deadline <= now) {
                    return Err(self.over(Cause::CloseTimeout));
                }
                Ok(deadline)
            }
            _ => loop {
                match reader.keepalive.due(now) {
                    Due::Wake(wake) => return Ok(wake),
                    Due::Ping => self.keepalive_ping(reader, now),
                    Due::Overdue => {
                        // Perhaps no thread has read for a long time, so read first.
                        match self.read(reader, libc::MSG_DONTWAIT) {
                            Err(NO_MEMORY) => return Err(Stop::NoMemory),
                            Ok(size) if size > 0 => {
                                // The bytes are to be parsed before a thread sleeps.
                                return Ok(Some(now));
                            }
                            _ => {
                                self.send_close(&Cause::Keepalive.close(), Phase::Draining);
                                return Err(self.over(Cause::Keepalive));
                            }
                        }
                    }
                }
            },
        }
    }

    fn keepalive_ping(&self, reader: &mut Reader, now: Instant) {
        reader.keepalive.pinged(now);
        let payload = mask_key().unwrap_or(0).to_ne_bytes();
        self.pings.forget_kept(); // other bytes were sign enough of life
        if self.pings.remember(&payload, self.options.report_pings, true).is_err() {
            return; // any other sign of life will do
        }
        // While other frames wait to be sent, a sign of life will do, and the peer may show one without a PING.
        if !matches!(
            self.sender.send_control(&self.wire, &self.closer, FIN | PING, &payload),
            Ok(Sent::All | Sent::Blocked | Sent::Held)
        ) {
            self.pings.forget(&payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keepalive() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut keepalive = Keepalive::new(Some(20 * second), Some(5 * second));
        keepalive.start(start);
        assert_eq!(keepalive.due(start), Due::Wake(Some(start + 20 * second)));
        assert_eq!(keepalive.due(start + 20 * second), Due::Ping);
        keepalive.pinged(start + 20 * second);
        assert_eq!(keepalive.due(start + 21 * second), Due::Wake(Some(start + 25 * second)));
        assert_eq!(keepalive.due(start + 25 * second), Due::Overdue);
        keepalive.heard();
        assert_eq!(keepalive.due(start + 25 * second), Due::Wake(Some(start + 40 * second)));
        assert_eq!(Keepalive::new(None, None).due(start), Due::Wake(None));
    }
}
