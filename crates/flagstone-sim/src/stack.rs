//! Stacks of virtual CPUs.
//!
//! ```text
//!   |guard|............... free ...............|hot frames|shift|
//! ```
//!
//! Stacks that all end at the start of a page would keep their hot lines in the same few sets of
//! the host's caches, where hundreds of them evict each other at every turn. Each therefore begins a
//! little lower than the one before.

use corosensei::stack::{DefaultStack, Stack, StackPointer};

/// Size in bytes. Populated where touched: the core's frames are small.
const BYTES: usize = 128 << 10;
/// Hot bytes of a stack, about: how far apart neighbours begin.
const APART: usize = 576;
/// Shifts repeat after this many bytes: a page, over which the sets of a first-level cache repeat.
const PERIOD: usize = 4096;

/// The stack of one virtual CPU.
pub(crate) struct Shifted {
    whole: DefaultStack,
    base: StackPointer,
}

impl Shifted {
    /// The stack of virtual CPU `index`.
    ///
    /// # Panics
    /// If the system has no memory for it.
    pub(crate) fn new(index: u32) -> Self {
        let whole = DefaultStack::new(BYTES).expect("memory for a virtual CPU's stack");
        let shift = index as usize * APART % PERIOD;
        let base = StackPointer::new(whole.base().get() - shift).expect("stacks lie above zero");
        Self { whole, base }
    }
}

// SAFETY: the guard page is that of `whole`; what is left is far above the least size, and the
// shift is a multiple of every stack alignment.
unsafe impl Stack for Shifted {
    #[inline]
    fn base(&self) -> StackPointer {
        self.base
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        self.whole.limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_begin_in_different_sets_and_every_base_is_aligned() {
        let bases: Vec<usize> = (0..8).map(|i| Shifted::new(i).base().get()).collect();
        let mut sets: Vec<usize> = bases.iter().map(|base| base % PERIOD / 64).collect();
        sets.sort_unstable();
        sets.dedup();
        assert_eq!(sets.len(), bases.len());
        assert!(bases.iter().all(|base| base.is_multiple_of(64)));
    }
}
