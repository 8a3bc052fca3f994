//! Deadlines, and the clocks of the system.

use std::time::{Duration, Instant};

/// When a time-out that begins now is over.
pub fn after(timeout: Option<Duration>) -> Option<Instant> {
    timeout.map(|timeout| Instant::now() + timeout)
}

pub fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The time of a clock.
pub fn nanoseconds(clock: libc::clockid_t) -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one timespec.
    unsafe { libc::clock_gettime(clock, &mut now) };
    of_timespec(&now)
}

#[allow(clippy::useless_conversion)] // there are systems where these are shorter
pub fn of_timespec(time: &libc::timespec) -> i64 {
    i64::from(time.tv_sec) * 1_000_000_000 + i64::from(time.tv_nsec)
}
