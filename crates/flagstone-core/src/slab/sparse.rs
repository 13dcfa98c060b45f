//! Sparse caches: much of their slabs is free, so what is freed goes back to them.
//!
//! ```text
//!   dense    free ─► sheaf ─► barn ─► sheaf ─► malloc    whatever was freed last serves next
//!   sparse   free ─► sheaf ─► slabs ─► sheaf ─► malloc   the fullest slabs serve, others drain
//! ```
//!
//! Where sizes drift, sheaves and barns pass on objects of every slab, so that none becomes empty. In
//! a sparse cache barns take nothing, sheaves stay short, and refills take the slabs that became partial
//! last, which have the fewest free objects. Survivors that never die would pay for it in vain: an episode
//! ends when flushes have replaced what is out without idle bytes falling by an eighth.
#![forbid(unsafe_code)]

use super::node::End;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Idle bytes of a cache below which it is left alone, and their share of all in use, as a divisor.
const IDLE_MIN: usize = 128 << 10;
const IDLE_SHARE: usize = 256;

/// How long much must have been free: what a program drops and builds again at once is none of it. Without
/// this, objects freed in rounds by eight threads take half as many faults more.
const LASTS_NS: u64 = 100_000_000;

/// Whether a cache is sparse. Racy on purpose.
#[derive(Debug, Default)]
pub(crate) struct Sparse {
    on: AtomicBool,
    /// Since when much has been free; zero: it is not.
    since: AtomicU64,
    /// Idle bytes when they last fell by an eighth, or when an episode ended in vain, and flushes by then.
    idle: AtomicUsize,
    flushes: AtomicU64,
}

/// A cache at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// Bytes of slabs in which no object that is out lies.
    pub idle: usize,
    /// Objects that are out, and their bytes.
    pub out: u64,
    pub out_bytes: usize,
    /// Sheaves flushed so far, and the objects in one.
    pub flushes: u64,
    pub sheaf: u64,
}

impl Sparse {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// The end of the partial list that refills take from.
    pub(crate) fn end(&self) -> End {
        match self.is_on() {
            true => End::Tail,
            false => End::Head,
        }
    }

    /// Begins or ends an episode, where `used` bytes are in use by all caches; answers whether one began.
    pub(crate) fn follow(&self, now: u64, used: usize, course: &Course) -> bool {
        let &Course {
            idle, out_bytes, ..
        } = course;
        let least = IDLE_MIN.max(used / IDLE_SHARE);
        let before = self.idle.load(Relaxed);
        if self.is_on() {
            let flushes = course.flushes.saturating_sub(self.flushes.load(Relaxed));
            let flushed = flushes * course.sheaf;
            let over = idle < out_bytes / 4 || idle < least / 2;
            if over || flushed > course.out {
                self.on.store(false, Relaxed);
            }
            if over || idle < before / 8 * 7 || flushed > course.out {
                self.mark(if over { 0 } else { idle }, course.flushes);
            }
            return false;
        }
        if idle < before / 2 {
            self.idle.store(0, Relaxed);
        }
        let much = idle > out_bytes / 2 && idle > least && idle / 5 * 4 > before;
        let since = self.since.load(Relaxed);
        if !much || since == 0 {
            self.since.store(if much { now } else { 0 }, Relaxed);
        }
        let begins = much && since != 0 && now.saturating_sub(since) > LASTS_NS;
        if begins {
            self.mark(idle, course.flushes);
            self.on.store(true, Relaxed);
        }
        begins
    }

    fn mark(&self, idle: usize, flushes: u64) {
        self.idle.store(idle, Relaxed);
        self.flushes.store(flushes, Relaxed);
        self.since.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn at(idle_mib: usize, flushed: u64) -> Course {
        Course {
            idle: idle_mib * MIB,
            out: 1000,
            out_bytes: 4 * MIB,
            flushes: flushed / 10,
            sheaf: 10,
        }
    }

    fn begun() -> Sparse {
        let sparse = Sparse::default();
        assert!(!sparse.follow(1, 8 * MIB, &at(8, 0)));
        assert!(sparse.follow(2 + LASTS_NS, 8 * MIB, &at(8, 0)) && sparse.is_on());
        sparse
    }

    #[test]
    fn what_is_free_for_a_moment_makes_no_cache_sparse() {
        let sparse = Sparse::default();
        for round in 1..100 {
            for idle in [8, 1] {
                let now = round * LASTS_NS * 2 / 3;
                assert!(!sparse.follow(now, 8 * MIB, &at(idle, 0)));
            }
        }
    }

    #[test]
    fn an_episode_lasts_while_slabs_drain() {
        let sparse = begun();
        for (idle, flushed) in [(6, 900), (5, 1800), (4, 2700), (3, 3600), (2, 4500)] {
            assert!(!sparse.follow(0, 8 * MIB, &at(idle, flushed)) && sparse.is_on());
        }
        sparse.follow(0, 8 * MIB, &at(0, 4500));
        assert!(!sparse.is_on());
    }

    #[test]
    fn one_in_vain_is_not_begun_again_before_more_is_free() {
        let sparse = begun();
        sparse.follow(0, 8 * MIB, &at(8, 1010));
        assert!(!sparse.is_on());
        for (now, idle) in [(1, 9), (3 * LASTS_NS, 9), (6 * LASTS_NS, 11)] {
            assert!(!sparse.follow(now, 8 * MIB, &at(idle, 2001)));
        }
        assert!(sparse.follow(8 * LASTS_NS, 8 * MIB, &at(11, 2001)));
    }
}
