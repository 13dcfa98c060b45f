//! Memory on its way to the system: extents gathered, and given back many in one call.
//!
//! ```text
//!   push push push ... ─► 32 of them, or the end ─► P::decommit_all
//! ```
//!
//! A call interrupts every CPU that runs a thread: a page alone costs five times as much as one of 32 (ADR 0053).

use crate::platform::{Extent, Platform};
use core::marker::PhantomData;
use core::ptr::NonNull;

/// Extents in one call. Why 32: half a KiB of stack; with 64 a page alone costs a fifth less still.
const EXTENTS: usize = 32;

/// Extents that nobody uses, until they are given back: at the latest when this is dropped.
pub struct Extents<P: Platform> {
    all: [Extent; EXTENTS],
    len: usize,
    world: PhantomData<P>,
}

impl<P: Platform> Default for Extents<P> {
    fn default() -> Self {
        Self {
            all: [Extent::NONE; EXTENTS],
            len: 0,
            world: PhantomData,
        }
    }
}

impl<P: Platform> Extents<P> {
    /// Adds one.
    ///
    /// # Safety
    /// 1. As for [`Platform::decommit`], until this is dropped.
    pub unsafe fn push(&mut self, start: NonNull<u8>, bytes: usize) {
        if self.len == EXTENTS {
            self.give_back();
        }
        self.all[self.len] = Extent { start, bytes };
        self.len += 1;
    }

    fn give_back(&mut self) {
        // SAFETY: obligation 1 of each push.
        unsafe { P::decommit_all(&self.all[..core::mem::take(&mut self.len)]) };
    }
}

impl<P: Platform> Drop for Extents<P> {
    fn drop(&mut self) {
        self.give_back();
    }
}
