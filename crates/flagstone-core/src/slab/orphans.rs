//! Slabs without a home: those a signal handler could not put on a list, since it stands on top
//! of the holder of the list's lock.
//!
//! ```text
//!   orphans ─► slab ─► slab ─► ∅      pushed by handlers, taken whole by the next holder of the lock
//! ```
//!
//! An orphan is like a slab that somebody isolated: frees go to it, nobody takes from it, and it
//! stays even when it becomes empty. The stack is `page/stack.rs`.
//!
//! Invariants
//! - `slab.one-isolator`: a slab at rest that is not full and on no list is an orphan.

use super::cache::Cache;
use super::engine::Engines;
use super::node::{End, Node, PartialList};
use super::slabs::Slabs;
use crate::base::{NodeId, Pfn};

impl<P: Engines> Slabs<P> {
    /// Puts them on the list, whose lock is held.
    #[cold]
    #[inline(never)]
    pub(super) fn adopt(&self, node: &Node, list: &mut PartialList) {
        let at = |pfn| self.pages().descriptor(pfn);
        for pfn in node.orphans.take(|pfn| &at(pfn).next) {
            self.list_add(node, list, pfn, End::Tail);
        }
    }

    /// Leaves a slab that is on no list, and that the caller isolated or has just made partial, for
    /// the next holder of the list's lock.
    #[cold]
    #[inline(never)]
    pub fn orphan(&self, node: &Node, pfn: Pfn) {
        let link = |pfn| &self.pages().descriptor(pfn).next;
        node.orphans.push(link, pfn);
    }

    /// Slabs that wait for a holder of the lock; exact when no other thread is at work.
    #[must_use]
    pub fn orphans(&self, cache: &Cache, node: NodeId) -> u64 {
        let link = |pfn| &self.pages().descriptor(pfn).next;
        self.node(cache.id(), node).orphans.iter(link).count() as u64
    }
}

#[cfg(all(test, not(loom)))]
#[path = "orphans_tests.rs"]
mod tests;
