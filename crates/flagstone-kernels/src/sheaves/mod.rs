//! The kernels' sheaves: arrays of objects per CPU and cache, over cpu slabs in 6.18 and 6.19, over
//! the node's list since 7.0.
//!
//! ```text
//!            6.18, 6.19: caches that ask           since 7.0: nearly every cache
//!   CPU      main · spare · rcu                    main · spare · rcu
//!   node     barn: 10 full, 10 empty               barn: 10 full, 10 empty
//!   CPU      slab, partial slabs                   -
//!   node     list of partial slabs                 list of partial slabs
//! ```
//!
//! Allocation: main; a spare with objects; a full sheaf of the barn; a sheaf filled to the brim;
//! one object of a slab. Free: an object of another node past all sheaves to its slab; main; a
//! spare with room; an empty sheaf of the barn for the full main; the spare's objects to their
//! slabs (docs: linux-policies 5.3, 5.4). Deferred frees: `rcu.rs`. Sheaves on demand, for callers
//! that must not fail later: `prefill.rs`. What lies below: `below.rs`.
//!
//! Main and spare are the core's slots, barns those of the core's nodes; so its checks, its ledger
//! and its shrinking see them. A slot step is the kernels' per-CPU section: a handler that stands on
//! top of one goes to the slabs.

pub(crate) mod below;
pub(crate) mod prefill;
pub(crate) mod rcu;

use crate::host::Host;
use core::ptr::NonNull;
use flagstone_core::base::NodeId;
use flagstone_core::platform::{Access, Fault, Line, SheafWord, Slot, Work};
use flagstone_core::slab::{Cache, Engines, Limits, Node, OwnSheaf, Part, Slab, bytes_for};

/// Objects of a full main sheaf that go to their slabs at once where no empty sheaf is to be had.
const FLUSH_BATCH: u32 = 32;

