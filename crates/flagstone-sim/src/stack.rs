//! Stacks of virtual CPUs.
//!
//! ```text
//!   |guard|............... free ...............|hot frames|shift|
//! ```
//!
//! Stacks that all end at the start of a page would keep their hot lines in the same few sets of
//! the host's caches, where hundreds of them evict each other at every turn. Each therefore begins a
//! little lower than the one before.

use crate::mapping::Mapping;
use core::ptr::NonNull;

/// Size in bytes. Populated where touched: the core's frames are small.
const BYTES: usize = 128 << 10;
/// Bytes below a stack that nobody may touch: a page of any system.
const GUARD: usize = 64 << 10;
/// Hot bytes of a stack, about: how far apart neighbours begin.
const APART: usize = 576;
/// Shifts repeat after this many bytes: a page, over which the sets of a first-level cache repeat.
const PERIOD: usize = 4096;

/// The stack of one virtual CPU.
pub(crate) struct Shifted {
    whole: Mapping,
    shift: usize,
}

impl Shifted {
    /// The stack of virtual CPU `index`.
    ///
    /// # Panics
    /// If the system has no memory for it.
    pub(crate) fn new(index: u32) -> Self {
        let whole = Mapping::new(GUARD + BYTES).expect("memory for a virtual CPU's stack");
        whole.forbid(GUARD);
        let shift = index as usize * APART % PERIOD;
        Self { whole, shift }
    }

    /// Where it begins: the address behind its first word.
    pub(crate) fn top(&self) -> NonNull<usize> {
        // SAFETY: the shift is smaller than the stack, so this is inside the mapping.
        unsafe { self.whole.start().add(GUARD + BYTES - self.shift).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_begin_in_different_sets_and_every_top_is_aligned() {
        let stacks: Vec<Shifted> = (0..8).map(Shifted::new).collect();
        let tops = stacks.iter().map(|stack| stack.top().addr().get());
        let mut sets: Vec<usize> = tops.clone().map(|top| top % PERIOD / 64).collect();
        sets.sort_unstable();
        sets.dedup();
        assert_eq!(sets.len(), stacks.len());
        assert!(tops.into_iter().all(|top| top.is_multiple_of(64)));
    }
}
