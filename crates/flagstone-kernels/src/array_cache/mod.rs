//! The SLAB allocator of 2.6.24: per-CPU arrays of objects over three lists of slabs.
//!
//! ```text
//!   CPU array   [ o o o o . . ]  limit objects, moved `batch` at a time
//!   shared      [ o o o o o o . . ]  one per node, under its list lock
//!   node        partial ⇄ slab ⇄ slab      free ⇄ slab ⇄ slab      (full ones are on no list)
//! ```
//!
//! Allocation: pop; else a batch from the shared array; else from partial slabs, then from free
//! ones; else a new slab. Free: push; else the oldest batch goes to the shared array or back
//! into its slabs. A slab that becomes empty stays on the free list until the node holds more
//! than `free_limit` free objects.
//!
//! Source: the author's knowledge of that kernel, as for its numbers (`policy/slab2007.rs`).
//! Without what that kernel has besides: alien arrays (an object of another node goes straight
//! back to its slab, as with `noaliencache`), colouring, and the reaper's two-second rounds.
//!
//! Locking: arrays inside their CPU's section; everything of a node under its list lock.
//!
//! Invariants
//! - `array.len-bounded`: `avail <= limit`.
//! - `array.free-counted`: a node's `free_objects` is what its slabs count as free.

mod alloc;
mod free;
mod queues;

pub(crate) use queues::{Queues, queues};

use crate::host::Host;
use crate::rules;
use crate::tally::Tally;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicUsize};
use flagstone_core::base::{CpuId, NodeId, Pfn};
use flagstone_core::platform::{Access, Fault, Line, LockKind, Platform, RawLock, Reentered};
use flagstone_core::policy::Engine;
use flagstone_core::slab::{Cache, CpuHeld, Engines, PartialList};
use flagstone_core::sync::Ordering::Relaxed;

/// One CPU's array; the entries follow it in memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ArrayCache {
    lock: RawLock,
    avail: AtomicU32,
    touched: AtomicU32,
    pub tally: Tally,
}

/// One node's shared array and free slabs; the entries follow it in memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct SharedArray {
    avail: AtomicU32,
    free_objects: AtomicU32,
    /// Empty slabs; under the node's list lock.
    free: UnsafeCell<PartialList>,
}

// SAFETY: atomics, and a list that is reached under the node's list lock only.
unsafe impl Sync for SharedArray {}

/// Where an array's entries start, behind its head.
#[derive(Clone, Copy)]
struct Entries(NonNull<AtomicUsize>);

impl Entries {
    /// # Safety
    /// 1. Entries follow `head` in memory and live as long as the heap.
    unsafe fn behind<T>(head: NonNull<T>) -> Self {
        // SAFETY: obligation 1; `T` is aligned to a line, so what follows is aligned to a word.
        Self(unsafe { head.add(1) }.cast())
    }

    #[inline]
    fn at(&self, index: u32) -> &AtomicUsize {
        // SAFETY: callers stay below the array's limit (`array.len-bounded`).
        unsafe { self.0.add(index as usize).as_ref() }
    }

    #[inline]
    fn get(&self, index: u32) -> Option<NonNull<u8>> {
        NonNull::new(self.at(index).load(Relaxed) as *mut u8)
    }

    #[inline]
    fn put(&self, index: u32, object: NonNull<u8>) {
        self.at(index).store(object.as_ptr() as usize, Relaxed);
    }

    /// Says that entries `from..to` are about to be read or written, line by line.
    fn touch<P: Platform>(&self, from: u32, to: u32, access: Access) {
        let mut index = from;
        while index < to {
            let line: *const AtomicUsize = self.at(index);
            P::touch(Line::Sheaf, line.cast(), access);
            index = (index / 8 + 1) * 8;
        }
    }
}

/// Bytes of a CPU's array of `limit` entries.
pub(crate) const fn array_bytes(limit: u32) -> usize {
    (size_of::<ArrayCache>() + limit as usize * 8).next_multiple_of(64)
}

/// Bytes of a node's shared array of `limit` entries.
pub(crate) const fn shared_bytes(limit: u32) -> usize {
    (size_of::<SharedArray>() + limit as usize * 8).next_multiple_of(64)
}

impl ArrayCache {
    /// An empty array.
    pub fn new() -> Self {
        Self {
            lock: RawLock::new(LockKind::Local),
            avail: AtomicU32::new(0),
            touched: AtomicU32::new(0),
            tally: Tally::default(),
        }
    }

    /// The section's lock, for fork handling.
    pub fn lock(&self) -> &RawLock {
        &self.lock
    }

    /// Objects in the array.
    pub fn len(&self) -> u32 {
        self.avail.load(Relaxed)
    }

    fn touch<P: Platform>(&self) {
        P::touch(Line::Cpu, core::ptr::from_ref(self).cast(), Access::Write);
    }
}

