//! Units of memory: page size, page frame number, page count, block order.
//!
//! Integers have kinds so that an order is never added to a page count. Bytes stay `usize`.

use core::fmt;

/// Position of the highest set bit counted from one; `fls(0) == 0` (spec section 0).
#[inline]
#[must_use]
pub const fn fls(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// Floor of the binary logarithm; `value` must not be zero.
#[inline]
#[must_use]
pub const fn ilog2(value: u64) -> u32 {
    debug_assert!(value != 0);
    fls(value) - 1
}

/// The size of a page in bytes: a power of two, known at run time (4 KiB to 64 KiB in practice).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageSize {
    shift: u8,
}

impl PageSize {
    /// The 4 KiB page of most machines.
    pub const K4: Self = Self { shift: 12 };
    /// The 16 KiB page of some arm64 machines.
    pub const K16: Self = Self { shift: 14 };
    /// The 64 KiB page of ppc64 and some arm64 machines.
    pub const K64: Self = Self { shift: 16 };

    /// A page size of `bytes`, or `None` unless it is a power of two from 256 B to 1 GiB.
    /// Below 512 bytes only units of shared pages are (ADR 0011).
    #[must_use]
    pub const fn new(bytes: usize) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= 256 && bytes <= 1 << 30 {
            Some(Self {
                shift: bytes.trailing_zeros() as u8,
            })
        } else {
            None
        }
    }

    /// Bytes in one page.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        1 << self.shift
    }

    /// Binary logarithm of the page size.
    #[inline]
    #[must_use]
    pub const fn shift(self) -> u32 {
        self.shift as u32
    }

    /// Bytes in a block of `order`.
    #[inline]
    #[must_use]
    pub const fn block_bytes(self, order: Order) -> usize {
        self.bytes() << order.0
    }

    /// Pages needed to hold `bytes`, rounded up.
    #[inline]
    #[must_use]
    pub const fn pages_for(self, bytes: usize) -> PageCount {
        PageCount(bytes.div_ceil(self.bytes()))
    }

    /// Smallest order whose block holds `bytes` (at least one byte): the kernel's `get_order`.
    #[inline]
    #[must_use]
    pub const fn order_for(self, bytes: usize) -> Order {
        debug_assert!(bytes != 0);
        Order(fls(((bytes - 1) >> self.shift) as u64) as u8)
    }
}

/// Binary logarithm of a block's length in pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u8);

impl Order {
    /// A single page.
    pub const ZERO: Self = Self(0);
    /// The largest order a per-CPU pageset keeps, and the default limit for slabs
    /// (`PAGE_ALLOC_COSTLY_ORDER`, spec section 0).
    pub const COSTLY: Self = Self(3);
    /// The largest block of a zone: 1024 pages, 4 MiB with 4 KiB pages (spec section 7).
    pub const MAX: Self = Self(10);

    /// An order from 0 to [`Order::MAX`], or `None`.
    #[must_use]
    pub const fn new(order: u32) -> Option<Self> {
        if order <= Self::MAX.0 as u32 {
            Some(Self(order as u8))
        } else {
            None
        }
    }

    /// The order as a plain number, for shifts and array indexes.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0 as u32
    }

    /// Pages in one block of this order.
    #[inline]
    #[must_use]
    pub const fn pages(self) -> PageCount {
        PageCount(1 << self.0)
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

/// A number of pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageCount(pub usize);

impl PageCount {
    /// Bytes in this many pages of `page_size`.
    #[inline]
    #[must_use]
    pub const fn bytes(self, page_size: PageSize) -> usize {
        self.0 << page_size.shift
    }
}

impl fmt::Debug for PageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.0)
    }
}

/// Page frame number: the index of a page inside the memmap, never an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(pub u32);

impl Pfn {
    /// No page: ends lists and marks absent links.
    pub const NONE: Self = Self(u32::MAX);

    /// Whether this names a page at all.
    #[inline]
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }

    /// This frame as an array index.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The first page of the block that merges with this one at `order`.
    #[inline]
    #[must_use]
    pub const fn buddy(self, order: Order) -> Self {
        Self(self.0 ^ (1 << order.0))
    }

    /// The frame `pages` further on.
    #[inline]
    #[must_use]
    pub const fn plus(self, pages: PageCount) -> Self {
        Self(self.0 + pages.0 as u32)
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_some() {
            write!(f, "pfn {:#x}", self.0)
        } else {
            f.write_str("pfn none")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fls_counts_from_one() {
        assert_eq!(
            [0, 1, 2, 3, 4, 16, 128, 255].map(fls),
            [0, 1, 2, 2, 3, 5, 8, 8]
        );
    }

    #[test]
    fn order_for_is_the_smallest_block_that_holds_the_bytes() {
        for page in [PageSize::K4, PageSize::K16, PageSize::K64] {
            for bytes in 1..page.bytes() * 20 {
                let order = page.order_for(bytes);
                assert!(page.block_bytes(order) >= bytes);
                assert!(order == Order::ZERO || page.block_bytes(order) / 2 < bytes);
            }
        }
    }

    #[test]
    fn page_size_refuses_what_is_not_a_power_of_two() {
        assert_eq!(PageSize::new(4096), Some(PageSize::K4));
        assert_eq!([0, 1, 4095, 12288].map(PageSize::new), [None; 4]);
    }
}
