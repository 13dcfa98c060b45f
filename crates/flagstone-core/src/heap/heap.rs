//! A heap: malloc's operations over caches, runs of pages and huge blocks.
//!
//! ```text
//!   request            served by                                  freed by address
//!   ≤ 32 KiB           a cache of the size classes                page map ≠ 0
//!   ≤ largest block    a run of pages of exactly that length      descriptor kind = Run
//!   larger             a reservation of its own                   outside the span: huge table
//! ```
//!
//! Fast paths: `alloc` and `free`, each a look-up in the gate and one slot step. Everything else
//! is cold. A heap lives in a zeroed static or anywhere else that does not move; it builds
//! itself at the first cold call.

use super::gate::{Gate, STRIDE_MAX};
use super::mark::handed_out;
use super::ready::{OBSERVED_BYTES, Ready};
use super::stage::Stage;
use crate::base::{CacheId, NodeId, Order, PageCount, Pfn};
use crate::page::PageKind;
use crate::platform::{Access, Fault, Line, Slot, Work};
use crate::slab::{Cache, Engines, SHEAF_CACHES, Slab, Suspect};
use crate::sync::Ordering::Relaxed;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// Alignment of every block in bytes.
pub const MIN_ALIGN: usize = 1 << super::gate::ALIGN_SHIFT;

/// What the fast half of a free did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Freed {
    /// All of it.
    Done,
    /// It put the mark on; there is no room for the block.
    Marked,
    /// Nothing: no block of a cache, or one that bears its mark already.
    NotAtAll,
}

/// A heap. See the module's picture.
#[repr(C)]
pub struct Heap<P: Engines> {
    pub(super) gate: Gate,
    pub(super) stage: Stage,
    pub(super) ready: UnsafeCell<MaybeUninit<Ready<P>>>,
}

// SAFETY: the gate and the stage are atomics; `ready` is written once, before the stage says so,
// and is `Sync` itself.
unsafe impl<P: Engines> Sync for Heap<P> {}

