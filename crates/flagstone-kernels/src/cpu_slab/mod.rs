//! The cpu-slab engine: every CPU allocates from a slab of its own (kernels 2.6.22 to 6.19).
//!
//! ```text
//!   CpuSlab        slab ──► [ o . o o . | remote frees: the slab's own chain ]
//!    of one CPU    private chain ─┘
//!    and cache     partial ──► slab ──► slab ──► slab         slabs this CPU made partial
//! ```
//!
//! Allocation: pop from the private chain; else take all that others freed into the own slab;
//! else the next partial slab; else slabs of the node's list; else a new one
//! (`alloc.rs`). Free: into the own slab by the private chain; into any other by one
//! compare-and-swap (`free.rs`). Giving a slab up, and emptying a CPU: `deactivate.rs`.
//! The form of 2007, with a lock for each slab: `with_locks.rs`.
//!
//! Objects on the private chain count as in use in the slab's state, so the slab's word changes
//! only when a chain moves as a whole. All objects of a slab are linked when it is made, as in
//! the kernels, and the links lie in the objects.
//!
//! Locking: a CPU's structure is changed inside that CPU's section (`LockKind::Local`), by the
//! CPU itself or by a flush. The kernels need no section on the fast path because a transaction
//! number (tid) in the compared word tells them that they were interrupted or moved; here the
//! section says it (ADR 0012).
//!
//! Invariants
//! - `cpu.slab-frozen`: a CPU's slab is frozen, on no list, and all its objects count as in use
//!   but those on its own chain.
//! - `cpu.private-chained`: the private chain holds objects of the CPU's slab only.
//! - `cpu.partial-counted`: the counts of slabs and of objects on a CPU's partial list are its
//!   length and the sum of what each slab brought.

mod alloc;
mod deactivate;
mod free;
mod with_locks;

use crate::host::Host;
use crate::rules;
use crate::tally::Tally;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use flagstone_core::base::Pfn;
use flagstone_core::platform::{Access, Fault, Line, LockKind, Platform, RawLock, Reentered, Work};
use flagstone_core::slab::{Cache, Engines, Links, NO_OBJECT, OwnSheaf};
use flagstone_core::sync::Ordering::Relaxed;

pub(crate) use free::{Patience, Settled};
pub(crate) use with_locks::WithLock;

/// One CPU's part of one cache: a line that is changed by every operation, and one of counts.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct CpuSlab {
    lock: RawLock,
    slab: AtomicU32,
    freelist: AtomicU32,
    /// What seals the links of `slab`.
    seal: AtomicU64,
    /// First slab of the CPU's partial list; linked by the descriptors' `next`.
    partial: AtomicU32,
    partial_slabs: AtomicU32,
    /// Objects that were free when the slabs on the list were put there.
    partial_objects: AtomicU32,
    draws: AtomicU32,
    /// Sheaf of objects put aside, or zero.
    deferred: AtomicUsize,
    /// Sheaf of objects that wait for a grace period once it is full, or zero.
    rcu: AtomicUsize,
    pub tally: Tally,
}

/// A slab with a private chain, taken off its CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detached {
    pub slab: Pfn,
    pub freelist: u32,
}

/// A list of slabs through the descriptors' `next`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlabChain {
    pub head: Pfn,
    pub slabs: u32,
    pub objects: u32,
}

impl SlabChain {
    /// No slabs.
    pub const NONE: Self = Self {
        head: Pfn::NONE,
        slabs: 0,
        objects: 0,
    };
}

/// Being inside a CPU's section; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Section<'a, P: Platform> {
    here: &'a CpuSlab,
    world: PhantomData<P>,
}

impl<P: Platform> Drop for Section<'_, P> {
    #[inline]
    fn drop(&mut self) {
        P::leave_local(&self.here.lock);
    }
}

impl CpuSlab {
    /// A CPU without a slab.
    pub fn new() -> Self {
        Self {
            lock: RawLock::new(LockKind::Local),
            slab: AtomicU32::new(Pfn::NONE.0),
            freelist: AtomicU32::new(NO_OBJECT),
            seal: AtomicU64::new(0),
            partial: AtomicU32::new(Pfn::NONE.0),
            partial_slabs: AtomicU32::new(0),
            partial_objects: AtomicU32::new(0),
            draws: AtomicU32::new(0),
            deferred: AtomicUsize::new(0),
            rcu: AtomicUsize::new(0),
            tally: Tally::default(),
        }
    }

    /// The section's lock, for fork handling.
    pub fn lock(&self) -> &RawLock {
        &self.lock
    }

    /// The address of the structure's line, for the seam's `touch`.
    #[inline]
    pub fn address(&self) -> *const u8 {
        core::ptr::from_ref(self).cast()
    }

