//! Pageset tuning: how many pages a CPU fetches and gives back, and how its limit moves.
//!
//! ```text
//!   pages kept                    high_max  ceiling of the tuning
//!      |   refills raise high  ^
//!      |   decay, reclaim and  v  high      drain when count reaches it
//!      |   high-order frees    |
//!      |                          high_min  where it starts and returns to; flagstone's falls
//!                                           on to a batch while it is idle
//! ```
//!
//! One plain state machine holds every published rule, from the fixed batch of 2.6.24 to 6.19. It
//! owns no memory and no lock: the pageset keeps the lists and `count`, asks here how many pages
//! to move, and moves them. Calling order:
//!
//! 1. every allocation of an allowed order: [`PcpState::on_alloc`]; a non-zero answer is the
//!    number of *blocks* of that order to fetch before popping;
//! 2. every free: push the block, add its pages to `count`, then [`PcpState::on_free`]; an answer
//!    is the number of *pages* to drain, the freed block's list first;
//! 3. about once a second: [`PcpState::decay`], then drain what it answers.
//!
//! Fast path: an allocation that finds a block costs one shift and a store.
//!
//! Not here: the marks themselves (`pcp_marks`), which blocks to drain, watermark checks.
#![forbid(unsafe_code)]

use super::pcp_marks::PcpMarks;
use super::pcp_rule::{PcpRule, UNCAPPED};
use crate::base::Order;

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

const PREV_FREE_HIGH_ORDER: u8 = 1;
const FREE_HIGH_BATCH: u8 = 2;
/// Where the steps lie that refills are from their full size.
const STEP_SHIFT: u8 = 2;

/// Doublings from the first refill of a pageset to the rule's own size; each refill takes one, and a
/// second takes one back. Why four: a CPU that comes once takes 3 pages instead of 63 and parks none of the other 60; one
/// that comes back pays three more visits of the zone. More halve a first refill, which is small
/// already.
const FIRST_STEPS: u8 = 4;
/// A refill is at most one in so many of the pages its CPU has already taken. Halving it parks up to
/// a quarter of a small program's memory in pagesets (steps alone half of it); doubling it costs a
/// program of 1 MiB sixteen visits of the zone more.
const PARKED_SHARE: u64 = 8;
/// Doublings of a batch that flagstone lets blocks of several pages gather to, when nothing else is
/// freed, before they go back. One more parks another 500 KiB on each CPU that does so (ADR 0014).
const HIGH_ORDER_DOUBLINGS: u8 = 1;
/// Idle intervals before another node's pageset is drained (docs: linux-policies 6.4).
const REMOTE_EXPIRE: u8 = 3;

/// The tuning state of one pageset.
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
    /// Consecutive pages freed (patch 9); the kernel keeps it in 16 signed bits.
    pub free_count: i16,
    /// Doublings of the next refill (patch 5).
    pub alloc_factor: u8,
    /// Doublings of the next drain (until patch 8).
    pub free_factor: u8,
    /// Cap on either doubling.
    pub scale_max: u8,
    /// The rule in force.
    pub rule: PcpRule,
    flags: u8,
    expire: u8,
}

const _: () = assert!(
    size_of::<PcpState>() <= 24,
    "a pageset must stay within 256 bytes"
);

impl PcpState {
    /// A pageset that keeps nothing: during boot, and while draining is forced.
    #[must_use]
    pub const fn disabled(rule: PcpRule) -> Self {
        Self {
            high: 0,
            high_min: 0,
            high_max: 0,
            batch: 1,
            free_count: 0,
            alloc_factor: 0,
            free_factor: 0,
            scale_max: 5,
            rule,
            flags: 0,
            expire: 0,
        }
    }

    /// A pageset with `marks`; `scale_max` doublings at most ([`PcpRule::default_scale_max`]).
    #[must_use]
    pub fn new(rule: PcpRule, marks: PcpMarks, scale_max: u8) -> Self {
        let mut state = Self::disabled(rule);
        state.scale_max = scale_max.min(UNCAPPED);
        state.set_marks(marks);
        state
    }

    /// Replaces the marks, as on a watermark change or CPU hotplug; `high` follows when next used.
    pub fn set_marks(&mut self, marks: PcpMarks) {
        self.batch = marks.batch.max(1);
        self.high_min = marks.high_min;
        self.high_max = marks.high_max.max(marks.high_min);
        if self.rule < PcpRule::Series6 {
            self.high = marks.high_min;
        }
    }

    /// Tells the pageset how many bytes of last-level data cache its CPU has to itself (patch 2);
    /// from patch 3 on that decides whether high-order drains wait for a batch.
    pub fn set_cache_slice(&mut self, bytes: u64, page_shift: u32) {
        if bytes >> page_shift > 3 * u64::from(self.batch) {
            self.flags |= FREE_HIGH_BATCH;
        } else {
            self.flags &= !FREE_HIGH_BATCH;
        }
    }