impl<P: Engines> Heap<P> {
    /// A heap that will build itself at first use. All zero bytes.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only useful as a constant")]
    pub const fn new() -> Self {
        Self {
            gate: Gate::new(),
            stage: Stage::new(),
            ready: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Lets a fast path pass that knows where this platform's slots are: [`Gate::open_near`].
    pub fn open_near(&self) {
        self.gate.open_near();
    }

    /// Sends every allocation to the cold half, or ends that: [`Gate::divert`].
    pub fn divert(&self, divert: bool) {
        self.gate.divert(divert);
    }

    /// [`Heap::alloc_fast`] behind a diverted gate.
    pub fn alloc_behind(&self, size: usize) -> Option<NonNull<u8>> {
        let ready = self.ready_if_built()?;
        let cache = ready.cache_for(&self.gate, size)?;
        // SAFETY: the area is ours, the id a cache's, and then the object ours.
        unsafe { P::pop(ready.slabs.area(), Slot::main(cache.id().index())).map(|o| handed_out(o)) }
    }

    /// A block of at least `size` bytes, aligned to [`MIN_ALIGN`]; `None` when memory is
    /// exhausted.
    #[inline(always)]
    pub fn alloc(&self, size: usize) -> Option<NonNull<u8>> {
        self.alloc_fast(size).or_else(|| self.alloc_cold(size))
    }

    /// The fast half of [`Heap::alloc`]: from the CPU's main sheaf, or `None`.
    #[inline(always)]
    pub fn alloc_fast(&self, size: usize) -> Option<NonNull<u8>> {
        P::work(Work::Fast);
        P::touch(Line::Gate, (&raw const self.gate).cast(), Access::Read);
        let (id, area) = self.gate.admit_size(size)?;
        // SAFETY: the gate is open: the area is live and the id is a cache's.
        let object = unsafe { P::pop_fast(area, Slot::main(id)) }?;
        P::touch(Line::Object, object.as_ptr(), Access::Write);
        // SAFETY: the object is ours.
        Some(unsafe { handed_out(object) })
    }

    /// Gives a block back; null is fine. Ends the program if `address` is not a live block's.
    ///
    /// # Safety
    /// 1. The block, if any, is not used again.
    #[inline(always)]
    pub unsafe fn free(&self, address: *mut u8) {
        // SAFETY: obligation 1; the fast half says who put the mark on.
        unsafe {
            match self.free_fast(address) {
                Freed::Done => {}
                Freed::Marked => self.free_marked(address),
                Freed::NotAtAll => self.free_cold(address),
            }
        }
    }

    /// The fast half of [`Heap::free`]: its mark onto the block, and the block onto the CPU's main
    /// sheaf.
    ///
    /// # Safety
    /// 1. As for [`Heap::free`].
    #[inline(always)]
    pub unsafe fn free_fast(&self, address: *mut u8) -> Freed {
        P::work(Work::FastFree);
        P::touch(Line::Gate, (&raw const self.gate).cast(), Access::Read);
        let Some((id, area, mark)) = self.gate.admit_address::<P>(address) else {
            return Freed::NotAtAll;
        };
        P::touch(Line::Object, address, Access::Write);
        // SAFETY: null lies outside the span, so it does not pass the gate.
        let object = unsafe { NonNull::new_unchecked(address) };
        // Before the push: from then on the object may be another's.
        // SAFETY: the gate let the start of an object pass; obligation 1.
        if !unsafe { mark.put_on(object) } {
            return Freed::NotAtAll;
        }
        // Pages of no slab have id 0, whose objects do not pass the gate.
        // SAFETY: the gate is open; obligation 1.
        match unsafe { P::push_fast(area, Slot::main(id), object) } {
            true => Freed::Done,
            false => Freed::Marked,
        }
    }

    /// The cold half of [`Heap::alloc`]: everything but the main sheaf.
    #[cold]
    #[inline(never)]
    pub fn alloc_cold(&self, size: usize) -> Option<NonNull<u8>> {
        let ready = self.ready()?;
        match ready.cache_for(&self.gate, size) {
            Some(cache) => {
                P::touch(Line::Heap, (&raw const cache.samples).cast(), Access::Write);
                cache.sample(size);
                ready.upkeep(0);
                let object = || match P::fast_slots() && self.gate.admit_size(size).is_some() {
                    true => ready.slabs.alloc_slow(cache),
                    false => ready.slabs.alloc(cache),
                };
                let object = object().or_else(|| ready.after_reclaim(size, object));
                // SAFETY: the object is ours.
                let block = object.map(|object| unsafe { handed_out(object) });
                block.or_else(|| ready.alloc_beside(MIN_ALIGN, size))
            }
            None => ready.alloc_pages(size, false),
        }
    }

    /// A zeroed block of at least `size` bytes.
    pub fn alloc_zeroed(&self, size: usize) -> Option<NonNull<u8>> {
        if size > super::class::TABLE_MAX {
            return self.ready()?.alloc_pages(size, true);
        }
        let block = self.alloc(size)?;
        // SAFETY: the block has at least `size` bytes and is ours.
        unsafe { block.write_bytes(0, size) };
        Some(block)
    }

    /// A block of at least `size` bytes whose address is a multiple of `align`, a power of two.
    pub fn alloc_aligned(&self, align: usize, size: usize) -> Option<NonNull<u8>> {
        debug_assert!(align.is_power_of_two());
        if align <= MIN_ALIGN {
            return self.alloc(size);
        }
        let ready = self.ready()?;
        let page = P::page_size().bytes();
        if align <= page {
            // Slabs start at a page, so objects whose size is a multiple of the alignment are
            // aligned.
            let mut wanted = size.max(1).checked_next_multiple_of(align)?;
            while let Some(cache) = ready.cache_for(&self.gate, wanted) {
                if cache.geometry().size() % align == 0 {
                    cache.sample(size);
                    ready.upkeep(0);
                    let object = || ready.alloc_object(cache);
                    return object()
                        .or_else(|| ready.after_reclaim(size, object))
                        .or_else(|| ready.alloc_beside(align, size));
                }
                wanted = cache
                    .geometry()
                    .size()
                    .checked_add(1)?
                    .checked_next_multiple_of(align)?;
            }
        }
        let pages = || ready.alloc_aligned_pages(align, size);
        pages().or_else(|| ready.after_reclaim(size, pages))
    }

    /// The cold half of [`Heap::free`]: blocks of no cache, and what bears a mark already.
    ///
    /// # Safety
    /// 1. As for [`Heap::free`].
    #[cold]
    #[inline(never)]
    pub unsafe fn free_cold(&self, address: *mut u8) {
        let Some(object) = NonNull::new(address) else {
            return;
        };
        let Some(ready) = self.ready() else {
            P::fatal(Fault::InvalidFree, address)
        };
        match ready.find(object) {
            Found::Object(cache) => {
                if !cache.general {
                    // SAFETY: obligation 1.
                    return unsafe { ready.free_object(cache, object) };
                }
                self.before_cold(ready, cache, address);
                self.assert_not_freed(ready, cache, object);
                // SAFETY: an object of the cache starts there, which the caller gives up.
                unsafe {
                    self.gate.mark_of(cache.id().index()).put_on(object);
                    ready.slabs.free(cache, object);
                }
            }
            Found::Run(pfn, pages) => {
                let bytes = pages.bytes(P::page_size());
                ready.before_large(bytes);
                // SAFETY: the caller gives the run up.
                unsafe { ready.slabs.pages().free_run(pfn, pages) };
                // A short run counts as none: a few buffers need no look.
                ready.upkeep(bytes & !(OBSERVED_BYTES - 1));
            }
            Found::Outside => ready.free_huge(object),
        }
    }

    /// The cold half of [`Heap::free`], for a block on which the fast one put the mark before it
    /// found no room for it.
    ///
    /// # Safety
    /// 1. As for [`Heap::free`]; the fast half answered [`Freed::Marked`].
    #[cold]
    #[inline(never)]
    pub unsafe fn free_marked(&self, address: *mut u8) {
        let found = self.ready().zip(NonNull::new(address));
        let Some((ready, object)) = found else {
            P::fatal(Fault::InvalidFree, address)
        };
        // The gate has looked at the address, and a slab looks again when the object reaches it.
        let Some(cache) = ready.cache_at(object) else {
            P::fatal(Fault::InvalidFree, address)
        };
        self.before_cold(ready, cache, address);
        // SAFETY: the caller gives the object up.
        unsafe { ready.slabs.free_slow(cache, object) };
    }

    /// What every cold free of an object does first.
    fn before_cold(&self, ready: &Ready<P>, cache: &Cache, address: *mut u8) {
        ready.upkeep(cache.sheaf_bytes());
        if self
            .gate
            .raise(ready.slabs.pages().map_limit().load(Relaxed))
        {
            P::touch(Line::Gate, (&raw const self.gate).cast(), Access::Write);
        }
        if address as usize % MIN_ALIGN != 0 {
            P::fatal(Fault::MisalignedFree, address);
        }
    }

    /// Ends the program if the object that [`Ready::find`] found bears its mark and is free. A live
    /// object may hold that number by chance.
    #[inline]
    fn assert_not_freed(&self, ready: &Ready<P>, cache: &Cache, object: NonNull<u8>) {
        // SAFETY: an object of the cache starts there.
        let marked =
            cache.general && unsafe { self.gate.mark_of(cache.id().index()).is_on(object) };
        let slabs = &ready.slabs;
        let suspect = Suspect {
            slabs,
            cache,
            object,
        };
        if marked && suspect.is_free() {
            P::fatal(Fault::DoubleFree, object.as_ptr());
        }
    }

    /// Gives back a block of which the caller says how many bytes it asked for. Ends the program
    /// if that cannot be so.
    ///
    /// # Safety
    /// 1. As for [`Heap::free`].
    #[inline]
    pub unsafe fn free_sized(&self, address: *mut u8, size: usize) {
        // SAFETY: obligation 1.
        unsafe { self.free_within(address, size, size) };
    }

    /// [`Heap::free_sized`] where the size is known to be from `least` to `most` bytes.
    ///
    /// # Safety
    /// 1. As for [`Heap::free`].
    #[inline]
    pub unsafe fn free_within(&self, address: *mut u8, least: usize, most: usize) {
        // What passes the gate is an object of a size class, whose cache says enough.
        let passed = self
            .ready_if_built()
            .zip(self.gate.admit_address::<P>(address));
        let room = match passed {
            Some((ready, (id, ..))) => Some(Room::of(
                ready.slabs.cache(CacheId(id as u16)).usable_size(),
            )),
            // SAFETY: obligation 1.
            None => unsafe { self.room_if_known(address) },
        };
        // A block that shrank in place may be up to twice as large as asked for.
        let fits = room.is_none_or(|Room { usable, asked }| {
            least <= usable && (usable <= MIN_ALIGN || most >= asked / 2 || self.has_roomy())
        });
        if !address.is_null() && !fits {
            P::fatal(Fault::WrongSize, address);
        }
        // SAFETY: obligation 1.
        unsafe { self.free(address) };
    }

    /// Whether some block may be far larger than what was asked for.
    #[cold]
    fn has_roomy(&self) -> bool {
        let ready = self.ready_if_built();
        ready.is_some_and(|ready| ready.roomy.load(Relaxed))
    }

    /// Bytes the program may use of the block at `address`; zero for null. Constant for the
    /// block's life.
    ///
    /// # Safety
    /// 1. `address` is a live block's, or null.
    #[must_use]
    pub unsafe fn usable_size(&self, address: *mut u8) -> usize {
        // SAFETY: obligation 1.
        unsafe { self.room_if_known(address) }.map_or(0, |room| room.usable)
    }

    /// How large the block is; `None` for a handler on top of the huge table's holder.
    unsafe fn room_if_known(&self, address: *mut u8) -> Option<Room> {
        let Some(object) = NonNull::new(address) else {
            return Some(Room::of(0));
        };
        let Some(ready) = self.ready() else {
            P::fatal(Fault::InvalidFree, address)
        };
        match self.find_live(ready, object) {
            Found::Object(cache) => Some(Room::of(cache.usable_size())),
            Found::Run(pfn, pages) => {
                let usable = pages.bytes(P::page_size());
                let asked = ready.slabs.pages().descriptor(pfn).spare.load(Relaxed) as usize;
                Some(Room { usable, asked })
            }
            Found::Outside => match ready.huge_at(object) {
                // A signal handler's small block may be one, and far larger than asked for.
                Ok(Some(block)) => Some(Room {
                    usable: block.bytes,
                    asked: block.requested.min(block.bytes),
                }),
                Ok(None) => P::fatal(Fault::InvalidFree, address),
                Err(_) => None,
            },
        }
    }

    /// What `address` belongs to. Ends the program if it is a freed object. One that passes the gate and bears no mark lives,
    /// and its slab need not be looked at.
    #[inline]
    fn find_live<'a>(&self, ready: &'a Ready<P>, address: NonNull<u8>) -> Found<'a> {
        if let Some((id, _, mark)) = self.gate.admit_address::<P>(address.as_ptr()) {
            let cache = ready.slabs.cache(CacheId(id as u16));
            // SAFETY: an object of the cache starts there, as its slabs are short enough for the gate to tell.
            if cache.geometry().slab_bytes() <= STRIDE_MAX && !unsafe { mark.is_on(address) } {
                return Found::Object(cache);
            }
        }
        let found = ready.find(address);
        if let Found::Object(cache) = found {
            self.assert_not_freed(ready, cache, address);
        }
        found
    }

