//! Slabs on a node's partial list and off it: the one place where engines change it.
//!
//! A doubly linked list writes to the neighbours' descriptors, which other CPUs wrote last, while its
//! lock is held; that is a part of what a list costs under contention, and every engine pays it here.
//!
//! Orphans are slabs that a signal handler could not put on a list, since it stands on top of the holder
//! of its lock. They wait on a stack (`page/stack.rs`) for the next holder. Frees go to an orphan, nobody
//! takes from it, and it stays even when it becomes empty.
//!
//! Invariants
//! - `slab.one-isolator`: a slab at rest that is not full and on no list is an orphan.

use super::cache::Cache;
use super::engine::Engines;
use super::node::{End, Node, PartialList};
use super::slabs::Slabs;
use crate::base::{NodeId, Pfn};
use crate::platform::{Access, Guard, Line, Reentered};
use crate::sync::Ordering::Relaxed;

impl<P: Engines> Slabs<P> {
    /// A node's partial list with its lock, and on it what handlers had to leave.
    ///
    /// # Errors
    /// `Reentered` on top of the lock's holder.
    #[inline]
    pub fn list<'a>(&self, node: &'a Node) -> Result<Guard<'a, P, PartialList>, Reentered> {
        let mut list = node.list().lock::<P>()?;
        if node.has_orphans() {
            self.adopt(node, &mut list);
        }
        Ok(list)
    }

    /// Puts a slab on a node's list, at the price of the lines that change.
    pub fn list_add(&self, node: &Node, list: &mut PartialList, pfn: Pfn, end: End) {
        let neighbour = match end {
            End::Head => list.head(),
            End::Tail => list.tail(),
        };
        self.touch_neighbour(neighbour);
        P::touch(Line::Node, node.address(), Access::Write);
        node.link(list, |pfn| self.pages().descriptor(pfn), pfn, end);
    }

    /// Takes a slab off a node's list, at the price of the lines that change.
    pub fn list_remove(&self, node: &Node, list: &mut PartialList, pfn: Pfn) {
        let descriptor = self.pages().descriptor(pfn);
        self.touch_neighbour(Pfn(descriptor.next.load(Relaxed)));
        self.touch_neighbour(Pfn(descriptor.prev.load(Relaxed)));
        P::touch(Line::Node, node.address(), Access::Write);
        node.unlink(list, |pfn| self.pages().descriptor(pfn), pfn);
    }

    fn touch_neighbour(&self, pfn: Pfn) {
        if pfn.is_some() {
            let descriptor: *const _ = self.pages().descriptor(pfn);
            P::touch(Line::Slab, descriptor.cast(), Access::Write);
        }
    }

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
