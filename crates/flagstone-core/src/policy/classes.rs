//! Size classes of the general-purpose caches (docs: linux-policies 1.9).
#![forbid(unsafe_code)]

use crate::base::PageSize;

/// Where the classes end and whole pages begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargestClass {
    /// Half a page: SLUB of 2.6.24, whose 4096-byte objects are plain pages.
    HalfPage,
    /// One page: 2.6.25 to 2.6.29 (general knowledge, not read in a source).
    Page,
    /// Two pages: 2.6.30 and later.
    TwoPages,
    /// This many bytes whatever the page size.
    Bytes(u32),
}

/// From here on no class lies within a sixteenth below a power of two: a slab of 32 KiB has room
/// for as many objects of the power, which start at pages and share none. The requests between
/// still lose no more than an eighth.
const MERGED_BYTES_MIN: usize = 4096;

/// The classes of a policy: powers of two, or a finer spacing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeClasses {
    /// Smallest class in bytes.
    pub min_bytes: u32,
    /// Largest class.
    pub largest: LargestClass,
    /// Classes per doubling; 1 means powers of two with 96 and 192 between them.
    pub steps_per_doubling: u32,
}

impl SizeClasses {
    /// The default policy's: multiples of 16 up to 128 bytes, then eight per doubling up to 2 KiB
    /// and seven up to 32 KiB, so that rounding above 128 bytes loses at most an eighth.
    pub const EIGHTHS: Self = Self {
        min_bytes: 16,
        largest: LargestClass::Bytes(32 << 10),
        steps_per_doubling: 8,
    };

    /// Size of the largest class in bytes.
    #[must_use]
    pub const fn max_bytes(self, page_size: PageSize) -> usize {
        match self.largest {
            LargestClass::HalfPage => page_size.bytes() / 2,
            LargestClass::Page => page_size.bytes(),
            LargestClass::TwoPages => page_size.bytes() * 2,
            LargestClass::Bytes(bytes) => bytes as usize,
        }
    }

    /// The class that serves `bytes`, or `None` if the page layer serves it directly.
    #[must_use]
    pub const fn class_for(self, bytes: usize, page_size: PageSize) -> Option<usize> {
        let min = self.min_bytes as usize;
        if bytes > self.max_bytes(page_size) {
            return None;
        }
        if bytes <= min {
            return Some(min);
        }
        if self.steps_per_doubling > 1 {
            let below = bytes.next_power_of_two() / 2;
            let step = below / self.steps_per_doubling as usize;
            let step = if step < min { min } else { step };
            let class = bytes.next_multiple_of(step);
            let whole = 2 * below;
            if whole >= MERGED_BYTES_MIN && whole - class <= whole / 16 {
                return Some(whole);
            }
            return Some(class);
        }
        // 96 only where classes start at 32 or less, 192 at 64 or less.
        if bytes > 64 && bytes <= 96 && min <= 32 {
            return Some(96);
        }
        if bytes > 128 && bytes <= 192 && min <= 64 {
            return Some(192);
        }
        Some(bytes.next_power_of_two())
    }

    /// Every class in ascending order.
    pub fn iter(self, page_size: PageSize) -> impl Iterator<Item = usize> {
        let mut last = 0;
        core::iter::from_fn(move || {
            last = self.class_for(last + 1, page_size)?;
            Some(last)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::for_tests::POWERS;
    use std::vec::Vec;

    #[test]
    fn kmalloc_has_thirteen_classes_on_small_pages() {
        let all: Vec<_> = POWERS.iter(PageSize::K4).collect();
        assert_eq!(
            all,
            [
                8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192
            ]
        );
        assert_eq!(POWERS.max_bytes(PageSize::K64), 131_072);
    }

    #[test]
    fn every_request_fits_its_class_and_no_smaller_one() {
        for steps in [1, 4, 8] {
            let classes = SizeClasses {
                steps_per_doubling: steps,
                ..POWERS
            };
            let all: Vec<_> = classes.iter(PageSize::K4).collect();
            for bytes in 1..=8192 {
                let class = classes.class_for(bytes, PageSize::K4).unwrap();
                let expected = *all.iter().find(|&&class| class >= bytes).unwrap();
                assert_eq!(class, expected, "{bytes} bytes with {steps} steps");
            }
            assert_eq!(classes.class_for(8193, PageSize::K4), None);
        }
    }
}
