//! The memory of a virtual machine: a budgeted arena that keeps account of every page.
//!
//! ```text
//!   [ reserved ........................................ | not yet handed out ]
//!     page states: reserved → committed → decommitted (zero again, still usable) → released
//! ```
//!
//! Reservations are handed out from one mapping, lowest first and never twice, so that an address
//! names the same thing for the whole run and runs with one seed use the same offsets. The host's
//! memory is used only where the core really writes. A page that was released or never committed
//! must not be touched again: [`Arena::usable`] answers for it, and the checking gear asks at
//! every access.

use crate::mapping::Mapping;
use core::ptr::NonNull;

/// The arena's start is aligned to this, so that low address bits are equal in every run.
const ALIGN: usize = 1 << 30;

/// A machine's memory.
#[derive(Debug)]
pub struct Arena {
    mapping: Mapping,
    base: usize,
    bytes: usize,
    top: usize,
    page_shift: u32,
    /// One bit per page: committed and not released.
    usable: Vec<u64>,
    /// One bit per page: its contents are there (committed and not decommitted since).
    resident: Vec<u64>,
    resident_pages: usize,
    peak_pages: usize,
    budget_pages: usize,
}

impl Arena {
    /// An arena of `bytes` of address space of which `budget` bytes may be in use at a time; `None`
    /// if the system grants less. Never a smaller one: zones of another size put blocks elsewhere,
    /// and the same seed would give another run.
    #[must_use]
    pub fn new(bytes: usize, budget: usize, page_size: usize) -> Option<Self> {
        let want = bytes.checked_next_multiple_of(page_size)?;
        let mapping = Mapping::new(want.checked_add(ALIGN)?)?;
        let base = (mapping.start().as_ptr() as usize).next_multiple_of(ALIGN);
        let page_shift = page_size.trailing_zeros();
        let words = (want >> page_shift).div_ceil(64);
        Some(Self {
            mapping,
            base,
            bytes: want,
            top: 0,
            page_shift,
            usable: vec![0; words],
            resident: vec![0; words],
            resident_pages: 0,
            peak_pages: 0,
            budget_pages: budget >> page_shift,
        })
    }

    /// The first address.
    #[inline]
    #[must_use]
    pub fn base(&self) -> usize {
        self.base
    }

    /// Bytes of address space.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes whose contents are there now.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        self.resident_pages << self.page_shift
    }

    /// The most there ever was.
    #[must_use]
    pub fn peak_bytes(&self) -> usize {
        self.peak_pages << self.page_shift
    }

    /// Hands out address space.
    pub fn reserve(&mut self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let page = 1usize << self.page_shift;
        let start = (self.base + self.top).checked_next_multiple_of(align.max(page))?;
        let end = start.checked_add(bytes)?.checked_next_multiple_of(page)?;
        if end > self.base + self.bytes {
            return None;
        }
        self.top = end - self.base;
        let offset = start - self.mapping.start().as_ptr() as usize;
        // SAFETY: the range was just checked to lie inside the mapping.
        Some(unsafe { self.mapping.start().add(offset) })
    }

    /// Asks for large pages for what is in use before `end`, in whole pages; not on a small machine,
    /// whose tables are small.
    pub fn dense_before(&self, end: usize) {
        /// Machines of tests are smaller, those of published rows larger.
        const SMALL: usize = 8 << 30;
        if self.bytes < SMALL {
            return;
        }
        let offset = self.base - self.mapping.start().as_ptr() as usize;
        let bytes = end.saturating_sub(self.base).min(self.bytes);
        self.mapping.dense_part(offset, bytes);
    }

    /// Makes pages usable; `false`, and nothing changed, when that would exceed the budget.
    pub fn commit(&mut self, start: usize, bytes: usize) -> bool {
        let range = self.pages(start, bytes);
        let fresh = range
            .clone()
            .filter(|page| !bit(&self.resident, *page))
            .count();
        if self.resident_pages + fresh > self.budget_pages {
            return false;
        }
        for page in range {
            set(&mut self.usable, page, true);
            set(&mut self.resident, page, true);
        }
        self.resident_pages += fresh;
        self.peak_pages = self.peak_pages.max(self.resident_pages);
        true
    }

    /// Drops the contents of pages.
    pub fn decommit(&mut self, start: usize, bytes: usize) {
        for page in self.pages(start, bytes) {
            if bit(&self.resident, page) {
                set(&mut self.resident, page, false);
                self.resident_pages -= 1;
            }
        }
        let offset = start - self.mapping.start().as_ptr() as usize;
        self.mapping.forget(offset, bytes);
    }

    /// Ends a reservation: nobody may touch it again.
    pub fn release(&mut self, start: usize, bytes: usize) {
        self.decommit(start, bytes);
        for page in self.pages(start, bytes) {
            set(&mut self.usable, page, false);
        }
    }

    /// Whether `address` is inside the arena.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }

    /// Whether `address` may be accessed.
    #[must_use]
    pub fn usable(&self, address: usize) -> bool {
        self.contains(address) && bit(&self.usable, (address - self.base) >> self.page_shift)
    }

    fn pages(&self, start: usize, bytes: usize) -> core::ops::Range<usize> {
        assert!(
            start >= self.base && start + bytes <= self.base + self.top,
            "memory outside any reservation"
        );
        let first = (start - self.base) >> self.page_shift;
        first..first + (bytes >> self.page_shift)
    }
}

fn bit(map: &[u64], index: usize) -> bool {
    map[index / 64] >> (index % 64) & 1 != 0
}

fn set(map: &mut [u64], index: usize, value: bool) {
    let mask = 1 << (index % 64);
    if value {
        map[index / 64] |= mask;
    } else {
        map[index / 64] &= !mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refuses_and_changes_nothing() {
        let mut arena = Arena::new(64 << 20, 8 * 4096, 4096).unwrap();
        let start = arena.reserve(16 * 4096, 4096).unwrap().as_ptr() as usize;
        assert!(arena.commit(start, 8 * 4096));
        assert!(!arena.commit(start + 8 * 4096, 4096));
        arena.decommit(start, 4096);
        assert!(arena.commit(start + 8 * 4096, 4096));
        assert_eq!(
            (arena.resident_bytes(), arena.peak_bytes()),
            (8 * 4096, 8 * 4096)
        );
    }

    #[test]
    fn decommitted_pages_read_as_zero_and_released_ones_are_not_usable() {
        let mut arena = Arena::new(64 << 20, 1 << 20, 4096).unwrap();
        let start = arena.reserve(2 * 4096, 4096).unwrap();
        let address = start.as_ptr() as usize;
        assert!(!arena.usable(address));
        assert!(arena.commit(address, 2 * 4096));
        // SAFETY: just committed, two pages long.
        unsafe { start.write_bytes(7, 8192) };
        arena.decommit(address, 4096);
        // SAFETY: decommitted memory stays readable.
        assert_eq!(unsafe { (start.read(), start.add(4096).read()) }, (0, 7));
        assert!(arena.usable(address));
        arena.release(address, 4096);
        assert!(!arena.usable(address) && arena.usable(address + 4096));
    }

    #[test]
    fn reservations_are_aligned_and_end() {
        let mut arena = Arena::new(64 << 20, 1 << 20, 4096).unwrap();
        let first = arena.reserve(100, 4096).unwrap().as_ptr() as usize;
        let second = arena.reserve(4096, 4 << 20).unwrap().as_ptr() as usize;
        assert!(second > first && second.is_multiple_of(4 << 20));
        assert_eq!(arena.reserve(1 << 40, 4096), None);
    }
}
