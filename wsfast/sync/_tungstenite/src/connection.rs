//! One connection: what any thread may ask of it at any time.
//!
//! Two halves, each behind a lock of its own. The lock of the writing half is held while frames are masked and the
//! kernel is offered them, never while somebody sleeps. The lock of the reading half is held by `receive` while it
//! sleeps in recv(2), which is what makes a round trip two system calls; everybody else who reads (a sender whose
//! bytes do not go out, somebody who waits for a PONG or for the end) sleeps in poll(2) without it, reads without
//! sleeping, and puts messages into a queue. Who needs both locks takes the reader's first.
//!
//! What somebody waits for in poll(2) another thread may read first, a PONG for instance: then poll(2) sleeps on. Nor
//! does it notice that the reader's lock is free, or that closing has begun and set a deadline. So nobody sleeps without
//! the lock for longer than `TURN`, and looks at everything anew then: nobody has to be told, and nobody is forgotten.
//! The receiver may sleep for longer, for nobody else reads; a deadline of closing is watched by who closes, and the end
//! of the connection wakes everybody.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use crate::buffer::NoMemory;
use crate::counts::Counts;
use crate::ending::{Ending, Phase};
use crate::frame::Short;
use crate::keepalive::Keepalive;
use crate::locked;
use crate::reader::{Limits, Reader};
use crate::socket::Socket;
use crate::tls::Session;
use crate::writer::Writer;

/// How long somebody sleeps at the most without the reader's lock.
pub const TURN: Duration = Duration::from_millis(20);

pub struct Options {
    pub limits: Limits,
    pub ping_interval: Option<Duration>,
    pub ping_timeout: Option<Duration>,
    pub close_timeout: Option<Duration>,
    pub busy_poll: Duration,
    pub max_read: usize,
    pub quickack: bool,
    pub report_pings: bool,
}

/// Why a call returns without what it was called for.
#[derive(Debug, PartialEq)]
pub enum Stop {
    Interrupted,
    Timeout,
    Closed,
    Pong,
    Busy,
    Eof,
    /// Nothing is lost, unless the connection is closed now.
    NoMemory,
}

impl From<NoMemory> for Stop {
    fn from(_: NoMemory) -> Stop {
        Stop::NoMemory
    }
}

pub struct Ping {
    pub payload: Short,
    pub at: Instant,
    /// The user's, who wants to hear of it.
    pub reported: bool,
}

#[derive(Default)]
pub struct Pings {
    pub sent: Vec<Ping>,
    /// Their round-trip times, in seconds. With room for all that are sent.
    pub answered: VecDeque<(Short, f64)>,
}

pub struct Connection {
    pub(crate) socket: Socket,
    pub(crate) session: OnceLock<Mutex<Session>>,
    pub(crate) reader: Mutex<Reader>,
    pub(crate) writer: Mutex<Writer>,
    /// The writer keeps something that the kernel did not take.
    pub(crate) residue: AtomicBool,
    pub(crate) phase: AtomicU8,
    pub(crate) ending: Mutex<Ending>,
    pub(crate) counts: Counts,
    pub(crate) pings: Mutex<Pings>,
    pub(crate) pongs: AtomicBool,
    /// Seconds, as bits of an f64.
    pub(crate) latency: AtomicU64,
    pub(crate) close_timeout: Mutex<Option<Duration>>,
    /// New settings of the keepalive, until the reading half takes them over, and whether there are any.
    new_pinging: Mutex<Option<(Option<Duration>, Option<Duration>)>>,
    pinging_changed: AtomicBool,
    pub(crate) busy_poll: Duration,
    pub(crate) max_read: usize,
    pub(crate) quickack: bool,
    pub(crate) report_pings: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.socket.release();
    }
}

impl Connection {
    pub fn new(fd: i32, options: Options) -> Self {
        let keepalive = Keepalive::new(options.ping_interval, options.ping_timeout);
        Connection {
            socket: Socket::new(fd),
            session: OnceLock::new(),
            reader: Mutex::new(Reader::new(options.limits, keepalive)),
            writer: Mutex::new(Writer::new()),
            residue: AtomicBool::new(false),
            phase: AtomicU8::new(Phase::Connecting as u8),
            ending: Mutex::new(Ending::default()),
            counts: Counts::default(),
            pings: Mutex::new(Pings::default()),
            pongs: AtomicBool::new(false),
            latency: AtomicU64::new(0),
            close_timeout: Mutex::new(options.close_timeout),
            new_pinging: Mutex::new(None),
            pinging_changed: AtomicBool::new(false),
            busy_poll: options.busy_poll,
            max_read: options.max_read,
            quickack: options.quickack,
            report_pings: options.report_pings,
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase.load(Ordering::Acquire).into()
    }

    /// As a question about `phase()`, but cheaper: it is asked for every frame.
    pub(crate) fn is_draining(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Draining as u8
    }

    pub fn ending(&self) -> MutexGuard<'_, Ending> {
        locked(&self.ending)
    }

    /// See wst_set_times().
    pub fn set_times(
        &self,
        ping_interval: Option<Duration>,
        ping_timeout: Option<Duration>,
        close_timeout: Option<Duration>,
    ) {
        *locked(&self.close_timeout) = close_timeout;
        *locked(&self.new_pinging) = Some((ping_interval, ping_timeout));
        self.pinging_changed.store(true, Ordering::Release);
    }

    /// Takes new settings over, if there are any. The lock of the reader may be held for long, so it is not waited for.
    pub(crate) fn take_settings(&self, reader: &mut Reader, now: Instant) {
        if self.pinging_changed.load(Ordering::Acquire) {
            self.pinging_changed.store(false, Ordering::Relaxed);
            if let Some((interval, timeout)) = locked(&self.new_pinging).take() {
                reader.keepalive = Keepalive::new(interval, timeout);
                reader.keepalive.start(now);
            }
        }
    }

    pub fn latency(&self) -> f64 {
        f64::from_bits(self.latency.load(Ordering::Relaxed))
    }

    pub fn dup(&self) -> Option<i32> {
        let _user = self.socket.enter()?;
        self.socket.dup().ok()
    }

    pub(crate) fn session(&self) -> Option<&Mutex<Session>> {
        self.session.get()
    }

    pub(crate) fn try_reader(&self) -> Option<MutexGuard<'_, Reader>> {
        match self.reader.try_lock() {
            Ok(reader) => Some(reader),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The instant `seconds` from now; None if it is too far away to matter.
pub fn after(seconds: f64) -> Option<Instant> {
    let duration = Duration::try_from_secs_f64(seconds.max(0.0)).ok()?;
    Instant::now().checked_add(duration)
}

pub fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
