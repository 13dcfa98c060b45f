//! What lies below sheaves: filling them, and giving their objects back to slabs.
//!
//! ```text
//!                 6.18, 6.19                         7.0
//!   fill          from the CPU's slab, its partial   list lock: unlink slabs until they hold enough;
//!                 slabs, the list, as any            no lock: take each whole, the last unlinked
//!                 allocation; in one section         first; what is over goes back as a free, to
//!                                                    the tail, untouched slabs to the head;
//!                                                    since 7.2 the first unlinked first, and
//!                                                    untouched slabs to the tail
//!   other nodes   as any allocation                  where the list's lock is free
//!   give back     the CPU's own slab without a       one swap for each slab; list lock if it was
//!                 swap, others by one              full or becomes empty
//! ```
//!
//! Source: docs: linux-policies 5.3, 5.4, 5.6; facts of 6.18 beyond 5.6 are those of 7.0.

use super::here;
use crate::cpu_slab::{Patience, SlabChain};
use crate::host::{Host, tally};
use crate::rules::{is_surplus, other_nodes, tries_other_nodes};
use crate::tally::bump;
use core::ptr::NonNull;
use flagstone_core::base::{NodeId, Pfn};
use flagstone_core::platform::{Access, Function, Line, Within, Work};
use flagstone_core::policy::{Engine, Returns, SheafRule};
use flagstone_core::slab::{Cache, Chain, End, Engines, NO_OBJECT, Node, OwnSheaf, Slab};
use flagstone_core::sync::Ordering::Relaxed;

/// Objects of other slabs that are passed while those of one slab are gathered.
const MISMATCHES: u32 = 3;

/// `remote_node_defrag_ratio` as the kernels set it (docs: linux-policies 4.3 step 4).
const REMOTE_RATIO: u32 = 1000;

