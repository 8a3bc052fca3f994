//! The counts of the reading half, which can be read while its receiver sleeps with the lock.
//!
//! Only the thread that holds the lock counts, so a load and a store will do. Any thread may read.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    #[inline]
    pub fn add(&self, more: usize) {
        self.0.store(self.get() + more as u64, Ordering::Relaxed);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub struct Counts {
    pub frames: Count,
    pub bytes: Count,
    pub reads: Count,
    /// Poll attempts that found bytes, and that found none.
    pub hits: Count,
    pub misses: Count,
    /// When bytes were last received, in nanoseconds of CLOCK_MONOTONIC; 0 unless that is noted.
    pub last_received: AtomicI64,
}
