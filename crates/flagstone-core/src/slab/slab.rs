//! One slab: taking objects out of it, putting chains of objects back.
//!
//! ```text
//!   take_into   chain objects first, then objects never handed out     by whoever isolated it
//!   put_chain   one compare-and-swap; list work only when the slab     by anybody, any time
//!               was full or becomes empty
//! ```
//!
//! All engines are written over these two steps (docs: linux-policies 4.4 and 5.4).

use super::cache::Cache;
use super::chain::Links;
use super::engine::{Engines, ObjectEngine};
use super::index_set::{IndexSet, SORTED_MAX};
use super::node::{End, Node};
use super::sheaf::OwnSheaf;
use super::slabs::Slabs;
use super::state::{NO_OBJECT, SlabState};
use crate::base::Pfn;
use crate::page::{Descriptor, PageKind, flag};
use crate::platform::{Access, Fault, Line, Work};
use crate::policy::Engine;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use core::ptr::NonNull;

/// A live slab of a known cache.
pub struct Slab<'a, P: Engines> {
    /// The heap it belongs to.
    pub slabs: &'a Slabs<P>,
    /// Its cache.
    pub cache: &'a Cache,
    /// Its first page.
    pub pfn: Pfn,
    /// That page's descriptor.
    pub descriptor: &'a Descriptor,
    /// The links of its free objects.
    pub links: Links<'a, P>,
}

/// A chain of free objects of one slab, linked but not yet part of it.
#[derive(Clone, Copy)]
pub struct Chain {
    /// Index of the first object.
    pub first: u32,
    /// Index of the last one.
    pub last: u32,
    /// How many they are.
    pub count: u32,
}

/// What a taker got, and whether the slab was full at that moment.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub count: u32,
    pub full: bool,
}

/// One object that was taken, and whether the slab was full at that moment.
#[derive(Clone, Copy)]
pub(crate) struct TakenOne {
    pub object: NonNull<u8>,
    pub full: bool,
}

impl Taken {
    const NOTHING: Self = Self {
        count: 0,
        full: false,
    };
}

impl<'a, P: Engines> Slab<'a, P> {
    /// The slab headed by `pfn`.
    ///
    /// # Safety
    /// 1. `pfn` heads a live slab of `cache`.
    pub unsafe fn at(slabs: &'a Slabs<P>, cache: &'a Cache, pfn: Pfn) -> Self {
        let descriptor = slabs.pages().descriptor(pfn);
        let start = slabs.pages().address(pfn);
        let seal = Links::<P>::seal_of(slabs.secret(), descriptor.spare.load(Relaxed));
        let aside = slabs.pages().links_of(pfn);
        // SAFETY: obligation 1.
        let links = unsafe { Links::new(aside, start, cache.geometry(), seal) };
        Self {
            slabs,
            cache,
            pfn,
            descriptor,
            links,
        }
    }

    /// The slab that holds `object`, and the object's index in it. Ends the program if no object
    /// of the cache starts there.
    ///
    /// # Safety
    /// 1. The page map named `cache` for the page of `object`, and the slab is still live
    ///    (the object is handed out, or the program freed it wrongly).
    pub unsafe fn holding(
        slabs: &'a Slabs<P>,
        cache: &'a Cache,
        object: NonNull<u8>,
    ) -> (Self, u32) {
        let pages = slabs.pages();
        let head = pages
            .pfn_of(object.as_ptr())
            .and_then(|pfn| pages.head_of(pfn));
        let Some(head) = head.filter(|&h| pages.descriptor(h).kind() == PageKind::Slab) else {
            P::fatal(Fault::InvalidFree, object.as_ptr())
        };
        // SAFETY: obligation 1.
        let slab = unsafe { Self::at(slabs, cache, head) };
        let index = slab.index(object);
        (slab, index)
    }

    /// The index of `object`. Ends the program if no object handed out starts there.
    #[inline]
    pub fn index(&self, object: NonNull<u8>) -> u32 {
        let start = self.slabs.pages().address(self.pfn).as_ptr() as usize;
        let offset = (object.as_ptr() as usize).wrapping_sub(start);
        match self.cache.geometry().index_of(offset) {
            Some(index) if index < self.fresh() => index,
            _ => P::fatal(Fault::InvalidFree, object.as_ptr()),
        }
    }

    /// Whether `object` lies in this slab.
    #[inline]
    pub fn contains(&self, object: NonNull<u8>) -> bool {
        let start = self.slabs.pages().address(self.pfn).as_ptr() as usize;
        (object.as_ptr() as usize).wrapping_sub(start) < self.cache.geometry().slab_bytes()
    }

    /// The state word now.
    #[inline]
    pub fn state(&self) -> SlabState {
        SlabState(self.descriptor.state.load(Acquire))
    }