impl<P: Engines> Host<'_, P> {
    /// One object past the sheaves.
    pub(crate) fn take_below(&self, cache: &Cache) -> Option<NonNull<u8>> {
        match cache.engine() {
            Engine::CpuSlab => self.alloc_cpu_slab(cache),
            _ => self.take_single(cache),
        }
    }

    /// Gives one object back past the sheaves.
    ///
    /// # Safety
    /// 1. `object` is of this cache and given up by its owner.
    pub(crate) unsafe fn free_below(&self, cache: &Cache, object: NonNull<u8>) {
        // SAFETY: obligation 1.
        unsafe {
            match cache.engine() {
                Engine::CpuSlab => self.free_to_cpu_slab(cache, object),
                _ => self.free_cpu_slab_slow(cache, object),
            }
        }
    }

    /// Fills a sheaf to the brim; `false` if memory ran out before.
    pub(crate) fn fill(&self, cache: &Cache, sheaf: &mut OwnSheaf) -> bool {
        let before = sheaf.len();
        match cache.engine() {
            Engine::CpuSlab => self.fill_from_cpu_slab(cache, sheaf),
            _ => self.fill_from_lists(cache, sheaf),
        }
        P::work(Work::Objects(sheaf.len() - before));
        sheaf.room() == 0
    }

    /// 6.18: a bulk allocation as of any cache without sheaves.
    fn fill_from_cpu_slab(&self, cache: &Cache, sheaf: &mut OwnSheaf) {
        while sheaf.room() > 0 {
            let cpu = self.cpu_slab_here(cache);
            if let Ok(_section) = cpu.enter_fast::<P>() {
                while sheaf.room() > 0
                    && let Some(object) = self.pop_private(cache, cpu)
                {
                    sheaf.put(object);
                }
            }
            if sheaf.room() > 0 {
                let Some(object) = self.alloc_cpu_slab_slow(cache) else {
                    return;
                };
                sheaf.put(object);
            }
        }
    }

    /// 7.0: from the near node's list, those of other nodes, new slabs.
    fn fill_from_lists(&self, cache: &Cache, sheaf: &mut OwnSheaf) {
        let near = here::<P>();
        self.fill_from_list(cache, self.node(cache.id(), near), sheaf, true);
        if sheaf.room() > 0 {
            for node in self.others_with_surplus(cache, near) {
                self.fill_from_list(cache, node, sheaf, false);
                if sheaf.room() == 0 {
                    break;
                }
            }
        }
        while sheaf.room() > 0 {
            let Some(slab) = self.new_linked_slab(cache, near) else {
                return;
            };
            self.take_of_new(&slab, sheaf);
        }
    }

    /// Nodes beside `near` from which slabs may be taken: all but a few times, and only where they
    /// have more than they keep.
    fn others_with_surplus<'a>(
        &'a self,
        cache: &'a Cache,
        near: NodeId,
    ) -> impl Iterator<Item = &'a Node> {
        let count = match self.node_count() {
            1 => 1,
            count if tries_other_nodes(self.cpu_slab_here(cache).draw(), REMOTE_RATIO) => count,
            _ => 1,
        };
        other_nodes(near, count).filter_map(move |far| {
            let node = self.node(cache.id(), far);
            P::touch(Line::Node, node.address(), Access::Read);
            (node.nr_partial() > cache.min_partial()).then_some(node)
        })
    }

    fn fill_from_list(&self, cache: &Cache, node: &Node, sheaf: &mut OwnSheaf, waits: bool) {
        P::touch(Line::Node, node.address(), Access::Read);
        if node.looks_bare() {
            return;
        }
        let mut isolated = self.isolate(cache, node, sheaf.room(), waits);
        if self.returns() == Returns::Tail {
            self.reverse(cache, &mut isolated);
        }
        while isolated.head.is_some() && sheaf.room() > 0 {
            // SAFETY: unlinked by us, so live and ours.
            let slab = unsafe { Slab::at(self, cache, isolated.head) };
            isolated.head = Pfn(slab.descriptor.next.load(Relaxed));
            isolated.slabs -= 1;
            self.take_whole(&slab, sheaf);
        }
        if isolated.head.is_some() {
            self.put_untouched(cache, node, isolated);
        }
    }

    /// Unlinks slabs from the head until they hold `want` free objects. The chain begins with the
    /// last one.
    fn isolate(&self, cache: &Cache, node: &Node, want: u32, waits: bool) -> SlabChain {
        let _within = Within::<P>::of(Function::GetPartialNode);
        let mut isolated = SlabChain::NONE;
        let list = match waits {
            true => node.hold(self.pages()).ok(),
            false => node.try_hold(self.pages()),
        };
        let Some(mut list) = list else {
            return isolated;
        };
        P::touch(Line::Node, node.address(), Access::Read);
        let counts = tally(cache, P::current_cpu());
        bump(&counts.list_visits, 1);
        while isolated.objects < want && list.head().is_some() {
            let pfn = list.head();
            // SAFETY: slabs on the list are live slabs of the cache.
            let slab = unsafe { Slab::at(self, cache, pfn) };
            slab.touch(Access::Write);
            let free = slab.state().free();
            list.remove(pfn);
            self.chain_on(&mut isolated, &slab, free);
        }
        bump(&counts.slabs_taken, u64::from(isolated.slabs));
        isolated
    }

    fn returns(&self) -> Returns {
        match self.policy().sheaf_rule {
            SheafRule::BySize(_, returns) => returns,
            _ => Returns::Head,
        }
    }

    /// Turns a chain of slabs that are ours round.
    fn reverse(&self, cache: &Cache, slabs: &mut SlabChain) {
        let mut rest = core::mem::replace(&mut slabs.head, Pfn::NONE);
        while rest.is_some() {
            // SAFETY: unlinked by us, so live and ours.
            let slab = unsafe { Slab::at(self, cache, rest) };
            let link = &slab.descriptor.next;
            let next = Pfn(link.load(Relaxed));
            link.store(slabs.head.0, Relaxed);
            (slabs.head, rest) = (rest, next);
        }
    }

    /// Takes all free objects of a slab that is ours; those the sheaf has no room for are freed
    /// again.
    fn take_whole(&self, slab: &Slab<'_, P>, sheaf: &mut OwnSheaf) {
        let mut first = loop {
            slab.touch(Access::Atomic);
            let state = slab.state();
            if slab.swap_state(state, state.with(NO_OBJECT, state.objects())) {
                break state.freelist();
            }
        };
        while first != NO_OBJECT && sheaf.room() > 0 {
            sheaf.put(slab.links.object(first));
            first = slab.links.take(first);
        }
        if first == NO_OBJECT {
            return;
        }
        let mut rest = Chain {
            first,
            last: first,
            count: 1,
        };
        let mut next = slab.links.next(first);
        while next != NO_OBJECT {
            rest.last = next;
            rest.count += 1;
            next = slab.links.next(next);
        }
        let _never = self.put_chain_cpu_slab(slab, rest, Patience::Endless);
    }

    /// Slabs that were unlinked and not needed: back to the head, or given back where they are empty
    /// and enough others are there; since 7.2 all to the tail.
    fn put_untouched(&self, cache: &Cache, node: &Node, slabs: SlabChain) {
        let mut pfn = slabs.head;
        let mut surplus = SlabChain::NONE;
        let (end, discards) = match self.returns() {
            Returns::Head => (End::Head, true),
            Returns::Tail => (End::Tail, false),
        };
        {
            let mut list = node.hold(self.pages()).ok();
            P::touch(Line::Node, node.address(), Access::Read);
            bump(&tally(cache, P::current_cpu()).list_visits, 1);
            while pfn.is_some() {
                // SAFETY: unlinked by us, so live and ours.
                let slab = unsafe { Slab::at(self, cache, pfn) };
                let next = Pfn(slab.descriptor.next.load(Relaxed));
                match &mut list {
                    _ if discards
                        && slab.state().is_empty()
                        && is_surplus(cache, node.nr_partial()) =>
                    {
                        self.chain_on(&mut surplus, &slab, 0);
                    }
                    Some(list) => list.add(pfn, end),
                    None => node.orphan(self.pages(), pfn),
                }
                pfn = next;
            }
        }
        while surplus.head.is_some() {
            // SAFETY: empty and on no list: nobody else refers to it.
            let slab = unsafe { Slab::at(self, cache, surplus.head) };
            surplus.head = Pfn(slab.descriptor.next.load(Relaxed));
            self.discard(&slab);
        }
    }

    /// Takes objects of a new slab; the rest goes to the head of its node's list.
    fn take_of_new(&self, slab: &Slab<'_, P>, sheaf: &mut OwnSheaf) {
        let (mut first, mut taken) = (slab.state().freelist(), 0);
        while first != NO_OBJECT && sheaf.room() > 0 {
            sheaf.put(slab.links.object(first));
            first = slab.links.take(first);
            taken += 1;
        }
        let state = slab.state().with(first, taken);
        slab.descriptor.state.store(state.0, Relaxed);
        if !state.is_full() {
            self.list_new(slab);
        }
    }

    /// 7.0: one object of the first slab of a node's list, which stays there unless that was its
    /// last; else of a new slab.
    fn take_single(&self, cache: &Cache) -> Option<NonNull<u8>> {
        let _within = Within::<P>::of(Function::SlabAlloc);
        let near = here::<P>();
        self.take_of_list(cache, self.node(cache.id(), near))
            .or_else(|| {
                self.others_with_surplus(cache, near)
                    .find_map(|node| self.take_of_list(cache, node))
            })
            .or_else(|| {
                let slab = self.new_linked_slab(cache, near)?;
                Some(self.hand_out_first(&slab))
            })
    }

    fn take_of_list(&self, cache: &Cache, node: &Node) -> Option<NonNull<u8>> {
        P::touch(Line::Node, node.address(), Access::Read);
        if node.looks_bare() {
            return None;
        }
        bump(&tally(cache, P::current_cpu()).list_visits, 1);
        self.take_beside(cache, node)
    }

    /// Gives up to `most` objects of a sheaf back to their slabs, those put last first; a slab's
    /// objects that lie near each other at once.
    pub(crate) fn flush_sheaf(&self, cache: &Cache, sheaf: &mut OwnSheaf, most: u32) {
        let keep = sheaf.len().saturating_sub(most);
        while sheaf.len() > keep {
            let Some(object) = sheaf.take() else { return };
            // SAFETY: objects in a sheaf are the cache's, freed, and in nobody else's hands.
            let (slab, first) = unsafe { Slab::holding(self, cache, object) };
            slab.touch(Access::Read);
            slab.links.free(first, NO_OBJECT);
            let mut chain = Chain {
                first,
                last: first,
                count: 1,
            };
            let (mut at, mut passed) = (sheaf.len(), 0);
            while at > keep && passed < MISMATCHES {
                at -= 1;
                match sheaf.get(at).filter(|&other| slab.contains(other)) {
                    Some(other) => {
                        let _ = sheaf.swap_remove(at);
                        let index = slab.index(other);
                        slab.links.free(index, chain.first);
                        chain.first = index;
                        chain.count += 1;
                    }
                    None => passed += 1,
                }
            }
            P::work(Work::Objects(chain.count));
            if !self.push_chain(cache, &slab, chain) {
                let _within = Within::<P>::of(Function::SlabFree);
                let _never = self.put_chain_cpu_slab(&slab, chain, Patience::Endless);
            }
        }
    }

    /// Puts a chain on the private chain if it is of this CPU's slab.
    fn push_chain(&self, cache: &Cache, slab: &Slab<'_, P>, chain: Chain) -> bool {
        if cache.engine() != Engine::CpuSlab {
            return false;
        }
        let cpu = self.cpu_slab_here(cache);
        let Ok(_section) = cpu.enter_fast::<P>() else {
            return false;
        };
        if cpu.slab() != slab.pfn {
            return false;
        }
        slab.links.relink(chain.last, cpu.freelist());
        cpu.set_freelist(chain.first);
        true
    }

    fn list_new(&self, slab: &Slab<'_, P>) {
        let node = slab.node();
        match node.hold(self.pages()) {
            Ok(mut list) => {
                P::touch(Line::Node, node.address(), Access::Read);
                bump(&tally(slab.cache, P::current_cpu()).list_visits, 1);
                list.add(slab.pfn, End::Head);
            }
            // A handler on top of the list's holder.
            Err(_) => node.orphan(self.pages(), slab.pfn),
        }
    }
}