impl SharedArray {
    /// An empty array and no free slabs.
    pub fn new() -> Self {
        Self {
            avail: AtomicU32::new(0),
            free_objects: AtomicU32::new(0),
            free: UnsafeCell::new(PartialList::EMPTY),
        }
    }

    /// Objects the node's slabs count as free, but those of slabs that are on no list yet.
    pub fn free_objects(&self) -> u32 {
        self.free_objects.load(Relaxed)
    }

    /// First empty slab.
    ///
    /// # Safety
    /// 1. The caller holds the node's list lock and no reference to the list.
    pub unsafe fn free_head(&self) -> Pfn {
        // SAFETY: obligation 1.
        unsafe { &*self.free.get() }.head()
    }
}

/// One CPU's array with its entries and its number.
struct Array<'a> {
    head: &'a ArrayCache,
    entries: Entries,
    cpu: CpuId,
}

impl Array<'_> {
    /// Runs `step` inside the section.
    #[inline]
    fn inside<P: Platform, T>(&self, step: impl FnOnce(&Self) -> T) -> Result<T, Reentered> {
        P::enter_local(&self.head.lock)?;
        self.head.touch::<P>();
        let out = step(self);
        P::leave_local(&self.head.lock);
        Ok(out)
    }

    fn avail(&self) -> u32 {
        self.head.avail.load(Relaxed)
    }

    fn set_avail(&self, avail: u32) {
        self.head.avail.store(avail, Relaxed);
    }

    #[inline]
    fn pop<P: Platform>(&self) -> Option<NonNull<u8>> {
        let avail = self.avail().checked_sub(1)?;
        self.entries.touch::<P>(avail, avail + 1, Access::Read);
        self.set_avail(avail);
        self.head.touched.store(1, Relaxed);
        self.entries.get(avail)
    }

    /// Puts an object on top; there is room.
    #[inline]
    fn push<P: Platform>(&self, object: NonNull<u8>) {
        let avail = self.avail();
        if avail > 0 && self.entries.get(avail - 1) == Some(object) {
            P::fatal(Fault::DoubleFree, object.as_ptr());
        }
        self.entries.touch::<P>(avail, avail + 1, Access::Write);
        self.entries.put(avail, object);
        self.set_avail(avail + 1);
    }
}

impl<P: Engines> Host<'_, P> {
    #[inline]
    fn array_with_entries<'a>(&self, cache: &'a Cache, cpu: CpuId) -> Array<'a> {
        // SAFETY: callers dispatched on the engine: the table holds these entries, each with
        // room for `limit` objects behind it.
        unsafe {
            let head = rules::array(cache, cpu);
            Array {
                head: head.as_ref(),
                entries: Entries::behind(head),
                cpu,
            }
        }
    }

    /// A node's shared array.
    pub(crate) fn shared<'a>(&self, cache: &'a Cache, node: NodeId) -> &'a SharedArray {
        self.shared_with_entries(cache, node).0
    }

    fn shared_with_entries<'a>(
        &self,
        cache: &'a Cache,
        node: NodeId,
    ) -> (&'a SharedArray, Entries) {
        // SAFETY: as in `array_with_entries`, for the nodes' entries behind the CPUs'.
        unsafe {
            let head = rules::shared(cache, node);
            (head.as_ref(), Entries::behind(head))
        }
    }

    /// First of a node's empty slabs.
    pub(crate) fn empty_head(&self, cache: &Cache, node: NodeId) -> Pfn {
        if cache.engine() != Engine::Slab2007 {
            return Pfn::NONE;
        }
        let Ok(_list) = self.node(cache.id(), node).list().lock::<P>() else {
            return Pfn::NONE;
        };
        // SAFETY: the list lock is held.
        unsafe { self.shared(cache, node).free_head() }
    }

    /// What a CPU's array holds (and, counted with the first CPU, the shared arrays).
    pub(crate) fn add_array(&self, cache: &Cache, cpu: CpuId, held: &mut CpuHeld) {
        held.private_objects += u64::from(self.array_with_entries(cache, cpu).avail());
        if cpu.0 == 0 {
            for number in 0..self.node_count() {
                let shared = self.shared(cache, NodeId(number));
                held.private_objects += u64::from(shared.avail.load(Relaxed));
            }
        }
    }
}

/// The lock of a CPU's section.
pub(crate) fn array_lock(cache: &Cache, cpu: CpuId) -> &RawLock {
    // SAFETY: `furnish` made the entry.
    unsafe { rules::array(cache, cpu).as_ref() }.lock()
}

/// A CPU's counts.
pub(crate) fn array_tally(cache: &Cache, cpu: CpuId) -> &Tally {
    // SAFETY: as in `array_lock`.
    &unsafe { rules::array(cache, cpu).as_ref() }.tally
}

/// Objects in a CPU's array.
pub(crate) fn array_fill(cache: &Cache, cpu: CpuId) -> u32 {
    // SAFETY: as in `array_lock`.
    unsafe { rules::array(cache, cpu).as_ref() }.len()
}
