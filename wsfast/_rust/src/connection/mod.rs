//! One connection, which any thread may use at any time.
//!
//! A connection has two halves, each behind a lock of its own. A thread holds the writing half's lock while it masks
//! frames and offers them to the kernel, and never while it sleeps. The receiver holds the reading half's lock while it
//! sleeps in recv(2), so a round trip is two system calls. Other threads may have to read too: a sender
//! whose bytes the kernel does not take, or a thread that waits for a PONG or for the end. They sleep in poll(2) without
//! the lock, read without sleeping, and put messages into a queue. A thread that needs both locks takes the reader's
//! first.
//!
//! poll(2) does not wake such a thread when another thread reads the PONG first, when the reader's lock becomes free, or
//! when closing begins and sets a deadline. So no thread sleeps without the lock for longer than a `NAP`, and after it
//! checks everything again. No thread has to be notified, so none can be forgotten. The receiver may sleep for longer,
//! because no other thread reads then. The thread that closes watches the deadline of closing, and the end of the
//! connection wakes all of them.

mod close;
#[cfg(all(test, not(miri)))]
#[path = "../../../../tests/crate/memory_tests.rs"]
pub mod memory_tests;
#[cfg(test)]
#[path = "../../../../tests/crate/model_tests.rs"]
mod model_tests;
mod open;
pub mod receive;
mod send;
mod timers;

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use crate::parts::counts::Counts;
use crate::parts::keepalive::{Keepalive, NewPinging};
use crate::parts::lifecycle::{Ending, Lifecycle, Phase};
use crate::parts::pings::Pings;
use crate::parts::receive_half::{Limits, ReceiveHalf};
use crate::parts::send_half::SendHalf;
use crate::parts::stamps::Stamping;
use crate::parts::wire::Wire;

/// The longest sleep of a thread that does not hold the reader's lock.
pub const NAP: Duration = Duration::from_millis(20);

pub struct Options {
    pub limits: Limits,
    pub ping_interval: Option<Duration>,
    pub ping_timeout: Option<Duration>,
    pub close_timeout: Option<Duration>,
    pub busy_poll: Duration,
    pub max_read: usize,
    pub quickack: bool,
    pub report_pings: bool,
    pub stamping: Stamping,
}

pub struct Connection {
    pub(crate) wire: Wire,
    pub(crate) reader: Mutex<ReceiveHalf>,
    pub(crate) sender: SendHalf,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) pings: Pings,
    pub(crate) counts: Counts,
    pub(crate) new_pinging: NewPinging,
    pub(crate) options: Options,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.wire.socket.release();
    }
}

impl Connection {
    pub fn new(fd: i32, options: Options) -> Self {
        let keepalive = Keepalive::new(options.ping_interval, options.ping_timeout);
        Connection {
            wire: Wire::new(fd),
            reader: Mutex::new(ReceiveHalf::new(&options.limits, keepalive)),
            sender: SendHalf::new(),
            lifecycle: Lifecycle::new(options.close_timeout),
            pings: Pings::default(),
            counts: Counts::default(),
            new_pinging: NewPinging::default(),
            options,
        }
    }

    pub fn phase(&self) -> Phase {
        self.lifecycle.phase()
    }

    pub fn ending(&self) -> MutexGuard<'_, Ending> {
        self.lifecycle.ending()
    }

    /// See wst_set_times().
    pub fn set_times(
        &self,
        ping_interval: Option<Duration>,
        ping_timeout: Option<Duration>,
        close_timeout: Option<Duration>,
    ) {
        self.lifecycle.set_timeout(close_timeout);
        self.new_pinging.set(Keepalive::new(ping_interval, ping_timeout));
    }

    /// True if there is something for Python to take.
    pub(crate) fn has_news(&self) -> bool {
        self.pings.are_answered() || self.wire.log.is_waiting()
    }

    pub fn dup(&self) -> Option<i32> {
        let _user = self.wire.enter()?;
        self.wire.socket.dup().ok()
    }

    pub(crate) fn try_reader(&self) -> Option<MutexGuard<'_, ReceiveHalf>> {
        match self.reader.try_lock() {
            Ok(reader) => Some(reader),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
