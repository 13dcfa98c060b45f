//! Huge blocks that were freed and stay for the next request.
//!
//! A huge block given back costs a call and, wanted again, a fault for each page. So the last ones
//! freed stay, within the budget (page/budget.rs), until a second passed in which none was wanted:
//!
//! ```text
//!   free ──► within the room?       yes: kept, the oldest go for it       no: given back
//!   alloc ─► one kept that serves?  yes: taken and grown,                 no: from the system
//!            (from a quarter of it)  or cut, and the rest stays
//!   room     the budget's least bound, or an eighth of the huge blocks in use; a third while
//!            huge blocks are asked for; what was in use lately once giving back has cost too much
//! ```
//!
//! Invariants
//! - `kept.bytes`: the bytes of the kept blocks add up to `bytes`.
//! - `kept.bound`: they are at most the room there was when one was last kept.
//! - `kept.apart`: no kept block overlaps another, or one in use.
//!
//! Locking: that of the table of huge blocks.
#![forbid(unsafe_code)]

use super::huge_block::HugeBlock;
use crate::policy::Lately;

/// Most blocks kept. Why 32: a request looks at all of them.
const SLOTS: usize = 32;

/// Freed huge blocks.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Oldest first; an address of zero ends them.
    blocks: [HugeBlock; SLOTS],
    bytes: usize,
    /// The room when a block was last kept.
    room: usize,
    /// A request came by since [`Kept::age`] was last called: within a second or so.
    pub(super) wanted: bool,
    /// Bytes given back and not wanted again yet.
    given: usize,
    /// Bytes of the blocks in use.
    pub(super) lately: Lately,
}

/// Blocks to be given back, once no lock is held.
#[derive(Debug)]
pub(super) struct Evicted {
    blocks: [HugeBlock; SLOTS + 1],
    len: usize,
}

impl Evicted {
    const NONE: Self = Self {
        blocks: [HugeBlock::NONE; SLOTS + 1],
        len: 0,
    };

    fn add(&mut self, block: HugeBlock) {
        self.blocks[self.len] = block;
        self.len += 1;
    }

    /// The blocks.
    pub(super) fn iter(&self) -> impl Iterator<Item = &HugeBlock> {
        self.blocks[..self.len].iter()
    }
}

impl Kept {
    pub(super) const fn new() -> Self {
        Self {
            blocks: [HugeBlock::NONE; SLOTS],
            bytes: 0,
            room: 0,
            wanted: false,
            given: 0,
            lately: Lately::SECONDS,
        }
    }

    /// The kept blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &HugeBlock> {
        self.blocks.iter().take_while(|block| block.address != 0)
    }

    /// Bytes of the kept blocks, as counted.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The room when a block was last kept; for `verify`.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Of `bytes` that are wanted from the system, those that were given back.
    pub(super) fn wanted_again(&mut self, bytes: usize) -> usize {
        let again = bytes.min(self.given);
        self.given -= again;
        again
    }

    /// Takes the block nearest in size to `bytes` that serves and starts at a multiple of `align`,
    /// cut if it is much longer.
    pub(super) fn take(&mut self, bytes: usize, align: usize) -> Option<HugeBlock> {
        self.wanted = true;
        let at = (0..self.blocks().count())
            .filter(|&at| self.blocks[at].address % align == 0)
            .filter(|&at| serves(self.blocks[at].bytes, bytes))
            .min_by_key(|&at| self.blocks[at].bytes.abs_diff(bytes))?;
        let mut block = self.blocks[at];
        if block.bytes <= bytes + bytes / 8 {
            return Some(self.remove(at));
        }
        // The rest is as old as the whole.
        self.blocks[at] = block.cut_at(bytes);
        self.bytes -= bytes;
        Some(block)
    }

    /// Keeps a freed block as far as `room` goes, and says what to give back: the oldest, and what is
    /// too much of the new one.
    pub(super) fn keep(&mut self, mut block: HugeBlock, room: usize) -> Evicted {
        self.room = room;
        let mut evicted = self.evict(room.saturating_sub(block.bytes));
        if block.bytes > room {
            self.given += block.bytes - room;
            evicted.add(block.cut_at(room));
        }
        if block.bytes == 0 {
            return evicted;
        }
        if self.blocks[SLOTS - 1].address != 0 {
            self.given += self.blocks[0].bytes;
            evicted.add(self.remove(0));
        }
        let len = self.blocks().count();
        self.blocks[len] = block;
        self.bytes += block.bytes;
        evicted
    }

    /// A second or more passed: what nobody wanted meanwhile is to go.
    pub(super) fn age(&mut self) -> Evicted {
        match core::mem::take(&mut self.wanted) {
            true => Evicted::NONE,
            false => self.evict(0),
        }
    }

    /// Gives up the oldest until no more than `bytes` are left.
    pub(super) fn evict(&mut self, bytes: usize) -> Evicted {
        let mut evicted = Evicted::NONE;
        self.given += self.bytes.saturating_sub(bytes);
        while self.bytes > bytes {
            let (oldest, much) = (&mut self.blocks[0], self.bytes - bytes);
            if oldest.bytes > much {
                evicted.add(oldest.cut_at(oldest.bytes - much));
                self.bytes -= much;
            } else {
                evicted.add(self.remove(0));
            }
        }
        evicted
    }

    fn remove(&mut self, at: usize) -> HugeBlock {
        let block = self.blocks[at];
        self.blocks.copy_within(at + 1.., at);
        self.blocks[SLOTS - 1] = HugeBlock::NONE;
        self.bytes -= block.bytes;
        block
    }
}

