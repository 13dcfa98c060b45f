//! Resident bits: which pages of free blocks still hold memory of the system.
//!
//! ```text
//!   bit 1   the page was used since it was last given back: resident, contents unknown
//!   bit 0   never used, or given back: not resident, reads as zero
//! ```
//!
//! A bit means something only while its page is in a zone's free areas; owners of pages leave
//! the bits of their blocks alone. So blocks of both kinds merge freely and the count of resident
//! free pages stays exact, for one word operation per free of up to 64 pages.
//!
//! Locking: the zone's lock; relaxed atomics, since words are only shared inside one zone.

use crate::base::{PageCount, Pfn};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use core::ptr::NonNull;

/// One bit for each page of the reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    words: NonNull<AtomicU64>,
}

impl Resident {
    /// Bits in memory that is zeroed when first committed.
    ///
    /// # Safety
    /// 1. `words` starts a part of the reservation with a bit for every page; the owner commits
    ///    it before bits are used.
    pub(super) unsafe fn new(words: NonNull<AtomicU64>) -> Self {
        Self { words }
    }

    /// Where the words start.
    pub(super) fn base(self) -> NonNull<u8> {
        self.words.cast()
    }

    /// Pages of the range that are resident.
    #[inline]
    pub(crate) fn count(self, pfn: Pfn, pages: PageCount) -> usize {
        let mut sum = 0;
        self.each_word(pfn, pages, |word, mask| {
            sum += (word.load(Relaxed) & mask).count_ones() as usize;
        });
        sum
    }

    /// Whether any page of the range is resident.
    #[inline]
    pub(crate) fn any(self, pfn: Pfn, pages: PageCount) -> bool {
        let mut found = 0;
        self.each_word(pfn, pages, |word, mask| found |= word.load(Relaxed) & mask);
        found != 0
    }

    /// Notes that the whole range is resident.
    #[inline]
    pub(super) fn set(self, pfn: Pfn, pages: PageCount) {
        self.each_word(pfn, pages, |word, mask| {
            word.store(word.load(Relaxed) | mask, Relaxed);
        });
    }

    /// Notes that the whole range was given back.
    #[inline]
    pub(super) fn clear(self, pfn: Pfn, pages: PageCount) {
        self.each_word(pfn, pages, |word, mask| {
            word.store(word.load(Relaxed) & !mask, Relaxed);
        });
    }

    #[inline]
    fn each_word(self, pfn: Pfn, pages: PageCount, mut step: impl FnMut(&AtomicU64, u64)) {
        let mut at = pfn.index();
        let end = at + pages.0;
        while at < end {
            let bit = at % 64;
            let here = (end - at).min(64 - bit);
            let mask = (u64::MAX >> (64 - here)) << bit;
            // SAFETY: pages below a frontier have committed bits (`memmap.limit`).
            step(unsafe { self.words.add(at / 64).as_ref() }, mask);
            at += here;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn bits_agree_with_a_table_of_flags(
            steps in proptest::collection::vec((0usize..256, 0usize..256, any::<bool>()), 1..40),
        ) {
            let words: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
            // SAFETY: four words for 256 pages, alive to the end of the test.
            let bits = unsafe { Resident::new(NonNull::new_unchecked(words.as_ptr().cast_mut())) };
            let mut table = [false; 256];
            for (from, to, on) in steps {
                let (from, to) = (from.min(to), from.max(to));
                let (pfn, pages) = (Pfn(from as u32), PageCount(to - from));
                if on { bits.set(pfn, pages) } else { bits.clear(pfn, pages) }
                table[from..to].fill(on);
                let expected = table[from / 2..to].iter().filter(|&&flag| flag).count();
                let half = (Pfn(from as u32 / 2), PageCount(to - from / 2));
                prop_assert_eq!(bits.count(half.0, half.1), expected);
                prop_assert_eq!(bits.any(half.0, half.1), expected > 0);
            }
        }
    }
}