    /// Replaces the state word if it is still `old`.
    #[inline]
    pub fn swap_state(&self, old: SlabState, new: SlabState) -> bool {
        let swapped = self
            .descriptor
            .state
            .compare_exchange(old.0, new.0, AcqRel, Relaxed)
            .is_ok();
        P::changed();
        swapped
    }

    /// Objects from this index on were never handed out.
    #[inline]
    pub fn fresh(&self) -> u32 {
        u32::from(self.descriptor.fresh.load(Relaxed))
    }

    /// Says that the slab's line is about to be used.
    pub fn touch(&self, access: Access) {
        P::touch(
            Line::Slab,
            core::ptr::from_ref(self.descriptor).cast(),
            access,
        );
    }

    /// Moves up to `want` free objects into `sheaf`, which has room for them.
    ///
    /// The caller isolated the slab: nobody else takes from it, though frees may come in. A slab
    /// that this made full is no longer the caller's: the next free puts it on the list, perhaps
    /// before this returns, so the answer comes from our own swap and not from another look.
    pub(crate) fn take_into(&self, sheaf: &mut OwnSheaf, want: u32) -> Taken {
        self.slabs.fill_holes(self);
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

    /// Takes the marks off the first `count` objects of a chain that was just detached, and puts
    /// them into the sheaf's slots from `base` on so that the lowest address is taken first.
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
        set.for_each_descending(|index| {
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
        // Highest first, so that the lowest address is handed out first.
        for index in (fresh..fresh + count).rev() {
            let object = self.links.object(index);
            self.cache.construct(object);
            sheaf.put(object);
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
        self.slabs.fill_holes(self);
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

    /// Gives a chain of objects back, by the rules of the cache's engine. For the sheaf engine:
    /// takes the list lock if the slab was full or becomes empty (docs: linux-policies 5.4, slow
    /// free).
    pub fn put_chain(&self, chain: Chain) {
        if Slabs::<P>::is_guests(self.cache) {
            P::Engine::put_chain(self, chain);
        } else {
            self.put_chain_sheaf(chain);
        }
    }

    fn put_chain_sheaf(&self, chain: Chain) {
        loop {
            self.touch(Access::Atomic);
            let state = self.state();
            let Some(inuse) = state.inuse().checked_sub(chain.count) else {
                P::fatal(Fault::DoubleFree, self.links.object(chain.first).as_ptr())
            };
            self.links.relink(chain.last, state.freelist());
            let after = state.with(chain.first, inuse);
            if state.is_full() || inuse == 0 {
                if self.put_with_list(state, after) {
                    return;
                }
            } else if self.swap_state(state, after) {
                return;
            }
        }
    }

    /// The node whose list this slab belongs to.
    pub fn node(&self) -> &'a Node {
        self.slabs.node(self.cache.id(), self.descriptor.node())
    }

    #[cold]
    #[inline(never)]
    fn put_with_list(&self, before: SlabState, after: SlabState) -> bool {
        let node = self.node();
        let Ok(mut list) = self.slabs.list(node) else {
            // A signal handler interrupted the holder of this list. A slab on the list stays there,
            // empty; one that was full waits for the next holder.
            let done = self.swap_state(before, after);
            if done && before.is_full() {
                self.slabs.orphan(node, self.pfn);
            }
            return done;
        };
        P::touch(Line::Node, node.address(), Access::Write);
        if !self.swap_state(before, after) {
            return false;
        }
        let on_list = self.descriptor.has(flag::ON_LIST);
        let surplus = after.is_empty() && node.nr_partial() >= self.cache.min_partial();
        if before.is_full() {
            if surplus {
                drop(list);
                self.slabs.give_back_slab(self);
                return true;
            }
            self.slabs.list_add(node, &mut list, self.pfn, End::Tail);
        } else if on_list && surplus {
            self.slabs.list_remove(node, &mut list, self.pfn);
            drop(list);
            self.slabs.give_back_slab(self);
        }
        true
    }
}

impl<P: Engines> Slabs<P> {
    /// Ends the program unless an object of `cache` that was handed out starts at `object`, or if
    /// it is free in its slab. What is free in a sheaf is not noticed here.
    ///
    /// # Safety
    /// 1. As for [`Slab::holding`].
    pub(crate) unsafe fn assert_live(&self, cache: &Cache, object: NonNull<u8>) {
        // SAFETY: obligation 1.
        let (slab, index) = unsafe { Slab::holding(self, cache, object) };
        if cache.engine() == Engine::Sheaf && slab.links.peek(index).is_some() {
            P::fatal(Fault::DoubleFree, object.as_ptr());
        }
    }
}
