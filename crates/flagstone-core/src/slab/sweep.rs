//! Sweeping: giving back pages of partial slabs on which no object lives.
//!
//! ```text
//!   slab    [ page 0 | page 1 | page 2 | page 3 ]
//!   objects  live      free     free     live        pages 1 and 2 are given back; the slab
//!                                                    stays, its descriptor notes the holes
//! ```
//!
//! After many frees at random most slabs hold a few objects, and none can go back whole. Where
//! links lie aside (objects of a sixteenth of a page and more) a free object's memory holds
//! nothing, so whole pages between live objects can be decommitted. They read as zero and fault
//! in again when an object there is handed out.
//!
//! When: after a good deal was flushed into slabs, if idle bytes are a share of what lives and the
//! allowance pays for it. A sweep that brings little charges its walk, and a hole that is wanted again
//! its fault, so that a steady program is left alone.
//!
//! Invariants
//! - `sweep.holes-noted`: a slab has `flag::HOLES` exactly while its `spare` names pages given
//!   back, and the page layer counts the sum of those over all slabs.

use super::cache::Cache;
use super::engine::Engines;
use super::geometry::LINKS_MAX;
use super::node::{End, Node};
use super::slab::Slab;
use super::slabs::{SHEAF_CACHES, Slabs};
use super::sparse::Course;
use super::state::NO_OBJECT;
use crate::base::{NodeId, PageCount, Pfn};
use crate::page::flag;
use crate::policy::Engine;
use crate::sync::Ordering::Relaxed;

/// Flushed bytes below which a sweep is not worth its calls.
const FLUSHED_MIN: usize = 4 << 20;
/// Share of the bytes in use (as a divisor) that must be flushed before a sweep, and that must
/// be idle to make one worth while.
const SHARE: usize = 32;
/// Slabs taken off a list at a time.
const BATCH: usize = 16;
/// Pages a slab may have to be swept: what `spare` has bits for.
const PAGES_MAX: usize = 32;

impl<P: Engines> Slabs<P> {
    /// Sweeps if enough was flushed and enough is idle; called by upkeep.
    pub fn sweep_if_due(&self) {
        let share = FLUSHED_MIN.max(self.pages().live().bytes(P::page_size()) / SHARE);
        if self.pages().budget().moved.flushed.load(Relaxed) < share {
            return;
        }
        if !self.pages().budget().sweeps.affords(P::now()) {
            return;
        }
        self.pages().budget().moved.flushed.store(0, Relaxed);
        if self.idle_of(Cache::can_be_swept) >= share {
            let before = self.pages().holes().0;
            let slabs = self.sweep();
            let gained = self.pages().holes().0.saturating_sub(before);
            if PageCount(gained).bytes(P::page_size()) < share / 4 {
                self.pages().budget().charge_slabs(slabs, P::now());
            }
        }
    }

    /// Bytes of slabs of these caches in which no object that is out lies, less what was given back.
    pub(crate) fn idle_of(&self, of: impl Fn(&Cache) -> bool) -> usize {
        let caches = self.live_caches().filter(|cache| of(cache));
        let idle: usize = caches.map(|cache| self.course(cache).idle).sum();
        idle.saturating_sub(self.pages().holes().bytes(P::page_size()))
    }

    /// What is idle and out of one cache, holes included.
    pub(crate) fn course(&self, cache: &Cache) -> Course {
        let nodes = (0..self.node_count()).map(|node| self.node(cache.id(), NodeId(node)));
        let (slabs, flushes) = nodes.fold((0, 0), |(slabs, flushes), node| {
            let more = node.slabs.load(Relaxed) as usize;
            (slabs + more, flushes + node.flushes.load(Relaxed))
        });
        let out = cache.visits.out.load(Relaxed);
        let out_bytes = out as usize * cache.geometry().size();
        Course {
            idle: (slabs * cache.geometry().slab_bytes()).saturating_sub(out_bytes),
            out,
            out_bytes,
            flushes,
            sheaf: u64::from(cache.sheaf_capacity()),
        }
    }

    /// Gives back every page of partial slabs on which nothing lives; answers how many slabs it
    /// looked through.
    #[inline(never)]
    pub fn sweep(&self) -> usize {
        let mut slabs = 0;
        for cache in self.live_caches().filter(|cache| cache.can_be_swept()) {
            for node in 0..self.node_count() {
                let node = self.node(cache.id(), NodeId(node));
                slabs += node.nr_partial() as usize;
                self.sweep_node(cache, node);
            }
        }
        slabs
    }

