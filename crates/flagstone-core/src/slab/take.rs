//! Taking objects out of a slab: those on its chain first, then those never handed out.
//!
//! One compare-and-swap for all of them. The caller isolated the slab, or holds the list's lock.
//!
//! The lowest address is handed out first, but of objects that share a line only one in each round through the batch: two
//! that are handed out one after the other may soon be written by two threads (docs: ADR 0051).

use super::engine::Engines;
use super::index_set::{IndexSet, SORTED_MAX};
use super::sheaf::OwnSheaf;
use super::slab::{Slab, Taken, TakenOne};
use super::state::NO_OBJECT;
use crate::platform::{Access, Work};
use crate::sync::Ordering::Relaxed;

impl<P: Engines> Slab<'_, P> {
    /// Moves up to `want` free objects into `sheaf`, which has room for them.
    ///
    /// The caller isolated the slab: nobody else takes from it, though frees may come in. A slab
    /// that this made full is no longer the caller's: the next free puts it on the list, perhaps
    /// before this returns, so the answer comes from our own swap and not from another look.
    pub(crate) fn take_into(&self, sheaf: &mut OwnSheaf, want: u32) -> Taken {
        self.fill_holes();
        let chained = self.take_chained(sheaf, want);
        if chained.count == want {
            return chained;
        }
        let fresh = self.take_fresh(sheaf, want - chained.count);
        Taken {
            count: chained.count + fresh.count,
            full: chained.full || fresh.full,
        }
    }

    fn take_chained(&self, sheaf: &mut OwnSheaf, want: u32) -> Taken {
        if want == 0 {
            return Taken::NOTHING;
        }
        self.fetch_links_ahead(self.state().free(), want);
        let base = sheaf.len();
        loop {
            self.touch(Access::Atomic);
            let state = self.state();
            let mut next = state.freelist();
            let mut count = 0;
            while next != NO_OBJECT && count < want {
                sheaf.put(self.links.object(next));
                next = self.links.next(next);
                count += 1;
            }
            if count == 0 {
                return Taken::NOTHING;
            }
            let after = state.with(next, state.inuse() + count);
            if self.swap_state(state, after) {
                // Only now are they ours: take their marks off.
                self.hand_out_chain(state.freelist(), count, base, sheaf);
                P::work(Work::Objects(count));
                return Taken {
                    count,
                    full: after.is_full(),
                };
            }
            while sheaf.len() > base {
                let _ = sheaf.take();
            }
        }
    }

    /// Along a chain each object's line waits for the one before. Where at least half of the slab is free and half of that is
    /// wanted, all its lines are fetched at once: fewer would fetch more lines in vain than are used.
    fn fetch_links_ahead(&self, free: u32, want: u32) {
        if free * 2 >= self.cache.geometry().objects() && want * 2 >= free {
            self.links.fetch_ahead();
        }
    }

    /// Takes the marks off the first `count` objects of a chain that was just detached, and puts
    /// them into the sheaf's slots from `base` on in the order of this module.
    fn hand_out_chain(&self, first: u32, count: u32, base: u32, sheaf: &mut OwnSheaf) {
        let mut index = first;
        if self.cache.geometry().objects() > SORTED_MAX {
            for _ in 0..count {
                index = self.links.take(index);
            }
            return;
        }
        let mut set = IndexSet::new();
        for _ in 0..count {
            set.insert(index);
            index = self.links.take(index);
        }
        let mut slot = base;
        set.for_each_descending(self.cache.geometry().per_line(), |index| {
            sheaf.set(slot, self.links.object(index));
            slot += 1;
        });
    }

    fn take_fresh(&self, sheaf: &mut OwnSheaf, want: u32) -> Taken {
        let fresh = self.fresh();
        let count = want.min(self.cache.geometry().objects() - fresh);
        if count == 0 {
            return Taken::NOTHING;
        }
        self.descriptor.fresh.store((fresh + count) as u16, Relaxed);
        // A sheaf hands out first what was put last.
        let per_line = self.cache.geometry().per_line();
        for place in (0..per_line).rev() {
            for index in (fresh..fresh + count).rev() {
                if index % per_line == place {
                    let object = self.links.object(index);
                    self.cache.construct(object);
                    sheaf.put(object);
                }
            }
        }
        P::work(Work::Objects(count));
        // Last, because a slab that becomes full here is not ours any more.
        Taken {
            count,
            full: self.add_inuse(count),
        }
    }

    /// Counts objects as handed out; answers whether the slab is full with that.
    fn add_inuse(&self, count: u32) -> bool {
        loop {
            self.touch(Access::Atomic);
            let state = self.state();
            let after = state.with(state.freelist(), state.inuse() + count);
            if self.swap_state(state, after) {
                return after.is_full();
            }
        }
    }

    /// Takes one object; the caller isolated the slab or holds the list lock that takers need. As in
    /// [`Slab::take_into`], a slab that this made full is no longer the caller's.
    pub(crate) fn take_one(&self) -> Option<TakenOne> {
        self.fill_holes();
        loop {
            self.touch(Access::Atomic);
            let state = self.state();
            let first = state.freelist();
            if first == NO_OBJECT {
                break;
            }
            let next = self.links.next(first);
            let after = state.with(next, state.inuse() + 1);
            if self.swap_state(state, after) {
                self.links.take(first);
                return Some(TakenOne {
                    object: self.links.object(first),
                    full: after.is_full(),
                });
            }
        }
        let fresh = self.fresh();
        if fresh == self.cache.geometry().objects() {
            return None;
        }
        self.descriptor.fresh.store((fresh + 1) as u16, Relaxed);
        let object = self.links.object(fresh);
        self.cache.construct(object);
        Some(TakenOne {
            object,
            full: self.add_inuse(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::slabs_for_tests::{built, cache_of, cpus};

    #[test]
    fn small_objects_handed_out_one_after_the_other_lie_in_lines_of_their_own() {
        let (_world, slabs) = built("flagstone", cpus(1));
        for size in [16, 32] {
            let cache = slabs.cache(cache_of(&slabs, size));
            let line = || slabs.alloc(cache).expect("memory").as_ptr() as usize / 64;
            // Longer than any refill, so that it crosses from one to the next.
            let lines: std::vec::Vec<_> = (0..1000).map(|_| line()).collect();
            let shared = lines.windows(2).filter(|pair| pair[0] == pair[1]).count();
            let mut distinct = lines.clone();
            distinct.sort_unstable();
            distinct.dedup();
            // Where a refill ends in the middle of a line two may share it.
            assert!(shared <= 2, "{size}: {shared}");
            // And the memory in use is no more than in plain order.
            assert!(
                distinct.len() <= 1000 * size / 64 + 64,
                "{size}: {}",
                distinct.len()
            );
        }
    }
}
