//! Filling a sheaf from slabs.
//!
//! ```text
//!   1  list lock: unlink slabs from the head until they hold enough      docs: linux-policies
//!   2  no lock:   take their objects                                      5.3, refill
//!   3  list lock: put slabs with something left back to the head
//!   4  still short: new slabs from the page layer
//! ```

use super::cache::Cache;
use super::engine::Engines;
use super::node::{End, Node};
use super::sheaf::OwnSheaf;
use super::slab::Slab;
use super::slabs::Slabs;
use crate::base::{NodeId, Pfn};
use crate::platform::{Access, Line, Planted, Platform};
use crate::sync::Ordering::Relaxed;
use core::ptr::NonNull;

/// Slabs unlinked in one visit of the list. Bounds the time under the lock; a visit that needs
/// more goes again.
const ISOLATED_MAX: usize = 16;

/// A live cache on one memory node.
pub struct Part<'a, P: Platform> {
    pub(super) slabs: &'a Slabs<P>,
    pub(super) cache: &'a Cache,
    pub(super) id: NodeId,
    pub(crate) node: &'a Node,
}

impl<'a, P: Engines> Part<'a, P> {
    /// `cache` on node `id`.
    #[inline]
    #[must_use]
    pub fn of(slabs: &'a Slabs<P>, cache: &'a Cache, id: NodeId) -> Self {
        Self {
            slabs,
            cache,
            id,
            node: slabs.node(cache.id(), id),
        }
    }

    /// The parts of `cache` on all nodes.
    pub(crate) fn all(slabs: &'a Slabs<P>, cache: &'a Cache) -> impl Iterator<Item = Self> {
        (0..slabs.node_count()).map(|id| Self::of(slabs, cache, NodeId(id)))
    }

    /// Fills `sheaf` from the partial list, then from new slabs. Returns the objects gained; zero
    /// means out of memory.
    pub(super) fn refill(&self, sheaf: &mut OwnSheaf) -> u32 {
        let before = sheaf.len();
        while sheaf.room() > 0 && self.refill_from_list(sheaf) > 0 {}
        while sheaf.room() > 0 && (self.cache.refill_whole || sheaf.len() == before) {
            if self.refill_from_new(sheaf) == 0 {
                break;
            }
        }
        let gained = sheaf.len() - before;
        self.cache.visits.out.fetch_add(u64::from(gained), Relaxed);
        gained
    }

    fn refill_from_list(&self, sheaf: &mut OwnSheaf) -> u32 {
        if self.node.looks_bare() {
            return 0;
        }
        let mut isolated = [Pfn::NONE; ISOLATED_MAX];
        let found = self.isolate(sheaf.room(), &mut isolated);
        // A sheaf hands out what was put last: so the lowest addresses go in last.
        isolated[..found].sort_unstable_by_key(|&pfn| core::cmp::Reverse(pfn));
        let mut gained = 0;
        let mut kept = 0;
        for at in 0..found {
            // SAFETY: slabs on the list of this cache's node are live slabs of the cache.
            let slab = unsafe { Slab::at(self.slabs, self.cache, isolated[at]) };
            let taken = slab.take_into(sheaf, sheaf.room());
            gained += taken.count;
            if taken.full {
                // From here on it belongs to the next free (`slab.full-off-list`).
                continue;
            }
            isolated[kept] = slab.pfn;
            kept += 1;
        }
        if kept > 0 {
            self.put_back(&isolated[..kept], self.cache.sparse.end());
        }
        gained
    }

    /// Unlinks slabs from the head until they hold `want` free objects.
    fn isolate(&self, want: u32, isolated: &mut [Pfn; ISOLATED_MAX]) -> usize {
        let Ok(mut list) = self.node.hold(self.slabs.pages()) else {
            return 0;
        };
        P::touch(Line::Node, self.node.address(), Access::Write);
        let (mut found, mut free) = (0, 0);
        while free < want && found < ISOLATED_MAX && list.head().is_some() {
            let pfn = list.at(self.cache.sparse.end());
            // SAFETY: as in `refill_from_list`.
            let slab = unsafe { Slab::at(self.slabs, self.cache, pfn) };
            slab.touch(Access::Write);
            free += slab.state().free();
            list.remove(pfn);
            isolated[found] = pfn;
            found += 1;
        }
        found
    }

