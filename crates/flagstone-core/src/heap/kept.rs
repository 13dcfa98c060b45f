//! Huge blocks that were freed and stay for the next request.
//!
//! A huge block given back costs a call and, wanted again, a fault for each page. Most are never
//! wanted again, so nothing is kept until that was a mistake:
//!
//! ```text
//!   free ──► room below the bound?  yes: kept          no: given back, its size remembered
//!   alloc ─► one kept that serves?  yes: taken, and    no: one given back within a second that
//!            (half to twice the size)    cut or grown      would serve raises the bound by its size
//!   the bound falls by an eighth each second; at most MOST, and a store of the process's memory
//! ```
//!
//! Invariants
//! - `kept.bytes`: the bytes of the kept blocks add up to `bytes`.
//! - `kept.bound`: they are at most the bound.
//!
//! Locking: that of the table of huge blocks.
#![forbid(unsafe_code)]

use super::huge_table::HugeBlock;

/// Most blocks kept, and most sizes remembered. Why 8: a request looks at all of them.
const SLOTS: usize = 8;
/// Most bytes ever kept, however often giving back was a mistake. Why 64 MiB: two of the largest
/// blocks that glibc keeps (its mmap threshold ends at 32 MiB).
const MOST: usize = 64 << 20;
/// Nanoseconds in which a block given back and wanted again counts as a mistake.
const REGRET_NS: u64 = 1_000_000_000;

/// Freed huge blocks, and what is known about those given back.
#[derive(Debug)]
pub(super) struct Kept {
    /// Oldest first; an address of zero ends them.
    blocks: [HugeBlock; SLOTS],
    bytes: usize,
    bound: usize,
    /// When the bound last fell, nanoseconds.
    fell: u64,
    gone: [Gone; SLOTS],
    next_gone: usize,
}

/// A block given back: its size, and when. Zero bytes mark none.
#[derive(Clone, Copy, Debug)]
struct Gone {
    bytes: usize,
    at: u64,
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
            bound: 0,
            fell: 0,
            gone: [Gone { bytes: 0, at: 0 }; SLOTS],
            next_gone: 0,
        }
    }

    /// The kept blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &HugeBlock> {
        self.blocks.iter().take_while(|block| block.address != 0)
    }

    /// Takes the block nearest in size to `bytes` that serves and starts at a multiple of `align`.
    /// If there is none, whether giving one back was a mistake is learnt.
    pub(super) fn take(&mut self, bytes: usize, align: usize, now: u64) -> Option<HugeBlock> {
        let best = (0..self.blocks().count())
            .filter(|&at| self.blocks[at].address.is_multiple_of(align))
            .filter(|&at| serves(self.blocks[at].bytes, bytes))
            .min_by_key(|&at| self.blocks[at].bytes.abs_diff(bytes));
        match best {
            Some(at) => Some(self.remove(at)),
            None => {
                self.regret(bytes, now);
                None
            }
        }
    }

    /// Keeps a freed block if there is room below the bound, which is at most `most` from now on,
    /// and says which blocks to give back.
    pub(super) fn keep(&mut self, block: HugeBlock, now: u64, most: usize) -> Evicted {
        let mut evicted = self.decay(now, most);
        if block.bytes > self.bound {
            self.forget(block, now, &mut evicted);
            return evicted;
        }
        while self.bytes + block.bytes > self.bound || self.blocks[SLOTS - 1].address != 0 {
            let oldest = self.remove(0);
            self.forget(oldest, now, &mut evicted);
        }
        let len = self.blocks().count();
        self.blocks[len] = block;
        self.bytes += block.bytes;
        evicted
    }

    /// Lets the bound fall for every second that passed, and to `most`; what lies above it then is
    /// to go.
    pub(super) fn decay(&mut self, now: u64, most: usize) -> Evicted {
        let mut evicted = Evicted::NONE;
        self.bound = self.bound.min(most);
        while self.bound != 0 && now.saturating_sub(self.fell) >= REGRET_NS {
            self.fell += REGRET_NS;
            self.bound -= self.bound.div_ceil(8);
        }
        while self.bytes > self.bound {
            let oldest = self.remove(0);
            self.forget(oldest, now, &mut evicted);
        }
        evicted
    }

    /// Keeps nothing any more, until the next mistake.
    pub(super) fn clear(&mut self) -> Evicted {
        self.bound = 0;
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
        self.gone[self.next_gone] = Gone {
            bytes: block.bytes,
            at: now,
        };
        self.next_gone = (self.next_gone + 1) % SLOTS;
        evicted.add(block);
    }

    fn regret(&mut self, bytes: usize, now: u64) {
        let mistake = self
            .gone
            .iter_mut()
            .find(|gone| serves(gone.bytes, bytes) && now.saturating_sub(gone.at) < REGRET_NS);
        let Some(gone) = mistake else {
            return;
        };
        if self.bound == 0 {
            self.fell = now;
        }
        self.bound = (self.bound + gone.bytes).min(MOST);
        gone.bytes = 0;
    }
}