/// Whether a block of `have` bytes, cut or grown, saves enough of the faults of a request of `want` to pay for a `mremap`.
fn serves(have: usize, want: usize) -> bool {
    have > 0 && have >= want / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn block(number: usize, mib: usize) -> HugeBlock {
        HugeBlock {
            address: number << 32,
            bytes: mib * MIB,
            requested: mib * MIB,
        }
    }

    /// A `Kept` of blocks of these MiB, numbered from one.
    fn keeping(mib: &[usize]) -> Kept {
        let mut kept = Kept::new();
        for (at, &mib) in mib.iter().enumerate() {
            assert_eq!(kept.keep(block(at + 1, mib), 100 * MIB).len, 0);
        }
        kept
    }

    #[test]
    fn a_block_serves_requests_up_to_four_times_its_size_at_its_alignment() {
        let mut kept = keeping(&[9]);
        assert_eq!(kept.take(9 * MIB, 1 << 33), None, "not aligned");
        assert_eq!(kept.take(37 * MIB, 1), None, "too small");
        assert_eq!(kept.take(36 * MIB, 1), Some(block(1, 9)));
        assert_eq!(kept.bytes, 0);
    }

    #[test]
    fn a_block_much_longer_than_the_request_is_cut_and_the_rest_stays() {
        let mut kept = keeping(&[1, 20]);
        let taken = kept.take(6 * MIB, 1).expect("20 MiB serve 6");
        assert_eq!((taken.address, taken.bytes), (2 << 32, 6 * MIB));
        assert_eq!(kept.bytes, 15 * MIB);
        let taken = kept.take(13 * MIB, 1).expect("14 MiB serve 13");
        assert_eq!(
            (taken.address, taken.bytes),
            ((2 << 32) + 6 * MIB, 14 * MIB)
        );
        assert_eq!((kept.bytes, kept.blocks().count()), (MIB, 1));
    }

    #[test]
    fn the_block_nearest_in_size_is_taken() {
        let mut kept = keeping(&[12, 8, 15]);
        assert_eq!(kept.take(9 * MIB, 1), Some(block(2, 8)));
        assert_eq!(kept.take(12 * MIB, 1), Some(block(1, 12)));
    }

    #[test]
    fn the_oldest_go_for_a_new_one_and_what_is_beyond_the_room_is_cut_off() {
        let mut kept = keeping(&[10, 10]);
        let evicted = kept.keep(block(3, 12), 20 * MIB);
        let mut cut = block(2, 10);
        let rest = cut.cut_at(8 * MIB);
        assert!(evicted.iter().eq([&block(1, 10), &rest]));
        assert_eq!(kept.bytes, 20 * MIB);
        let mut large = block(4, 13);
        let evicted = kept.keep(large, 12 * MIB);
        let rest = large.cut_at(12 * MIB);
        assert!(evicted.iter().eq([&cut, &block(3, 12), &rest]));
        assert_eq!(kept.bytes, 12 * MIB);
        let starts = |evicted: Evicted| {
            evicted
                .iter()
                .map(|block| block.address >> 32)
                .collect::<std::vec::Vec<_>>()
        };
        assert_eq!(starts(kept.keep(block(5, 1), 0)), [4, 5]);
    }

    #[test]
    fn what_nobody_wants_for_a_second_goes() {
        let mut kept = keeping(&[10]);
        assert!(kept.take(90 * MIB, 1).is_none());
        assert_eq!(kept.age().len, 0);
        assert_eq!(kept.age().len, 1);
        assert_eq!((kept.bytes, kept.blocks().count()), (0, 0));
    }

    #[test]
    fn what_was_given_back_and_is_wanted_again_is_known() {
        let mut kept = keeping(&[10]);
        kept.keep(block(2, 20), 15 * MIB);
        assert_eq!(kept.bytes, 15 * MIB);
        assert_eq!(kept.wanted_again(12 * MIB), 12 * MIB);
        assert_eq!(kept.wanted_again(12 * MIB), 3 * MIB);
        kept.age();
        assert_eq!(kept.wanted_again(99 * MIB), 15 * MIB);
    }

    #[test]
    fn no_more_blocks_than_slots_are_kept() {
        let mut kept = keeping(&[1; SLOTS]);
        assert_eq!(kept.keep(block(99, 1), 100 * MIB).len, 1);
        assert_eq!(kept.blocks().count(), SLOTS);
        assert_eq!(kept.evict(0).len, SLOTS);
    }
}
