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
use super::sweep::holes_of;
use crate::base::{NodeId, Pfn};
use crate::page::PageKind;
use crate::platform::{Access, Line, Planted, Work};
use crate::sync::Ordering::Relaxed;
use core::ptr::NonNull;

/// Slabs unlinked in one visit of the list. Bounds the time under the lock; a visit that needs
/// more goes again.
const ISOLATED_MAX: usize = 16;

impl<P: Engines> Slabs<P> {
    /// Fills `sheaf` from the partial list of `node`, then from new slabs. Returns the objects
    /// gained; zero means out of memory.
    pub(crate) fn refill(&self, cache: &Cache, node_id: NodeId, sheaf: &mut OwnSheaf) -> u32 {
        let before = sheaf.len();
        let node = self.node(cache.id(), node_id);
        while sheaf.room() > 0 && self.refill_from_list(cache, node, sheaf) > 0 {}
        while sheaf.room() > 0 && (cache.refill_whole || sheaf.len() == before) {
            if self.refill_from_new(cache, node_id, sheaf) == 0 {
                break;
            }
        }
        let gained = sheaf.len() - before;
        cache.visits.out.fetch_add(u64::from(gained), Relaxed);
        gained
    }

    fn refill_from_list(&self, cache: &Cache, node: &Node, sheaf: &mut OwnSheaf) -> u32 {
        if node.looks_bare() {
            return 0;
        }
        let mut isolated = [Pfn::NONE; ISOLATED_MAX];
        let found = self.isolate(cache, node, sheaf.room(), &mut isolated);
        // A sheaf hands out what was put last: so the lowest addresses go in last.
        isolated[..found].sort_unstable_by_key(|&pfn| core::cmp::Reverse(pfn));
        let mut gained = 0;
        let mut kept = 0;
        for at in 0..found {
            // SAFETY: slabs on the list of this cache's node are live slabs of the cache.
            let slab = unsafe { Slab::at(self, cache, isolated[at]) };
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
            self.put_back(cache, node, &isolated[..kept], cache.sparse.end());
        }
        gained
    }

    /// Unlinks slabs from the head until they hold `want` free objects.
    fn isolate(
        &self,
        cache: &Cache,
        node: &Node,
        want: u32,
        isolated: &mut [Pfn; ISOLATED_MAX],
    ) -> usize {
        let Ok(mut list) = self.list(node) else {
            return 0;
        };
        P::touch(Line::Node, node.address(), Access::Write);
        let (mut found, mut free) = (0, 0);
        while free < want && found < ISOLATED_MAX && list.head().is_some() {
            let pfn = list.at(cache.sparse.end());
            // SAFETY: as in `refill_from_list`.
            let slab = unsafe { Slab::at(self, cache, pfn) };
            P::touch(
                Line::Slab,
                core::ptr::from_ref(slab.descriptor).cast(),
                Access::Write,
            );
            free += slab.state().free();
            self.list_remove(node, &mut list, pfn);
            isolated[found] = pfn;
            found += 1;
        }
        found
    }

    /// Links isolated slabs that still have free objects again, and gives back what is empty
    /// beyond `min_partial`.
    pub(crate) fn put_back(&self, cache: &Cache, node: &Node, slabs: &[Pfn], end: End) {
        let mut surplus = [Pfn::NONE; ISOLATED_MAX];
        let mut surplus_len = 0;
        {
            let Ok(mut list) = self.list(node) else {
                slabs.iter().for_each(|&pfn| self.orphan(node, pfn));
                return;
            };
            P::touch(Line::Node, node.address(), Access::Write);
            for &pfn in slabs.iter().rev() {
                // SAFETY: the caller isolated these slabs.
                let slab = unsafe { Slab::at(self, cache, pfn) };
                if slab.state().is_empty() && node.nr_partial() >= cache.min_partial() {
                    surplus[surplus_len] = pfn;
                    surplus_len += 1;
                } else {
                    self.list_add(node, &mut list, pfn, end);
                }
            }
        }
        for &pfn in &surplus[..surplus_len] {
            // SAFETY: as above; the slab is empty and off the list, so it is ours.
            let slab = unsafe { Slab::at(self, cache, pfn) };
            self.give_back_slab(&slab);
        }
    }

    fn refill_from_new(&self, cache: &Cache, node_id: NodeId, sheaf: &mut OwnSheaf) -> u32 {
        let Some(slab) = self.new_slab(cache, node_id) else {
            return 0;
        };
        let taken = slab.take_into(sheaf, sheaf.room());
        if !taken.full {
            self.put_back(cache, slab.node(), &[slab.pfn], End::Head);
        }
        taken.count
    }

