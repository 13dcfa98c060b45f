//! A sheaf: an array of free objects that is taken, given and filled as one thing.
//!
//! ```text
//!   header            slots                                        ceiling
//!   [ len | capacity | link ] [ o0 | o1 | o2 | ...  |  free space  ] [ 0 ]
//!                                            ^ len                 ^ capacity
//! ```
//!
//! Whoever holds an [`OwnSheaf`] is the only one that can reach the sheaf: it came out of a
//! slot, a barn, or the cache of sheaves. Putting it into a slot or a barn gives it up. The
//! layout and the per-CPU steps are in `platform/percpu.rs`. In a slot the length is where the
//! slot's word points ([`OwnSheaf::into_entry`], [`OwnSheaf::from_entry`]).
//!
//! Invariants: `slot.len-bounded`, `slot.one-home`, `slot.fenced`, and
//! - `sheaf.filled-below-len`: every slot below `len` holds an object the sheaf owns.

use crate::platform::{ENTRY_UNUSED, SHEAF_FRAME_BYTES, SHEAF_HEADER_BYTES, SheafHeader};
use crate::sync::Ordering::Relaxed;
use core::ptr::NonNull;

/// Smallest and largest memory of a sheaf in bytes, head and ceiling included; powers of two
/// between. A sheaf lies at a multiple of its memory.
pub const SHEAF_BYTES_MIN: usize = 64;
/// See [`SHEAF_BYTES_MIN`].
pub const SHEAF_BYTES_MAX: usize = 8192;

/// Slots of the smallest sheaf memory that has at least `wanted` slots (bounded by the largest).
#[must_use]
pub const fn capacity_for(wanted: u32) -> u32 {
    let need = SHEAF_FRAME_BYTES + wanted as usize * size_of::<usize>();
    let mut bytes = SHEAF_BYTES_MIN;
    while bytes < need && bytes < SHEAF_BYTES_MAX {
        bytes *= 2;
    }
    ((bytes - SHEAF_FRAME_BYTES) / size_of::<usize>()) as u32
}

/// Bytes of memory of a sheaf with room for `slots` (its class among the powers of two).
#[must_use]
pub const fn bytes_for(slots: u32) -> usize {
    (SHEAF_FRAME_BYTES + slots as usize * size_of::<usize>()).next_power_of_two()
}

/// Fewest slots of a sheaf of which `wanted` are wanted and of which one in `spread` may be
/// missing (0: none), in memory of the same class.
#[must_use]
pub const fn capacity_at_least(wanted: u32, spread: u32) -> u32 {
    let Some(missing) = wanted.checked_div(spread) else {
        return wanted;
    };
    let half = bytes_for(wanted) / 2;
    let class = half.saturating_sub(SHEAF_FRAME_BYTES) / size_of::<usize>() + 1;
    let least = wanted - missing;
    if (least as usize) < class && class <= wanted as usize {
        class as u32
    } else {
        least
    }
}

/// Exclusive hold of one sheaf.
#[derive(Debug)]
pub struct OwnSheaf(NonNull<SheafHeader>);

// SAFETY: the hold is exclusive, whichever thread has it.
unsafe impl Send for OwnSheaf {}

