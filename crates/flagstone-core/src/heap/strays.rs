//! Huge blocks freed at the wrong moment: by a signal handler on top of the holder of their table.
//!
//! ```text
//!   first ─► block ─► block ─► ∅      pushed by handlers, taken whole by the next call for huge blocks
//! ```
//!
//! The link is a block's first word: the block is free, and committed from its start. Taking
//! everything is one swap, so a block cannot be taken twice and no tag is needed.

use crate::sync::{
    AtomicPtr,
    Ordering::{AcqRel, Relaxed, Release},
};
use core::ptr::NonNull;

/// The blocks that wait.
#[derive(Debug)]
pub(super) struct Strays(AtomicPtr<u8>);

impl Strays {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null()
    }

    /// Leaves a block for the next call.
    ///
    /// # Safety
    /// 1. `block` starts a word that may be written, and is in nobody's hands.
    #[cold]
    pub(super) unsafe fn push(&self, block: NonNull<u8>) {
        let mut first = self.0.load(Relaxed);
        loop {
            // SAFETY: obligation 1; blocks start at pages.
            unsafe { Self::link(block) }.store(first, Relaxed);
            match self
                .0
                .compare_exchange_weak(first, block.as_ptr(), Release, Relaxed)
            {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all of them: the first, behind which the others are.
    #[inline]
    pub(super) fn take(&self) -> Option<NonNull<u8>> {
        if self.is_empty() {
            return None;
        }
        NonNull::new(self.0.swap(core::ptr::null_mut(), AcqRel))
    }

    /// # Safety
    /// 1. `block` starts a word that may be written.
    unsafe fn link<'a>(block: NonNull<u8>) -> &'a AtomicPtr<u8> {
        // SAFETY: obligation 1.
        unsafe { block.cast().as_ref() }
    }

    /// The block behind one that was taken.
    ///
    /// # Safety
    /// 1. `block` was pushed, taken, and not freed since.
    pub(super) unsafe fn behind(block: NonNull<u8>) -> Option<NonNull<u8>> {
        // SAFETY: obligation 1: `push` wrote the word.
        NonNull::new(unsafe { Self::link(block) }.load(Relaxed))
    }
}

#[cfg(all(test, loom))]
#[path = "strays_loom.rs"]
mod tests;
