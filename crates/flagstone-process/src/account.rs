//! The heap's bytes in a few numbers.

use crate::init::static_heap;
use flagstone_core::heap::HugeCount;
use flagstone_core::stats::bytes_in_use;

/// Where the heap's bytes are: `held` by the program, of the `blocks` of pages cut into slabs and
/// runs, and in `huge` blocks.
#[derive(Clone, Copy, Default, Debug)]
pub struct Account {
    /// Bytes that may be written.
    pub committed: usize,
    /// Bytes in slabs and runs.
    pub blocks: usize,
    /// Bytes of slabs and runs that the program holds.
    pub held: usize,
    /// Bytes of free blocks with memory behind them.
    pub free_resident: usize,
    /// How many free blocks have memory behind them.
    pub free_blocks: usize,
    /// Huge blocks now.
    pub huge: HugeCount,
    /// The most huge blocks there ever were.
    pub huge_peak: HugeCount,
    /// Bytes of the allocator's own.
    pub metadata: usize,
}

impl Account {
    /// Whether there is a heap.
    pub fn exists() -> bool {
        static_heap().ready_if_built().is_some()
    }

    /// As it is now; all zero before the first allocation.
    pub fn now() -> Self {
        let Some(ready) = static_heap().ready_if_built() else {
            return Self::default();
        };
        let pages = ready.slabs().pages().snapshot();
        let bytes = |count: usize| count * pages.page_bytes;
        let blocks = pages.total.resident_blocks.iter();
        let (huge, huge_peak) = ready.huge_counts();
        Self {
            committed: bytes(pages.total.committed_pages),
            blocks: bytes(pages.total.in_use_pages),
            held: (bytes_in_use(ready) as usize).saturating_sub(huge.bytes),
            free_resident: bytes(pages.total.free_resident_pages),
            free_blocks: blocks.map(|&count| count as usize).sum(),
            huge,
            huge_peak,
            metadata: pages.own_bytes + pages.memmap_bytes + pages.control_bytes,
        }
    }
}