    fn sweep_node(&self, cache: &Cache, node: &Node) {
        // Bounded by the length at the start: slabs go to the tail when they are done.
        let mut left = node.nr_partial() as usize;
        while left > 0 {
            let mut batch = [Pfn::NONE; BATCH];
            let found = self.unlink_some(node, &mut batch[..left.min(BATCH)]);
            for &pfn in &batch[..found] {
                // SAFETY: slabs of this list are live slabs of the cache; we isolated it.
                self.sweep_slab(&unsafe { Slab::at(self, cache, pfn) });
            }
            if found == 0 {
                return;
            }
            self.put_back(cache, node, &batch[..found], End::Tail);
            left -= found;
        }
    }

    fn unlink_some(&self, node: &Node, batch: &mut [Pfn]) -> usize {
        let Ok(mut list) = self.list(node) else {
            return 0;
        };
        for (found, cell) in batch.iter_mut().enumerate() {
            let pfn = list.head();
            if !pfn.is_some() {
                return found;
            }
            self.list_remove(node, &mut list, pfn);
            *cell = pfn;
        }
        batch.len()
    }

    /// Gives back the pages of an isolated slab on which no object lives.
    fn sweep_slab(&self, slab: &Slab<'_, P>) {
        let needed = needed_pages(slab);
        let pages = slab.cache.geometry().pages().0;
        let gone = slab.descriptor.spare.load(Relaxed);
        let all = u32::MAX >> (PAGES_MAX - pages);
        let idle = all & !needed & !gone;
        if idle == 0 {
            return;
        }
        note_holes(slab, gone | idle);
        // SAFETY: no live object lies on these pages, and the slab is isolated, so none is
        // handed out there meanwhile.
        unsafe { self.pages().punch_holes(slab.pfn, idle) };
    }

    /// Forgets the holes of a slab whose objects are about to be handed out.
    #[inline]
    pub(crate) fn fill_holes(&self, slab: &Slab<'_, P>) {
        if slab.descriptor.has(flag::HOLES) {
            let holes = note_holes(slab, 0);
            self.pages().fill_holes(slab.pfn, holes);
            let pages = holes.count_ones() as usize;
            self.pages().budget().charge_holes(pages, P::now());
        }
    }
}

/// The holes of a slab that its owner is about to give back, as bits.
pub(crate) fn holes_of<P: Engines>(slab: &Slab<'_, P>) -> u32 {
    if slab.descriptor.has(flag::HOLES) {
        slab.descriptor.spare.load(Relaxed)
    } else {
        0
    }
}

/// Notes which pages of a slab are given back; answers which were.
fn note_holes<P: Engines>(slab: &Slab<'_, P>, holes: u32) -> u32 {
    slab.descriptor.mark(flag::HOLES, holes != 0);
    slab.descriptor.spare.swap(holes, Relaxed)
}

impl Cache {
    /// Whether pages of its slabs can go back while the slab stays.
    pub(crate) fn can_be_swept(&self) -> bool {
        self.engine() == Engine::Sheaf
            && self.geometry().links_aside()
            && self.geometry().pages().0 <= PAGES_MAX
            && self.ctor.is_none()
            && self.id().index() > SHEAF_CACHES
    }
}

/// The pages of an isolated slab on which an object lives, as bits.
fn needed_pages<P: Engines>(slab: &Slab<'_, P>) -> u32 {
    let geometry = slab.cache.geometry();
    let fresh = slab.fresh();
    let mut free = [0u64; LINKS_MAX.div_ceil(64)];
    let mut index = slab.state().freelist();
    while index != NO_OBJECT {
        free[index as usize / 64] |= 1 << (index % 64);
        index = slab.links.next(index);
    }
    let mut needed = 0;
    for index in 0..fresh {
        if free[index as usize / 64] >> (index % 64) & 1 == 0 {
            let start = geometry.offset_of(index);
            let first = start >> geometry.page_shift();
            let last = (start + geometry.size() - 1) >> geometry.page_shift();
            for page in first..=last {
                needed |= 1 << page;
            }
        }
    }
    needed
}

#[cfg(all(test, not(loom)))]
#[path = "sweep_tests.rs"]
mod tests;
