//! The last resort before a request is refused: the heap gives up all it keeps, and tries once more.
//!
//! ```text
//!   refused ─► strays · sheaves and barns · pages between objects · kept huge blocks
//!           ─► free pages, then their address space ─► the request again ─► its block, or None
//! ```
//!
//! A program may ask for the impossible again and again. After a reclaim that did not help nothing is
//! kept, and what is kept later comes by slow paths, which upkeep counts. So a refusal that follows
//! another without a slow path between them does not reclaim again, but for one in `SPARED` (refusals.rs): frees
//! that fill the sheaves at hand are not counted.
//!
//! Locking: none here. Every step takes its own locks, so any number of threads may be in here, and a
//! signal handler too; on top of a lock's holder nothing is given up: it may be half changed.

use super::huge::HUGE_MAX;
use super::ready::Ready;
use crate::slab::Engines;
use crate::sync::Ordering::Relaxed;

impl<P: Engines> Ready<P> {
    /// A request for `size` bytes that was refused, once more after the heap gave up all it keeps.
    #[cold]
    #[inline(never)]
    pub(super) fn after_reclaim<T>(
        &self,
        size: usize,
        request: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        if size > HUGE_MAX || self.is_on_top() {
            return None;
        }
        if !self.refusals.is_due(self.bell().load(Relaxed)) {
            return None;
        }
        self.free_strays();
        self.trim(0);
        self.slabs.pages().unmap_idle();
        let served = request();
        if served.is_some() {
            self.refusals.note_served();
        }
        served
    }
}

#[cfg(test)]
#[path = "last_resort_tests.rs"]
mod tests;
