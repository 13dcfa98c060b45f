//! A huge block, and how many there are.
#![forbid(unsafe_code)]

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
}

/// How many huge blocks there are, or were at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HugeCount {
    /// Blocks.
    pub blocks: usize,
    /// Their bytes.
    pub bytes: usize,
}
