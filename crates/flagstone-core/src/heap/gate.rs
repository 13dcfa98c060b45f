//! The gate: everything the two fast paths read, in one place, written once.
//!
//! ```text
//!   malloc   size ≤ size_max ─► class table ─► pop  main sheaf of this CPU
//!   free     base ≤ p < base + span, p aligned ─► page map ─► push main sheaf of this CPU
//! ```
//!
//! An address that passes is the start of an object: its distance from the start of its slab is a
//! multiple of the object size. Slabs are aligned blocks, so the distance is a mask away; the
//! multiple is told by one multiplication ([`Stride`]). So a pointer into the middle of a block
//! never reaches a sheaf.
//!
//! Zeroed memory is a closed gate: no size and no address passes, so a heap in a zeroed static is
//! safe to use before it is built, and stays closed where the platform has no fast slots.

use super::class::ClassTable;
use crate::platform::CpuArea;
use crate::platform::MAX_CACHES;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Binary logarithm of the alignment of every block.
pub const ALIGN_SHIFT: u32 = 4;

/// Tells whether an address is the start of an object of one cache.
///
/// With `magic = ceil(2^32 / size)`, `size` divides `distance` exactly if
/// `distance * magic mod 2^32 < magic` (Lemire, Kaser and Kurz, "Faster remainder by direct
/// computation", 2019), for sizes and distances up to [`STRIDE_MAX`]. A zero `mask` lets every
/// address pass: for caches with longer slabs, whose objects are checked when they reach their
/// slab.
#[derive(Debug)]
#[repr(C)]
struct Stride {
    mask: AtomicU32,
    magic: AtomicU32,
}

/// Largest slab, in bytes, whose strides the fast path checks.
const STRIDE_MAX: usize = 64 << 10;

impl Stride {
    const fn new() -> Self {
        Self {
            mask: AtomicU32::new(0),
            magic: AtomicU32::new(1),
        }
    }

    fn set(&self, size: usize, slab_bytes: usize) {
        if slab_bytes.is_power_of_two() && slab_bytes <= STRIDE_MAX {
            self.magic
                .store((1u64 << 32).div_ceil(size as u64) as u32, Relaxed);
            self.mask.store(slab_bytes as u32 - 1, Relaxed);
        }
    }

    #[inline(always)]
    fn starts_at(&self, address: usize) -> bool {
        let magic = self.magic.load(Relaxed);
        (address as u32 & self.mask.load(Relaxed)).wrapping_mul(magic) < magic
    }
}

/// What the fast paths read.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Gate {
    /// First request size that does not pass; zero: closed.
    size_end: AtomicUsize,
    /// Bytes from the base that pass; zero: closed.
    span: AtomicUsize,
    base: AtomicPtr<u8>,
    page_map: AtomicPtr<u8>,
    area: AtomicPtr<u8>,
    page_shift: AtomicUsize,
    strides: [Stride; MAX_CACHES],
    classes: ClassTable,
}

/// The layout, for a fast path in assembly. A gate is the first thing in its heap.
impl Gate {
    /// Where [`Gate::raise`] stores how many bytes from the base pass.
    pub const SPAN_AT: usize = offset_of!(Self, span);
    /// Where the base's address is.
    pub const BASE_AT: usize = offset_of!(Self, base);
    /// Where the page map's address is.
    pub const PAGE_MAP_AT: usize = offset_of!(Self, page_map);
    /// Where the strides are, eight bytes for each cache: mask, then multiplier.
    pub const STRIDES_AT: usize = offset_of!(Self, strides);
    /// Where the table of size classes is, a byte for each [`Gate::STEP`] bytes of size.
    pub const CLASSES_AT: usize = offset_of!(Self, classes);
    /// Bytes of size that one entry of the table stands for.
    pub const STEP: usize = super::class::STEP;
}

impl Gate {
    /// A closed gate.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only useful as a constant")]
    pub const fn new() -> Self {
        Self {
            size_end: AtomicUsize::new(0),
            span: AtomicUsize::new(0),
            base: AtomicPtr::new(core::ptr::null_mut()),
            page_map: AtomicPtr::new(core::ptr::null_mut()),
            area: AtomicPtr::new(core::ptr::null_mut()),
            page_shift: AtomicUsize::new(0),
            strides: [const { Stride::new() }; MAX_CACHES],
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
        self.page_shift.store(page_shift as usize, Relaxed);
        self.size_end.store(size_max + 1, Release);
    }

    /// Lets addresses pass up to `limit` bytes from the base: the page map grows with the heap.
    #[inline]
    pub fn raise(&self, limit: usize) {
        if self.size_end.load(Relaxed) != 0 {
            self.span.store(limit, Release);
        }
    }

    /// The cache and the slots for a request of `size` bytes, if the gate lets it pass.
    #[inline(always)]
    #[must_use]
    pub fn admit_size(&self, size: usize) -> Option<(usize, CpuArea)> {
        // Acquire: a thread as old as the heap sees all that lies behind an open gate.
        if size < self.size_end.load(Acquire) {
            // SAFETY: an open gate's `size_end` is at most TABLE_MAX + 1.
            let id = unsafe { self.classes.id(size) };
            Some((id, self.area()))
        } else {
            None
        }
    }

    /// Tells how the objects of cache `id` lie in its slabs.
    pub fn set_stride(&self, id: usize, size: usize, slab_bytes: usize) {
        if let Some(stride) = self.strides.get(id) {
            stride.set(size, slab_bytes);
        }
    }

    /// The cache of the slab that `address` lies in (zero for none) and the slots, if the gate
    /// lets the address pass: inside the span, and the start of an object.
    #[inline(always)]
    #[must_use]
    pub fn admit_address(&self, address: *mut u8) -> Option<(usize, CpuArea)> {
        let span = self.span.load(Acquire);
        let offset = (address as usize).wrapping_sub(self.base.load(Relaxed) as usize);
        if offset >= span {
            return None;
        }
        // SAFETY: the page map has a byte for every page of the span.
        let id =
            usize::from(unsafe { *self.page_map.load(Relaxed).add(offset >> self.page_shift()) });
        // The base is a multiple of the largest block, so address and offset agree below that.
        self.strides[id]
            .starts_at(offset)
            .then(|| (id, self.area()))
    }

    #[inline(always)]
    fn page_shift(&self) -> usize {
        // x86-64 has one page size; elsewhere it is known at run time.
        if cfg!(target_arch = "x86_64") {
            12
        } else {
            self.page_shift.load(Relaxed)
        }
    }

    #[inline(always)]
    fn area(&self) -> CpuArea {
        // SAFETY: only an open gate gets here, and `open` stored the base of a live area.
        unsafe { CpuArea::new(NonNull::new_unchecked(self.area.load(Relaxed))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_starts_of_objects_pass_a_stride() {
        for slab in [4096usize, 8192, 16384, 32768, 65536] {
            for size in (8..=slab.min(33_000)).step_by(8) {
                let stride = Stride::new();
                stride.set(size, slab);
                for offset in (0..slab).step_by(if size < 64 { 1 } else { 8 }) {
                    let start = offset % size == 0;
                    assert_eq!(
                        stride.starts_at(offset),
                        start,
                        "{offset} of {size} in {slab}"
                    );
                }
            }
        }
    }
}
