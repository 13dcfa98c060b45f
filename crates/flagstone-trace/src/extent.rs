//! How much of a large block a program touched, by what was resident when it got the block.
//!
//! ```text
//!   resident pages at birth   now       touched
//!   not asked (0)             n         n
//!   b                         n > b     n; noted for blocks of its size
//!   b                         b         at most what blocks of its size were touched where that was seen
//! ```
//!
//! Memory that was in use before is resident when it is handed out again, whether the new owner writes to it or not. A server
//! that asks for 256 KiB, reads two and shrinks the block would seem to have touched all of it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Sizes known at once; another size with the same place takes it.
const SIZES: usize = 4096;
/// Bits for the pages, below the size.
const PAGE_BITS: u32 = 24;

/// Pages touched of the last block of a size whose pages were seen to become resident.
pub struct Seen([AtomicU64; SIZES]);

impl Seen {
    /// Knows nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; SIZES])
    }

    /// Pages touched of a block of `size` bytes, of which `born` were resident when it was handed out and `now` are.
    pub fn touched(&self, size: usize, born: usize, now: usize) -> usize {
        if born == 0 || size >> (u64::BITS - PAGE_BITS) != 0 {
            return now;
        }
        let place = size.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - SIZES.ilog2());
        let entry = &self.0[place];
        if now > born || now == 1 {
            entry.store((size as u64) << PAGE_BITS | now as u64, Relaxed);
            return now;
        }
        let seen = entry.load(Relaxed);
        match seen >> PAGE_BITS == size as u64 {
            true => now.min((seen & ((1 << PAGE_BITS) - 1)) as usize),
            false => now,
        }
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 256 << 10;

    #[test]
    fn a_block_that_was_resident_before_counts_as_far_as_others_of_its_size() {
        let seen = Seen::new();
        assert_eq!(seen.touched(SIZE, 65, 65), 65, "nothing is known yet");
        assert_eq!(seen.touched(SIZE, 1, 3), 3);
        assert_eq!(seen.touched(SIZE, 65, 65), 3);
        assert_eq!(seen.touched(SIZE, 2, 2), 2);
        assert_eq!(seen.touched(SIZE, 30, 65), 65, "it grew");
        assert_eq!(seen.touched(SIZE, 65, 65), 65);
        assert_eq!(seen.touched(SIZE, 0, 40), 40, "not asked at birth");
    }

    #[test]
    fn sizes_are_not_mistaken_for_each_other() {
        let seen = Seen::new();
        for pages in 4..2000 {
            assert_eq!(seen.touched(pages << 12, 1, 2), 2);
            assert_eq!(seen.touched((pages + 1) << 12, pages, pages), pages);
        }
    }
}
