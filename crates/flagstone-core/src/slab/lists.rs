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

use super::node::{End, Node, PartialList};
use crate::base::Pfn;
use crate::page::{PageAllocator, Pagesets};
use crate::platform::{Access, Guard, Line, Reentered};
use crate::sync::Ordering::Relaxed;
use core::ops::Deref;

/// A node's partial list, with its lock.
pub struct HeldList<'a, P: Pagesets> {
    node: &'a Node,
    pages: &'a PageAllocator<P>,
    list: Guard<'a, P, PartialList>,
}

impl Node {
    /// The partial list with its lock, and on it what handlers had to leave.
    ///
    /// # Errors
    /// `Reentered` on top of the lock's holder.
    #[inline]
    pub fn hold<'a, P: Pagesets>(
        &'a self,
        pages: &'a PageAllocator<P>,
    ) -> Result<HeldList<'a, P>, Reentered> {
        let mut held = HeldList {
            node: self,
            pages,
            list: self.list().lock::<P>()?,
        };
        if self.has_orphans() {
            held.adopt();
        }
        Ok(held)
    }

    /// The partial list if nobody holds its lock, without what handlers left.
    #[inline]
    pub fn try_hold<'a, P: Pagesets>(
        &'a self,
        pages: &'a PageAllocator<P>,
    ) -> Option<HeldList<'a, P>> {
        Some(HeldList {
            node: self,
            pages,
            list: self.list().try_lock::<P>()?,
        })
    }

    /// Leaves a slab that is on no list, and that the caller isolated or has just made partial, for
    /// the next holder of the list's lock.
    #[cold]
    #[inline(never)]
    pub fn orphan<P: Pagesets>(&self, pages: &PageAllocator<P>, pfn: Pfn) {
        self.orphans.push(|pfn| &pages.descriptor(pfn).next, pfn);
    }

    /// Slabs that wait for a holder of the lock; exact when no other thread is at work.
    #[must_use]
    pub fn orphans<P: Pagesets>(&self, pages: &PageAllocator<P>) -> u64 {
        let link = |pfn| &pages.descriptor(pfn).next;
        self.orphans.iter(link).count() as u64
    }
}

impl<P: Pagesets> Deref for HeldList<'_, P> {
    type Target = PartialList;

    #[inline]
    fn deref(&self) -> &PartialList {
        &self.list
    }
}

impl<P: Pagesets> HeldList<'_, P> {
    /// Puts a slab on the list, at the price of the lines that change.
    pub fn add(&mut self, pfn: Pfn, end: End) {
        self.touch_neighbour(self.list.at(end));
        P::touch(Line::Node, self.node.address(), Access::Write);
        self.list.insert(self.pages.memmap(), pfn, end);
        let len = self.node.nr_partial();
        self.node.nr_partial.store(len + 1, Relaxed);
    }

    /// Takes a slab off the list, at the price of the lines that change.
    pub fn remove(&mut self, pfn: Pfn) {
        let at = |pfn| self.pages.descriptor(pfn);
        self.touch_neighbour(Pfn(at(pfn).next.load(Relaxed)));
        self.touch_neighbour(Pfn(at(pfn).prev.load(Relaxed)));
        P::touch(Line::Node, self.node.address(), Access::Write);
        self.list.remove(self.pages.memmap(), pfn);
        let len = self.node.nr_partial();
        self.node.nr_partial.store(len - 1, Relaxed);
    }

    fn touch_neighbour(&self, pfn: Pfn) {
        if pfn.is_some() {
            let descriptor: *const _ = self.pages.descriptor(pfn);
            P::touch(Line::Slab, descriptor.cast(), Access::Write);
        }
    }

    /// Puts on it what handlers left.
    #[cold]
    #[inline(never)]
    fn adopt(&mut self) {
        let pages = self.pages;
        for pfn in self.node.orphans.take(|pfn| &pages.descriptor(pfn).next) {
            self.add(pfn, End::Tail);
        }
    }
}

#[cfg(test)]
#[path = "orphans_tests.rs"]
mod tests;