    /// Enters the section on the fast path.
    #[inline]
    pub fn enter_fast<P: Platform>(&self) -> Result<Section<'_, P>, Reentered> {
        P::enter_local(&self.lock)?;
        P::touch(Line::Cpu, self.address(), Access::Write);
        Ok(Section {
            here: self,
            world: PhantomData,
        })
    }

    /// Enters the section on a slow path.
    #[inline]
    pub fn enter<P: Platform>(&self) -> Result<Section<'_, P>, Reentered> {
        P::acquire(&self.lock)?;
        P::touch(Line::Cpu, self.address(), Access::Write);
        Ok(Section {
            here: self,
            world: PhantomData,
        })
    }

    /// The CPU's slab; `Pfn::NONE` if it has none.
    #[inline]
    pub fn slab(&self) -> Pfn {
        Pfn(self.slab.load(Relaxed))
    }

    /// First object of the private chain.
    #[inline]
    pub fn freelist(&self) -> u32 {
        self.freelist.load(Relaxed)
    }

    #[inline]
    pub fn set_freelist(&self, first: u32) {
        self.freelist.store(first, Relaxed);
    }

    /// Makes a slab the CPU's own.
    #[inline]
    pub fn set_slab(&self, slab: Pfn, freelist: u32, seal: u64) {
        self.slab.store(slab.0, Relaxed);
        self.freelist.store(freelist, Relaxed);
        self.seal.store(seal, Relaxed);
    }

    /// Takes the CPU's slab and private chain away.
    pub fn detach(&self) -> Option<Detached> {
        let detached = Detached {
            slab: self.slab(),
            freelist: self.freelist(),
        };
        self.set_slab(Pfn::NONE, NO_OBJECT, 0);
        detached.slab.is_some().then_some(detached)
    }

    /// First slab of the CPU's partial list.
    #[inline]
    pub fn partial(&self) -> Pfn {
        Pfn(self.partial.load(Relaxed))
    }

    /// Slabs on the CPU's partial list.
    pub fn partial_slabs(&self) -> u32 {
        self.partial_slabs.load(Relaxed)
    }

    /// Objects counted when the slabs were put on the CPU's partial list.
    pub fn partial_objects(&self) -> u32 {
        self.partial_objects.load(Relaxed)
    }

    /// The CPU's partial list as a value.
    pub fn partial_list(&self) -> SlabChain {
        SlabChain {
            head: self.partial(),
            slabs: self.partial_slabs(),
            objects: self.partial_objects(),
        }
    }

    /// Replaces the CPU's partial list.
    pub fn set_partial(&self, list: SlabChain) {
        self.partial.store(list.head.0, Relaxed);
        self.partial_slabs.store(list.slabs, Relaxed);
        self.partial_objects.store(list.objects, Relaxed);
    }

    /// Takes the CPU's whole partial list.
    pub fn take_partial(&self) -> SlabChain {
        let list = self.partial_list();
        self.set_partial(SlabChain::NONE);
        list
    }

    /// The next number of the CPU's own sequence.
    pub fn draw(&self) -> u32 {
        let draw = self.draws.load(Relaxed).wrapping_add(1);
        self.draws.store(draw, Relaxed);
        draw
    }

    /// Takes the sheaf of objects put aside.
    pub fn take_deferred(&self) -> Option<OwnSheaf> {
        // SAFETY: `set_deferred` gave the sheaf up to this field, and only this takes it out.
        unsafe { take_sheaf(&self.deferred) }
    }

    /// Takes the sheaf of objects for RCU.
    pub fn take_rcu(&self) -> Option<OwnSheaf> {
        // SAFETY: as above, with `set_rcu`.
        unsafe { take_sheaf(&self.rcu) }
    }

    /// Keeps a sheaf of objects for RCU; there is none here.
    pub fn set_rcu(&self, sheaf: OwnSheaf) {
        debug_assert!(!self.has_rcu(), "a sheaf would be lost");
        self.rcu.store(sheaf.into_raw().as_ptr() as usize, Relaxed);
    }

    /// Whether there are objects for RCU here.
    pub fn has_rcu(&self) -> bool {
        self.rcu.load(Relaxed) != 0
    }

    /// Keeps a sheaf of objects put aside; there is none here.
    pub fn set_deferred(&self, sheaf: OwnSheaf) {
        debug_assert_eq!(self.deferred.load(Relaxed), 0, "a sheaf would be lost");
        self.deferred
            .store(sheaf.into_raw().as_ptr() as usize, Relaxed);
    }

    /// Whether objects are put aside here.
    pub fn has_deferred(&self) -> bool {
        self.deferred.load(Relaxed) != 0
    }

    /// Objects put aside here, for RCU or not; inside the section.
    pub fn deferred_objects(&self) -> u32 {
        let mut objects = 0;
        if let Some(sheaf) = self.take_deferred() {
            objects += sheaf.len();
            self.set_deferred(sheaf);
        }
        if let Some(sheaf) = self.take_rcu() {
            objects += sheaf.len();
            self.set_rcu(sheaf);
        }
        objects
    }

    /// Whether nothing is put aside, by a look from outside.
    pub fn put_nothing_aside(&self) -> bool {
        !self.has_deferred() && !self.has_rcu()
    }

    /// Whether there is nothing to flush, by a look from outside.
    pub fn looks_empty(&self) -> bool {
        !self.slab().is_some() && !self.partial().is_some() && self.put_nothing_aside()
    }
}

