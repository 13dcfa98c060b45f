//! Sheaf capacity and barn limits: how many free objects wait beside a CPU and beside a node.
#![forbid(unsafe_code)]

use crate::base::PageSize;

/// How many objects one sheaf holds (docs: linux-policies 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SheafRule {
    /// No sheaves: before 6.18.
    None,
    /// Only caches whose creator asks for a capacity: 6.18 and 6.19.
    OptIn,
    /// Nearly every cache, by size, or what its creator asked for if that is more: since 7.0.
    BySize(SizeSteps, Returns),
    /// As many as `sheaf_bytes_max` holds, at most `sheaf_capacity_max`: flagstone.
    Bytes,
}

/// How a kernel fills a sheaf from slabs it took off a list (docs: linux-policies 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// From the last one on; those not needed go to the head, surplus empty ones away: 7.0, 7.1.
    Head,
    /// From the first one on; those not needed go to the tail: since 7.2.
    Tail,
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

/// Objects per sheaf by the stride of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeSteps {
    /// For strides of a page and more.
    pub page: u32,
    /// From 1024 bytes.
    pub kib: u32,
    /// From 256 bytes.
    pub quarter: u32,
    /// Below.
    pub small: u32,
}

impl SizeSteps {
    /// Objects for a stride of `size` bytes.
    #[must_use]
    pub const fn capacity(&self, size: usize, page_size: PageSize) -> u32 {
        if size >= page_size.bytes() {
            self.page
        } else if size >= 1024 {
            self.kib
        } else if size >= 256 {
            self.quarter
        } else {
            self.small
        }
    }
}