    /// Links isolated slabs that still have free objects again, and gives back what is empty
    /// beyond `min_partial`.
    pub(super) fn put_back(&self, slabs: &[Pfn], end: End) {
        let (node, pages) = (self.node, self.slabs.pages());
        let mut surplus = [Pfn::NONE; ISOLATED_MAX];
        let mut surplus_len = 0;
        {
            let Ok(mut list) = node.hold(pages) else {
                slabs.iter().for_each(|&pfn| node.orphan(pages, pfn));
                return;
            };
            P::touch(Line::Node, self.node.address(), Access::Write);
            for &pfn in slabs.iter().rev() {
                // SAFETY: the caller isolated these slabs.
                let slab = unsafe { Slab::at(self.slabs, self.cache, pfn) };
                if slab.state().is_empty() && node.nr_partial() >= self.cache.min_partial() {
                    surplus[surplus_len] = pfn;
                    surplus_len += 1;
                } else {
                    list.add(pfn, end);
                }
            }
        }
        for &pfn in &surplus[..surplus_len] {
            // SAFETY: as above; the slab is empty and off the list, so it is ours.
            let slab = unsafe { Slab::at(self.slabs, self.cache, pfn) };
            slab.give_back();
        }
    }

    fn refill_from_new(&self, sheaf: &mut OwnSheaf) -> u32 {
        let Some(slab) = Slab::create(self.slabs, self.cache, self.id) else {
            return 0;
        };
        let taken = slab.take_into(sheaf, sheaf.room());
        if !taken.full {
            self.put_back_new(&slab);
        }
        taken.count
    }

    /// Links a slab just created, which may be of another node than was asked for.
    fn put_back_new(&self, slab: &Slab<'_, P>) {
        let home = Self::of(self.slabs, self.cache, slab.descriptor.node());
        home.put_back(&[slab.pfn], End::Head);
    }

    /// One object straight from a slab: for caches without sheaves, and when no sheaf is to be
    /// had (docs: linux-policies 5.3, step 4).
    #[must_use]
    pub fn take_one(&self) -> Option<NonNull<u8>> {
        self.cache.visits.out.fetch_add(1, Relaxed);
        let object = self
            .take_one_from_list()
            .or_else(|| self.take_one_from_new());
        if object.is_none() {
            self.cache.visits.out.fetch_sub(1, Relaxed);
        }
        object
    }

    fn take_one_from_new(&self) -> Option<NonNull<u8>> {
        let slab = Slab::create(self.slabs, self.cache, self.id)?;
        let taken = slab.take_one()?;
        if !taken.full {
            self.put_back_new(&slab);
        }
        Some(taken.object)
    }

    fn take_one_from_list(&self) -> Option<NonNull<u8>> {
        if self.node.looks_bare() {
            return None;
        }
        let mut list = self.node.hold(self.slabs.pages()).ok()?;
        P::touch(Line::Node, self.node.address(), Access::Write);
        let pfn = list.head();
        if !pfn.is_some() {
            return None;
        }
        // SAFETY: slabs on the list are live slabs of the cache.
        let slab = unsafe { Slab::at(self.slabs, self.cache, pfn) };
        // Unlink before the last object goes: a full slab is on no list. The free that makes it
        // partial again waits for this lock, or, where it cannot, leaves the slab as an orphan: so
        // whether it was full is for `take_one` to say, not for another look.
        let unlinked = slab.state().free() == 1;
        if unlinked {
            list.remove(pfn);
        }
        let taken = slab.take_one();
        let full = match P::planted(Planted::AnotherLook) {
            true => slab.state().is_full(),
            false => taken.is_some_and(|taken| taken.full),
        };
        if unlinked && !full {
            list.add(pfn, End::Head);
        }
        taken.map(|taken| taken.object)
    }
}
