//! The cpu-slab engine's allocation when the private chain is empty.
//!
//! ```text
//!   1  what others freed into the own slab        one compare-and-swap     docs: linux-policies
//!   2  the CPU's partial slabs                    one compare-and-swap     4.3
//!   3  the node's list: one slab for now, some    list lock
//!      for the CPU's partial list
//!   4  the lists of other nodes                   their list locks
//!   5  a new slab
//! ```
//!
//! | kernels     | taking from the node's list                                | stops            |
//! |-------------|------------------------------------------------------------|------------------|
//! | 3.2 - 5.15  | freezes each slab under the lock; a lost race ends the walk | objects > limit/2 |
//! | 5.16 - 6.7  | the same                                                   | slabs > limit/2  |
//! | 6.8 - 6.19  | only unlinks; freezes the first one after the lock         | slabs > limit/2  |

use super::{CpuSlab, Detached, SlabChain};
use crate::host::{Host, tally};
use crate::rules::{PartialLimit, other_nodes, rules, tries_other_nodes};
use crate::state::GuestState;
use crate::tally::bump;
use core::ptr::NonNull;
use flagstone_core::base::{NodeId, Pfn};
use flagstone_core::platform::{Access, Function, Line, Within, Work};
use flagstone_core::policy::Engine;
use flagstone_core::slab::{Cache, End, Engines, HeldList, NO_OBJECT, Node, Slab};
use flagstone_core::sync::Ordering::Relaxed;

/// `remote_node_defrag_ratio` as the kernels set it (docs: linux-policies 4.3 step 4).
const REMOTE_RATIO: u32 = 1000;

/// Slabs passed over in one walk because frees contend for them (`Remedies::avoid_contended`).
/// Why 4: a walk holds the list lock, and contention is about single slabs.
const PASSED_OVER_MAX: u32 = 4;

/// A slab with its objects on a private chain, and slabs for the CPU's partial list.
#[derive(Clone, Copy)]
pub(crate) struct Supply {
    pub slab: Pfn,
    pub freelist: u32,
    pub others: SlabChain,
}

