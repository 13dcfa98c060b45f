//! A survey: what one walk over a heap found.

use super::cached::Cached;
use super::counts::CacheSurvey;
use super::ledger::{Ledger, Line};
use super::loose;
use super::residency::{PageBits, Residency};
use super::walk;
use crate::base::{CacheId, Order};
use crate::heap::Ready;
use crate::platform::MAX_CACHES;
use crate::slab::{Cache, Engines, SHEAF_CACHES, Slabs};

/// One cache in the kernel's columns (`/proc/slabinfo`), and where its free objects are.
#[derive(Clone, Copy, Debug)]
pub struct CacheFigures<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether its objects are sheaves: the allocator's own.
    pub internal: bool,
    /// Bytes the program uses of an object.
    pub object_size: usize,
    /// Bytes from one object to the next.
    pub size: usize,
    /// Pages of a slab.
    pub pages: usize,
    /// Order of the smallest block that holds a slab; slabs of other lengths are runs.
    pub order: u32,
    /// Objects in a slab.
    pub objects_per_slab: u32,
    /// Bytes at the end of each slab.
    pub tail_bytes: usize,
    /// Slots of the sheaves made now.
    pub sheaf_capacity: u32,
    /// Objects in all slabs.
    pub objects: u64,
    /// Objects the program holds.
    pub active: u64,
    /// Free objects in their slabs.
    pub free_in_slabs: u64,
    /// Mean bytes asked for per object, by sampling; `None` before the first sample.
    pub mean_requested: Option<u64>,
    /// Resident bytes of the cache, and those of them no live request asked for.
    pub resident_bytes: u64,
    /// See `resident_bytes`.
    pub waste_bytes: u64,
    /// The counts all this comes from.
    pub counts: CacheSurvey,
}

/// What one walk found. Large: keep it in a static, not on a stack. A new one is all zeroes, so
/// that the static takes no place in a file and no page before it is used.
#[derive(Debug)]
pub struct Survey {
    caches: [CacheSurvey; MAX_CACHES],
    /// Resident bytes by purpose, [`Line::NonHeap`] excepted, which the world must add.
    pub ledger: Ledger,
}

impl Survey {
    /// A survey that found nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            caches: [CacheSurvey::NONE; MAX_CACHES],
            ledger: Ledger::EMPTY,
        }
    }

    /// Walks over the heap and keeps what it finds. `false`, and nothing was found, when the
    /// system has no memory for what the walk notes.
    ///
    /// Takes the locks of barns, of zones and of the table of huge blocks, one at a time and for
    /// a moment; on top of a holder it leaves that part out.
    pub fn take<P: Engines>(&mut self, heap: &Ready<P>, residency: &mut dyn Residency) -> bool {
        // In place: a whole survey may not fit on a small stack.
        self.caches.fill(CacheSurvey::NONE);
        self.ledger = Ledger::EMPTY;
        let slabs = heap.slabs();
        let Some(bits) = PageBits::ask(slabs.pages(), residency) else {
            return false;
        };
        let Some(mut cached) = Cached::new(slabs.pages()) else {
            return false;
        };
        loose::objects(slabs, &bits, &mut cached, &mut self.caches);
        walk::pages(slabs, (&bits, &cached), &mut self.caches, &mut self.ledger);
        drop((bits, cached));
        loose::own(slabs, residency, &mut self.ledger);
        loose::huge(heap, residency, &mut self.ledger);
        self.close(slabs);
        true
    }

    /// Brings the caches' bytes into the ledger.
    fn close<P: Engines>(&mut self, slabs: &Slabs<P>) {
        for cache in slabs.live_caches() {
            let found = &self.caches[cache.id().index()];
            let ledger = &mut self.ledger;
            if cache.id().index() <= SHEAF_CACHES {
                ledger.add(Line::SheafMemory, found.resident_bytes());
                continue;
            }
            let requested = requested_of(cache, found);
            ledger.add(Line::Live, requested);
            ledger.add(Line::Rounding, found.live_bytes() - requested);
            ledger.add(Line::SlabTail, found.tail_bytes);
            ledger.add(Line::Sheaves, found.sheaf_bytes.min(found.out_bytes));
            let rest = found.out_bytes.saturating_sub(found.sheaf_bytes);
            ledger.add(Line::Barns, found.barn_bytes.min(rest));
            ledger.add(Line::PartialSlabs, found.partial_bytes);
            ledger.add(Line::Pinned, found.pinned_bytes);
            ledger.add(Line::EmptySlabs, found.empty_bytes);
        }
    }

    /// The figures of every cache that has slabs.
    pub fn caches<'a, P: Engines>(
        &'a self,
        slabs: &'a Slabs<P>,
    ) -> impl Iterator<Item = CacheFigures<'a>> {
        slabs
            .live_caches()
            .filter(|cache| self.caches[cache.id().index()].slabs != 0)
            .map(|cache| self.figures(cache))
    }

    /// The counts of one cache.
    #[must_use]
    pub fn counts(&self, id: CacheId) -> &CacheSurvey {
        &self.caches[id.index()]
    }

    fn figures<'a>(&self, cache: &'a Cache) -> CacheFigures<'a> {
        let counts = self.caches[cache.id().index()];
        let geometry = cache.geometry();
        let internal = cache.id().index() <= SHEAF_CACHES;
        let objects = counts.slabs * u64::from(geometry.objects());
        let resident_bytes = counts.resident_bytes();
        Self::check(&counts);
        CacheFigures {
            name: cache.name(),
            internal,
            object_size: cache.object_size(),
            size: geometry.size(),
            pages: geometry.pages().0,
            order: order_of(geometry.pages().0),
            objects_per_slab: geometry.objects(),
            tail_bytes: geometry.tail_bytes(),
            sheaf_capacity: cache.sheaf_capacity(),
            objects,
            active: counts
                .out
                .saturating_sub(counts.in_sheaves + counts.in_barns),
            free_in_slabs: objects.saturating_sub(counts.out),
            mean_requested: cache.mean_requested(),
            resident_bytes,
            waste_bytes: match internal {
                true => 0,
                false => resident_bytes - requested_of(cache, &counts),
            },
            counts,
        }
    }

    fn check(counts: &CacheSurvey) {
        debug_assert!(counts.empty_slabs <= counts.slabs, "survey.empty-are-slabs");
    }
}

impl Default for Survey {
    fn default() -> Self {
        Self::new()
    }
}

/// Resident bytes of the cache's live objects that were asked for: their share by sampled mean.
fn requested_of(cache: &Cache, found: &CacheSurvey) -> u64 {
    let size = cache.geometry().size() as u64;
    let mean = cache.mean_requested().unwrap_or(size).min(size);
    // In 128 bits: bytes of a heap times an object size may not fit in 64.
    (u128::from(found.live_bytes()) * u128::from(mean) / u128::from(size)) as u64
}

fn order_of(pages: usize) -> u32 {
    let order = usize::BITS - (pages.max(1) - 1).leading_zeros();
    order.min(Order::MAX.get())
}
