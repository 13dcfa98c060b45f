//! What the author of SLUB proposed in 2007 against contention on one slab.
//!
//! Neither was merged: he held the contention to be bounded by the objects of a slab. Here both
//! can be switched on for the engines with a slab per CPU, to see what they would have done.
#![forbid(unsafe_code)]

/// Measures against many CPUs freeing into one slab; all off in every kernel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Remedies {
    /// A free that meets contention on its slab puts the object aside; the CPU frees what it
    /// put aside in one batch later.
    pub defer_free: bool,
    /// A CPU gives up its slab, and does not take one from the node's list, while frees contend
    /// for it.
    pub avoid_contended: bool,
}

impl Remedies {
    /// As merged: nothing.
    pub const NONE: Self = Self {
        defer_free: false,
        avoid_contended: false,
    };

    /// Whether contention has to be noticed at all.
    #[must_use]
    pub const fn any(self) -> bool {
        self.defer_free || self.avoid_contended
    }
}
