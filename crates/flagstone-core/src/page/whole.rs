//! Whole blocks: free blocks of the largest order of which nothing is resident, one bit for each.
//!
//! ```text
//!   bit        of block 0   1   2   3  ...      a block of the largest order: 4 MiB with 4 KiB pages
//!   idle            0   1   1   0            free: neither its data nor its descriptors are resident
//!   parked          0   0   0   1            free; its descriptors are just being given back
//!   gone            1   0   0   0            not mapped: somebody else may use the addresses
//! ```
//!
//! A list would link blocks through the descriptors of their heads, and so keep a page of descriptors
//! resident for each: a program that freed 300 GiB of blocks it never touched would keep 300 MiB. The
//! bits of 1 TiB are 32 KiB, of which as many pages are resident as blocks were ever freed. The lowest
//! block is taken first, so that high ones stay free.
//!
//! Invariants
//! - `whole.alone`: a block has at most one bit, is on no list, and its head is of kind `Unused`.
//!
//! Locking: that of the block's zone. Zones share words, so bits change by atomic steps.

use crate::base::{Order, Pfn};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use core::ptr::NonNull;

/// One kind of bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    words: NonNull<AtomicU64>,
    len: usize,
}

/// All kinds of bits of all blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// Free blocks of which nothing is resident.
    pub(crate) idle: Bits,
    /// Those whose descriptors are being given back.
    pub(crate) parked: Bits,
    /// Blocks whose data is not mapped.
    pub(crate) gone: Bits,
}

/// Kinds of bits.
const KINDS: usize = 3;

impl Whole {
    /// Bytes for a span of `pages` pages.
    pub(super) const fn bytes(pages: usize) -> usize {
        KINDS * words(pages) * size_of::<u64>()
    }

    /// The bits of `pages` pages.
    ///
    /// # Safety
    /// 1. `memory` starts [`Whole::bytes`] of zeroed memory that lives as long as the bits are used.
    pub(super) unsafe fn new(memory: NonNull<AtomicU64>, pages: usize) -> Self {
        let len = words(pages);
        let bits = |kind: usize| Bits {
            // SAFETY: obligation 1: inside the memory.
            words: unsafe { memory.add(kind * len) },
            len,
        };
        Self {
            idle: bits(0),
            parked: bits(1),
            gone: bits(2),
        }
    }

    /// Whether the block that `pfn` heads has a bit.
    pub(crate) fn has(self, pfn: Pfn) -> bool {
        is_head(pfn)
            && [self.idle, self.parked, self.gone]
                .iter()
                .any(|bits| bits.has(pfn))
    }

    /// Whether the block that `pfn` lies in is not mapped.
    pub(crate) fn is_gone(self, pfn: Pfn) -> bool {
        let block = Order::MAX.pages().0 as u32;
        self.gone.has(Pfn(pfn.0 / block * block))
    }
}

/// Words for the blocks of `pages` pages.
const fn words(pages: usize) -> usize {
    pages.div_ceil(Order::MAX.pages().0).div_ceil(64)
}

/// Whether a block of the largest order may start at `pfn`.
fn is_head(pfn: Pfn) -> bool {
    pfn.index() % Order::MAX.pages().0 == 0
}

impl Bits {
    fn at(self, pfn: Pfn) -> (&'static AtomicU64, u64) {
        debug_assert!(is_head(pfn), "{pfn:?}");
        let block = pfn.index() / Order::MAX.pages().0;
        debug_assert!(block / 64 < self.len);
        // SAFETY: pfns lie in the span, which has a bit for each of its blocks; the words outlive
        // every caller, since they live as long as the allocator (obligation of `Whole::new`).
        (
            unsafe { self.words.add(block / 64).as_ref() },
            1 << (block % 64),
        )
    }

    /// Whether a block's bit is set.
    pub(crate) fn has(self, pfn: Pfn) -> bool {
        let (word, bit) = self.at(pfn);
        word.load(Relaxed) & bit != 0
    }

    /// Sets a block's bit.
    pub(super) fn set(self, pfn: Pfn) {
        let (word, bit) = self.at(pfn);
        word.fetch_or(bit, Relaxed);
    }

    /// Clears a block's bit.
    pub(super) fn clear(self, pfn: Pfn) {
        let (word, bit) = self.at(pfn);
        word.fetch_and(!bit, Relaxed);
    }

    /// The first block from `start` and before `end` whose bit is set.
    pub(super) fn first(self, start: Pfn, end: Pfn) -> Option<Pfn> {
        let block = Order::MAX.pages().0;
        let (mut at, end) = (start.index().div_ceil(block), end.index() / block);
        while at < end {
            let (word, _) = self.at(Pfn((at * block) as u32));
            let left = word.load(Relaxed) >> (at % 64);
            if left != 0 {
                let found = at + left.trailing_zeros() as usize;
                return (found < end).then_some(Pfn((found * block) as u32));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}
