//! The first form of the cpu-slab engine (2.6.22 to 2.6.30): a lock for each slab.
//!
//! ```text
//!   alloc   private chain → own slab's chain (slab lock) → one slab of the node's list → new
//!   free    own slab: private chain    any other: slab lock, and the list lock when the slab
//!           was full or becomes empty; an empty slab always goes back
//! ```
//!
//! No partial list per CPU: each visit of the node's list yields one slab, and every slab that
//! a free makes partial costs the list lock (docs: linux-policies 4.1). The whole operation runs
//! inside the CPU's section, as it ran with interrupts off.
//!
//! Locking: section, then slab lock, then list lock. An allocation holds the list lock first and
//! therefore only tries slab locks. The slab lock lies in the slab's descriptor, so that whoever
//! takes it gets the slab's line.
//!
//! Invariants
//! - `slab-2007.under-section`: whoever waits with a slab's lock holds a section or, as a handler on top
//!   of a holder, stands on another lock. A fork takes all of those, so no slab's lock is held then.

use super::free::{Contended, Patience};
use super::{CpuSlab, Detached};
use crate::host::Host;
use crate::rules::{other_nodes, rules, tries_other_nodes};
use crate::state::GuestState;
use crate::tally::bump;
use core::ptr::NonNull;
use flagstone_core::base::{NodeId, Pfn};
use flagstone_core::page::{Descriptor, Spacing};
use flagstone_core::platform::{Access, Fault, Line, LockKind, RawLock, Work};
use flagstone_core::slab::{Cache, Chain, End, Engines, Links, NO_OBJECT, Node, Slab, SlabState};
use flagstone_core::sync::Ordering::{Relaxed, Release};

/// The ratio by which lists of other nodes are looked at (docs: linux-policies 4.1 step 5).
const REMOTE_RATIO: u32 = 100;

const _: () = assert!(
    size_of::<RawLock>() <= Spacing::Lines.bytes() - size_of::<Descriptor>()
        && align_of::<RawLock>() <= align_of::<Descriptor>(),
    "a slab's lock shares its descriptor's line"
);

/// A slab's lock, held.
pub(crate) struct Locked<'s, 'a, P: Engines>(&'s Slab<'a, P>);

impl<P: Engines> Drop for Locked<'_, '_, P> {
    fn drop(&mut self) {
        P::release_lock(self.0.lock_2007());
    }
}

/// A slab with a lock of its own.
pub(crate) trait WithLock<'a, P: Engines> {
    /// The slab's lock, where its links would be if they were aside.
    fn lock_2007(&self) -> &'a RawLock;

    /// The slab, locked; `None` on top of the lock's holder.
    fn locked(&self) -> Option<Locked<'_, 'a, P>>;

    /// The slab, locked, if nobody has it.
    fn try_locked(&self) -> Option<Locked<'_, 'a, P>>;

    /// Changes the state under the slab's lock.
    fn set_state(&self, state: SlabState);
}

impl<'a, P: Engines> WithLock<'a, P> for Slab<'a, P> {
    fn lock_2007(&self) -> &'a RawLock {
        debug_assert!(!self.cache.geometry().links_aside());
        // SAFETY: `new_slab_2007` made it, and slabs of this engine keep their links inside.
        unsafe { self.slabs.pages().links_of(self.pfn).cast().as_ref() }
    }

    fn locked(&self) -> Option<Locked<'_, 'a, P>> {
        P::acquire(self.lock_2007()).ok()?;
        self.touch(Access::Write);
        Some(Locked(self))
    }

    fn try_locked(&self) -> Option<Locked<'_, 'a, P>> {
        P::try_acquire(self.lock_2007()).then(|| {
            self.touch(Access::Write);
            Locked(self)
        })
    }

    fn set_state(&self, state: SlabState) {
        self.descriptor.state.store(state.0, Release);
    }
}

