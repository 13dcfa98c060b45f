//! The last resort before a request is refused: the heap gives up all it keeps, and tries once more.
//!
//! ```text
//!   refused ─► strays · sheaves and barns · pages between objects · kept huge blocks
//!           ─► free pages, then their address space ─► the request again ─► its block, or None
//! ```
//!
//! A program may ask for the impossible again and again. After a reclaim that did not help nothing is
//! kept, and what is kept later comes by slow paths, which upkeep counts. So a refusal that follows
//! another without a slow path between them does not reclaim again, but for one in [`SPARED`]: frees
//! that fill the sheaves at hand are not counted.
//!
//! Locking: none here. Every step takes its own locks one after the other, so any number of threads
//! may be in here, and a signal handler too. On top of a lock's holder nothing is given up: what the
//! thread below holds may be half changed.

use super::bootstrap::Ready;
use crate::slab::Engines;
use crate::sync::AtomicUsize;
use crate::sync::Ordering::Relaxed;

/// Refusals in a row that share one reclaim. Doubling it halves what a program pays that asks for
/// the impossible, and doubles how long a few hundred objects in sheaves may be overlooked.
const SPARED: usize = 16;

/// When the last reclaim did not help.
#[derive(Debug, Default)]
pub(super) struct LastResort {
    /// Slow-path calls at the last refusal.
    seen: AtomicUsize,
    /// Refusals since the last reclaim.
    spared: AtomicUsize,
}

impl LastResort {
    /// Whether something may be kept, for a refusal after `calls` slow-path calls.
    fn is_due(&self, calls: usize) -> bool {
        // The request itself is one call.
        let idle = calls.wrapping_sub(self.seen.swap(calls, Relaxed)) <= 1;
        let spared = self.spared.load(Relaxed);
        let due = !idle || spared == 0 || spared >= SPARED;
        self.spared.store(if due { 1 } else { spared + 1 }, Relaxed);
        due
    }
}

impl<P: Engines> Ready<P> {
    /// A request that was refused, once more after the heap gave up all it keeps.
    #[cold]
    #[inline(never)]
    pub(super) fn after_reclaim<T>(&self, request: impl FnOnce() -> Option<T>) -> Option<T> {
        if self.is_on_top() {
            return None;
        }
        if !self.last_resort.is_due(self.upkeep_due.load(Relaxed)) {
            return None;
        }
        self.free_strays();
        self.trim(0);
        self.slabs.pages().unmap_idle();
        let served = request();
        if served.is_some() {
            self.last_resort.spared.store(0, Relaxed);
        }
        served
    }
}

#[cfg(all(test, not(loom)))]
#[path = "last_resort_tests.rs"]
mod tests;
