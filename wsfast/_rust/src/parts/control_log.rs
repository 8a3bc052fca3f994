//! The control frames of both directions, for a program that logs frames. Unless it does, none is kept.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use crate::io::lock::locked;
use crate::protocol::frame::Short;

/// The log keeps so many of the last frames: a server may send any number.
const MOST: usize = 64;

pub struct Control {
    /// The first byte of the frame.
    pub head: u8,
    pub payload: Short,
    pub sent: bool,
}

#[derive(Default)]
pub struct ControlLog {
    is_on: AtomicBool,
    /// There may be frames to take.
    waiting: AtomicBool,
    frames: Mutex<VecDeque<Control>>,
}

impl ControlLog {
    /// Keeps frames from now on, if there is memory for them.
    pub fn start(&self) {
        self.is_on.store(locked(&self.frames).try_reserve_exact(MOST).is_ok(), Ordering::Relaxed);
    }

    #[cold]
    pub fn note(&self, head: u8, payload: &[u8], sent: bool) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let mut frames = locked(&self.frames);
        if frames.len() == MOST {
            frames.pop_front();
        }
        frames.push_back(Control { head, payload: Short::new(payload), sent });
        self.waiting.store(true, Ordering::Release);
    }

    /// True if there is something to `take`.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// The next frame.
    pub fn take(&self) -> Option<Control> {
        let mut frames = locked(&self.frames);
        let frame = frames.pop_front();
        if frame.is_none() {
            self.waiting.store(false, Ordering::Release);
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_frames_are_kept_of_a_program_that_logs() {
        let log = ControlLog::default();
        log.note(0x89, b"before", false);
        assert!(!log.is_waiting() && log.take().is_none());
        log.start();
        for number in 0..=MOST as u8 {
            log.note(0x89, &[number], number % 2 == 0);
        }
        assert!(log.is_waiting());
        for number in 1..=MOST as u8 {
            assert!(log
                .take()
                .is_some_and(|frame| frame.payload.bytes() == [number] && frame.sent == (number % 2 == 0)));
        }
        assert!(log.is_waiting() && log.take().is_none() && !log.is_waiting());
    }
}
