//! Partial lists: how many slabs a CPU and a node may keep.
#![forbid(unsafe_code)]

use crate::base::ilog2;

/// Fewest slabs a node keeps even when empty (docs: linux-policies 3).
pub const MIN_PARTIAL: u32 = 5;
/// Most slabs the size-dependent rules ask for (docs: linux-policies 3).
pub const MAX_PARTIAL: u32 = 10;

/// How many objects a CPU's own list of partial slabs may hold (docs: linux-policies 2): a rule of the
/// guests' (`flagstone-kernels`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuPartialRule {
    /// No such list: kernels before 3.2, and 7.0 with sheaves instead.
    None,
    /// 30, 13, 6 or 2 objects by size: 3.2 to 5.15. The limit counts objects.
    Objects2011,
    /// 120, 52, 24 or 6 objects by size, converted to slabs: 5.16 and later.
    Slabs2021,
}

/// How many slabs a node keeps on its partial list before an empty one is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MinPartialRule {
    /// The same number for every cache: 5 until 2.6.27.
    Constant(u32),
    /// Pekka Enberg's patch of August 2008: the binary logarithm of the size, from 5 to 10.
    Log2,
    /// Half that logarithm, from 5 to 10: about 3.2 and later.
    HalfLog2,
}

impl MinPartialRule {
    /// Slabs for a stride of `size` bytes (not zero).
    #[must_use]
    pub fn slabs(self, size: usize) -> u32 {
        match self {
            Self::Constant(slabs) => slabs,
            Self::Log2 => ilog2(size as u64).clamp(MIN_PARTIAL, MAX_PARTIAL),
            Self::HalfLog2 => (ilog2(size as u64) / 2).clamp(MIN_PARTIAL, MAX_PARTIAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_of_2008_keeps_more_of_larger_objects() {
        let got = [8, 63, 64, 128, 256, 512, 1024, 8192].map(|s| MinPartialRule::Log2.slabs(s));
        assert_eq!(got, [5, 5, 6, 7, 8, 9, 10, 10]);
    }

    #[test]
    fn the_rule_of_today_starts_to_grow_at_a_page() {
        let got = [8, 4095, 4096, 16_384, 65_536, 1 << 22]
            .map(|size| MinPartialRule::HalfLog2.slabs(size));
        assert_eq!(got, [5, 5, 6, 7, 8, 10]);
    }
}
