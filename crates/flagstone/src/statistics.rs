//! Where the heap's bytes are.

use flagstone_process::account::Account;
use flagstone_process::blocks;

/// The heap's bytes at one moment. Other threads may move them meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Bytes the program holds, huge blocks included.
    pub in_use: usize,
    /// Of those, bytes in huge blocks, which have mappings of their own.
    pub huge: usize,
    /// Bytes in slabs and runs of pages, free objects in them included.
    pub slabs_and_runs: usize,
    /// Bytes in free pages with memory behind them.
    pub free_resident: usize,
    /// Bytes that may be written, huge blocks not included.
    pub committed: usize,
    /// Bytes of the allocator's own.
    pub metadata: usize,
}

/// The heap's bytes now; all zero before the first allocation.
#[must_use]
pub fn statistics() -> Statistics {
    let account = Account::now();
    Statistics {
        in_use: account.held + account.huge.bytes,
        huge: account.huge.bytes,
        slabs_and_runs: account.blocks,
        free_resident: account.free_resident,
        committed: account.committed,
        metadata: account.metadata,
    }
}

/// Gives free memory back to the system, but `keep` bytes; the bytes given back.
pub fn trim(keep: usize) -> usize {
    blocks::trim(keep)
}
