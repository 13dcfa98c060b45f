//! From a request's size to the cache that serves it: one table look-up.
//!
//! ```text
//!   index = ceil(size / 16)      0 .. 2048      one byte each: the id of the cache
//! ```
//!
//! Sixteen bytes are the alignment every block has, so no class lies between. One flat table
//! instead of two finer and coarser ones saves a compare and a jump in every allocation, and only
//! the lines of sizes in use are ever touched.

use crate::base::PageSize;
use crate::policy::SizeClasses;
use crate::sync::{AtomicU8, Ordering::Relaxed};

/// Bytes per entry.
pub const STEP: usize = 16;
/// The largest size a table can serve.
pub const TABLE_MAX: usize = 32 << 10;
const ENTRIES: usize = TABLE_MAX / STEP + 1;

/// Cache ids by request size.
#[derive(Debug)]
#[repr(transparent)]
pub struct ClassTable {
    ids: [AtomicU8; ENTRIES],
}

impl ClassTable {
    /// A table that serves nothing.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a default would be const-less")]
    pub const fn new() -> Self {
        Self {
            ids: [const { AtomicU8::new(0) }; ENTRIES],
        }
    }

    #[inline(always)]
    const fn index(size: usize) -> usize {
        // Requests are far below the largest number, so rounding up cannot overflow.
        (size + (STEP - 1)) >> STEP.trailing_zeros()
    }

    /// The cache for a request of `size` bytes.
    ///
    /// # Safety
    /// 1. `size <= TABLE_MAX`.
    #[inline(always)]
    #[must_use]
    pub unsafe fn id(&self, size: usize) -> usize {
        // SAFETY: obligation 1 bounds the index.
        usize::from(unsafe { self.ids.get_unchecked(Self::index(size)) }.load(Relaxed))
    }

    /// Records that requests above `below` and up to `class` bytes are served by cache `id`.
    pub fn fill(&self, below: usize, class: usize, id: u8) {
        let first = if below == 0 {
            0
        } else {
            Self::index(below) + 1
        };
        let last = Self::index(class.min(TABLE_MAX));
        for cell in &self.ids[first..=last] {
            cell.store(id, Relaxed);
        }
    }
}

/// The classes of a policy as the table can serve them: multiples of 16 bytes, at most
/// [`TABLE_MAX`].
pub fn usable_classes(classes: SizeClasses, page_size: PageSize) -> impl Iterator<Item = usize> {
    let mut last = 0;
    classes.iter(page_size).filter_map(move |size| {
        let size = size.next_multiple_of(STEP);
        let new = size > last && size <= TABLE_MAX;
        if new {
            last = size;
        }
        new.then_some(size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::LargestClass;
    use crate::policy::for_tests::POWERS;
    use std::vec::Vec;

    fn filled(size_classes: SizeClasses) -> (ClassTable, Vec<usize>) {
        let table = ClassTable::new();
        let mut below = 0;
        let classes: Vec<_> = usable_classes(size_classes, PageSize::K4).collect();
        for (at, &class) in classes.iter().enumerate() {
            table.fill(below, class, at as u8 + 1);
            below = class;
        }
        (table, classes)
    }

    #[test]
    fn every_request_gets_the_smallest_class_that_holds_it() {
        let half_a_page = SizeClasses {
            largest: LargestClass::HalfPage,
            ..POWERS
        };
        for size_classes in [SizeClasses::EIGHTHS, POWERS, half_a_page] {
            let (table, classes) = filled(size_classes);
            let largest = *classes.last().expect("some");
            for size in 0..=largest {
                // SAFETY: no class is above TABLE_MAX.
                let id = unsafe { table.id(size) };
                let expected = classes.iter().position(|&c| c >= size).expect("holds it");
                assert_eq!(id, expected + 1, "{size_classes:?}: {size} bytes");
            }
        }
    }

    #[test]
    fn the_default_policy_rounds_by_at_most_an_eighth_above_128_bytes() {
        let (_, classes) = filled(SizeClasses::EIGHTHS);
        for pair in classes.windows(2).filter(|pair| pair[0] >= 128) {
            let worst = pair[1] - (pair[0] + 1);
            assert!(worst * 8 <= pair[1], "{} bytes lost of {}", worst, pair[1]);
        }
        assert_eq!(classes.last(), Some(&TABLE_MAX));
    }
}