impl OwnSheaf {
    /// Takes hold of a sheaf.
    ///
    /// # Safety
    /// 1. `header` starts a live sheaf that nobody else holds.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(header: NonNull<SheafHeader>) -> Self {
        Self(header)
    }

    /// Makes a sheaf of `capacity` slots out of memory, empty.
    ///
    /// # Safety
    /// 1. `memory` starts `bytes_for(capacity)` writable bytes, aligned to as many, the caller's
    ///    own.
    #[inline]
    #[must_use]
    pub unsafe fn create(memory: NonNull<u8>, capacity: u32) -> Self {
        let header = memory.cast::<SheafHeader>();
        // SAFETY: obligation 1; all fields are atomics over plain memory.
        let fields = unsafe { header.as_ref() };
        fields.len.store(0, Relaxed);
        fields.capacity.store(capacity as u16, Relaxed);
        fields.was_spare.store(false, Relaxed);
        fields.link.store(0, Relaxed);
        let sheaf = Self(header);
        for index in 0..capacity {
            // SAFETY: obligation 1; below the capacity.
            unsafe {
                sheaf
                    .slot(index)
                    .write(core::ptr::without_provenance_mut(ENTRY_UNUSED))
            };
        }
        // SAFETY: obligation 1; the ceiling follows the last slot.
        unsafe { sheaf.entry(capacity).write(core::ptr::null_mut()) };
        sheaf
    }

    /// Takes hold of a sheaf of which a slot knew the entry for the next object.
    ///
    /// # Safety
    /// 1. As for [`OwnSheaf::from_raw`]: the sheaf was in a slot, and `entry` is what the slot
    ///    said last.
    /// 2. Its memory is `bytes` long.
    #[inline]
    #[must_use]
    pub unsafe fn from_entry(entry: NonNull<*mut u8>, bytes: usize) -> Self {
        debug_assert!(bytes.is_power_of_two() && bytes <= SHEAF_BYTES_MAX);
        let into = entry.addr().get() & (bytes - 1);
        // SAFETY: obligation 2: sheaves lie at multiples of their memory, so this is the start.
        let header = unsafe { entry.byte_sub(into) }.cast::<SheafHeader>();
        let sheaf = Self(header);
        let len = (into - SHEAF_HEADER_BYTES) / size_of::<usize>();
        sheaf.header().len.store(len as u32, Relaxed);
        debug_assert!(sheaf.len() <= sheaf.capacity(), "slot.len-bounded");
        sheaf
    }

    /// Gives the hold up to a slot, which keeps the entry for the next object.
    #[inline]
    #[must_use]
    pub fn into_entry(self) -> NonNull<*mut u8> {
        debug_assert_eq!(self.header().link.load(Relaxed), 0, "slot.fenced");
        let entry = self.entry(self.len());
        // SAFETY: an address inside the sheaf.
        unsafe { NonNull::new_unchecked(entry) }
    }

    /// Gives the hold up without a trace; whoever gets the pointer holds the sheaf.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> NonNull<SheafHeader> {
        self.0
    }

    #[inline]
    pub(crate) fn header(&self) -> &SheafHeader {
        // SAFETY: the hold keeps the sheaf alive (`from_raw` 1).
        unsafe { self.0.as_ref() }
    }

    /// The address of the sheaf, for the seam's `touch`.
    #[inline]
    #[must_use]
    pub fn address(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }

    /// Objects held.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        self.header().len.load(Relaxed)
    }

    /// Whether no object is held.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Objects there is room for.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> u32 {
        u32::from(self.header().capacity.load(Relaxed))
    }

    /// Objects that can still be put.
    #[inline]
    #[must_use]
    pub fn room(&self) -> u32 {
        self.capacity() - self.len()
    }

    /// Whether it came from the spare slot when it last became main.
    #[inline]
    pub(crate) fn was_spare(&self) -> bool {
        self.header().was_spare.load(Relaxed)
    }

    /// Says so, before it becomes main.
    #[inline]
    pub(crate) fn note_was_spare(&mut self) {
        self.header().was_spare.store(true, Relaxed);
    }

    /// Says that it comes from elsewhere, before it becomes main.
    #[inline]
    pub(crate) fn note_new_here(&mut self) {
        self.header().was_spare.store(false, Relaxed);
    }

    #[inline]
    fn slot(&self, index: u32) -> *mut *mut u8 {
        debug_assert!(index < self.capacity());
        self.entry(index)
    }

    /// The address of slot `index`, or of the ceiling.
    #[inline]
    fn entry(&self, index: u32) -> *mut *mut u8 {
        debug_assert!(index <= self.capacity());
        // SAFETY: `capacity` slots and the ceiling follow the header (`create` 1).
        unsafe {
            self.0
                .as_ptr()
                .byte_add(SHEAF_HEADER_BYTES)
                .cast::<*mut u8>()
                .add(index as usize)
        }
    }

    /// Takes the object put last.
    #[inline]
    pub fn take(&mut self) -> Option<NonNull<u8>> {
        let len = self.len().checked_sub(1)?;
        self.header().len.store(len, Relaxed);
        // SAFETY: `sheaf.filled-below-len`.
        NonNull::new(unsafe { self.slot(len).read() })
    }

    /// Puts an object; there must be room.
    #[inline]
    pub fn put(&mut self, object: NonNull<u8>) {
        let len = self.len();
        assert!(len < self.capacity(), "sheaf.len-bounded");
        // SAFETY: `len < capacity`, so the slot exists.
        unsafe { self.slot(len).write(object.as_ptr()) };
        self.header().len.store(len + 1, Relaxed);
    }

    /// The object in slot `index`, counted from the one put first.
    #[inline]
    #[must_use]
    pub fn get(&self, index: u32) -> Option<NonNull<u8>> {
        if index >= self.len() {
            return None;
        }
        // SAFETY: `sheaf.filled-below-len`.
        NonNull::new(unsafe { self.slot(index).read() })
    }

    /// Replaces the object in a filled slot.
    #[inline]
    pub(crate) fn set(&mut self, index: u32, object: NonNull<u8>) {
        assert!(index < self.len(), "sheaf.filled-below-len");
        // SAFETY: `index < len <= capacity`, so the slot exists.
        unsafe { self.slot(index).write(object.as_ptr()) };
    }

    /// Replaces the object in a filled slot by the last one and shortens the sheaf.
    #[inline]
    pub fn swap_remove(&mut self, index: u32) -> Option<NonNull<u8>> {
        let object = self.get(index)?;
        let last = self.take()?;
        if index < self.len() {
            // SAFETY: `index < len`.
            unsafe { self.slot(index).write(last.as_ptr()) };
        }
        Some(object)
    }

    /// Moves the `most` objects put last into `empty`, in order, as far as one slot stays free there.
    pub(crate) fn move_into(&mut self, empty: &mut OwnSheaf, most: u32) {
        assert!(empty.is_empty(), "an object would be lost");
        let moved = most.min(self.len()).min(empty.capacity() - 1);
        let kept = self.len() - moved;
        if moved > 0 {
            // SAFETY: two sheaves of which this has `kept + moved` slots and the other `moved` at least.
            unsafe {
                core::ptr::copy_nonoverlapping(self.slot(kept), empty.slot(0), moved as usize)
            };
        }
        empty.header().len.store(moved, Relaxed);
        self.header().len.store(kept, Relaxed);
    }

    /// Whether the ceiling is zero and no slot is (`slot.fenced`; the floor is a barn's link).
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        // SAFETY: slots and ceiling are inside the sheaf.
        let entry = |index| unsafe { self.entry(index).read() };
        entry(self.capacity()).is_null() && (0..self.capacity()).all(|i| !entry(i).is_null())
    }

    /// Whether `object` is among the objects put last (a double free in quick succession).
    #[must_use]
    pub fn holds_recent(&self, object: NonNull<u8>) -> bool {
        let len = self.len();
        (len.saturating_sub(RECENT)..len).any(|i| self.get(i) == Some(object))
    }
}

