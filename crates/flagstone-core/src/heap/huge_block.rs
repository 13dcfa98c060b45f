//! A huge block, and how many there are.
#![forbid(unsafe_code)]

use core::ptr::NonNull;

/// One huge block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugeBlock {
    /// Where it starts; zero marks an empty entry.
    pub address: usize,
    /// Bytes reserved and committed, whole pages.
    pub bytes: usize,
    /// Bytes the program asked for.
    pub requested: usize,
}

impl HugeBlock {
    /// No block.
    pub(super) const NONE: Self = Self {
        address: 0,
        bytes: 0,
        requested: 0,
    };

    /// A block of `bytes` for a request of `requested`.
    pub(super) fn at(start: NonNull<u8>, bytes: usize, requested: usize) -> Self {
        Self {
            address: start.as_ptr() as usize,
            bytes,
            requested,
        }
    }

    /// Cuts the block behind its first `bytes` and answers the rest.
    pub(super) fn cut_at(&mut self, bytes: usize) -> Self {
        let rest = Self {
            address: self.address + bytes,
            bytes: self.bytes - bytes,
            requested: 0,
        };
        self.bytes = bytes;
        rest
    }
}

/// How many huge blocks there are, or were at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HugeCount {
    /// Blocks.
    pub blocks: usize,
    /// Their bytes.
    pub bytes: usize,
}
