//! The cpu-slab engine's free into a slab that is not the CPU's own.
//!
//! ```text
//!   before → after                         until 6.7                 since 6.8
//!   frozen                                 swap                      swap
//!   full → partial                         swap (frozen), this CPU's partial list
//!   on a list, stays partial               swap                      swap
//!   on the node's list → empty             list lock, swap; given back beyond min_partial
//!   on a CPU's list → empty                swap                      list lock, swap
//!   full → partial, no CPU lists           list lock, swap, tail of the node's list
//! ```
//!
//! Source: docs: linux-policies 4.4. A CPU's partial list that is at its limit goes to the
//! nodes' lists as a whole (4.6).

use super::{CpuSlab, SlabChain};
use crate::host::Host;
use crate::rules::{is_surplus, rules};
use crate::state::{GuestState, Turn};
use crate::tally::bump;
use core::ptr::NonNull;
use flagstone_core::base::Pfn;
use flagstone_core::page::flag;
use flagstone_core::platform::{Access, Fault, Function, Line, Within, Work};
use flagstone_core::slab::{
    Cache, Chain, End, Engines, HeldList, NO_OBJECT, Node, OwnSheaf, Part, Slab, SlabState,
};
use flagstone_core::sync::Ordering::Relaxed;

/// What a free does when it meets another one on the same slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// Tries again until it is done.
    Endless,
    /// Gives up, so that the object can be put aside.
    None,
}

/// A free met another one and gave up; nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Contended;

/// Objects put aside by one CPU before they are freed. Why 30: the sheaf then fills 256 bytes.
const DEFERRED_OBJECTS: u32 = 30;