impl<P: Engines> Host<'_, P> {
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_cpu_slab_slow(&self, cache: &Cache) -> Option<NonNull<u8>> {
        let _within = Within::<P>::of(Function::SlabAlloc);
        P::work(Work::Slow);
        loop {
            let here = self.cpu_slab_here(cache);
            let deferred = {
                let Ok(_section) = here.enter::<P>() else {
                    return self.alloc_beside(cache);
                };
                if let Some(object) = self.refill_here(cache, here) {
                    return Some(object);
                }
                here.take_deferred()
            };
            if let Some(sheaf) = deferred {
                self.flush_deferred(cache, sheaf);
                continue;
            }
            let node = P::node_of(P::current_cpu());
            let supply = self
                .supply_from_lists(cache, here, node)
                .or_else(|| self.supply_from_new(cache, node))?;
            return self.install_supply(cache, supply);
        }
    }

    /// Steps 1 and 2: the own slab, then the CPU's partial slabs. Inside the section.
    fn refill_here(&self, cache: &Cache, here: &CpuSlab) -> Option<NonNull<u8>> {
        if let Some(object) = self.pop_private(cache, here) {
            return Some(object);
        }
        loop {
            let pfn = match here.slab() {
                own if own.is_some() => own,
                _ => self.pop_partial(here)?,
            };
            // SAFETY: a CPU's slabs are live slabs of the cache.
            let slab = unsafe { Slab::at(self, cache, pfn) };
            if self.give_up_contended(&slab, here) {
                here.detach();
                continue;
            }
            match slab.take_freelist() {
                Some(first) => {
                    bump(&here.tally.refills, 1);
                    here.set_slab(pfn, first, slab.links.seal_base());
                    return self.pop_private(cache, here);
                }
                // Full: on no list from here on, and the next free takes it over.
                None => here.set_slab(Pfn::NONE, NO_OBJECT, 0),
            }
        }
    }

    /// Takes the first slab of the CPU's partial list. Inside the section.
    fn pop_partial(&self, here: &CpuSlab) -> Option<Pfn> {
        let head = here.partial();
        if !head.is_some() {
            return None;
        }
        let descriptor = self.pages().descriptor(head);
        P::touch(
            Line::Slab,
            core::ptr::from_ref(descriptor).cast(),
            Access::Read,
        );
        here.set_partial(SlabChain {
            head: Pfn(descriptor.next.load(Relaxed)),
            slabs: here.partial_slabs() - 1,
            objects: here.partial_objects() - descriptor.prev.load(Relaxed),
        });
        Some(head)
    }

    /// Under `Remedies::avoid_contended`: a slab that frees contend for goes to the tail of its
    /// node's list instead of being allocated from, and stays marked, so that the next walk over
    /// the list passes it over. Inside the section, its chain taken.
    fn give_up_contended(&self, slab: &Slab<'_, P>, here: &CpuSlab) -> bool {
        if !rules(slab.cache).remedies.avoid_contended {
            return false;
        }
        loop {
            let state = slab.state();
            if !state.contended() || state.freelist() == NO_OBJECT {
                return false;
            }
            let node = slab.node();
            let Ok(mut list) = node.hold(self.pages()) else {
                return false;
            };
            P::touch(Line::Node, node.address(), Access::Read);
            slab.touch(Access::Atomic);
            if slab.swap_state(state, state.with_frozen(false)) {
                bump(&here.tally.deactivations, 1);
                list.add(slab.pfn, End::Tail);
                return true;
            }
        }
    }

    /// Steps 3 and 4: the near node's list, then the others'.
    fn supply_from_lists(&self, cache: &Cache, here: &CpuSlab, near: NodeId) -> Option<Supply> {
        let node = self.node(cache.id(), near);
        if let Some(supply) = self.supply_from_list(cache, here, node) {
            return Some(supply);
        }
        if self.node_count() == 1 || !tries_other_nodes(here.draw(), REMOTE_RATIO) {
            return None;
        }
        let _within = Within::<P>::of(Function::GetAnyPartial);
        other_nodes(near, self.node_count()).find_map(|far| {
            let node = self.node(cache.id(), far);
            P::touch(Line::Node, node.address(), Access::Read);
            if node.nr_partial() <= cache.min_partial() {
                return None;
            }
            self.supply_from_list(cache, here, node)
        })
    }

    /// Step 3 on one node.
    fn supply_from_list(&self, cache: &Cache, here: &CpuSlab, node: &Node) -> Option<Supply> {
        P::touch(Line::Node, node.address(), Access::Read);
        if node.looks_bare() {
            return None;
        }
        // From here, as compilers split it: the look above is part of whoever calls.
        let _within = Within::<P>::of(Function::GetPartialNode);
        let mut walk = Walk::default();
        {
            let mut list = node.hold(self.pages()).ok()?;
            P::touch(Line::Node, node.address(), Access::Read);
            bump(&here.tally.list_visits, 1);
            let mut pfn = list.head();
            while pfn.is_some() && !walk.is_done(cache) {
                let next = Pfn(self.pages().descriptor(pfn).next.load(Relaxed));
                // SAFETY: slabs on the list are live slabs of the cache.
                let slab = unsafe { Slab::at(self, cache, pfn) };
                slab.touch(Access::Write);
                if !self.pass_over(&slab, &mut walk) && !self.walk_step(&mut list, &slab, &mut walk)
                {
                    break;
                }
                pfn = next;
            }
        }
        bump(&here.tally.slabs_taken, u64::from(walk.slabs));
        if !walk.slab.is_some() {
            return None;
        }
        if !rules(cache).freezes_partial {
            // SAFETY: unlinked by us, so live and ours.
            let slab = unsafe { Slab::at(self, cache, walk.slab) };
            walk.freelist = slab.take_freelist()?;
        }
        Some(Supply {
            slab: walk.slab,
            freelist: walk.freelist,
            others: walk.others,
        })
    }

    /// Whether frees contend for this slab, so that the walk leaves it where it is this time.
    fn pass_over(&self, slab: &Slab<'_, P>, walk: &mut Walk) -> bool {
        let state = slab.state();
        if !state.contended() || walk.passed_over == PASSED_OVER_MAX {
            return false;
        }
        walk.passed_over += 1;
        let _ = slab.swap_state(state, state.with_contended(false));
        true
    }

    /// Takes one slab off the list; `false` if a race with a free was lost (until 6.7).
    fn walk_step(&self, list: &mut HeldList<'_, P>, slab: &Slab<'_, P>, walk: &mut Walk) -> bool {
        let cache = slab.cache;
        let state = slab.state();
        let first = !walk.slab.is_some();
        if rules(cache).freezes_partial {
            let mut after = state.with_frozen(true);
            if first {
                after = after.with(NO_OBJECT, state.objects());
            }
            slab.touch(Access::Atomic);
            if !slab.swap_state(state, after) {
                return false;
            }
        }
        list.remove(slab.pfn);
        walk.slabs += 1;
        walk.objects += state.free();
        if first {
            walk.slab = slab.pfn;
            walk.freelist = state.freelist();
        } else {
            self.chain_on(&mut walk.others, slab, state.free());
        }
        true
    }

    /// Puts a slab that is ours in front of a chain of slabs.
    pub(crate) fn chain_on(&self, chain: &mut SlabChain, slab: &Slab<'_, P>, free: u32) {
        slab.descriptor.next.store(chain.head.0, Relaxed);
        slab.descriptor.prev.store(free, Relaxed);
        *chain = SlabChain {
            head: slab.pfn,
            slabs: chain.slabs + 1,
            objects: chain.objects + free,
        };
    }

    /// Step 5.
    fn supply_from_new(&self, cache: &Cache, node: NodeId) -> Option<Supply> {
        let slab = self.new_linked_slab(cache, node)?;
        let freelist = slab.take_freelist()?;
        Some(Supply {
            slab: slab.pfn,
            freelist,
            others: SlabChain::NONE,
        })
    }

    /// A new slab, all its objects on its chain, on no list and ours.
    pub(crate) fn new_linked_slab<'a>(
        &'a self,
        cache: &'a Cache,
        node: NodeId,
    ) -> Option<Slab<'a, P>> {
        let _within = Within::<P>::of(Function::NewSlab);
        let slab = Slab::create(self, cache, node)?;
        let objects = cache.geometry().objects();
        slab.touch(Access::Write);
        if cache.engine() != Engine::Slab2007 {
            // SLUB counts slabs and objects on the node's line, without its lock.
            P::touch(Line::Node, slab.node().address(), Access::Atomic);
        }
        bump(&tally(cache, P::current_cpu()).new_slabs, 1);
        slab.links.link_all();
        for index in 0..objects {
            cache.construct(slab.links.object(index));
        }
        P::work(Work::Objects(objects));
        slab.descriptor.fresh.store(objects as u16, Relaxed);
        slab.descriptor
            .state
            .store(slab.state().with(0, 0).0, Relaxed);
        Some(slab)
    }

    /// Makes a supply this CPU's slab and takes an object of it. A slab that the CPU got in the
    /// meantime is given up.
    fn install_supply(&self, cache: &Cache, supply: Supply) -> Option<NonNull<u8>> {
        // SAFETY: the supply is ours and live.
        let slab = unsafe { Slab::at(self, cache, supply.slab) };
        loop {
            let here = self.cpu_slab_here(cache);
            let old = {
                let Ok(_section) = here.enter::<P>() else {
                    // Not to be expected: we were inside a moment ago. Keep what is whole.
                    return self.return_supply(cache, supply);
                };
                match here.detach() {
                    Some(old) => old,
                    None => {
                        here.set_slab(supply.slab, supply.freelist, slab.links.seal_base());
                        self.splice_partial(here, supply.others);
                        return self.pop_private(cache, here);
                    }
                }
            };
            self.deactivate(cache, here, old);
        }
    }

    fn return_supply(&self, cache: &Cache, supply: Supply) -> Option<NonNull<u8>> {
        let here = self.cpu_slab_here(cache);
        self.drain(cache, here, supply.others);
        self.deactivate(
            cache,
            here,
            Detached {
                slab: supply.slab,
                freelist: supply.freelist,
            },
        );
        self.alloc_beside(cache)
    }

    /// Puts slabs of the node's list on the CPU's partial list; no drain test here. Inside the
    /// section.
    fn splice_partial(&self, here: &CpuSlab, others: SlabChain) {
        let mut pfn = others.head;
        while pfn.is_some() {
            let descriptor = self.pages().descriptor(pfn);
            let next = Pfn(descriptor.next.load(Relaxed));
            let mut list = here.partial_list();
            descriptor.next.store(list.head.0, Relaxed);
            list.head = pfn;
            list.slabs += 1;
            list.objects += descriptor.prev.load(Relaxed);
            here.set_partial(list);
            pfn = next;
        }
    }

    /// An object for a caller that interrupted this CPU's section (a signal handler): from the
    /// node's list, else from a new slab, without touching the CPU's structure.
    #[cold]
    pub(crate) fn alloc_beside(&self, cache: &Cache) -> Option<NonNull<u8>> {
        let near = P::node_of(P::current_cpu());
        if let Some(object) = self.take_beside(cache, self.node(cache.id(), near)) {
            return Some(object);
        }
        let slab = self.new_linked_slab(cache, near)?;
        Some(self.hand_out_first(&slab))
    }

    /// The first object of a new slab that nobody knows; the rest goes on the node's list.
    pub(crate) fn hand_out_first(&self, slab: &Slab<'_, P>) -> NonNull<u8> {
        let object = slab.links.object(0);
        let second = slab.links.take(0);
        let state = slab.state().with(second, 1);
        slab.descriptor.state.store(state.0, Relaxed);
        if !state.is_full() {
            let node = slab.node();
            match node.hold(self.pages()) {
                Ok(mut list) => list.add(slab.pfn, End::Head),
                // The list's holder was interrupted too.
                Err(_) => node.orphan(self.pages(), slab.pfn),
            }
        }
        object
    }

    /// One object of the first slab of a node's list, which stays there unless that was its last.
    pub(crate) fn take_beside(&self, cache: &Cache, node: &Node) -> Option<NonNull<u8>> {
        let mut list = node.hold(self.pages()).ok()?;
        let pfn = list.head();
        if !pfn.is_some() {
            return None;
        }
        // SAFETY: slabs on the list are live slabs of the cache.
        let slab = unsafe { Slab::at(self, cache, pfn) };
        loop {
            let state = slab.state();
            let last = state.free() == 1;
            if last {
                // Unlink first: the free after our swap puts a full slab on a list.
                list.remove(pfn);
            }
            let first = state.freelist();
            let next = slab.links.next(first);
            if slab.swap_state(state, state.with(next, state.inuse() + 1)) {
                slab.links.take(first);
                return Some(slab.links.object(first));
            }
            if last {
                list.add(pfn, End::Head);
            }
        }
    }
}

