//! Sheaf capacity and barn limits: how many free objects wait beside a CPU and beside a node.
#![forbid(unsafe_code)]

use crate::base::PageSize;

/// Bytes of a sheaf before its slots, on a 64-bit kernel (docs: linux-policies 5.1).
pub const SHEAF_HEADER_BYTES: u32 = 32;
const SLOT_BYTES: u32 = 8;

/// How many objects one sheaf holds (docs: linux-policies 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SheafRule {
    /// No sheaves: before 6.18.
    None,
    /// Only caches whose creator asks for a capacity: 6.18 and 6.19.
    OptIn,
    /// Nearly every cache, 4 to 60 objects by size: 7.0.
    All,
    /// As many as `sheaf_bytes_max` holds, at most `sheaf_capacity_max`: flagstone.
    Bytes,
}

/// Limits of one barn, in sheaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarnLimits {
    /// Full sheaves kept.
    pub full: u32,
    /// Empty sheaves kept.
    pub empty: u32,
}

impl BarnLimits {
    /// Ten of each, every kernel with sheaves (docs: linux-policies 5.1).
    pub const KERNEL: Self = Self {
        full: 10,
        empty: 10,
    };
    /// No barn.
    pub const NONE: Self = Self { full: 0, empty: 0 };
}

/// The capacity 7.0 gives a cache of stride `size` that asked for `requested` (0 if it did not): a base by
/// size, grown to fill the kmalloc block the sheaf lands in. 26 slots and a header of 32 bytes take 256, and hold 28.
#[must_use]
pub const fn capacity_7_0(size: usize, page_size: PageSize, requested: u32) -> u32 {
    let base = if size >= page_size.bytes() {
        4
    } else if size >= 1024 {
        12
    } else if size >= 256 {
        26
    } else {
        60
    };
    let block = super::classes::kmalloc_block((SHEAF_HEADER_BYTES + SLOT_BYTES * base) as usize);
    let capacity = (block as u32 - SHEAF_HEADER_BYTES) / SLOT_BYTES;
    if capacity > requested {
        capacity
    } else {
        requested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_fill_the_block_they_land_in() {
        let got = [8, 255, 256, 1023, 1024, 4095, 4096, 8192]
            .map(|size| capacity_7_0(size, PageSize::K4, 0));
        assert_eq!(got, [60, 60, 28, 28, 12, 12, 4, 4]);
        assert_eq!(capacity_7_0(8192, PageSize::K64, 0), 12);
        assert_eq!(capacity_7_0(256, PageSize::K4, 32), 32);
    }
}