impl<P: Engines> Host<'_, P> {
    /// Takes an object of a cache that may have sheaves.
    #[inline]
    pub(crate) fn alloc_sheaf(&self, cache: &Cache) -> Option<NonNull<u8>> {
        P::work(Work::Fast);
        // SAFETY: the area is this heap's, and the id of a cache is below the number of its slots.
        match unsafe { P::pop(self.area(), Slot::main(cache.id().index())) } {
            Some(object) => Some(object),
            None => self.alloc_sheaf_slow(cache),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_sheaf_slow(&self, cache: &Cache) -> Option<NonNull<u8>> {
        P::work(Work::Slow);
        if cache.sheaf_capacity() == 0 {
            return self.take_below(cache);
        }
        self.alloc_from_spare(cache)
            .or_else(|| self.alloc_from_barn(cache))
            .or_else(|| self.alloc_by_refill(cache))
            .or_else(|| self.take_below(cache))
    }

    fn alloc_from_spare(&self, cache: &Cache) -> Option<NonNull<u8>> {
        let mut spare = self.take_slot(cache, spare_of(cache))?;
        P::touch(Line::Sheaf, spare.address(), Access::Write);
        let object = spare.take();
        match object {
            Some(_) => self.install_main(cache, spare),
            None => self.install_spare(cache, spare),
        }
        object
    }

    fn alloc_from_barn(&self, cache: &Cache) -> Option<NonNull<u8>> {
        let barn = &self.node_here(cache).barn;
        if barn.full() == 0 {
            return None;
        }
        let mut main = self.take_slot(cache, main_of(cache));
        if let Some(object) = main.as_mut().and_then(OwnSheaf::take) {
            // Somebody else on this CPU was faster.
            main.into_iter()
                .for_each(|main| self.install_main(cache, main));
            return Some(object);
        }
        // An exchange: the limit of empty sheaves does not count.
        let limits = Limits {
            empty: u32::MAX,
            ..self.barn_limits()
        };
        match barn.trade_for_full::<P>(main, limits) {
            Ok((mut full, _none)) => {
                P::touch(Line::Sheaf, full.address(), Access::Write);
                let object = full.take();
                self.install_main(cache, full);
                object
            }
            Err(main) => {
                main.into_iter()
                    .for_each(|main| self.install_main(cache, main));
                None
            }
        }
    }

    /// Fills the spare sheaf, or an empty one, and makes it the main one; what was main becomes
    /// spare.
    fn alloc_by_refill(&self, cache: &Cache) -> Option<NonNull<u8>> {
        let spare = self.take_slot(cache, spare_of(cache));
        let mut sheaf = spare.or_else(|| self.empty_sheaf(cache))?;
        if !self.fill(cache, &mut sheaf) {
            // 7.0 drops a sheaf that cannot be filled, and goes on below.
            self.flush_sheaf(cache, &mut sheaf, u32::MAX);
            self.drop_memory(sheaf);
            return None;
        }
        P::touch(Line::Sheaf, sheaf.address(), Access::Write);
        let object = sheaf.take();
        // Before a CPU's first allocation there is no main sheaf; the kernels have an empty one.
        let old = self.exchange(main_of(cache), Some(sheaf), cache);
        if let Some(old) = old.or_else(|| self.new_sheaf(cache)) {
            self.install_spare(cache, old);
        }
        object
    }

    /// Gives an object back to a cache that may have sheaves.
    ///
    /// # Safety
    /// 1. `object` is of this cache and given up by its owner.
    #[inline]
    pub(crate) unsafe fn free_sheaf(&self, cache: &Cache, object: NonNull<u8>) {
        P::work(Work::FastFree);
        // SAFETY: obligation 1.
        unsafe {
            if !self.may_be_kept(cache, object) {
                return self.free_below(cache, object);
            }
            if !P::push(self.area(), main_of(cache), object) {
                self.free_sheaf_slow(cache, object);
            }
        }
    }

    /// Whether an object may lie in a sheaf of this CPU: the cache has some, and the object is of
    /// this CPU's node. The kernels find both through the slab's line.
    ///
    /// # Safety
    /// 1. `object` is of this cache and handed out.
    unsafe fn may_be_kept(&self, cache: &Cache, object: NonNull<u8>) -> bool {
        // SAFETY: obligation 1.
        let (slab, _) = unsafe { Slab::holding(self, cache, object) };
        slab.touch(Access::Read);
        cache.sheaf_capacity() != 0 && slab.descriptor.node() == here::<P>()
    }

    /// # Safety
    /// 1. As for `free_sheaf`.
    #[cold]
    #[inline(never)]
    unsafe fn free_sheaf_slow(&self, cache: &Cache, object: NonNull<u8>) {
        P::work(Work::Slow);
        let main = self.take_slot(cache, main_of(cache));
        let Some(mut main) = main.or_else(|| self.new_sheaf(cache)) else {
            // SAFETY: obligation 1.
            return unsafe { self.free_below(cache, object) };
        };
        if main.holds_recent(object) {
            P::fatal(Fault::DoubleFree, object.as_ptr());
        }
        if main.room() == 0 {
            main = self.main_with_room(cache, main);
        }
        P::touch(Line::Sheaf, main.address(), Access::Write);
        main.put(object);
        self.install_main(cache, main);
    }

    /// A sheaf with room in exchange for a full one, which becomes spare or goes to the barn.
    fn main_with_room(&self, cache: &Cache, main: OwnSheaf) -> OwnSheaf {
        match self.take_slot(cache, spare_of(cache)) {
            None => match self.empty_sheaf(cache) {
                Some(empty) => {
                    self.install_spare(cache, main);
                    empty
                }
                None => self.partly_flushed(cache, main),
            },
            Some(spare) if spare.room() > 0 => {
                self.install_spare(cache, main);
                spare
            }
            Some(spare) => self.main_through_barn(cache, main, spare),
        }
    }

    /// Both sheaves are full.
    fn main_through_barn(&self, cache: &Cache, main: OwnSheaf, mut spare: OwnSheaf) -> OwnSheaf {
        let barn = &self.node_here(cache).barn;
        match barn.trade_for_empty::<P>(main, self.barn_limits()) {
            Ok(empty) => match empty.or_else(|| self.new_sheaf(cache)) {
                Some(empty) => {
                    self.install_spare(cache, spare);
                    empty
                }
                None => self.partly_flushed(cache, spare),
            },
            Err(main) => {
                self.flush_sheaf(cache, &mut spare, u32::MAX);
                self.install_spare(cache, main);
                spare
            }
        }
    }

    fn partly_flushed(&self, cache: &Cache, mut full: OwnSheaf) -> OwnSheaf {
        self.flush_sheaf(cache, &mut full, FLUSH_BATCH);
        full
    }

    /// What a barn may keep: ten full and ten empty sheaves.
    pub(crate) fn barn_limits(&self) -> Limits {
        let barn = self.policy().barn;
        Limits {
            full: barn.full,
            objects: u32::MAX,
            empty: barn.empty,
        }
    }

    /// The cache's part on this CPU's memory node.
    pub(crate) fn node_here<'a>(&'a self, cache: &Cache) -> &'a Node {
        self.node(cache.id(), here::<P>())
    }

    /// An empty sheaf of the barn, or a new one.
    pub(crate) fn empty_sheaf(&self, cache: &Cache) -> Option<OwnSheaf> {
        let kept = self.node_here(cache).barn.take_empty::<P>();
        kept.or_else(|| self.new_sheaf(cache))
    }

    /// A new sheaf of the cache's capacity.
    pub(crate) fn new_sheaf(&self, cache: &Cache) -> Option<OwnSheaf> {
        self.new_sheaf_of(cache.sheaf_capacity())
    }

    pub(crate) fn new_sheaf_of(&self, capacity: u32) -> Option<OwnSheaf> {
        let memory = Part::of(self, self.sheaf_cache(capacity), here::<P>()).take_one()?;
        // SAFETY: objects of that cache are large enough and aligned to their size.
        Some(unsafe { OwnSheaf::create(memory, capacity) })
    }

    /// Takes the sheaf out of a slot of this CPU.
    pub(crate) fn take_slot(&self, cache: &Cache, slot: Slot) -> Option<OwnSheaf> {
        self.exchange(slot, None, cache)
    }

    fn exchange(&self, slot: Slot, new: Option<OwnSheaf>, cache: &Cache) -> Option<OwnSheaf> {
        let area = self.area();
        let word = new.map_or(SheafWord::ABSENT, |sheaf| area.word_of(sheaf.into_entry()));
        // SAFETY: the area is this heap's; the sheaf was the caller's and is given up.
        let old = unsafe { P::exchange(area, slot, word) };
        if old.is_absent() {
            return None;
        }
        // SAFETY: what was in the slot is ours now; all sheaves of this cache have one capacity.
        Some(unsafe { OwnSheaf::from_entry(area.entry(old), bytes_for(cache.sheaf_capacity())) })
    }

    /// Makes `sheaf` the main one here; what was main becomes spare.
    pub(crate) fn install_main(&self, cache: &Cache, sheaf: OwnSheaf) {
        if let Some(old) = self.exchange(main_of(cache), Some(sheaf), cache) {
            self.install_spare(cache, old);
        }
    }

    /// Makes `sheaf` the spare one here; what was spare goes to the barn.
    pub(crate) fn install_spare(&self, cache: &Cache, sheaf: OwnSheaf) {
        if let Some(old) = self.exchange(spare_of(cache), Some(sheaf), cache) {
            self.store(cache, old);
        }
    }

    /// Finds a place for a sheaf that no slot of this CPU has room for.
    pub(crate) fn store(&self, cache: &Cache, sheaf: OwnSheaf) {
        let barn = &self.node_here(cache).barn;
        let mut rest = sheaf;
        if rest.room() == 0 {
            match barn.leave_full::<P>(rest, self.barn_limits()) {
                Ok(()) => return,
                Err(full) => rest = full,
            }
        }
        self.flush_sheaf(cache, &mut rest, u32::MAX);
        if let Err(sheaf) = barn.leave_empty::<P>(rest, self.barn_limits()) {
            self.drop_memory(sheaf);
        }
    }

    /// Takes all sheaves off the nodes' barns and into the slabs.
    pub(crate) fn flush_barns(&self, cache: &Cache) {
        for node in (0..self.node_count()).map(NodeId) {
            let barn = &self.node(cache.id(), node).barn;
            // Bounded: other CPUs may go on filling it.
            for _ in 0..barn.full() {
                let Some(mut full) = barn.take_full::<P>() else {
                    break;
                };
                self.flush_sheaf(cache, &mut full, u32::MAX);
                self.drop_memory(full);
            }
        }
    }
}

fn main_of(cache: &Cache) -> Slot {
    Slot::main(cache.id().index())
}

pub(crate) fn spare_of(cache: &Cache) -> Slot {
    Slot::spare(cache.id().index())
}

/// The running CPU's memory node.
pub(crate) fn here<P: Engines>() -> NodeId {
    P::node_of(P::current_cpu())
}
