//! Suspicion: whether an object that looks freed is among the free ones.
//!
//! ```text
//!   1  each CPU's main and spare sheaf: a look from outside, then the sheaf in hand
//!   2  each node's barn, under its lock
//! ```
//!
//! (The slab's chain was looked at by [`Slab::assert_live`].) What is found here ends a program,
//! so only what was seen in a sheaf that is held exclusively counts: taken out of its slot, or
//! under the barn's lock. A live object is in none, whatever others do meanwhile, since its owner
//! is here and gives it up afterwards. The look from outside only saves taking sheaves out of
//! slots in vain.
//!
//! Not found is not proof of the contrary: a sheaf may be in somebody's hand or travel from a
//! place not yet looked at to one that was.

use super::cache::Cache;
use super::engine::Engines;
use super::refill::Part;
use super::sheaf::OwnSheaf;
use super::slabs::{SHEAF_CACHES, Slabs};
use crate::base::CpuId;
use crate::platform::{SHEAF_HEADER_BYTES, SheafWord, Slot};
use crate::policy::Engine;
use crate::sync::{AtomicUsize, Ordering::Relaxed};
use core::ptr::NonNull;

/// An object that is about to be freed or used by its only owner, and looks freed.
pub(crate) struct Suspect<'a, P: Engines> {
    pub slabs: &'a Slabs<P>,
    pub cache: &'a Cache,
    pub object: NonNull<u8>,
}

impl<P: Engines> Suspect<'_, P> {
    /// Whether it was found in a sheaf or a barn.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_free(&self) -> bool {
        let Self { slabs, cache, .. } = self;
        if cache.engine() != Engine::Sheaf {
            return false;
        }
        let id = cache.id().index();
        let on_cpu = |cpu| {
            let slots = [Slot::main(id), Slot::spare(id)];
            slots
                .into_iter()
                .any(|slot| self.seems_to_be(cpu, slot) && self.is_there(cpu, slot))
        };
        let in_barn = |part: Part<'_, P>| {
            let mut found = false;
            part.node
                .barn
                .each_object::<P>(&mut |other| found |= other == self.object);
            found
        };
        (0..P::cpu_count()).any(|cpu| on_cpu(CpuId(cpu))) || Part::all(slabs, cache).any(in_barn)
    }

    /// Whether it seems to be in the sheaf of any CPU's `slot`, which may be in use.
    fn seems_to_be(&self, cpu: CpuId, slot: Slot) -> bool {
        let area = self.slabs.area();
        // SAFETY: the CPU is below the count, and a cache's slots are inside the area.
        let word = SheafWord(unsafe { area.word(cpu, slot) }.load(Relaxed));
        if word.is_absent() {
            return false;
        }
        let next = area.entry(word);
        let page = self.slabs.pages().pfn_of(next.as_ptr().cast());
        let cache = page.and_then(|pfn| self.slabs.cache_of_page(pfn));
        let Some(cache) = cache.filter(|cache| cache.id().index() <= SHEAF_CACHES) else {
            return false;
        };
        let into = next.addr().get() & (cache.geometry().size() - 1);
        let entries = into.saturating_sub(SHEAF_HEADER_BYTES) / size_of::<usize>();
        (1..=entries).any(|below| {
            // SAFETY: inside the piece of a sheaf's memory that `next` lies in. The sheaf may be
            // no more by now, but the heap's pages stay readable.
            let entry = unsafe { next.sub(below).cast::<AtomicUsize>().as_ref() };
            entry.load(Relaxed) == self.object.as_ptr() as usize
        })
    }

    /// Takes the sheaves of the cache out of a CPU and looks for it in them.
    fn is_there(&self, cpu: CpuId, slot: Slot) -> bool {
        let Self {
            slabs,
            cache,
            object,
        } = *self;
        // The own CPU's needs no fence, which not every system has.
        let own = (cpu == P::current_cpu()).then(|| slabs.exchange(slot, None));
        if let Some(sheaf) = own.flatten() {
            let found = sheaf.holds(object);
            slabs.drop_sheaf(cache, sheaf);
            if found {
                return true;
            }
        }
        let mut found = false;
        let id = u32::from(cache.id().0);
        let mut take = |_, word| {
            // SAFETY: `seize` hands over the sheaf for us alone.
            if let Some(sheaf) = unsafe { slabs.sheaf_of_word(word) } {
                found |= sheaf.holds(object);
                slabs.drop_sheaf(cache, sheaf);
            }
        };
        // SAFETY: the area is ours and the slot is inside it.
        unsafe { P::seize(slabs.area(), cpu.0..cpu.0 + 1, id..id + 1, &mut take) };
        found
    }
}

impl OwnSheaf {
    /// Whether `object` is in it.
    fn holds(&self, object: NonNull<u8>) -> bool {
        (0..self.len()).any(|index| self.get(index) == Some(object))
    }
}