impl<P: Engines> Host<'_, P> {
    /// Gives an object back to a slab that is not this CPU's.
    ///
    /// # Safety
    /// 1. `object` is of this cache and given up by its owner.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn free_cpu_slab_slow(&self, cache: &Cache, object: NonNull<u8>) {
        let _within = Within::<P>::of(Function::SlabFree);
        P::work(Work::Slow);
        // SAFETY: obligation 1.
        let (slab, index) = unsafe { Slab::holding(self, cache, object) };
        slab.links.free(index, NO_OBJECT);
        let chain = Chain {
            first: index,
            last: index,
            count: 1,
        };
        let patience = if rules(cache).remedies.defer_free {
            Patience::None
        } else {
            Patience::Endless
        };
        if self.put_chain_cpu_slab(&slab, chain, patience).is_err() {
            slab.links.take(index);
            self.defer(cache, object);
        }
    }

    /// Gives a chain of objects back to its slab.
    ///
    /// # Errors
    /// `Contended` under [`Patience::None`] when the swap was lost to somebody; nothing changed.
    pub(crate) fn put_chain_cpu_slab(
        &self,
        slab: &Slab<'_, P>,
        chain: Chain,
        patience: Patience,
    ) -> Result<(), Contended> {
        let cache = slab.cache;
        let parts = rules(cache);
        let lists = parts.cpu_lists();
        let mut met = false;
        loop {
            slab.touch(Access::Read);
            let before = slab.state();
            let Some((mut after, turn)) = before.freed(chain.first, chain.count, lists) else {
                P::fatal(Fault::DoubleFree, slab.links.object(chain.first).as_ptr())
            };
            slab.links.relink(chain.last, before.freelist());
            if met && parts.remedies.avoid_contended {
                after = after.with_contended(true);
            }
            let done = if turn == Turn::NodeList {
                self.put_with_node_list(slab, before, after)
            } else {
                slab.touch(Access::Atomic);
                slab.swap_state(before, after)
            };
            if done {
                if turn == Turn::CpuList {
                    self.put_partial(slab, after.free());
                }
                return Ok(());
            }
            met = true;
            if patience == Patience::None {
                return Err(Contended);
            }
        }
    }

    /// The rows of the table that need the node's list.
    #[cold]
    fn put_with_node_list(&self, slab: &Slab<'_, P>, before: SlabState, after: SlabState) -> bool {
        let cache = slab.cache;
        let node = slab.node();
        let Ok(mut list) = node.hold(self.pages()) else {
            // A signal handler interrupted the list's holder. A slab on the list stays there, empty;
            // one that was full waits for the next holder.
            let done = slab.swap_state(before, after);
            if done && before.freelist() == NO_OBJECT {
                node.orphan(self.pages(), slab.pfn);
            }
            return done;
        };
        P::touch(Line::Node, node.address(), Access::Read);
        bump(&self.cpu_slab_here(cache).tally.list_visits, 1);
        slab.touch(Access::Atomic);
        if !slab.swap_state(before, after) {
            return false;
        }
        let was_full = before.freelist() == NO_OBJECT;
        if !was_full && !slab.is_listed() {
            // On some CPU's partial list: that CPU will see that it is empty.
            return true;
        }
        if after.is_empty() && is_surplus(cache, node.nr_partial()) {
            if !was_full {
                list.remove(slab.pfn);
            }
            drop(list);
            self.discard(slab);
        } else if was_full {
            list.add(slab.pfn, End::Tail);
        }
        true
    }

    /// Puts a slab that a free made partial on this CPU's list; drains the list first if it is
    /// at its limit.
    fn put_partial(&self, slab: &Slab<'_, P>, free: u32) {
        let _within = Within::<P>::of(Function::PutCpuPartial);
        let cache = slab.cache;
        let here = self.cpu_slab_here(cache);
        let mut drained = SlabChain::NONE;
        if let Ok(_section) = here.enter::<P>() {
            let mut list = here.partial_list();
            if list.head.is_some() {
                // The kernels keep the counts in the first slab.
                let head: *const _ = self.pages().descriptor(list.head);
                P::touch(Line::Slab, head.cast(), Access::Read);
                if rules(cache).partial.is_reached(list.slabs, list.objects) {
                    drained = core::mem::replace(&mut list, SlabChain::NONE);
                }
            }
            slab.touch(Access::Write);
            self.chain_on(&mut list, slab, free);
            here.set_partial(list);
        } else {
            // A signal handler on top of the section: straight to the node's list.
            self.chain_on(&mut drained, slab, free);
        }
        if drained.head.is_some() {
            self.drain(cache, here, drained);
        }
    }

    /// Gives a list of partial slabs to their nodes' lists: one visit for each run of slabs of
    /// one node (docs: linux-policies 4.6).
    pub(crate) fn drain(&self, cache: &Cache, here: &CpuSlab, slabs: SlabChain) {
        let _within = Within::<P>::of(Function::UnfreezePartials);
        bump(&here.tally.drains, 1);
        bump(&here.tally.drained, u64::from(slabs.slabs));
        let mut pfn = slabs.head;
        let mut surplus = SlabChain::NONE;
        while pfn.is_some() {
            // SAFETY: the list is ours, its slabs are live slabs of the cache.
            let slab = unsafe { Slab::at(self, cache, pfn) };
            let node = slab.node();
            let Ok(mut list) = node.hold(self.pages()) else {
                pfn = self.orphan_first(cache, node, pfn);
                continue;
            };
            P::touch(Line::Node, node.address(), Access::Read);
            bump(&here.tally.list_visits, 1);
            let number = slab.descriptor.node();
            while pfn.is_some() && self.pages().descriptor(pfn).node() == number {
                pfn = self.drain_one(cache, &mut list, pfn, &mut surplus);
            }
        }
        while surplus.head.is_some() {
            // SAFETY: empty and on no list: nobody else refers to it.
            let slab = unsafe { Slab::at(self, cache, surplus.head) };
            surplus.head = Pfn(slab.descriptor.next.load(Relaxed));
            self.discard(&slab);
        }
    }

    /// One slab of a drain, under its node's lock; answers the next one.
    fn drain_one(
        &self,
        cache: &Cache,
        list: &mut HeldList<'_, P>,
        pfn: Pfn,
        surplus: &mut SlabChain,
    ) -> Pfn {
        // SAFETY: as in `drain`.
        let slab = unsafe { Slab::at(self, cache, pfn) };
        slab.touch(Access::Read);
        let next = Pfn(slab.descriptor.next.load(Relaxed));
        let state = if rules(cache).freezes_partial {
            slab.unfreeze()
        } else {
            slab.state()
        };
        let node = slab.node();
        if state.is_empty() && is_surplus(cache, node.nr_partial()) {
            self.chain_on(surplus, &slab, 0);
        } else {
            list.add(pfn, End::Tail);
        }
        next
    }

    /// The first slab of a drain by a signal handler that interrupted the list's holder; answers
    /// the next one.
    #[cold]
    fn orphan_first(&self, cache: &Cache, node: &Node, pfn: Pfn) -> Pfn {
        // SAFETY: as in `drain`.
        let slab = unsafe { Slab::at(self, cache, pfn) };
        let next = Pfn(slab.descriptor.next.load(Relaxed));
        if rules(cache).freezes_partial {
            slab.unfreeze();
        }
        node.orphan(self.pages(), pfn);
        next
    }

    /// Gives an empty slab that is on no list back to the page layer.
    pub(crate) fn discard(&self, slab: &Slab<'_, P>) {
        P::touch(Line::Node, slab.node().address(), Access::Atomic);
        slab.give_back();
    }

    /// Puts an object aside; the CPU frees all it put aside when the sheaf is full
    /// (`Remedies::defer_free`).
    pub(crate) fn defer(&self, cache: &Cache, object: NonNull<u8>) {
        let here = self.cpu_slab_here(cache);
        let taken = match here.enter::<P>() {
            Ok(_section) => here.take_deferred(),
            Err(_) => None,
        };
        let sheaf = taken.or_else(|| self.deferred_sheaf());
        let Some(mut sheaf) = sheaf else {
            // SAFETY: the caller gave the object up and nobody else has it.
            return unsafe { self.put_one(cache, object) };
        };
        if sheaf.holds_recent(object) {
            P::fatal(Fault::DoubleFree, object.as_ptr());
        }
        P::touch(Line::Sheaf, sheaf.address(), Access::Write);
        sheaf.put(object);
        bump(&here.tally.deferred, 1);
        if sheaf.room() == 0 {
            return self.flush_deferred(cache, sheaf);
        }
        let here = self.cpu_slab_here(cache);
        let second = match here.enter::<P>() {
            Ok(_section) if !here.has_deferred() => {
                here.set_deferred(sheaf);
                return;
            }
            _ => sheaf,
        };
        // Another thread on this CPU put objects aside meanwhile.
        self.flush_deferred(cache, second);
    }

    fn deferred_sheaf(&self) -> Option<OwnSheaf> {
        let node = P::node_of(P::current_cpu());
        let memory = Part::of(self, self.sheaf_cache(DEFERRED_OBJECTS), node).take_one()?;
        // SAFETY: objects of that cache are large enough and aligned to their size.
        Some(unsafe { OwnSheaf::create(memory, DEFERRED_OBJECTS) })
    }

    /// Frees what was put aside, one chain for each slab.
    pub(crate) fn flush_deferred(&self, cache: &Cache, mut sheaf: OwnSheaf) {
        self.flush(cache, &mut sheaf);
        self.drop_memory(sheaf);
    }
}

/// A slab that no CPU owns any more.
pub(crate) trait Settled {
    /// Makes the slab nobody's in particular; answers its state.
    fn unfreeze(&self) -> SlabState;

    /// Whether the slab is on its node's list; exact under the list lock.
    fn is_listed(&self) -> bool;
}

impl<P: Engines> Settled for Slab<'_, P> {
    fn unfreeze(&self) -> SlabState {
        loop {
            let state = self.state();
            let after = state.with_frozen(false);
            self.touch(Access::Atomic);
            if self.swap_state(state, after) {
                return after;
            }
        }
    }

    fn is_listed(&self) -> bool {
        self.descriptor.has(flag::ON_LIST)
    }
}
