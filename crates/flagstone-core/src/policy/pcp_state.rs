//! What a pageset's tuning keeps, whatever its rule, and the steps that rules since 6.7 share.
#![forbid(unsafe_code)]

use super::pcp_marks::PcpMarks;
use crate::base::Order;

/// A scale limit no pageset reaches: marks are below 2^31 pages.
pub const UNCAPPED: u8 = 30;

const PREV_FREE_HIGH_ORDER: u8 = 1;
const FREE_HIGH_BATCH: u8 = 2;
/// Where the bits begin that are a rule's own.
const OWN_SHIFT: u8 = 2;

/// Idle intervals before another node's pageset is drained (docs: linux-policies 6.4).
const REMOTE_EXPIRE: u8 = 3;

/// What the zone's flags say at the moment of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneFlags(pub u8);

impl ZoneFlags {
    /// Nothing set.
    pub const NONE: Self = Self(0);
    /// Background reclaim is balancing the zone (`ZONE_RECLAIM_ACTIVE`).
    pub const RECLAIM_ACTIVE: Self = Self(1);
    /// The zone was found below its high watermark (`ZONE_BELOW_HIGH`).
    pub const BELOW_HIGH: Self = Self(2);

    /// Both sets of flags.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is set.
    #[inline]
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The tuning state of one pageset, whatever its rule.
///
/// Invariant `pcp.high-bounded`: after any call but `new`, `high_min <= high <= high_max` unless
/// it has never been used; flagstone's may be lower while it is idle. `count` always stays with the
/// caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpState {
    /// Pages at which a free drains; 0 until first used.
    pub high: u32,
    /// Lower bound of `high`, pages.
    pub high_min: u32,
    /// Upper bound of `high`, pages.
    pub high_max: u32,
    /// Pages per refill or drain before scaling.
    pub batch: u32,
    /// Consecutive pages freed; the kernel keeps it in 16 signed bits.
    pub free_count: i16,
    /// Doublings of the next refill.
    pub alloc_factor: u8,
    /// Doublings of the next drain, for rules before 6.7's.
    pub free_factor: u8,
    /// Cap on either doubling.
    pub scale_max: u8,
    /// The rule in force (`PcpRule::id`).
    pub rule: u8,
    flags: u8,
    expire: u8,
}

const _: () = assert!(
    size_of::<PcpState>() <= 24,
    "a pageset must stay within 256 bytes"
);

impl PcpState {
    /// A pageset without marks, which keeps nothing; `scale_max` doublings at most.
    #[must_use]
    pub fn new(rule: u8, scale_max: u8) -> Self {
        Self {
            high: 0,
            high_min: 0,
            high_max: 0,
            batch: 1,
            free_count: 0,
            alloc_factor: 0,
            free_factor: 0,
            scale_max: scale_max.min(UNCAPPED),
            rule,
            flags: 0,
            expire: 0,
        }
    }

    /// Stores the marks; `high` follows when next used.
    pub fn store_marks(&mut self, marks: PcpMarks) {
        self.batch = marks.batch.max(1);
        self.high_min = marks.high_min;
        self.high_max = marks.high_max.max(marks.high_min);
    }

    /// Tells the pageset how many bytes of last-level data cache its CPU has to itself: that decides
    /// whether high-order drains wait for a batch.
    pub fn set_cache_slice(&mut self, bytes: u64, page_shift: u32) {
        if bytes >> page_shift > 3 * u64::from(self.batch) {
            self.flags |= FREE_HIGH_BATCH;
        } else {
            self.flags &= !FREE_HIGH_BATCH;
        }
    }

    /// Whether high-order drains wait for a batch.
    #[must_use]
    pub const fn waits_for_batch(&self) -> bool {
        self.flags & FREE_HIGH_BATCH != 0
    }

    /// Notes whether a free is of a high order; answers whether the one before it was.
    pub fn note_high_order(&mut self, order: Order) -> bool {
        let was = self.flags & PREV_FREE_HIGH_ORDER != 0;
        self.flags &= !PREV_FREE_HIGH_ORDER;
        self.flags |= u8::from(is_high(order)) * PREV_FREE_HIGH_ORDER;
        was
    }

    /// A small number of the rule's own.
    #[must_use]
    pub const fn own(&self) -> u8 {
        self.flags >> OWN_SHIFT
    }

    /// Stores it; below 64.
    pub fn set_own(&mut self, number: u8) {
        self.flags = self.flags & ((1 << OWN_SHIFT) - 1) | number << OWN_SHIFT;
    }

