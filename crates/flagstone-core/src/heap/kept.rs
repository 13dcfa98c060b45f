//! Huge blocks that were freed and stay for the next request.
//!
//! A huge block given back costs a call and, wanted again, a fault for each page. Most are never
//! wanted again, so nothing is kept until giving back was a mistake twice in a row
//! (policy/regret.rs):
//!
//! ```text
//!   free ──► room below the bound?  yes: kept               no: given back, its size remembered
//!   alloc ─► one kept that serves?  yes: taken and grown,   no: one given back that would serve
//!            (from half the size)   or cut, and the rest        is regretted
//!                                   stays
//!   bound    what regret raised; with the blocks in use at most 9/8 of their peak, of a wide swing
//!            no more than is in use; at most a store of the process's memory
//! ```
//!
//! Invariants
//! - `kept.bytes`: the bytes of the kept blocks add up to `bytes`.
//! - `kept.bound`: with the blocks in use they are at most nine eighths of the peak in use.
//! - `kept.apart`: no kept block overlaps another, or one in use.
//!
//! Locking: that of the table of huge blocks.
#![forbid(unsafe_code)]

use super::huge_table::HugeBlock;
use crate::policy::{Reach, Regret, eighths_off, swing_room};

/// Most blocks kept, and most sizes remembered. Why 32: a request looks at all of them; with 8 a
/// program that swings by thirty blocks of 4 to 25 MiB loses most of them.
const SLOTS: usize = 32;

/// Nothing is kept before a swing; then the bound is what limits.
const REACH: Reach = Reach {
    floor: 0,
    once: 0,
    swing: usize::MAX,
};