    /// Notes an allocation of `order`; answers how many blocks to fetch first, 0 if none.
    ///
    /// `count` is the pages now in the pageset, `list_empty` whether the wanted list is.
    #[inline]
    pub fn on_alloc(&mut self, order: Order, count: u32, list_empty: bool, zone: ZoneFlags) -> u32 {
        if self.rule >= PcpRule::Series9 {
            self.free_count >>= 1;
        } else {
            self.free_factor >>= 1;
        }
        if list_empty {
            self.refill(order, count, zone)
        } else {
            0
        }
    }

    #[cold]
    fn refill(&mut self, order: Order, count: u32, zone: ZoneFlags) -> u32 {
        let base = self.batch;
        if self.rule < PcpRule::Series5 {
            return scaled_by_order(base, order);
        }
        let mut high = self.clamped_high();
        if high < base {
            return 1;
        }
        let mut wanted = if order == Order::ZERO {
            shl(base, self.alloc_factor)
        } else {
            base
        };
        wanted = (wanted >> self.take_step()).max(1);
        if self.tunes() && !self.below_high(zone) {
            high = high.saturating_add(wanted).min(self.high_max);
            self.high = high;
        }
        if order == Order::ZERO {
            let most = high.saturating_sub(count).saturating_sub(base).max(base);
            if wanted <= most && self.alloc_factor < self.scale_max {
                self.alloc_factor += 1;
            }
            wanted = wanted.min(most);
        }
        if self.rule == PcpRule::Flagstone {
            return (wanted >> order.get()).max(1);
        }
        scaled_by_order(wanted, order)
    }

    /// Of `wanted` blocks of `order` so many as a CPU may fetch that has taken `net` pages more from
    /// the zone than it put back: flagstone parks about an eighth beside what is in use.
    #[must_use]
    pub fn affords(&self, order: Order, wanted: u32, net: u64) -> u32 {
        if self.rule != PcpRule::Flagstone {
            return wanted;
        }
        let least = self.batch >> FIRST_STEPS;
        let pages = u32::try_from(net / PARKED_SHARE).unwrap_or(u32::MAX);
        wanted.min((pages.max(least) >> order.get()).max(1))
    }

    /// Steps this refill is below its full size; the next is one less.
    fn take_step(&mut self) -> u8 {
        if self.rule != PcpRule::Flagstone {
            return 0;
        }
        let taken = (self.flags >> STEP_SHIFT).min(FIRST_STEPS);
        self.set_steps(FIRST_STEPS.min(taken + 1));
        FIRST_STEPS - taken
    }

    fn set_steps(&mut self, steps: u8) {
        self.flags = self.flags & ((1 << STEP_SHIFT) - 1) | steps << STEP_SHIFT;
    }

    /// Notes a free of `order`; answers how many pages to drain, if any.
    ///
    /// `count` already includes the freed block.
    #[inline]
    pub fn on_free(&mut self, order: Order, count: u32, zone: ZoneFlags) -> Option<u32> {
        if self.rule >= PcpRule::Series5 {
            self.alloc_factor >>= 1;
        }
        let free_high = self.high_order_drain(order, count);
        if self.rule >= PcpRule::Series9 && i32::from(self.free_count) < self.free_count_cap() {
            self.free_count = self.free_count.saturating_add(1 << order.get());
        }
        let limit = self.drain_limit(count, free_high, zone);
        if count < limit {
            None
        } else {
            Some(self.drain_count(count, limit, free_high))
        }
    }

    /// Whether a free of this order should empty the pageset towards the zone.
    fn high_order_drain(&mut self, order: Order, count: u32) -> bool {
        let high_order = order > Order::ZERO && order <= Order::COSTLY;
        if !high_order || self.rule == PcpRule::Classic {
            self.flags &= !PREV_FREE_HIGH_ORDER;
            return false;
        }
        let whole = match self.rule {
            PcpRule::Flagstone => shl(self.batch, HIGH_ORDER_DOUBLINGS.min(self.scale_max)),
            _ => self.batch,
        };
        let many_frees = match self.rule {
            rule if rule < PcpRule::Series9 => self.free_factor != 0,
            PcpRule::Series9 | PcpRule::Flagstone => self.consecutive_frees() >= whole,
            _ => self.consecutive_frees() >= self.batch.saturating_add(self.high_min / 2),
        };
        let was_high_order = self.flags & PREV_FREE_HIGH_ORDER != 0;
        self.flags |= PREV_FREE_HIGH_ORDER;
        let whole_batch =
            self.rule < PcpRule::Series3 || self.flags & FREE_HIGH_BATCH == 0 || count >= whole;
        many_frees && (was_high_order || self.rule < PcpRule::Series1) && whole_batch
    }

