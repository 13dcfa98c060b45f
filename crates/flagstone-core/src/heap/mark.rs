//! The mark in a free block, by which a second `free` of it is suspected at once.
//!
//! ```text
//!   block   [ 0 .. 8 | mark, 4 bytes | ... ]        at least 16 bytes, links of free objects elsewhere
//!
//!   free    bears its mark?  ─ no ─►  mark on, push
//!                            ─ yes ─► is it in a sheaf, a barn, its slab's chain?
//!                                       yes: the program ends      no: a free like any other
//!   malloc  pop, mark off
//! ```
//!
//! A mark only raises a suspicion: a program may have the same number in its own data. What ends
//! the program is to find the block among the free ones (`slab/suspect.rs`), and there a live one
//! is not. So the number need not be impossible, only rare: it is never in text of ASCII or UTF-8,
//! nor a small integer, and half of it is drawn at start-up ([`Gate`](super::Gate) says from what
//! the rest is made).
//!
//! Why the third word of four bytes: where a C++ object has the address of its class's functions,
//! the first two, a mark would turn the second `delete` of it into a wild jump.
//!
//! A free block without a mark is one that was never handed out, whose page was given back to the
//! system, or that the program wrote to. It is noticed as late as without marks.
//!
//! Invariants
//! - `mark.not-handed-out`: a block of a cache comes to the program without a mark.

use crate::sync::{AtomicU32, Ordering::Relaxed};
use core::ptr::NonNull;

/// Distance of the mark from the start of its block, in bytes.
pub const MARK_AT: usize = 8;

/// What free blocks of one cache bear.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(pub u32);

/// The place of the mark.
///
/// # Safety
/// 1. A block of a cache starts at `block`.
unsafe fn place<'a>(block: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: obligation 1; blocks have at least 16 bytes and are aligned to as many. Atomic,
    // because a program that is wrong may write there at the same time.
    unsafe { block.byte_add(MARK_AT).cast::<AtomicU32>().as_ref() }
}

impl Mark {
    /// Puts the mark on; `false` if it is there already.
    ///
    /// # Safety
    /// 1. A block of the cache starts at `block`.
    #[inline(always)]
    pub unsafe fn put_on(self, block: NonNull<u8>) -> bool {
        // SAFETY: obligation 1.
        let place = unsafe { place(block) };
        let new = place.load(Relaxed) != self.0;
        if new {
            place.store(self.0, Relaxed);
        }
        new
    }

    /// Whether the block bears the mark.
    ///
    /// # Safety
    /// 1. A block of the cache starts at `block`.
    #[inline(always)]
    pub unsafe fn is_on(self, block: NonNull<u8>) -> bool {
        // SAFETY: obligation 1.
        unsafe { place(block) }.load(Relaxed) == self.0
    }
}

/// The object as the program gets it, without a mark.
///
/// # Safety
/// 1. A block of a cache starts at `object`, the caller's alone.
#[inline(always)]
pub(super) unsafe fn handed_out(object: NonNull<u8>) -> NonNull<u8> {
    // SAFETY: obligation 1.
    unsafe { place(object) }.store(0, Relaxed);
    object
}

#[cfg(test)]
#[path = "mark_tests.rs"]
mod tests;
