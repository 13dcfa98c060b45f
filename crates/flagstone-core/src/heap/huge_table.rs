//! The table of huge blocks, and the freed ones that are kept.
//!
//! ```text
//!   table (open addressing by address)   [ address | bytes | requested ]  ...
//! ```
//!
//! The blocks carry no header, as everywhere: what is known about them lies in this table.
//!
//! Invariants
//! - `huge.half-empty`: at most half of the table's entries are used, those counted in that are kept
//!   for blocks taken out, so probing ends.
//! - `huge.no-gaps`: every entry is reached from its home without crossing an empty one.

use super::huge_block::{HugeBlock, HugeCount};
use super::kept::Kept;
use crate::platform::{OutOfMemory, Platform};
use core::ptr::NonNull;

/// The table of huge blocks; under the heap's lock.
#[derive(Debug)]
pub struct HugeTable {
    /// Freed blocks that stay for the next request.
    pub(super) kept: Kept,
    entries: Option<NonNull<HugeBlock>>,
    capacity: usize,
    used: usize,
    /// Blocks taken out for a moment, for which entries are kept free.
    out: usize,
    bytes: usize,
    peak: HugeCount,
}

// SAFETY: the table owns its memory; the lock around it gives exclusive use.
unsafe impl Send for HugeTable {}

impl HugeTable {
    /// An empty table without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            kept: Kept::new(),
            entries: None,
            capacity: 0,
            used: 0,
            out: 0,
            bytes: 0,
            peak: HugeCount {
                blocks: 0,
                bytes: 0,
            },
        }
    }

    /// Blocks in the table.
    #[must_use]
    pub fn now(&self) -> HugeCount {
        HugeCount {
            blocks: self.used,
            bytes: self.bytes,
        }
    }

    /// The most blocks there ever were, and the most bytes, not necessarily at one moment.
    #[must_use]
    pub fn peak(&self) -> HugeCount {
        self.peak
    }

    /// Bytes in all huge blocks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Entries in use and in all; for `verify`.
    pub(crate) fn filled(&self) -> (usize, usize) {
        (self.used, self.capacity)
    }

    /// The kept blocks; for `verify`.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// All huge blocks, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = &HugeBlock> {
        self.slice().iter().filter(|block| block.address != 0)
    }

    /// Bytes of memory the table itself takes.
    #[must_use]
    pub fn own_bytes(&self) -> usize {
        self.capacity * size_of::<HugeBlock>()
    }

    /// Where the table lies, and the bytes of its reservation.
    pub(super) fn memory<P: Platform>(&self) -> Option<(NonNull<u8>, usize)> {
        let bytes = self.reserved_bytes(P::page_size().bytes());
        self.entries.map(|first| (first.cast(), bytes))
    }

    fn slice(&self) -> &[HugeBlock] {
        match self.entries {
            // SAFETY: `capacity` entries, zeroed or written, owned by the table.
            Some(first) => unsafe { core::slice::from_raw_parts(first.as_ptr(), self.capacity) },
            None => &[],
        }
    }

    fn slice_mut(&mut self) -> &mut [HugeBlock] {
        match self.entries {
            // SAFETY: as in `slice`; `&mut self` makes this the only borrow.
            Some(first) => unsafe {
                core::slice::from_raw_parts_mut(first.as_ptr(), self.capacity)
            },
            None => &mut [],
        }
    }

    fn home(&self, address: usize) -> usize {
        (address >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as usize) >> 20 & (self.capacity - 1)
    }

    fn find(&self, address: usize) -> Option<usize> {
        if self.capacity == 0 || address == 0 {
            return None;
        }
        let mut at = self.home(address);
        loop {
            match self.slice()[at].address {
                0 => return None,
                found if found == address => return Some(at),
                _ => at = (at + 1) & (self.capacity - 1),
            }
        }
    }

    /// The block that starts at `address`.
    #[must_use]
    pub fn get(&self, address: usize) -> Option<HugeBlock> {
        self.find(address).map(|at| self.slice()[at])
    }

    /// Adds a block.
    ///
    /// # Errors
    /// `OutOfMemory` if the table must grow and cannot; nothing changed then.
    pub fn insert<P: Platform>(&mut self, block: HugeBlock) -> Result<(), OutOfMemory> {
        if (self.used + self.out + 1) * 2 > self.capacity {
            self.grow::<P>()?;
        }
        self.add(block);
        Ok(())
    }

    fn add(&mut self, block: HugeBlock) {
        self.place(block);
        self.used += 1;
        self.bytes += block.bytes;
        self.peak = HugeCount {
            blocks: self.peak.blocks.max(self.used),
            bytes: self.peak.bytes.max(self.bytes),
        };
    }

    /// Removes a block that [`HugeTable::put_back`] will list again, resized or moved.
    pub(super) fn take_out(&mut self, address: usize) -> Option<HugeBlock> {
        let block = self.remove(address)?;
        self.out += 1;
        Some(block)
    }

    /// Lists a block again that was taken out; never fails, for its entry was kept free.
    pub(super) fn put_back(&mut self, block: HugeBlock) {
        self.out -= 1;
        self.add(block);
    }

    fn place(&mut self, block: HugeBlock) {
        let mask = self.capacity - 1;
        let mut at = self.home(block.address);
        while self.slice()[at].address != 0 {
            at = (at + 1) & mask;
        }
        self.slice_mut()[at] = block;
    }

    /// Removes the block that starts at `address`.
    pub fn remove(&mut self, address: usize) -> Option<HugeBlock> {
        let mut hole = self.find(address)?;
        let mask = self.capacity - 1;
        let block = self.slice()[hole];
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let next = self.slice()[at];
            if next.address == 0 {
                break;
            }
            // Move back what would otherwise be cut off from its home (`huge.no-gaps`).
            let home = self.home(next.address);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slice_mut()[hole] = next;
                hole = at;
            }
        }
        self.slice_mut()[hole] = HugeBlock::default();
        self.used -= 1;
        self.bytes -= block.bytes;
        Some(block)
    }

    fn grow<P: Platform>(&mut self) -> Result<(), OutOfMemory> {
        let page = P::page_size().bytes();
        let bytes = match self.capacity {
            0 => page,
            _ => self.reserved_bytes(page) * 2,
        };
        let memory = P::reserve_whole(bytes, page).ok_or(OutOfMemory)?;
        let mut larger = Self {
            kept: core::mem::replace(&mut self.kept, Kept::new()),
            entries: Some(memory.cast()),
            // A power of two, so that probing can mask.
            capacity: 1 << (bytes / size_of::<HugeBlock>()).ilog2(),
            ..*self
        };
        for block in self.blocks() {
            larger.place(*block);
        }
        let (old, old_bytes) = (self.entries, self.reserved_bytes(page));
        *self = larger;
        if let Some(old) = old {
            // SAFETY: the old table's reservation, no longer referred to.
            unsafe { P::release(old.cast(), old_bytes) };
        }
        Ok(())
    }

    fn reserved_bytes(&self, page: usize) -> usize {
        self.own_bytes().next_power_of_two().max(page)
    }
}