/// Whether a block of `have` bytes, cut or grown, saves most of the faults of a request of `want`
/// without giving back more than it saves.
fn serves(have: usize, want: usize) -> bool {
    have >= want / 2 && have / 2 <= want
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const SECOND: u64 = REGRET_NS;

    fn block(number: usize, mib: usize) -> HugeBlock {
        HugeBlock {
            address: number << 32,
            bytes: mib * MIB,
            requested: mib * MIB,
        }
    }

    /// A `Kept` that was taught to keep `mib` MiB at time zero.
    fn taught(mib: usize) -> Kept {
        let mut kept = Kept::new();
        assert_eq!(kept.keep(block(1, mib), 0, usize::MAX).len, 1);
        assert_eq!(kept.take(mib * MIB, 1, 1), None);
        assert_eq!(kept.bound, (mib * MIB).min(MOST));
        kept
    }

    #[test]
    fn nothing_is_kept_until_it_was_wanted_again_within_a_second() {
        let mut kept = Kept::new();
        assert_eq!(kept.keep(block(1, 8), 0, usize::MAX).len, 1);
        assert_eq!(kept.take(8 * MIB, 1, SECOND), None);
        assert_eq!(kept.keep(block(2, 8), SECOND, usize::MAX).len, 1);
        assert_eq!(kept.take(3 * MIB, 1, SECOND + 1), None);
        assert_eq!(kept.take(8 * MIB, 1, SECOND + 2), None);
        assert_eq!(kept.keep(block(3, 8), SECOND + 3, usize::MAX).len, 0);
        assert_eq!(kept.take(8 * MIB, 1, SECOND + 4), Some(block(3, 8)));
        assert_eq!(kept.bytes, 0);
    }

    #[test]
    fn a_block_serves_requests_of_half_to_twice_its_size_at_its_alignment() {
        let mut kept = taught(9);
        kept.keep(block(2, 9), 2, usize::MAX);
        assert_eq!(kept.take(9 * MIB, 1 << 33, 3), Some(block(2, 9)));
        kept.keep(block(3, 9), 3, usize::MAX);
        assert_eq!(kept.take(9 * MIB, 1 << 33, 3), None, "not aligned");
        assert_eq!(kept.take(4 * MIB, 1, 3), None, "too large");
        assert_eq!(kept.take(19 * MIB, 1, 3), None, "too small");
        assert_eq!(kept.take(18 * MIB, 1, 3), Some(block(3, 9)));
    }

    #[test]
    fn the_block_nearest_in_size_is_taken() {
        let mut kept = taught(60);
        for (number, mib) in [(2, 12), (3, 8), (4, 15)] {
            kept.keep(block(number, mib), 2, usize::MAX);
        }
        assert_eq!(kept.take(9 * MIB, 1, 3), Some(block(3, 8)));
        assert_eq!(kept.take(9 * MIB, 1, 3), Some(block(2, 12)));
    }

    #[test]
    fn the_oldest_go_when_the_bound_is_reached_and_all_when_it_falls() {
        let mut kept = taught(20);
        assert_eq!(kept.keep(block(2, 10), 2, usize::MAX).len, 0);
        assert_eq!(kept.keep(block(3, 10), 2, usize::MAX).len, 0);
        let evicted = kept.keep(block(4, 5), 3, usize::MAX);
        assert!(evicted.iter().eq([&block(2, 10)]));
        assert_eq!(kept.bytes, 15 * MIB);
        assert_eq!(
            kept.decay(SECOND + 1, usize::MAX).len,
            0,
            "an eighth of 20 MiB"
        );
        assert_eq!(kept.decay(4 * SECOND, usize::MAX).len, 1);
        assert_eq!(kept.decay(20 * SECOND, usize::MAX).len, 1);
        assert_eq!((kept.bytes, kept.blocks().count()), (0, 0));
    }

    #[test]
    fn no_more_than_the_slots_and_the_limits_are_kept() {
        let mut kept = taught(60);
        for number in 0..2 * SLOTS {
            kept.keep(block(2 + number, 1), 2, usize::MAX);
        }
        assert_eq!(kept.blocks().count(), SLOTS);
        assert_eq!(kept.clear().len, SLOTS);
        assert_eq!(kept.keep(block(1, 5), 3, usize::MAX).len, 1);
        assert_eq!(kept.take(5 * MIB, 1, 4), None);
        assert_eq!(
            kept.keep(block(1, 5), 5, 2 * MIB).len,
            1,
            "above a store of the memory"
        );
        assert_eq!(taught(100).bound, MOST);
    }
}
