//! The PINGs that were sent, and the PONGs that answer them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use crate::io::block::NoMemory;
use crate::io::lock::locked;
use crate::protocol::frame::Short;

struct Ping {
    payload: Short,
    at: Instant,
    /// The program's, which gets the answer reported.
    reported: bool,
    /// The keepalive's.
    kept: bool,
}

#[derive(Default)]
struct Waiting {
    sent: Vec<Ping>,
    /// Their round-trip times, in seconds. With room for all that are sent.
    answered: VecDeque<(Short, f64)>,
}

#[derive(Default)]
pub struct Pings {
    waiting: Mutex<Waiting>,
    /// There may be answers to report.
    answered: AtomicBool,
    /// Seconds, as bits of an f64.
    latency: AtomicU64,
}

impl Pings {
    /// A PING is about to be sent.
    pub fn remember(&self, payload: &[u8], reported: bool, kept: bool) -> Result<(), NoMemory> {
        let mut waiting = locked(&self.waiting);
        // Also for when it is answered.
        let most = waiting.sent.len() + 1;
        waiting.sent.try_reserve(1).and_then(|()| waiting.answered.try_reserve(most)).map_err(|_| NoMemory)?;
        waiting.sent.push(Ping { payload: Short::new(payload), at: Instant::now(), reported, kept });
        Ok(())
    }

    /// Forgets the keepalive's pings: no thread waits for them, so they need not pile up.
    pub fn forget_kept(&self) {
        locked(&self.waiting).sent.retain(|ping| !ping.kept);
    }

    /// Forgets a PING that was not sent.
    pub fn forget(&self, payload: &[u8]) {
        locked(&self.waiting).sent.retain(|ping| ping.payload.bytes() != payload);
    }

    /// A PONG answers its PING and all before it.
    pub fn answer(&self, payload: &[u8]) {
        let mut waiting = locked(&self.waiting);
        let Waiting { sent, answered } = &mut *waiting;
        let Some(index) = sent.iter().position(|ping| ping.payload.bytes() == payload) else {
            return;
        };
        let now = Instant::now();
        let latency = |ping: &Ping| now.saturating_duration_since(ping.at).as_secs_f64();
        self.latency.store(latency(&sent[index]).to_bits(), Ordering::Relaxed);
        let reported = sent.drain(..=index).filter(|ping| ping.reported);
        answered.extend(reported.map(|ping| (ping.payload, latency(&ping))));
        if !answered.is_empty() {
            self.answered.store(true, Ordering::Release);
        }
    }

    /// True if there is something to `take`.
    pub fn are_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// The next answer to report, and its round-trip time.
    pub fn take(&self) -> Option<(Short, f64)> {
        let mut waiting = locked(&self.waiting);
        let payload = waiting.answered.pop_front();
        if payload.is_none() {
            self.answered.store(false, Ordering::Release);
        }
        payload
    }

    /// The round-trip time of the last answered PING, in seconds; 0 before.
    pub fn latency(&self) -> f64 {
        f64::from_bits(self.latency.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keepalive_pings_do_not_pile_up() {
        let pings = Pings::default();
        pings.remember(b"user's", true, false).unwrap();
        for number in 0..100u8 {
            pings.forget_kept();
            pings.remember(&[number], false, true).unwrap();
        }
        assert_eq!(locked(&pings.waiting).sent.len(), 2);
        pings.answer(b"user's");
        assert!(pings.take().is_some_and(|(payload, _)| payload.bytes() == b"user's"));
    }
}