/// Objects looked at for a double free when a sheaf changes hands. Why 16: two cache lines,
/// once per sheaf.
const RECENT: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_fill_powers_of_two() {
        assert_eq!(
            [1, 6, 7, 12, 28, 60, 62, 63, 252].map(capacity_for),
            [5, 13, 13, 13, 29, 61, 125, 125, 253]
        );
        assert_eq!(
            [5, 13, 29, 61, 125, 253].map(bytes_for),
            [64, 128, 256, 512, 1024, 2048]
        );
    }

    #[test]
    fn a_capacity_with_slots_missing_stays_in_its_memory() {
        for spread in [0, 1, 2, 4, 8, 16] {
            for wanted in 1..=1021 {
                let least = capacity_at_least(wanted, spread);
                assert!((1..=wanted).contains(&least), "{wanted} {spread}");
                assert_eq!(bytes_for(least), bytes_for(wanted), "{wanted} {spread}");
            }
        }
        let eighths = [5, 13, 16, 29, 61, 125, 253].map(|wanted| capacity_at_least(wanted, 8));
        assert_eq!(eighths, [5, 12, 14, 26, 54, 110, 222]);
        assert_eq!(capacity_at_least(253, 0), 253);
    }

    #[test]
    fn what_was_put_last_goes_over_in_order_and_one_slot_stays_free() {
        #[repr(align(256))]
        struct Memory([u64; 32]);
        for (capacity, len, moved) in [(5, 5, 2), (5, 4, 2), (5, 1, 0), (13, 9, 4), (1, 1, 0)] {
            let (mut memory, mut other) = (Memory([0; 32]), Memory([0; 32]));
            let [from, to] = [&mut memory, &mut other]
                .map(|m| NonNull::new(m.0.as_mut_ptr().cast::<u8>()).expect("not null"));
            // SAFETY: 256 bytes are enough for thirteen slots.
            let (mut full, mut empty) =
                unsafe { (OwnSheaf::create(from, 13), OwnSheaf::create(to, capacity)) };
            let object = |i: u32| NonNull::new((i as usize * 16) as *mut u8).expect("not null");
            (1..=len).for_each(|i| full.put(object(i)));
            full.move_into(&mut empty, len / 2);
            assert_eq!((full.len(), empty.len()), (len - moved, moved));
            assert!(empty.room() > 0);
            for i in (1..=len).rev() {
                let from = if empty.is_empty() {
                    &mut full
                } else {
                    &mut empty
                };
                assert_eq!(from.take(), Some(object(i)));
            }
        }
    }

    #[test]
    fn a_sheaf_gives_back_what_was_put_last() {
        #[repr(align(64))]
        struct Memory([u64; 8]);
        let mut memory = Memory([0; 8]);
        let start = NonNull::new(memory.0.as_mut_ptr().cast::<u8>()).expect("not null");
        // SAFETY: 64 bytes are enough for five slots.
        let mut sheaf = unsafe { OwnSheaf::create(start, 5) };
        let objects: std::vec::Vec<_> = (1..=5usize)
            .map(|i| NonNull::new((i * 16) as *mut u8).expect("not null"))
            .collect();
        for &o in &objects {
            sheaf.put(o);
        }
        assert_eq!(sheaf.room(), 0);
        assert!(sheaf.holds_recent(objects[3]));
        assert_eq!(sheaf.take(), Some(objects[4]));
        assert_eq!(sheaf.swap_remove(0), Some(objects[0]));
        assert_eq!(sheaf.len(), 3);
        // SAFETY: given up by the one and taken by the other, nothing between.
        let again = unsafe { OwnSheaf::from_entry(sheaf.into_entry(), 64) };
        assert_eq!(
            (again.len(), again.address()),
            (3, start.as_ptr().cast_const())
        );
    }
}
