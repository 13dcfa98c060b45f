//! What a survey counts of one cache.

/// What the walk counted of one cache. Objects, and resident bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheSurvey {
    /// Slabs, and how many of them hold no object in use.
    pub slabs: u64,
    /// See `slabs`.
    pub empty_slabs: u64,
    /// Objects that left their slab: held by the program, in a sheaf or in a barn.
    pub out: u64,
    /// Of those, objects in the sheaves of CPUs.
    pub in_sheaves: u64,
    /// Of those, objects in barns.
    pub in_barns: u64,
    /// Resident bytes of `out`.
    pub out_bytes: u64,
    /// Resident bytes of `in_sheaves`.
    pub sheaf_bytes: u64,
    /// Resident bytes of `in_barns`.
    pub barn_bytes: u64,
    /// Resident bytes of free objects in slabs with objects in use.
    pub partial_bytes: u64,
    /// Slabs whose objects out are all cached, in sheaves or barns.
    pub pinned_slabs: u64,
    /// Resident bytes of the other objects in those slabs.
    pub pinned_bytes: u64,
    /// Resident bytes of objects in empty slabs.
    pub empty_bytes: u64,
    /// Resident bytes of slab tails.
    pub tail_bytes: u64,
}

impl CacheSurvey {
    pub(super) const NONE: Self = Self {
        slabs: 0,
        empty_slabs: 0,
        out: 0,
        in_sheaves: 0,
        in_barns: 0,
        out_bytes: 0,
        sheaf_bytes: 0,
        barn_bytes: 0,
        partial_bytes: 0,
        pinned_slabs: 0,
        pinned_bytes: 0,
        empty_bytes: 0,
        tail_bytes: 0,
    };

    /// Resident bytes of all its slabs.
    pub(super) fn resident_bytes(&self) -> u64 {
        let free = self.partial_bytes + self.pinned_bytes + self.empty_bytes;
        self.out_bytes + free + self.tail_bytes
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.out_bytes
            .saturating_sub(self.sheaf_bytes + self.barn_bytes)
    }
}
