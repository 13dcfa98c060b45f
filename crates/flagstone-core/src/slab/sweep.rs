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
use super::node::End;
use super::refill::Part;
use super::slab::Slab;
use super::slabs::{SHEAF_CACHES, Slabs};
use super::sparse::Course;
use super::state::NO_OBJECT;
use crate::base::Pfn;
use crate::page::Extents;
use crate::policy::Engine;
use crate::sync::Ordering::Relaxed;

/// Slabs taken off a list at a time.
const BATCH: usize = 16;
/// Pages a slab may have to be swept: what `spare` has bits for.
const PAGES_MAX: usize = 32;

impl Course {
    /// What is idle and out of one cache, holes included.
    pub(super) fn of<P: Engines>(slabs: &Slabs<P>, cache: &Cache) -> Self {
        let (mut length, mut flushes) = (0, 0);
        for Part { node, .. } in Part::all(slabs, cache) {
            length += node.slabs.load(Relaxed) as usize * cache.geometry().slab_bytes();
            flushes += node.flushes.load(Relaxed);
        }
        let out = cache.visits.out.load(Relaxed);
        let out_bytes = out as usize * cache.geometry().size();
        Self {
            idle: length.saturating_sub(out_bytes),
            out,
            out_bytes,
            flushes,
            sheaf: u64::from(cache.sheaf_capacity()),
        }
    }
}

impl<P: Engines> Part<'_, P> {
    /// Gives back every page of its partial slabs on which nothing lives.
    pub(super) fn sweep(&self) {
        // Bounded by the length at the start: slabs go to the tail when they are done.
        let mut left = self.node.nr_partial() as usize;
        while left > 0 {
            let mut batch = [Pfn::NONE; BATCH];
            let found = self.unlink_some(&mut batch[..left.min(BATCH)]);
            let mut extents = Extents::default();
            for &pfn in &batch[..found] {
                // SAFETY: slabs of this list are live slabs of the cache; we isolated it.
                unsafe { Slab::at(self.slabs, self.cache, pfn) }.sweep(&mut extents);
            }
            drop(extents);
            if found == 0 {
                return;
            }
            self.put_back(&batch[..found], End::Tail);
            left -= found;
        }
    }

    fn unlink_some(&self, batch: &mut [Pfn]) -> usize {
        let Ok(mut list) = self.node.hold(self.slabs.pages()) else {
            return 0;
        };
        for (found, cell) in batch.iter_mut().enumerate() {
            let pfn = list.head();
            if !pfn.is_some() {
                return found;
            }
            list.remove(pfn);
            *cell = pfn;
        }
        batch.len()
    }
}

impl<P: Engines> Slab<'_, P> {
    /// Gives back the pages of a slab on which no object lives. It is isolated until `extents` are gone.
    fn sweep(&self, extents: &mut Extents<P>) {
        let all = u32::MAX >> (PAGES_MAX - self.cache.geometry().pages().0);
        let needed = self.needed_pages();
        let gone = self.descriptor.spare.load(Relaxed);
        let idle = all & !needed & !gone;
        if idle == 0 {
            return;
        }
        self.note_holes(gone | idle);
        // SAFETY: no live object lies on these pages, and the slab is isolated, so none is
        // handed out there meanwhile.
        unsafe { self.slabs.pages().punch_holes(self.pfn, idle, extents) };
    }

    /// The pages of an isolated slab on which an object lives, as bits.
    fn needed_pages(&self) -> u32 {
        let geometry = self.cache.geometry();
        let fresh = self.fresh();
        let mut free = [0u64; LINKS_MAX.div_ceil(64)];
        let mut index = self.state().freelist();
        while index != NO_OBJECT {
            free[index as usize / 64] |= 1 << (index % 64);
            index = self.links.next(index);
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

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
