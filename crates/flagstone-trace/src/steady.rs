//! Sizes whose blocks are all touched alike: how far need not be asked of each.
//!
//! ```text
//!   eight blocks in a row with the same answer ─► the next fifteen count so ─► one is asked ─► ...
//! ```
//!
//! A program that makes and frees large tables at a high rate, as one that compresses many small things, would else pay
//! two system calls for each.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Sizes known at once; another size with the same place takes it.
const SIZES: usize = 1024;
/// Bits for the pages, below the size.
const PAGE_BITS: u32 = 24;
/// Equal answers after which the next are expected.
const SURE: u8 = 8;
/// Blocks expected between two that are asked. Twice as many gain another 3 % of a question.
const EXPECTED: u8 = 15;

/// The last answer of each size, and how many were equal in a row. Racy on purpose: a lost count asks once more.
pub struct Steady {
    answers: [AtomicU64; SIZES],
    rows: [AtomicU8; SIZES],
}

impl Steady {
    /// Knows nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            answers: [const { AtomicU64::new(0) }; SIZES],
            rows: [const { AtomicU8::new(0) }; SIZES],
        }
    }

    fn place(size: usize) -> usize {
        size.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - SIZES.ilog2())
    }

    /// Whether a new block of `size` bytes will be touched as the last ones were.
    pub fn expects(&self, size: usize) -> bool {
        let row = &self.rows[Self::place(size)];
        let count = row.load(Relaxed);
        if count < SURE || self.last(size).is_none() {
            return false;
        }
        let expected = count < SURE + EXPECTED;
        row.store(if expected { count + 1 } else { SURE - 1 }, Relaxed);
        expected
    }

    /// Pages of the last block of that size.
    pub fn last(&self, size: usize) -> Option<usize> {
        let answer = self.answers[Self::place(size)].load(Relaxed);
        (answer >> PAGE_BITS == size as u64).then_some((answer & ((1 << PAGE_BITS) - 1)) as usize)
    }

    /// Notes that a block of `size` bytes was touched on `pages` pages until it was freed.
    pub fn note(&self, size: usize, pages: usize) {
        if size >> (u64::BITS - PAGE_BITS) != 0 {
            return;
        }
        let (place, answer) = (Self::place(size), (size as u64) << PAGE_BITS | pages as u64);
        let row = &self.rows[place];
        match self.answers[place].swap(answer, Relaxed) == answer {
            true => row.store((row.load(Relaxed) + 1).min(SURE), Relaxed),
            false => row.store(0, Relaxed),
        }
    }
}

impl Default for Steady {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 64 << 10;

    /// Blocks asked of `blocks` whose answers `pages` tells.
    fn asked(steady: &Steady, blocks: usize, pages: impl Fn(usize) -> usize) -> usize {
        let mut asked = 0;
        for block in 0..blocks {
            if !steady.expects(SIZE) {
                asked += 1;
                steady.note(SIZE, pages(block));
            }
        }
        asked
    }

    #[test]
    fn of_blocks_that_are_alike_one_in_sixteen_is_asked() {
        let steady = Steady::new();
        assert_eq!(asked(&steady, 9 + 160, |_| 17), 9 + 10);
        assert_eq!(steady.last(SIZE), Some(17));
    }

    #[test]
    fn blocks_that_differ_are_all_asked() {
        assert_eq!(asked(&Steady::new(), 1000, |block| block % 3), 1000);
    }

    #[test]
    fn a_change_is_noticed_and_asked_for_again() {
        let steady = Steady::new();
        asked(&steady, 200, |_| 17);
        assert!(asked(&steady, 24, |_| 3) >= 8);
        assert_eq!(steady.last(SIZE), Some(3));
    }

    #[test]
    fn another_size_in_the_same_place_expects_nothing() {
        let steady = Steady::new();
        asked(&steady, 100, |_| 17);
        let other = (1..).map(|at| SIZE + at * 16);
        let other = other
            .clone()
            .find(|&size| Steady::place(size) == Steady::place(SIZE))
            .unwrap();
        assert!(!steady.expects(other));
        assert_eq!(steady.last(other), None);
    }
}