    /// The zone's statistics for this CPU changed: its remote-node pageset is in use.
    pub fn remote_used(&mut self) {
        self.expire = REMOTE_EXPIRE;
    }

    /// One idle interval of a pageset of another node; answers the pages to drain now.
    pub fn remote_idle(&mut self, count: u32) -> Option<u32> {
        if self.expire == 0 || count == 0 {
            return None;
        }
        self.expire -= 1;
        if self.expire > 0 {
            return None;
        }
        // Keep draining one batch per interval until it is empty.
        let drain = count.min(self.batch);
        if count > drain {
            self.expire = 1;
        }
        Some(drain)
    }

    /// Brings `high` between the marks.
    pub fn clamped_high(&mut self) -> u32 {
        self.high = self.high.clamp(self.high_min, self.high_max);
        self.high
    }

    /// Lowers `high`, to `high_min` at most.
    pub fn lower_high(&mut self, by: u32) {
        self.high = self.high.saturating_sub(by).max(self.high_min);
    }

    /// A second without use: `high` falls to `floor`, by an eighth at most. As for `PageRule::decay`.
    pub fn decay_to(&mut self, floor: u32, count: u32) -> Option<u32> {
        let mut more = false;
        if self.high > floor {
            let by_count = count.saturating_sub(doubled(self.batch, self.scale_max));
            self.high = by_count.max(self.high - self.high / 8).max(floor);
            more = self.high > floor;
        }
        let drain = count.saturating_sub(self.high);
        if drain > 0 || more { Some(drain) } else { None }
    }

    /// Pages freed in a row.
    #[must_use]
    pub const fn consecutive_frees(&self) -> u32 {
        self.free_count.unsigned_abs() as u32
    }

    /// Counts a free of `order`, up to the most a drain takes.
    pub fn count_free(&mut self, order: Order) {
        let most = doubled(self.batch, self.scale_max).min(i16::MAX as u32);
        if u32::from(self.free_count.unsigned_abs()) < most {
            self.free_count = self.free_count.saturating_add(1 << order.get());
        }
    }

    /// Refills of single pages double while the pageset has room for them; answers the pages.
    pub fn doubling_refill(&mut self, wanted: u32, high: u32, count: u32) -> u32 {
        let most = high.saturating_sub(count).saturating_sub(self.batch);
        let most = most.max(self.batch);
        if wanted <= most && self.alloc_factor < self.scale_max {
            self.alloc_factor += 1;
        }
        wanted.min(most)
    }

    /// The number of kept pages that starts a drain; moves `high`.
    pub fn drain_limit(&mut self, count: u32, free_high: bool, zone: ZoneFlags) -> u32 {
        let high = self.clamped_high();
        if high == 0 {
            return 0;
        }
        if free_high {
            self.lower_high(doubled(self.batch, self.scale_max));
            0
        } else if zone.has(ZoneFlags::RECLAIM_ACTIVE) {
            self.lower_high(self.consecutive_frees().max(self.batch));
            self.high.min(4 * self.batch)
        } else if self.high_min == self.high_max {
            high
        } else if zone.has(ZoneFlags::BELOW_HIGH) {
            self.lower_high(self.consecutive_frees().max(self.batch));
            count.max(self.high_min)
        } else {
            // Room for the pages about to be freed, so that the next drain is not cut short.
            let wanted = self.consecutive_frees().saturating_add(self.batch);
            if count >= high && high < wanted {
                self.high = wanted.clamp(self.high_min, self.high_max);
            }
            high
        }
    }

    /// How many pages to drain once `count` reached `limit`.
    #[must_use]
    pub fn drain_count(&self, count: u32, limit: u32, free_high: bool) -> u32 {
        if free_high {
            return count.min(doubled(self.batch, self.scale_max));
        }
        if limit < self.batch {
            return 1;
        }
        bounded(self.consecutive_frees(), self.batch, limit - self.batch)
    }
}

/// Whether pagesets count a free of `order` as one of a high order.
#[must_use]
pub const fn is_high(order: Order) -> bool {
    order.get() > 0 && order.get() <= Order::COSTLY.get()
}

/// The kernel's clamp: the upper bound wins when the bounds cross.
#[must_use]
pub fn bounded(value: u32, low: u32, high: u32) -> u32 {
    value.max(low).min(high)
}

/// `pages` after `factor` doublings.
#[must_use]
pub fn doubled(pages: u32, factor: u8) -> u32 {
    u32::try_from(u64::from(pages) << factor).unwrap_or(u32::MAX)
}
