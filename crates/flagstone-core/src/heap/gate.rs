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
//!
//! Behind the gate stands a second, near one, for a fast path that knows more when it is compiled
//! than this file does: [`Gate::open_near`]. What passes it would pass the gate.

use super::class::ClassTable;
use super::mark::Mark;
use crate::platform::{CpuArea, MAX_CACHES, Platform};
use crate::sync::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use core::mem::offset_of;
use core::ptr::NonNull;

/// Binary logarithm of the alignment of every block.
pub const ALIGN_SHIFT: u32 = 4;

/// Tells whether an address is the start of an object of one cache.
///
/// With `magic = 2^64 / size`, rounded up a little, `size` divides `distance` exactly if
/// `distance * magic mod 2^64 < magic` (Lemire, Kaser and Kurz, "Faster remainder by direct
/// computation", 2019). How little: by less than `2^64 / (size * (size + slab))`, which is more
/// than 2^32 for sizes up to half of [`STRIDE_MAX`] and slabs up to all of it. So the lowest 32
/// bits may be anything. Sixteen are the mask that makes a distance of an address. All of them are
/// the mark that free objects of the cache bear (`heap/mark.rs`), since this number is at hand
/// where one is put on: its lowest byte is 255, which no text has, and its highest bit is set.
///
/// A zero mask lets every address pass: for caches with longer slabs, whose objects are checked
/// when they reach their slab. Their mark ends in two bytes of zeros, so it may also be a short
/// number with a fraction; a program that has it in its blocks frees them slowly. Zero, the stride of an
/// absent cache, lets no address pass.
#[derive(Debug)]
#[repr(transparent)]
struct Stride(AtomicU64);

/// Largest slab, in bytes, whose strides the fast path checks.
pub(super) const STRIDE_MAX: usize = 64 << 10;
/// The bits of a stride that are the mask.
const MASK: u64 = STRIDE_MAX as u64 - 1;

impl Stride {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// `draw` is what of the mark is drawn.
    fn set(&self, size: usize, slab_bytes: usize, draw: u16) {
        const LOW: u64 = u32::MAX as u64;
        let drawn = u64::from(draw | 1 << 15) << MASK.count_ones();
        let fits = size <= STRIDE_MAX / 2 && slab_bytes <= STRIDE_MAX;
        let magic = if slab_bytes.is_power_of_two() && fits {
            let least = u64::MAX / size as u64 + 1;
            let magic = least & !LOW | drawn | (slab_bytes as u64 - 1);
            if magic < least {
                magic + LOW + 1
            } else {
                magic
            }
        } else {
            drawn
        };
        self.0.store(magic, Relaxed);
    }

    /// What free objects bear, if one starts at `address`.
    #[inline(always)]
    fn starts_at(&self, address: usize) -> Option<Mark> {
        let magic = self.0.load(Relaxed);
        let starts = (address as u64 & magic & MASK).wrapping_mul(magic) < magic;
        starts.then_some(Mark(magic as u32))
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
    /// Bytes from the base that pass the near gate; zero: closed.
    near_span: AtomicUsize,
    /// Whether the near gate follows the gate, and lets larger sizes pass.
    near: AtomicBool,
    near_sizes: AtomicBool,
    size_end_open: AtomicU32,
    strides: [Stride; MAX_CACHES],
    /// The near gate's classes, one byte for each size; zero: does not pass.
    near_classes: [AtomicU8; NEAR_MAX + 1],
    classes: ClassTable,
}

/// Largest size that passes the near gate, in bytes. A byte for each size saves the two
/// instructions that round; doubling it costs a KiB of every process.
pub const NEAR_MAX: usize = 1024;

/// The layout, for a fast path in assembly. A gate is the first thing in its heap.
impl Gate {
    /// Where [`Gate::raise`] stores how many bytes from the base pass.
    pub const SPAN_AT: usize = offset_of!(Self, span);
    /// Where the base's address is.
    pub const BASE_AT: usize = offset_of!(Self, base);
    /// Where the page map's address is.
    pub const PAGE_MAP_AT: usize = offset_of!(Self, page_map);
    /// Where [`Gate::raise`] stores how many bytes from the base pass the near gate.
    pub const NEAR_SPAN_AT: usize = offset_of!(Self, near_span);
    /// Where it says, by a byte that is not zero, that the near gate is open.
    pub const NEAR_AT: usize = offset_of!(Self, near_sizes);
    /// Where the near gate's classes are, a byte for each size up to [`NEAR_MAX`].
    pub const NEAR_CLASSES_AT: usize = offset_of!(Self, near_classes);
    /// Where the strides are, eight bytes for each cache: the multiplier, with the mask in its
    /// lowest sixteen bits.
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
            near_span: AtomicUsize::new(0),
            near: AtomicBool::new(false),
            near_sizes: AtomicBool::new(false),
            size_end_open: AtomicU32::new(0),
            near_classes: [const { AtomicU8::new(0) }; NEAR_MAX + 1],
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
        self.size_end_open.store(size_max as u32 + 1, Relaxed);
        self.size_end.store(size_max + 1, Release);
    }

    /// Opens the near gate of an open gate, for a platform whose slots lie where the fast path
    /// that reads it expects them. A gate that is closed stays closed, the near one too.
    pub fn open_near(&self) {
        if self.size_end_open.load(Relaxed) == 0 {
            return;
        }
        self.near.store(true, Relaxed);
        self.divert(self.size_end.load(Relaxed) == 0);
        self.raise(self.span.load(Relaxed));
    }

