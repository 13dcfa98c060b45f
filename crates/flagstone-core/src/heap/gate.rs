//! The gate: everything the two fast paths read, in one place, written once.
//!
//! ```text
//!   malloc   size ≤ size_max ─► class table ─► pop  main sheaf of this CPU
//!   free     base ≤ p < base + span, p aligned ─► page map ─► push main sheaf of this CPU
//! ```
//!
//! Zeroed memory is a closed gate: no size and no address passes, so a heap in a zeroed static is
//! safe to use before it is built, and stays closed where the platform has no fast slots.

use super::class::ClassTable;
use crate::platform::CpuArea;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed, Ordering::Release};

/// Binary logarithm of the alignment of every block.
pub const ALIGN_SHIFT: u32 = 4;

/// What the fast paths read.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Gate {
    /// First request size that does not pass; zero: closed.
    size_end: AtomicUsize,
    /// Units of 16 bytes from the base that pass; zero: closed.
    span_units: AtomicUsize,
    base: AtomicPtr<u8>,
    page_map: AtomicPtr<u8>,
    area: AtomicPtr<u8>,
    page_units_shift: AtomicUsize,
    classes: ClassTable,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only useful as a constant")]
    pub const fn new() -> Self {
        Self {
            size_end: AtomicUsize::new(0),
            span_units: AtomicUsize::new(0),
            base: AtomicPtr::new(core::ptr::null_mut()),
            page_map: AtomicPtr::new(core::ptr::null_mut()),
            area: AtomicPtr::new(core::ptr::null_mut()),
            page_units_shift: AtomicUsize::new(0),
            classes: ClassTable::new(),
        }
    }

    /// The table of size classes, to fill before the gate opens.
    #[must_use]
    pub fn classes(&self) -> &ClassTable {
        &self.classes
    }

    /// Opens the gate for sizes up to `size_max`, and for addresses once [`Gate::raise`] said
    /// how far the page map may be read. Everything reachable through it is built already.
    pub fn open(
        &self,
        size_max: usize,
        base: NonNull<u8>,
        page_map: NonNull<u8>,
        page_shift: u32,
        area: CpuArea,
    ) {
        self.base.store(base.as_ptr(), Relaxed);
        self.page_map.store(page_map.as_ptr(), Relaxed);
        self.area.store(area.base().as_ptr(), Relaxed);
        self.page_units_shift
            .store((page_shift - ALIGN_SHIFT) as usize, Relaxed);
        self.size_end.store(size_max + 1, Release);
    }

    /// Lets addresses pass up to `limit` bytes from the base: the page map grows with the heap.
    #[inline]
    pub fn raise(&self, limit: usize) {
        if self.size_end.load(Relaxed) != 0 {
            self.span_units.store(limit >> ALIGN_SHIFT, Release);
        }
    }

    /// The cache and the slots for a request of `size` bytes, if the gate lets it pass.
    #[inline(always)]
    #[must_use]
    pub fn admit_size(&self, size: usize) -> Option<(usize, CpuArea)> {
        if size < self.size_end.load(Relaxed) {
            // SAFETY: an open gate's `size_end` is at most TABLE_MAX + 1.
            let id = unsafe { self.classes.id(size) };
            Some((id, self.area()))
        } else {
            None
        }
    }

    /// The cache of the slab that `address` lies in (zero for none) and the slots, if the gate
    /// lets the address pass: inside the span and aligned. One rotation checks both, because a
    /// misaligned address becomes a huge number of units.
    #[inline(always)]
    #[must_use]
    pub fn admit_address(&self, address: *mut u8) -> Option<(usize, CpuArea)> {
        let offset = (address as usize).wrapping_sub(self.base.load(Relaxed) as usize);
        let units = offset.rotate_right(ALIGN_SHIFT);
        if units < self.span_units.load(Relaxed) {
            let page = units >> self.page_units_shift();
            // SAFETY: the page map has a byte for every page of the span.
            let id = unsafe { *self.page_map.load(Relaxed).add(page) };
            Some((usize::from(id), self.area()))
        } else {
            None
        }
    }

    #[inline(always)]
    fn page_units_shift(&self) -> usize {
        // x86-64 has one page size; elsewhere it is known at run time.
        if cfg!(target_arch = "x86_64") {
            8
        } else {
            self.page_units_shift.load(Relaxed)
        }
    }

    #[inline(always)]
    fn area(&self) -> CpuArea {
        // SAFETY: only an open gate gets here, and `open` stored the base of a live area.
        unsafe { CpuArea::new(NonNull::new_unchecked(self.area.load(Relaxed))) }
    }
}