impl<P: Engines> Host<'_, P> {
    /// Takes an object of a cache of this engine.
    #[inline]
    pub(crate) fn alloc_2007(&self, cache: &Cache) -> Option<NonNull<u8>> {
        P::work(Work::Fast);
        let here = self.cpu_slab_here(cache);
        if let Ok(_section) = here.enter_fast::<P>()
            && let Some(object) = self.pop_private(cache, here)
        {
            return Some(object);
        }
        self.alloc_2007_slow(cache)
    }

    #[cold]
    #[inline(never)]
    fn alloc_2007_slow(&self, cache: &Cache) -> Option<NonNull<u8>> {
        P::work(Work::Slow);
        loop {
            let deferred = {
                let here = self.cpu_slab_here(cache);
                let Ok(_section) = here.enter::<P>() else {
                    return self.alloc_beside_2007(cache);
                };
                if let Some(object) = self.refill_2007(cache, here) {
                    return Some(object);
                }
                here.take_deferred()
            };
            let Some(sheaf) = deferred else { break };
            self.flush_deferred(cache, sheaf);
        }
        // Interrupts are on while a slab is made; the CPU may be another one afterwards.
        let slab = self.new_slab_2007(cache, P::node_of(P::current_cpu()))?;
        let here = self.cpu_slab_here(cache);
        let Ok(_section) = here.enter::<P>() else {
            slab.give_back();
            return self.alloc_beside_2007(cache);
        };
        if let Some(old) = here.detach() {
            self.deactivate_2007(cache, here, old);
        }
        let _locked = slab.locked()?;
        self.load_2007(&slab, here);
        self.pop_private(cache, here)
    }

    /// Steps 1 to 5: the own slab, else one slab of a list. Inside the section.
    fn refill_2007(&self, cache: &Cache, here: &CpuSlab) -> Option<NonNull<u8>> {
        if let Some(object) = self.pop_private(cache, here) {
            return Some(object);
        }
        if here.slab().is_some() {
            // SAFETY: a CPU's slab is a live slab of the cache.
            let slab = unsafe { Slab::at(self, cache, here.slab()) };
            let _locked = slab.locked()?;
            let state = slab.state();
            if state.freelist() != NO_OBJECT && !state.contended() {
                bump(&here.tally.refills, 1);
                self.load_2007(&slab, here);
                return self.pop_private(cache, here);
            }
            here.detach();
            let end = if state.contended() {
                End::Tail
            } else {
                End::Head
            };
            // It stays marked, so that the next walk over the list passes it over.
            slab.set_state(state.with_frozen(false));
            if state.freelist() != NO_OBJECT {
                bump(&here.tally.deactivations, 1);
                self.list_2007(&slab, here, end);
            }
        }
        self.supply_2007(cache, here)
            .and_then(|()| self.pop_private(cache, here))
    }

    /// Makes all that is on the slab's chain private to this CPU; slab lock held.
    fn load_2007(&self, slab: &Slab<'_, P>, here: &CpuSlab) {
        let state = slab.state();
        here.set_slab(slab.pfn, state.freelist(), slab.links.seal_base());
        slab.set_state(state.with(NO_OBJECT, state.objects()).with_frozen(true));
    }

    /// Takes one slab of a node's list and makes it this CPU's.
    fn supply_2007(&self, cache: &Cache, here: &CpuSlab) -> Option<()> {
        let near = P::node_of(P::current_cpu());
        let node = self.node(cache.id(), near);
        if self.supply_2007_from(cache, here, node).is_some() {
            return Some(());
        }
        if self.node_count() == 1 || !tries_other_nodes(here.draw(), REMOTE_RATIO) {
            return None;
        }
        other_nodes(near, self.node_count()).find_map(|far| {
            let node = self.node(cache.id(), far);
            P::touch(Line::Node, node.address(), Access::Read);
            if node.nr_partial() <= cache.min_partial() {
                return None;
            }
            self.supply_2007_from(cache, here, node)
        })
    }

    fn supply_2007_from(&self, cache: &Cache, here: &CpuSlab, node: &Node) -> Option<()> {
        P::touch(Line::Node, node.address(), Access::Read);
        if node.looks_bare() {
            return None;
        }
        let mut list = node.hold(self.pages()).ok()?;
        P::touch(Line::Node, node.address(), Access::Read);
        bump(&here.tally.list_visits, 1);
        let mut pfn = list.head();
        while pfn.is_some() {
            // SAFETY: slabs on the list are live slabs of the cache.
            let slab = unsafe { Slab::at(self, cache, pfn) };
            if let Some(_locked) = slab.try_locked() {
                if slab.state().contended() {
                    slab.set_state(slab.state().with_contended(false));
                } else {
                    list.remove(pfn);
                    drop(list);
                    bump(&here.tally.slabs_taken, 1);
                    self.load_2007(&slab, here);
                    return Some(());
                }
            }
            pfn = Pfn(slab.descriptor.next.load(Relaxed));
        }
        None
    }

    /// Puts a slab on its node's list; slab lock held.
    fn list_2007(&self, slab: &Slab<'_, P>, here: &CpuSlab, end: End) {
        let node = slab.node();
        let Ok(mut list) = node.hold(self.pages()) else {
            return node.orphan(self.pages(), slab.pfn);
        };
        P::touch(Line::Node, node.address(), Access::Read);
        bump(&here.tally.list_visits, 1);
        list.add(slab.pfn, end);
    }

    /// Gives up a slab that was taken off its CPU (docs: linux-policies 4.1 step 3).
    pub(crate) fn deactivate_2007(&self, cache: &Cache, here: &CpuSlab, detached: Detached) {
        bump(&here.tally.deactivations, 1);
        // SAFETY: a CPU's slab is a live slab of the cache.
        let slab = unsafe { Slab::at(self, cache, detached.slab) };
        let Some(locked) = slab.locked() else { return };
        let mut private = detached.freelist;
        while private != NO_OBJECT {
            let next = slab.links.next(private);
            let state = slab.state();
            slab.links.relink(private, state.freelist());
            slab.set_state(state.with(private, state.inuse() - 1));
            private = next;
        }
        let state = slab.state().with_frozen(false);
        slab.set_state(state);
        let keeps = slab.node().nr_partial() < cache.min_partial();
        if !state.is_empty() && state.freelist() != NO_OBJECT {
            self.list_2007(&slab, here, End::Head);
        } else if state.is_empty() && keeps {
            self.list_2007(&slab, here, End::Tail);
        } else if state.is_empty() {
            drop(locked);
            self.discard(&slab);
        }
    }

    /// Gives an object of a cache of this engine back.
    ///
    /// # Safety
    /// 1. `object` is of this cache and given up by its owner.
    #[inline]
    pub(crate) unsafe fn free_2007(&self, cache: &Cache, object: NonNull<u8>) {
        P::work(Work::FastFree);
        let here = self.cpu_slab_here(cache);
        if let Ok(_section) = here.enter_fast::<P>()
            && self.push_private(cache, here, object)
        {
            return;
        }
        // SAFETY: obligation 1.
        unsafe { self.free_2007_slow(cache, object) };
    }

    #[cold]
    #[inline(never)]
    unsafe fn free_2007_slow(&self, cache: &Cache, object: NonNull<u8>) {
        P::work(Work::Slow);
        // SAFETY: obligation 1 of `free_2007`.
        let (slab, index) = unsafe { Slab::holding(self, cache, object) };
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
        let link = |links: &Links<'_, P>, prior| links.free(index, prior);
        if self.put_2007(&slab, chain, patience, link).is_err() {
            self.defer(cache, object);
        }
    }

    /// Gives a chain of objects back to its slab.
    pub(crate) fn put_chain_2007(&self, slab: &Slab<'_, P>, chain: Chain) {
        let link = |links: &Links<'_, P>, prior| links.relink(chain.last, prior);
        let _never = self.put_2007(slab, chain, Patience::Endless, link);
    }

    /// The slow free. `link` puts the chain in front of the slab's, under the slab's lock.
    fn put_2007(
        &self,
        slab: &Slab<'_, P>,
        chain: Chain,
        patience: Patience,
        link: impl FnOnce(&Links<'_, P>, u32),
    ) -> Result<(), Contended> {
        let remedies = rules(slab.cache).remedies;
        let here = self.cpu_slab_here(slab.cache);
        // A signal handler on top of the section goes on without it.
        let _section = here.enter::<P>();
        let first_try = if remedies.any() {
            slab.try_locked()
        } else {
            slab.locked()
        };
        let met = first_try.is_none();
        if met && patience == Patience::None {
            return Err(Contended);
        }
        let Some(locked) = first_try.or_else(|| slab.locked()) else {
            // A signal handler on top of this slab's lock: the objects cannot go back now.
            self.lost.fetch_add(u64::from(chain.count), Relaxed);
            return Ok(());
        };
        let before = slab.state();
        let prior = before.freelist();
        link(&slab.links, prior);
        let Some(inuse) = before.inuse().checked_sub(chain.count) else {
            P::fatal(Fault::DoubleFree, slab.links.object(chain.first).as_ptr())
        };
        let mut after = before.with(chain.first, inuse);
        if met && remedies.avoid_contended {
            after = after.with_contended(true);
        }
        slab.set_state(after);
        if before.frozen() {
            return Ok(());
        }
        if inuse == 0 {
            if prior != NO_OBJECT && !self.unlist_2007(slab, here) {
                return Ok(());
            }
            drop(locked);
            self.discard(slab);
        } else if prior == NO_OBJECT {
            self.list_2007(slab, here, End::Tail);
        }
        Ok(())
    }

    /// Takes an empty slab off its node's list; `false` if that cannot be done now (a signal
    /// handler on top of the list's holder): then it stays there, empty.
    fn unlist_2007(&self, slab: &Slab<'_, P>, here: &CpuSlab) -> bool {
        let node = slab.node();
        let Ok(mut list) = node.hold(self.pages()) else {
            return false;
        };
        P::touch(Line::Node, node.address(), Access::Read);
        bump(&here.tally.list_visits, 1);
        list.remove(slab.pfn);
        true
    }

    /// A new slab with its lock, all its objects on its chain, on no list and ours.
    fn new_slab_2007<'a>(&'a self, cache: &'a Cache, node: NodeId) -> Option<Slab<'a, P>> {
        let slab = self.new_linked_slab(cache, node)?;
        debug_assert_eq!(self.pages().spacing(), Spacing::Lines);
        let place = self.pages().links_of(slab.pfn).cast();
        // SAFETY: nobody knows the slab, its links are inside its objects, and there is room behind
        // its descriptor.
        unsafe { place.write(RawLock::new(LockKind::Slab)) };
        Some(slab)
    }

    /// An object for a signal handler on top of this CPU's section: from a slab of its own.
    #[cold]
    fn alloc_beside_2007(&self, cache: &Cache) -> Option<NonNull<u8>> {
        let slab = self.new_slab_2007(cache, P::node_of(P::current_cpu()))?;
        Some(self.hand_out_first(&slab))
    }
}