    /// Sends all sizes of an open gate to the slow half, or ends that. Addresses pass as before.
    pub fn divert(&self, divert: bool) {
        let end = self.size_end_open.load(Relaxed) * u32::from(!divert);
        self.size_end.store(end as usize, Release);
        let open = self.near.load(Relaxed) && !divert;
        for (size, near) in self.near_classes.iter().enumerate() {
            let admitted = self.admit_size(size).filter(|_| open);
            near.store(admitted.map_or(0, |(id, _)| id as u8), Release);
        }
        self.near_sizes.store(open, Release);
    }

    /// Lets addresses pass up to `limit` bytes from the base: the page map grows with the heap.
    /// Answers whether that was to be written: every `free` of every CPU reads this line, so it is
    /// written only where something differs.
    #[inline]
    pub fn raise(&self, limit: usize) -> bool {
        if self.size_end_open.load(Relaxed) == 0 {
            return false;
        }
        let far = update(&self.span, limit);
        let near = self.near.load(Relaxed) && update(&self.near_span, limit);
        far || near
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

    /// Tells how the objects of cache `id` lie in its slabs. `draw` is a random number for its
    /// mark.
    pub fn set_stride(&self, id: usize, size: usize, slab_bytes: usize, draw: u16) {
        if let Some(stride) = self.strides.get(id) {
            stride.set(size, slab_bytes, draw);
        }
    }

    /// The mark that free objects of cache `id` bear.
    #[inline(always)]
    pub(super) fn mark_of(&self, id: usize) -> Mark {
        Mark(self.strides[id].0.load(Relaxed) as u32)
    }

    /// The cache of the slab that `address` lies in (zero for none), the slots and the mark of that
    /// cache's free objects, if the gate lets the address pass: inside the span, and the start of
    /// an object.
    #[inline(always)]
    pub(super) fn admit_address<P: Platform>(
        &self,
        address: *mut u8,
    ) -> Option<(usize, CpuArea, Mark)> {
        let span = self.span.load(Acquire);
        let offset = (address as usize).wrapping_sub(self.base.load(Relaxed) as usize);
        if offset >= span {
            return None;
        }
        let shift = P::PAGE_SHIFT.unwrap_or_else(|| self.page_shift.load(Relaxed));
        // SAFETY: the page map has a byte for every page of the span.
        let id = usize::from(unsafe { *self.page_map.load(Relaxed).add(offset >> shift) });
        // The base is a multiple of the largest block, so address and offset agree below that.
        let mark = self.strides[id].starts_at(offset)?;
        Some((id, self.area(), mark))
    }

    #[inline(always)]
    fn area(&self) -> CpuArea {
        // SAFETY: only an open gate gets here, and `open` stored the base of a live area.
        unsafe { CpuArea::new(NonNull::new_unchecked(self.area.load(Relaxed))) }
    }
}

/// Stores `value` where another one is; answers whether it did.
#[inline]
fn update(word: &AtomicUsize, value: usize) -> bool {
    let differs = word.load(Relaxed) != value;
    if differs {
        word.store(value, Release);
    }
    differs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_long_slabs_pass_anywhere_and_those_of_no_cache_nowhere() {
        let stride = Stride::new();
        assert!(stride.starts_at(0).is_none());
        stride.set(24 << 10, 2 * STRIDE_MAX, 0);
        let marked = |mark: Mark| mark.0 >> 31 == 1;
        assert!((0..4 * STRIDE_MAX).all(|offset| stride.starts_at(offset).is_some_and(marked)));
    }

    #[test]
    fn the_near_gate_is_shut_until_it_is_opened_and_then_tells_what_the_gate_tells() {
        let gate = Gate::new();
        gate.classes().fill(0, 16, 3);
        gate.classes().fill(16, 2048, 4);
        gate.open_near();
        assert!(!gate.near.load(Relaxed), "behind a closed gate");
        let mut memory = [0u64; 2];
        let there = NonNull::from(&mut memory).cast();
        // SAFETY: the area is only handed on here, never read.
        gate.open(2048, there, there, 12, unsafe { CpuArea::new(there) });
        gate.raise(4096);
        let near = |size: usize| usize::from(gate.near_classes[size].load(Relaxed));
        assert_eq!((near(1), gate.near_span.load(Relaxed)), (0, 0));
        gate.open_near();
        assert_eq!(gate.near_span.load(Relaxed), 4096);
        assert!(gate.raise(8192));
        assert_eq!(gate.near_span.load(Relaxed), 8192);
        assert!(
            !gate.raise(8192),
            "a slow free writes no line that every free reads"
        );
        for size in 0..=NEAR_MAX {
            assert_eq!(Some(near(size)), gate.admit_size(size).map(|(id, _)| id));
        }
        let one = near(1);
        gate.divert(true);
        assert!(gate.admit_size(1).is_none() && near(1) == 0 && !gate.near_sizes.load(Relaxed));
        assert!(gate.raise(1 << 16), "addresses pass as before");
        assert_eq!(gate.near_span.load(Relaxed), 1 << 16);
        gate.divert(false);
        assert_eq!((near(1), gate.near_sizes.load(Relaxed)), (one, true));
    }

    #[test]
    fn only_starts_of_objects_pass_a_stride() {
        for slab in [4096usize, 8192, 16384, 32768, 65536] {
            for size in (8..=slab.min(STRIDE_MAX / 2)).step_by(8) {
                let stride = Stride::new();
                // The smallest and the largest number that is no mark of another.
                stride.set(size, slab, if size % 16 == 0 { 0 } else { u16::MAX });
                let mark = stride.0.load(Relaxed) as u32;
                assert!(mark & 0xFF == 0xFF && mark >> 31 == 1, "{mark:x}");
                for offset in (0..slab).step_by(if size < 64 { 1 } else { 8 }) {
                    let start = offset % size == 0;
                    assert_eq!(
                        stride.starts_at(offset).is_some(),
                        start,
                        "{offset} of {size} in {slab}"
                    );
                }
            }
        }
    }
}
