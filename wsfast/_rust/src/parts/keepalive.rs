//! Keepalive: pings by the clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::io::lock::locked;

/// A thread that waits asks it when to wake.
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

    pub fn take(&self) -> Option<Keepalive> {
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        self.is_set.store(false, Ordering::Relaxed);
        locked(&self.waiting).take()
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