    /// A slab none of whose objects was handed out, on no list; the caller owns it.
    pub fn new_slab<'a>(&'a self, cache: &'a Cache, node_id: NodeId) -> Option<Slab<'a, P>> {
        let geometry = cache.geometry();
        let block = match geometry.order() {
            Some(order) => self.pages().alloc_block(order, node_id)?,
            None => self.pages().alloc_run(geometry.pages(), node_id)?,
        };
        P::work(Work::NewSlab(match cache.links_when_taken() {
            true => 0,
            false => geometry.pages().0 as u32,
        }));
        let pfn = block.pfn;
        self.pages().name_tails(pfn, geometry.pages());
        self.describe_slab(cache, pfn);
        // SAFETY: just described; nobody else knows it.
        let slab = unsafe { Slab::at(self, cache, pfn) };
        slab.links.reset();
        let node = slab.node();
        node.slabs.fetch_add(1, Relaxed);
        Some(slab)
    }

    /// Makes a block a slab. Its length and its tails are the page layer's to say (`page.tails`).
    fn describe_slab(&self, cache: &Cache, pfn: Pfn) {
        let geometry = cache.geometry();
        let head = self.pages().descriptor(pfn);
        head.cache.store(cache.id().0, Relaxed);
        head.fresh.store(0, Relaxed);
        head.flags.store(0, Relaxed);
        head.spare.store(
            if geometry.links_aside() {
                0
            } else {
                self.next_generation()
            },
            Relaxed,
        );
        head.state.store(
            super::state::SlabState::untouched(geometry.objects()).0,
            Relaxed,
        );
        head.set_kind(PageKind::Slab);
        self.map_pages(pfn, geometry.pages(), cache.id().0 as u8);
    }

    /// Gives an empty slab that is on no list back to the page layer.
    pub fn give_back_slab(&self, slab: &Slab<'_, P>) {
        let geometry = slab.cache.geometry();
        let holes = holes_of(slab);
        slab.node().slabs.fetch_sub(1, Relaxed);
        self.map_pages(slab.pfn, geometry.pages(), 0);
        // SAFETY: the slab is empty and on no list, so nobody refers to its pages any more.
        unsafe {
            match geometry.order() {
                _ if holes != 0 => {
                    self.pages()
                        .free_with_holes(slab.pfn, geometry.pages(), holes);
                }
                Some(order) => self.pages().free_block(slab.pfn, order),
                None => self.pages().free_run(slab.pfn, geometry.pages()),
            }
        }
    }

    /// One object straight from a slab: for caches without sheaves, and when no sheaf is to be
    /// had (docs: linux-policies 5.3, step 4).
    pub fn take_one(&self, cache: &Cache, node_id: NodeId) -> Option<NonNull<u8>> {
        cache.visits.out.fetch_add(1, Relaxed);
        let object = self.take_one_somewhere(cache, node_id);
        if object.is_none() {
            cache.visits.out.fetch_sub(1, Relaxed);
        }
        object
    }

    fn take_one_somewhere(&self, cache: &Cache, node_id: NodeId) -> Option<NonNull<u8>> {
        let node = self.node(cache.id(), node_id);
        if let Some(object) = self.take_one_from_list(cache, node) {
            return Some(object);
        }
        let slab = self.new_slab(cache, node_id)?;
        let taken = slab.take_one()?;
        if !taken.full {
            self.put_back(cache, slab.node(), &[slab.pfn], End::Head);
        }
        Some(taken.object)
    }

    fn take_one_from_list(&self, cache: &Cache, node: &Node) -> Option<NonNull<u8>> {
        if node.looks_bare() {
            return None;
        }
        let mut list = self.list(node).ok()?;
        P::touch(Line::Node, node.address(), Access::Write);
        let pfn = list.head();
        if !pfn.is_some() {
            return None;
        }
        // SAFETY: slabs on the list are live slabs of the cache.
        let slab = unsafe { Slab::at(self, cache, pfn) };
        // Unlink before the last object goes: a full slab is on no list. The free that makes it
        // partial again waits for this lock, or, where it cannot, leaves the slab as an orphan: so
        // whether it was full is for `take_one` to say, not for another look.
        let unlinked = slab.state().free() == 1;
        if unlinked {
            self.list_remove(node, &mut list, pfn);
        }
        let taken = slab.take_one();
        let full = match P::planted(Planted::AnotherLook) {
            true => slab.state().is_full(),
            false => taken.is_some_and(|taken| taken.full),
        };
        if unlinked && !full {
            self.list_add(node, &mut list, pfn, End::Head);
        }
        taken.map(|taken| taken.object)
    }
}
