//! Taking what the process may use now into account: caches keep within it from then on.
//!
//! ```text
//!   upkeep ─► means ─► limits ─┬─► bounds     barns and stores (policy/bounds.rs)
//!                              ├─► sheaves    slots of the largest
//!                              └─► page layer (page/means.rs)
//! ```
//!
//! Limits that fell are not only for what comes: caches are shrunk, so that a container that is
//! made smaller gets its memory back.

use super::cache::Cache;
use super::engine::Engines;
use super::slabs::Slabs;
use crate::policy::FlagstoneLimits;
use crate::sync::Ordering::Relaxed;

impl<P: Engines> Slabs<P> {
    /// Looks at what the process may use, and keeps within it from now on. No lock is held by
    /// the caller.
    #[inline(never)]
    pub fn look_at_means(&self) {
        let Some(means) = P::means() else { return };
        let before = self.bounds.means();
        if means == before {
            return;
        }
        let limits = self.policy().limits.within(&means);
        let fell = means.memory_bytes < before.memory_bytes || means.cpus < before.cpus;
        self.bounds.set(&limits, &means);
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