/// A walk over a node's list: what it took.
struct Walk {
    slab: Pfn,
    freelist: u32,
    others: SlabChain,
    slabs: u32,
    objects: u32,
    passed_over: u32,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            slab: Pfn::NONE,
            freelist: NO_OBJECT,
            others: SlabChain::NONE,
            slabs: 0,
            objects: 0,
            passed_over: 0,
        }
    }
}

impl Walk {
    /// Whether enough was taken (docs: linux-policies 4.3 step 3).
    fn is_done(&self, cache: &Cache) -> bool {
        if self.slabs == 0 {
            return false;
        }
        match rules(cache).partial {
            PartialLimit::None => true,
            PartialLimit::Objects(limit) => self.objects > limit / 2,
            PartialLimit::Slabs(0) if !rules(cache).freezes_partial => true,
            PartialLimit::Slabs(limit) => self.others.slabs > limit / 2,
        }
    }
}

/// Taking a slab's chain as a whole.
trait TakeWhole {
    /// Takes the whole chain: all objects count as in use then, and the slab is frozen. `None`
    /// if there is no chain: then the slab is full, not frozen, and nobody's.
    fn take_freelist(&self) -> Option<u32>;
}

impl<P: Engines> TakeWhole for Slab<'_, P> {
    fn take_freelist(&self) -> Option<u32> {
        loop {
            self.touch(Access::Read);
            let state = self.state();
            let first = state.freelist();
            self.touch(Access::Atomic);
            if self.swap_state(state, state.taken_whole()) {
                return (first != NO_OBJECT).then_some(first);
            }
        }
    }
}