    /// The number of kept pages that starts a drain; moves `high` where the rule says so.
    fn drain_limit(&mut self, count: u32, free_high: bool, zone: ZoneFlags) -> u32 {
        let high = self.clamped_high();
        if high == 0 {
            return 0;
        }
        let reclaim = zone.has(ZoneFlags::RECLAIM_ACTIVE);
        if self.rule < PcpRule::Series7 {
            return match (free_high, reclaim) {
                (true, _) => 0,
                (false, true) if self.rule > PcpRule::Classic => high.min(4 * self.batch),
                _ => high,
            };
        }
        if free_high {
            self.lower_high(shl(self.batch, self.scale_max));
            0
        } else if reclaim {
            self.lower_high(self.next_drain());
            self.high.min(4 * self.batch)
        } else if self.high_min == self.high_max {
            high
        } else if self.below_high(zone) {
            self.lower_high(self.next_drain());
            count.max(self.high_min)
        } else {
            // Room for the pages about to be freed, so that the next drain is not cut short.
            let wanted = if self.rule >= PcpRule::Series9 {
                self.consecutive_frees().saturating_add(self.batch)
            } else {
                shl(self.batch, self.free_factor).saturating_add(self.batch)
            };
            if count >= high && high < wanted {
                self.high = wanted.clamp(self.high_min, self.high_max);
            }
            high
        }
    }

    /// How many pages to drain once `count` reached `limit`.
    fn drain_count(&mut self, count: u32, limit: u32, free_high: bool) -> u32 {
        let batch = self.batch;
        if self.rule == PcpRule::Classic {
            return batch.min(count);
        }
        if free_high {
            let capped = self.rule >= PcpRule::Series7;
            return if capped {
                count.min(shl(batch, self.scale_max))
            } else {
                count
            };
        }
        if limit < batch {
            return 1;
        }
        let most = limit - batch;
        if self.rule >= PcpRule::Series9 {
            return bounded(self.consecutive_frees(), batch, most);
        }
        let scaled = shl(batch, self.free_factor);
        // Patch 7 lets the factor grow once more when the drain just fits.
        let fits = if self.rule >= PcpRule::Series7 {
            scaled <= most
        } else {
            scaled < most
        };
        if fits && self.free_factor < self.scale_max {
            self.free_factor += 1;
        }
        bounded(scaled, batch, most)
    }

    /// Lets an idle pageset shrink; call about once a second. Answers the pages to drain now.
    ///
    /// `None` means nothing is left to do until the pageset is used again.
    pub fn decay(&mut self, count: u32) -> Option<u32> {
        if self.rule < PcpRule::Series7 {
            return None;
        }
        self.set_steps((self.flags >> STEP_SHIFT).saturating_sub(1));
        let floor = match self.rule {
            PcpRule::Flagstone => self.high_min.min(self.batch),
            _ => self.high_min,
        };
        let mut more = false;
        if self.high > floor {
            let by_count = count.saturating_sub(shl(self.batch, self.scale_max));
            self.high = by_count.max(self.high - self.high / 8).max(floor);
            more = self.high > floor;
        }
        let drain = count.saturating_sub(self.high);
        if drain > 0 || more { Some(drain) } else { None }
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

    fn clamped_high(&mut self) -> u32 {
        if self.rule >= PcpRule::Series7 {
            self.high = self.high.clamp(self.high_min, self.high_max);
        } else {
            self.high = self.high_min;
        }
        self.high
    }

    fn tunes(&self) -> bool {
        self.rule >= PcpRule::Series7 && self.high_min != self.high_max
    }

    fn below_high(&self, zone: ZoneFlags) -> bool {
        self.rule >= PcpRule::Series8 && zone.has(ZoneFlags::BELOW_HIGH)
    }

    fn lower_high(&mut self, by: u32) {
        self.high = self.high.saturating_sub(by).max(self.high_min);
    }

    /// Pages the next drain is expected to take.
    fn next_drain(&self) -> u32 {
        if self.rule >= PcpRule::Series9 {
            self.consecutive_frees().max(self.batch)
        } else {
            shl(self.batch, self.free_factor)
        }
    }

    fn consecutive_frees(&self) -> u32 {
        u32::from(self.free_count.unsigned_abs())
    }

    fn free_count_cap(&self) -> i32 {
        i32::try_from(shl(self.batch, self.scale_max))
            .unwrap_or(i32::MAX)
            .min(i32::from(i16::MAX))
    }
}

/// A refill of `pages` in blocks of `order`: at least two blocks once pages are kept at all.
fn scaled_by_order(pages: u32, order: Order) -> u32 {
    if pages > 1 {
        (pages >> order.get()).max(2)
    } else {
        pages
    }
}

/// The kernel's clamp: the upper bound wins when the bounds cross.
fn bounded(value: u32, low: u32, high: u32) -> u32 {
    value.max(low).min(high)
}

fn shl(pages: u32, factor: u8) -> u32 {
    u32::try_from(u64::from(pages) << factor).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "pcp_tuning_tests.rs"]
mod tests;
