//! Which rule moves pages between a pageset and its zone: the published ones, and flagstone's.
#![forbid(unsafe_code)]

use crate::base::Order;

/// The published rules in the order they were made; each contains the ones before it
/// (docs: linux-policies 6.3 to 6.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum PcpRule {
    /// 2.6.24: a fixed high, one batch each way, single pages only (general knowledge).
    Classic,
    /// 5.14 to 6.6: consecutive frees double the drain; any high-order free may drain all.
    V6_1,
    /// Patch 1: a high-order free drains only if the free before it was high-order too.
    Series1,
    /// Patch 2: the data-cache slice of each CPU is known. No visible change.
    Series2,
    /// Patch 3: with a large cache slice, a high-order drain waits for a whole batch.
    Series3,
    /// Patch 4: the doubling of drains is capped.
    Series4,
    /// Patch 5: consecutive refills double too.
    Series5,
    /// Patch 6: `high_min` and `high_max` exist, still equal in effect.
    Series6,
    /// Patch 7: `high` moves between them.
    Series7,
    /// Patch 8: below the zone's high watermark `high` shrinks.
    Series8,
    /// Patch 9: frees are counted instead of doubled: 6.7 to 6.15.
    Series9,
    /// 6.16 to 6.18: high-order drains need half of `high_min` more consecutive frees.
    V6_16,
    /// 6.19 and later: long drains let go of the locks after every batch.
    V6_19,
    /// 6.7's, but first refills are small: flagstone. How small: `pcp_tuning.rs`.
    Flagstone,
}

impl PcpRule {
    /// 6.7, the release that merged all nine patches.
    pub const V6_7: Self = Self::Series9;

    /// Whether a block of `order` may be kept in a pageset at all; others go to the zone.
    ///
    /// Huge-page blocks are the platform's own addition and not counted here.
    #[must_use]
    pub const fn keeps(self, order: Order) -> bool {
        let limit = if matches!(self, Self::Classic) {
            0
        } else {
            Order::COSTLY.get()
        };
        order.get() <= limit
    }

    /// Most pages one zone-lock section may drain, if the rule splits long drains.
    #[must_use]
    pub const fn drain_chunk(self, batch: u32) -> Option<u32> {
        if matches!(self, Self::V6_19) {
            Some(if batch == 0 { 1 } else { batch })
        } else {
            None
        }
    }

    /// Whether whole runs of pages cross the zone's lock, and are cut and joined outside it.
    #[must_use]
    pub const fn moves_runs(self) -> bool {
        matches!(self, Self::Flagstone)
    }

    /// Whether a pageset's part of the budget bounds what it holds.
    #[must_use]
    pub const fn follows_budget(self) -> bool {
        matches!(self, Self::Flagstone)
    }

    /// Cap on doublings a kernel of this rule was built with (`PCP_BATCH_SCALE_MAX`).
    #[must_use]
    pub fn default_scale_max(self) -> u8 {
        if self >= Self::Series4 { 5 } else { UNCAPPED }
    }
}

/// A scale limit no pageset reaches: marks are below 2^31 pages.
pub const UNCAPPED: u8 = 30;