    /// Resizes a block, in place where possible; `None` when memory is exhausted, and then the
    /// block is as it was. A block that should become smaller never needs memory: it stays.
    ///
    /// # Safety
    /// 1. `address` is a live block's and not null; the old address is not used after success.
    pub unsafe fn realloc(&self, address: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
        let ready = self.ready()?;
        let old = match self.find_live(ready, address) {
            Found::Object(cache) => {
                let usable = cache.usable_size();
                // Keep what is at most half empty: moving costs more than the rest is worth.
                if size <= usable && size >= usable / 2 {
                    return Some(address);
                }
                usable
            }
            Found::Run(pfn, pages) => {
                ready.before_large(pages.bytes(P::page_size()));
                // SAFETY: obligation 1.
                if unsafe { ready.resize_run(pfn, pages, size) } {
                    return Some(address);
                }
                pages.bytes(P::page_size())
            }
            Found::Outside => {
                let block = match ready.huge_at(address) {
                    Ok(Some(block)) => block,
                    Ok(None) => P::fatal(Fault::InvalidFree, address.as_ptr()),
                    // On top of the table's holder nobody knows how long the block is: a page at least.
                    Err(_) => return (size <= P::page_size().bytes()).then_some(address),
                };
                ready.before_large(block.bytes);
                // SAFETY: obligation 1.
                if let Some(moved) = unsafe { ready.resize_huge(block, size) } {
                    return Some(moved);
                }
                block.bytes
            }
        };
        let Some(new) = self.alloc(size) else {
            // SAFETY: obligation 1.
            return (size <= old).then(|| unsafe { ready.stay(address, size) });
        };
        // SAFETY: both blocks have at least the bytes copied and do not overlap.
        unsafe {
            core::ptr::copy_nonoverlapping(address.as_ptr(), new.as_ptr(), old.min(size));
            self.free(address.as_ptr());
        }
        Some(new)
    }
}

