//! A slab's state word as the cpu-slab engines use it: what a free has to do besides its swap, and two marks.
//!
//! The word itself, and what it means to be frozen, are the core's (`slab/state.rs`).

use flagstone_core::slab::{NO_OBJECT, SlabState};

/// Whether CPUs keep lists of partial slabs, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CpuLists {
    /// They do not.
    None,
    /// Slabs on them are frozen (until 6.7).
    Frozen,
    /// Slabs on them are not frozen (since 6.8).
    Loose,
}

/// What a free has to do besides its swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Nothing.
    None,
    /// Put the slab on this CPU's list; it is the free's own now.
    CpuList,
    /// Swap under the lock of the node's list, and see there.
    NodeList,
}

/// The steps of these engines.
pub(crate) trait GuestState: Sized {
    /// The slab after a free of `count` objects chained from `first`, and what that free has to do
    /// besides the swap; `None` if fewer objects are handed out (docs: linux-policies 4.4).
    fn freed(self, first: u32, count: u32, lists: CpuLists) -> Option<(Self, Turn)>;

    /// The slab after its whole chain was taken: all objects count as in use, and it is frozen
    /// if there was a chain.
    fn taken_whole(self) -> Self;

    /// Whether frees met each other here lately (kept only under `Remedies::avoid_contended`).
    fn contended(self) -> bool;

    /// The same slab, contended or not.
    fn with_contended(self, contended: bool) -> Self;
}

impl GuestState for SlabState {
    #[inline]
    fn freed(self, first: u32, count: u32, lists: CpuLists) -> Option<(Self, Turn)> {
        let after = self.with(first, self.inuse().checked_sub(count)?);
        let was_full = self.freelist() == NO_OBJECT;
        Some(if self.frozen() || !(was_full || after.is_empty()) {
            (after, Turn::None)
        } else if !was_full || lists == CpuLists::None {
            (after, Turn::NodeList)
        } else {
            (after.with_frozen(lists == CpuLists::Frozen), Turn::CpuList)
        })
    }

    #[inline]
    fn taken_whole(self) -> Self {
        self.with(NO_OBJECT, self.objects())
            .with_frozen(self.freelist() != NO_OBJECT)
    }

    #[inline]
    fn contended(self) -> bool {
        self.0 >> 49 & 1 != 0
    }

    #[inline]
    fn with_contended(self, contended: bool) -> Self {
        Self(self.0 & !(1 << 49) | u64::from(contended) << 49)
    }
}