/// Takes the sheaf out of a field.
///
/// # Safety
/// 1. The field holds a sheaf's address or zero, and the sheaf is the field's alone.
unsafe fn take_sheaf(field: &AtomicUsize) -> Option<OwnSheaf> {
    let address = field.load(Relaxed);
    field.store(0, Relaxed);
    // SAFETY: obligation 1.
    NonNull::new(address as *mut _).map(|sheaf| unsafe { OwnSheaf::from_raw(sheaf) })
}

impl<P: Engines> Host<'_, P> {
    /// The structure of the CPU this runs on (perhaps not for long; the section keeps it whole).
    #[inline]
    pub(crate) fn cpu_slab_here<'a>(&self, cache: &'a Cache) -> &'a CpuSlab {
        rules::cpu_slab(cache, P::current_cpu())
    }

    /// Takes an object of a cache of this engine (docs: linux-policies 4.2).
    #[inline]
    pub(crate) fn alloc_cpu_slab(&self, cache: &Cache) -> Option<NonNull<u8>> {
        P::work(Work::Fast);
        let here = self.cpu_slab_here(cache);
        if let Ok(_section) = here.enter_fast::<P>()
            && let Some(object) = self.pop_private(cache, here)
        {
            return Some(object);
        }
        self.alloc_cpu_slab_slow(cache)
    }

    /// Pops from the private chain; inside the section.
    #[inline]
    pub(crate) fn pop_private(&self, cache: &Cache, here: &CpuSlab) -> Option<NonNull<u8>> {
        let first = here.freelist();
        if first == NO_OBJECT {
            return None;
        }
        let links = self.links_here(cache, here);
        here.set_freelist(links.take(first));
        Some(links.object(first))
    }

    /// The links of the CPU's slab, without a look at its descriptor; inside the section.
    #[inline]
    fn links_here<'a>(&'a self, cache: &'a Cache, here: &CpuSlab) -> Links<'a, P> {
        let slab = here.slab();
        let aside = self.pages().links_of(slab);
        let start = self.pages().address(slab);
        let seal = here.seal.load(Relaxed);
        // SAFETY: a CPU's slab is live (`cpu.slab-frozen`), and the seal was noted with it.
        unsafe { Links::new(aside, start, cache.geometry(), seal) }
    }

    /// Puts an object on the private chain if it is of this CPU's slab; inside the section.
    #[inline]
    pub(crate) fn push_private(&self, cache: &Cache, here: &CpuSlab, object: NonNull<u8>) -> bool {
        let slab = here.slab();
        if !slab.is_some() {
            return false;
        }
        let start = self.pages().address(slab).as_ptr() as usize;
        let offset = (object.as_ptr() as usize).wrapping_sub(start);
        if offset >= cache.geometry().slab_bytes() {
            return false;
        }
        // The kernels find the slab and its cache through this line.
        let descriptor: *const _ = self.pages().descriptor(slab);
        P::touch(Line::Slab, descriptor.cast(), Access::Read);
        let Some(index) = cache.geometry().index_of(offset) else {
            P::fatal(Fault::InvalidFree, object.as_ptr())
        };
        self.links_here(cache, here).free(index, here.freelist());
        here.set_freelist(index);
        true
    }

    /// Gives an object of a cache of this engine back (docs: linux-policies 4.2).
    ///
    /// # Safety
    /// 1. `object` is of this cache and given up by its owner.
    #[inline]
    pub(crate) unsafe fn free_cpu_slab(&self, cache: &Cache, object: NonNull<u8>) {
        P::work(Work::FastFree);
        // SAFETY: obligation 1.
        unsafe { self.free_to_cpu_slab(cache, object) };
    }

    /// The same without the way in.
    ///
    /// # Safety
    /// 1. As for `free_cpu_slab`.
    #[inline]
    pub(crate) unsafe fn free_to_cpu_slab(&self, cache: &Cache, object: NonNull<u8>) {
        let here = self.cpu_slab_here(cache);
        if let Ok(_section) = here.enter_fast::<P>()
            && self.push_private(cache, here, object)
        {
            return;
        }
        // SAFETY: obligation 1.
        unsafe { self.free_cpu_slab_slow(cache, object) };
    }
}