/// How large a block is.
struct Room {
    /// Bytes the program may use.
    usable: usize,
    /// Bytes that were asked for, as far as it is known; at most those.
    asked: usize,
}

impl Room {
    /// Of a block that is about as large as was asked for.
    const fn of(usable: usize) -> Self {
        Self {
            usable,
            asked: usable,
        }
    }
}

/// What an address belongs to.
pub(super) enum Found<'a> {
    /// The start of an object of this cache.
    Object(&'a Cache),
    /// The start of a run of this many pages.
    Run(Pfn, PageCount),
    /// No page of ours: a huge block, or nothing of ours.
    Outside,
}

impl<P: Engines> Ready<P> {
    /// What `address` belongs to. Ends the program if it is inside our pages but no block.
    pub(super) fn find(&self, address: NonNull<u8>) -> Found<'_> {
        let pages = self.slabs.pages();
        let Some(pfn) = pages.pfn_of(address.as_ptr()) else {
            return Found::Outside;
        };
        if let Some(cache) = self.slabs.cache_of_page(pfn) {
            if cache.id().index() > SHEAF_CACHES {
                // SAFETY: the page map names the cache.
                unsafe { Slab::assert_live(&self.slabs, cache, address) };
                return Found::Object(cache);
            }
            P::fatal(Fault::InvalidFree, address.as_ptr());
        }
        let descriptor = pages.descriptor(pfn);
        let own = descriptor.has(crate::page::flag::OWN);
        if descriptor.kind() != PageKind::Run || own || pages.address(pfn) != address {
            if pages.is_gone(pfn) {
                return Found::Outside;
            }
            P::fatal(Fault::InvalidFree, address.as_ptr());
        }
        Found::Run(pfn, PageCount(descriptor.pages.load(Relaxed) as usize))
    }

    /// The cache that the page map names for the page of `address`.
    #[inline]
    fn cache_at(&self, address: NonNull<u8>) -> Option<&Cache> {
        let pfn = self.slabs.pages().pfn_of(address.as_ptr())?;
        self.slabs.cache_of_page(pfn)
    }

    /// The cache of the size classes for a request, if one is large enough.
    pub(super) fn cache_for(&self, gate: &Gate, size: usize) -> Option<&Cache> {
        if size > self.class_max {
            return None;
        }
        // SAFETY: `class_max` is at most TABLE_MAX.
        let id = unsafe { gate.classes().id(size) };
        Some(self.slabs.cache(CacheId(id as u16)))
    }

    /// An object of `cache` as the program gets it.
    fn alloc_object(&self, cache: &Cache) -> Option<NonNull<u8>> {
        let object = self.slabs.alloc(cache)?;
        // SAFETY: the object is ours.
        Some(unsafe { handed_out(object) })
    }

    fn node(&self) -> NodeId {
        P::node_of(P::current_cpu())
    }

    /// A block of whole pages for `size` bytes, zeroed on request.
    pub(super) fn alloc_pages(&self, size: usize, zeroed: bool) -> Option<NonNull<u8>> {
        self.upkeep(0);
        self.before_large(size);
        let align = P::page_size().bytes();
        let pages = || {
            self.alloc_a_run(size, zeroed)
                .or_else(|| self.alloc_huge(size, align, zeroed))
        };
        pages().or_else(|| self.after_reclaim(size, pages))
    }

    /// The same from the page layer; `None` also for what is too large for it.
    fn alloc_a_run(&self, size: usize, zeroed: bool) -> Option<NonNull<u8>> {
        let pages = P::page_size().pages_for(size);
        if pages > Order::MAX.pages() {
            return None;
        }
        let block = self.slabs.pages().alloc_run(pages, self.node())?;
        let address = self.slabs.pages().address(block.pfn);
        self.note_run(block.pfn, size);
        if zeroed && !block.zeroed {
            // SAFETY: the run is ours and has at least `size` bytes.
            unsafe { address.write_bytes(0, size) };
        }
        Some(address)
    }

    fn note_run(&self, pfn: Pfn, size: usize) {
        let descriptor = self.slabs.pages().descriptor(pfn);
        descriptor
            .spare
            .store(size.min(u32::MAX as usize) as u32, Relaxed);
    }

    /// A block of whole pages with an alignment. Blocks start at a multiple of their own size,
    /// so a run cut from a block of at least `align` bytes is aligned.
    pub fn alloc_aligned_pages(&self, align: usize, size: usize) -> Option<NonNull<u8>> {
        let page_size = P::page_size();
        let pages = page_size.pages_for(size.max(1));
        let block_pages = pages.max(page_size.pages_for(align));
        let run = || self.slabs.pages().alloc_run(block_pages, self.node());
        let run = (block_pages <= Order::MAX.pages()).then(run).flatten();
        if let Some(block) = run {
            if pages < block_pages {
                // SAFETY: the run is ours.
                unsafe { self.slabs.pages().shrink_run(block.pfn, block_pages, pages) };
            }
            self.note_run(block.pfn, size);
            return Some(self.slabs.pages().address(block.pfn));
        }
        self.alloc_huge(size.max(1), align.max(page_size.bytes()), false)
    }

    /// Resizes a run in place; `false` leaves it as it was. A size that a cache serves well moves.
    unsafe fn resize_run(&self, pfn: Pfn, old: PageCount, size: usize) -> bool {
        // SAFETY: the caller owns the run.
        size > self.class_max / 2 && unsafe { self.set_run_size(pfn, old, size) }
    }

    /// The same for any size. To shorten a run never fails.
    unsafe fn set_run_size(&self, pfn: Pfn, old: PageCount, size: usize) -> bool {
        let new = P::page_size().pages_for(size.max(1));
        if new > Order::MAX.pages() {
            return false;
        }
        // SAFETY: the caller owns the run.
        let done = unsafe {
            match new.cmp(&old) {
                core::cmp::Ordering::Equal => true,
                core::cmp::Ordering::Less => {
                    self.slabs.pages().shrink_run(pfn, old, new);
                    true
                }
                core::cmp::Ordering::Greater => self.slabs.pages().grow_run(pfn, old, new),
            }
        };
        if done {
            self.note_run(pfn, size);
        }
        done
    }

    /// Leaves a block where it is for a request of fewer bytes that could not be served elsewhere.
    /// Whole pages behind it are given back. From now on a sized free may name far fewer bytes than
    /// the block has.
    ///
    /// # Safety
    /// 1. A live block of at least `size` bytes starts at `address`, and the caller owns it.
    #[cold]
    unsafe fn stay(&self, address: NonNull<u8>, size: usize) -> NonNull<u8> {
        self.roomy.store(true, Relaxed);
        match self.find(address) {
            Found::Object(_) => {}
            // SAFETY: obligation 1.
            Found::Run(pfn, pages) => unsafe {
                let _shorter = self.set_run_size(pfn, pages, size);
            },
            // SAFETY: obligation 1.
            Found::Outside => unsafe { self.cut_huge(address, size) },
        }
        address
    }
}
