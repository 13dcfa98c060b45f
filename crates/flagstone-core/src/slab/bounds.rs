//! What caches may hold now: the policy's limits within what the process may use.
//!
//! ```text
//!   upkeep ─► means ─► limits ─┬─► barns      bytes of one cache's, bytes of all together
//!                              ├─► sheaves    slots of the largest
//!                              └─► page layer (page/means.rs)
//! ```
//!
//! Limits that fell are not only for what comes: caches are shrunk, so that a container that is
//! made smaller gets its memory back.

use super::cache::Cache;
use super::slabs::Slabs;
use crate::base::Means;
use crate::platform::Platform;
use crate::policy::FlagstoneLimits;
use crate::sync::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// The limits in force, and the means they were made for.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Most bytes one barn may hold.
    pub barn_bytes: AtomicUsize,
    /// Bytes all barns together may hold at any time.
    pub barns_quiet: AtomicUsize,
    /// Most bytes any store of free memory may hold (ADR 0013): the barns of all caches, or kept
    /// huge blocks; all there are before means were looked at.
    pub store_bytes: AtomicUsize,
    memory_bytes: AtomicUsize,
    cpus: AtomicU32,
    cpus_in_reach: AtomicU32,
}

impl Bounds {
    /// The policy's limits, for no means in particular.
    pub(crate) fn of(limits: &FlagstoneLimits) -> Self {
        Self {
            barn_bytes: AtomicUsize::new(limits.barn_bytes_max),
            barns_quiet: AtomicUsize::new(limits.barns_bytes_quiet),
            store_bytes: AtomicUsize::new(usize::MAX),
            memory_bytes: AtomicUsize::new(0),
            cpus: AtomicU32::new(0),
            cpus_in_reach: AtomicU32::new(0),
        }
    }

    /// Whether means were never looked at.
    pub(crate) fn unknown(&self) -> bool {
        self.memory_bytes.load(Relaxed) == 0
    }

    fn means(&self) -> Means {
        Means {
            memory_bytes: self.memory_bytes.load(Relaxed),
            cpus: self.cpus.load(Relaxed),
            cpus_in_reach: self.cpus_in_reach.load(Relaxed),
        }
    }

    fn note(&self, means: &Means) {
        self.memory_bytes.store(means.memory_bytes, Relaxed);
        self.cpus.store(means.cpus, Relaxed);
        self.cpus_in_reach.store(means.cpus_in_reach, Relaxed);
    }
}

impl<P: Platform> Slabs<P> {
    /// Looks at what the process may use, and keeps within it from now on. No lock is held by
    /// the caller.
    #[inline(never)]
    pub fn look_at_means(&self) {
        let means = P::means();
        let before = self.bounds.means();
        if means == before {
            return;
        }
        let limits = self.policy().limits.within(&means);
        let fell = means.memory_bytes < before.memory_bytes || means.cpus < before.cpus;
        self.bounds.barn_bytes.store(limits.barn_bytes_max, Relaxed);
        self.bounds
            .barns_quiet
            .store(limits.barns_bytes_quiet, Relaxed);
        self.bounds.store_bytes.store(means.store_bytes(), Relaxed);
        for cache in self.live_caches() {
            cache.bound(&limits);
        }
        if fell {
            self.shrink_all();
        }
        if self.pages().apply(&means) {
            self.bounds.note(&means);
        }
    }
}

impl Cache {
    /// Bounds sheaves and barns that grow with traffic; those of fixed size stay.
    fn bound(&self, limits: &FlagstoneLimits) {
        let sizing = &self.sizing;
        let barn = sizing.barn_bytes.load(Relaxed);
        if barn == 0 || limits.sheaf_bytes_max == 0 {
            return;
        }
        sizing
            .barn_bytes
            .store(barn.min(limits.barn_bytes_max), Relaxed);
        let slots = |bytes: usize| u32::try_from(bytes / self.geometry.size()).unwrap_or(u32::MAX);
        let max = slots(limits.sheaf_bytes_max)
            .max(sizing.first.load(Relaxed))
            .min(sizing.most.load(Relaxed));
        let busy = slots(limits.sheaf_bytes_busy)
            .min(limits.sheaf_capacity_max)
            .max(max);
        sizing.max.store(max, Relaxed);
        sizing.busy.store(busy, Relaxed);
        if sizing.target.load(Relaxed) > busy {
            sizing.target.store(busy, Relaxed);
        }
    }
}
