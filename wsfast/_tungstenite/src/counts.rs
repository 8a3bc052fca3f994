//! What a connection has done, in numbers: those of the reading half, which is locked while its receiver sleeps.
//!
//! Only who holds the lock counts, so a load and a store will do; anybody may look.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Looks at the socket without sleeping that found something, and that found nothing.
    pub hits: Count,
    pub misses: Count,
}
