//! The receiver's sleep: its length, and the system call that sleeps.

use std::time::{Duration, Instant};

use crate::io::time::{after, earliest};

/// The shares of work that a call may still do once its time is over: a message that is there already is found within
/// them, and a flood that completes none ends there. A share is one read, or `SHARE` frames.
const LATE: usize = 64;
/// Frames that complete no message. After so many a thread checks its deadline, and returns to check for signals.
pub const SHARE: usize = 256;

/// SO_RCVTIMEO counts in ticks of the kernel, up to 10 ms long; a shorter time-out than this waits in poll(2).
pub const SHORT: Duration = Duration::from_millis(50);
const TICK: Duration = Duration::from_millis(10);

/// A thread that spins returns this often, so that Python checks for signals.
const SPIN: Duration = Duration::from_millis(5);

#[derive(Default)]
pub struct Sleep {
    /// Until when `receive` may wait, and may spin. Both are kept for when it goes on after a signal.
    pub deadline: Option<Instant>,
    spin_until: Option<Instant>,
    /// Shares of work since the deadline.
    late: usize,
    /// SO_RCVTIMEO; zero if it was never set, or if there is no limit.
    armed: Duration,
    /// recv(2) has slept for so long in vain.
    pub idle: bool,
}

impl Sleep {
    pub fn begin(&mut self, timeout: Option<Duration>) {
        self.deadline = after(timeout);
        self.spin_until = None;
        self.late = 0;
    }

    /// True once the deadline has passed.
    pub fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Counts a share of work that is done after the deadline. False if there have been enough.
    pub fn may_go_on(&mut self) -> bool {
        self.late += 1;
        self.late <= LATE
    }

    /// True if the receiver shall spin instead of sleeping: for `busy_poll` in all.
    pub fn may_spin(&mut self, busy_poll: Duration, now: Instant) -> bool {
        !busy_poll.is_zero() && now < *self.spin_until.get_or_insert(now + busy_poll)
    }

    /// When a thread that spins returns. `left`: until it has to.
    pub fn spins_until(&self, now: Instant, left: Option<Duration>) -> Instant {
        let spin_until = self.spin_until.map_or(now, |until| until.min(now + SPIN));
        earliest(left.map(|left| now + left), Some(spin_until)).unwrap_or(now)
    }

    /// The SO_RCVTIMEO to set; None if the present one is short enough. It is half of the time left, so that the next calls, which
    /// have less left, need not set it again. Once recv(2) has slept for so long in vain, it is all that is left.
    pub fn arm(&mut self, left: Option<Duration>) -> Option<Duration> {
        let idle = std::mem::take(&mut self.idle);
        self.armed = match left {
            None if !idle => return None,
            None => Duration::ZERO,
            Some(left) if idle => left - TICK,
            Some(left) if self.armed.is_zero() || self.armed > left => (left / 2).max(SHORT - TICK),
            Some(_) => return None,
        };
        Some(self.armed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_out_of_the_socket_is_set_seldom() {
        let (second, mut sleep) = (Duration::from_secs(1), Sleep::default());
        assert_eq!(sleep.arm(None), None, "there is no limit yet");
        assert_eq!(sleep.arm(Some(20 * second)), Some(10 * second));
        assert_eq!(sleep.arm(Some(19 * second)), None);
        assert_eq!(sleep.arm(None), None, "a sleep that is too short does no harm");
        assert_eq!(sleep.arm(Some(9 * second)), Some(9 * second / 2));
        assert_eq!(sleep.arm(Some(SHORT)), Some(SHORT - TICK));
        sleep.idle = true;
        assert_eq!(sleep.arm(Some(9 * second)), Some(9 * second - TICK));
        sleep.idle = true;
        assert_eq!(sleep.arm(None), Some(Duration::ZERO));
    }
}