/// Freed huge blocks, and what is known about those given back.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Oldest first; an address of zero ends them.
    blocks: [HugeBlock; SLOTS],
    bytes: usize,
    /// The most bytes in use lately.
    peak: usize,
    regret: Regret,
    /// Sizes of blocks given back; zero marks none.
    gone: [usize; SLOTS],
    next_gone: usize,
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
            peak: 0,
            regret: Regret::new(),
            gone: [0; SLOTS],
            next_gone: 0,
        }
    }

    /// The kept blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &HugeBlock> {
        self.blocks.iter().take_while(|block| block.address != 0)
    }

    /// Notes that more bytes are in use, and says which blocks to give back for them.
    pub(super) fn note_use(&mut self, in_use: usize, now: u64) -> Evicted {
        self.peak = self.peak.max(in_use);
        let mut evicted = Evicted::NONE;
        self.evict(swing_room(self.peak, in_use), now, &mut evicted);
        evicted
    }

    /// Bytes of the kept blocks, as counted, and the most they may be; for `verify`.
    pub(crate) fn counted(&self, in_use: usize) -> (usize, usize) {
        (self.bytes, swing_room(self.peak, in_use))
    }

    /// Takes the block nearest in size to `bytes` that serves and starts at a multiple of `align`,
    /// cut if it is much longer. If there is none, whether giving one back was a mistake is learnt.
    pub(super) fn take(&mut self, bytes: usize, align: usize, now: u64) -> Option<HugeBlock> {
        let best = (0..self.blocks().count())
            .filter(|&at| self.blocks[at].address.is_multiple_of(align))
            .filter(|&at| serves(self.blocks[at].bytes, bytes))
            .min_by_key(|&at| self.blocks[at].bytes.abs_diff(bytes));
        let Some(at) = best else {
            self.regret(bytes, now);
            return None;
        };
        let mut block = self.blocks[at];
        if block.bytes <= bytes + bytes / 8 {
            return Some(self.remove(at));
        }
        // The rest is as old as the whole.
        self.blocks[at].address += bytes;
        self.blocks[at].bytes -= bytes;
        self.bytes -= bytes;
        block.bytes = bytes;
        Some(block)
    }

    /// Keeps a freed block if there is room below the bound with `in_use` bytes in use, which is at
    /// most `most`, and says which blocks to give back.
    pub(super) fn keep(
        &mut self,
        block: HugeBlock,
        in_use: usize,
        most: usize,
        now: u64,
    ) -> Evicted {
        let mut evicted = Evicted::NONE;
        let bound = self.bound(in_use, most);
        self.evict(bound.saturating_sub(block.bytes), now, &mut evicted);
        if block.bytes > bound {
            self.forget(block, now, &mut evicted);
            return evicted;
        }
        if self.blocks[SLOTS - 1].address != 0 {
            let oldest = self.remove(0);
            self.forget(oldest, now, &mut evicted);
        }
        let len = self.blocks().count();
        self.blocks[len] = block;
        self.bytes += block.bytes;
        evicted
    }

    fn bound(&self, in_use: usize, most: usize) -> usize {
        self.regret
            .raised()
            .min(most)
            .min(swing_room(self.peak, in_use))
    }

    /// A second or more passed: lets the bound fall; what lies above it then is to go.
    pub(super) fn decay(&mut self, in_use: usize, most: usize, now: u64) -> Evicted {
        let mut evicted = Evicted::NONE;
        self.regret.decay(now);
        self.peak = in_use.max(eighths_off(self.peak, 1));
        self.evict(self.bound(in_use, most), now, &mut evicted);
        evicted
    }

    /// Gives up the oldest until no more than `bytes` are left.
    fn evict(&mut self, bytes: usize, now: u64, evicted: &mut Evicted) {
        while self.bytes > bytes {
            let oldest = self.remove(0);
            self.forget(oldest, now, evicted);
        }
    }

    /// Keeps nothing any more, until the next mistake.
    pub(super) fn clear(&mut self) -> Evicted {
        self.regret.limit(0);
        let mut evicted = Evicted::NONE;
        while self.bytes != 0 {
            evicted.add(self.remove(0));
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

    fn forget(&mut self, block: HugeBlock, now: u64, evicted: &mut Evicted) {
        self.gone[self.next_gone] = block.bytes;
        self.regret.give(block.bytes, now);
        self.next_gone = (self.next_gone + 1) % SLOTS;
        evicted.add(block);
    }

    fn regret(&mut self, bytes: usize, now: u64) {
        if let Some(gone) = self.gone.iter_mut().find(|gone| serves(**gone, bytes)) {
            self.regret.want(bytes.min(*gone), REACH, now);
            *gone = 0;
        }
    }
}

/// Whether a block of `have` bytes, cut or grown, saves most of the faults of a request of `want`.
fn serves(have: usize, want: usize) -> bool {
    have > 0 && have >= want / 2
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    fn block(number: usize, mib: usize) -> HugeBlock {
        HugeBlock {
            address: number << 32,
            bytes: mib * MIB,
            requested: mib * MIB,
        }
    }

    /// Frees a block while nothing else is in use.
    fn free(kept: &mut Kept, block: HugeBlock, now: u64) -> Evicted {
        kept.keep(block, 0, usize::MAX, now)
    }

    /// A `Kept` that was taught to keep `mib` MiB at time zero.
    fn taught(mib: usize) -> Kept {
        let mut kept = Kept::new();
        kept.note_use(mib * MIB, 0);
        for _ in 0..2 {
            assert_eq!(free(&mut kept, block(1, mib), 0).len, 1);
            assert_eq!(kept.take(mib * MIB, 1, 0), None);
        }
        assert_eq!(kept.bound(0, usize::MAX), mib * MIB);
        kept
    }

    #[test]
    fn nothing_is_kept_until_blocks_given_back_would_have_served_twice_in_a_row() {
        let mut kept = taught(8);
        assert_eq!(free(&mut kept, block(3, 8), 3).len, 0);
        assert_eq!(kept.take(8 * MIB, 1, 4), Some(block(3, 8)));
        assert_eq!(kept.bytes, 0);
        let mut kept = Kept::new();
        kept.note_use(8 * MIB, 0);
        for round in 0..4 {
            assert_eq!(free(&mut kept, block(1, 8), round).len, 1);
            assert_eq!(kept.take(17 * MIB, 1, round), None, "none would serve");
        }
        assert_eq!(kept.regret.raised(), 0);
    }

    #[test]
    fn a_block_serves_requests_up_to_twice_its_size_at_its_alignment() {
        let mut kept = taught(9);
        free(&mut kept, block(2, 9), 2);
        assert_eq!(kept.take(9 * MIB, 1 << 33, 3), Some(block(2, 9)));
        free(&mut kept, block(3, 9), 3);
        assert_eq!(kept.take(9 * MIB, 1 << 33, 3), None, "not aligned");
        assert_eq!(kept.take(19 * MIB, 1, 3), None, "too small");
        assert_eq!(kept.take(18 * MIB, 1, 3), Some(block(3, 9)));
    }

    #[test]
    fn a_block_much_longer_than_the_request_is_cut_and_the_rest_stays() {
        let mut kept = taught(20);
        free(&mut kept, block(2, 20), 2);
        let taken = kept.take(6 * MIB, 1, 3).expect("20 MiB serve 6");
        assert_eq!((taken.address, taken.bytes), (2 << 32, 6 * MIB));
        assert_eq!(kept.bytes, 14 * MIB);
        let taken = kept.take(13 * MIB, 1, 3).expect("14 MiB serve 13");
        assert_eq!(
            (taken.address, taken.bytes),
            ((2 << 32) + 6 * MIB, 14 * MIB)
        );
        assert_eq!((kept.bytes, kept.blocks().count()), (0, 0));
    }

    #[test]
    fn the_block_nearest_in_size_is_taken() {
        let mut kept = taught(60);
        for (number, mib) in [(2, 12), (3, 8), (4, 15)] {
            free(&mut kept, block(number, mib), 2);
        }
        assert_eq!(kept.take(9 * MIB, 1, 3), Some(block(3, 8)));
        assert_eq!(kept.take(12 * MIB, 1, 3), Some(block(2, 12)));
    }

    #[test]
    fn the_oldest_go_when_the_bound_is_reached_and_all_when_it_falls() {
        let mut kept = taught(20);
        assert_eq!(free(&mut kept, block(2, 10), 2).len, 0);
        assert_eq!(free(&mut kept, block(3, 10), 2).len, 0);
        let evicted = free(&mut kept, block(4, 5), 3);
        assert!(evicted.iter().eq([&block(2, 10)]));
        assert_eq!(kept.bytes, 15 * MIB);
        let mut decay = |seconds| kept.decay(0, usize::MAX, seconds * SECOND).len;
        assert_eq!([decay(1), decay(4), decay(20)], [0, 1, 1]);
        assert_eq!((kept.bytes, kept.blocks().count()), (0, 0));
    }

    #[test]
    fn kept_and_used_blocks_together_are_little_more_than_the_peak_of_the_used() {
        let mut kept = taught(24);
        assert_eq!(kept.keep(block(2, 10), 18 * MIB, usize::MAX, 1).len, 1);
        assert_eq!(kept.keep(block(2, 10), 17 * MIB, usize::MAX, 1).len, 0);
        assert_eq!(kept.note_use(17 * MIB, 2).len, 0);
        assert_eq!(kept.note_use(18 * MIB, 2).len, 1, "more is used instead");
    }

    #[test]
    fn a_swing_that_turns_out_wide_leaves_no_more_than_is_in_use() {
        let mut kept = taught(60);
        kept.note_use(100 * MIB, 1);
        assert_eq!(kept.keep(block(2, 20), 80 * MIB, usize::MAX, 2).len, 0);
        assert_eq!(kept.keep(block(3, 40), 40 * MIB, usize::MAX, 2).len, 0);
        assert_eq!(kept.keep(block(4, 20), 20 * MIB, usize::MAX, 2).len, 2);
        assert_eq!(kept.keep(block(5, 20), 0, usize::MAX, 2).len, 2);
        assert_eq!(kept.bytes, 0);
    }

    #[test]
    fn no_more_than_the_slots_and_a_store_of_the_memory_are_kept() {
        let mut kept = taught(60);
        for number in 0..2 * SLOTS {
            free(&mut kept, block(2 + number, 1), 2);
        }
        assert_eq!(kept.blocks().count(), SLOTS);
        assert_eq!(kept.clear().len, SLOTS);
        assert_eq!(free(&mut kept, block(1, 5), 3).len, 1);
        let mut kept = taught(20);
        assert_eq!(kept.keep(block(1, 5), 0, 2 * MIB, 3).len, 1);
    }
}
