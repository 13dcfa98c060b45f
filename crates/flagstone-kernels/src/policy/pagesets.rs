//! The pagesets of kernels: the published rules in the order they were made, as one state machine.
//!
//! Each version contains the ones before it (docs: linux-policies 6.3 to 6.5). From 6.7 on the steps are the
//! core's own; what flagstone does otherwise is not here.
#![forbid(unsafe_code)]

use flagstone_core::base::Order;
use flagstone_core::policy::{
    OwnPages, PageRule, PcpMarks, PcpRule, PcpState, PcpZone, UNCAPPED, ZoneFlags, batch_within,
    bounded, doubled, is_high,
};

/// A published rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum PcpVersion {
    /// 2.6.24: a fixed high, one batch each way, single pages only (general knowledge).
    Classic = 1,
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
}

use PcpVersion::{
    Classic, Series1, Series2, Series3, Series4, Series5, Series6, Series7, Series8, Series9, V6_1,
    V6_16, V6_19,
};

impl PcpVersion {
    /// All of them, oldest first; a version's number is its place, from 1.
    pub const ALL: [Self; 13] = [
        Classic, V6_1, Series1, Series2, Series3, Series4, Series5, Series6, Series7, Series8,
        Series9, V6_16, V6_19,
    ];

    /// 6.7, the release that merged all nine patches.
    pub const V6_7: Self = Series9;

    /// What a policy holds. Pagesets keep blocks up to `largest`; huge-page blocks are the
    /// platform's own addition and not counted.
    #[must_use]
    pub const fn rule(self) -> PcpRule {
        let (marks, largest): (fn(&PcpZone) -> PcpMarks, _) = match self {
            Classic => (classic_marks, Order::ZERO),
            V6_1 | Series1 | Series2 | Series3 | Series4 | Series5 | Series6 => {
                (fixed_marks, Order::COSTLY)
            }
            _ => (PcpMarks::tuned, Order::COSTLY),
        };
        PcpRule {
            id: self as u8,
            marks,
            largest,
        }
    }

    /// Cap on doublings a kernel of this version was built with (`PCP_BATCH_SCALE_MAX`).
    #[must_use]
    pub const fn default_scale_max(self) -> u8 {
        if self as u8 >= Series4 as u8 {
            5
        } else {
            UNCAPPED
        }
    }

    /// The version in force; `None` is flagstone's rule.
    fn of(state: &PcpState) -> Option<Self> {
        Self::ALL
            .get(usize::from(state.rule).wrapping_sub(1))
            .copied()
    }
}

/// A fixed multiple of the batch, which was half of today's (general knowledge, not read in a source).
fn classic_marks(zone: &PcpZone) -> PcpMarks {
    let batch = batch_within(zone.managed, zone.page_size, 128 << 10);
    PcpMarks {
        batch,
        high_min: 6 * batch,
        high_max: 6 * batch,
    }
}

/// Without tuning both marks are the lower one.
fn fixed_marks(zone: &PcpZone) -> PcpMarks {
    let marks = PcpMarks::tuned(zone);
    PcpMarks {
        high_max: marks.high_min,
        ..marks
    }
}

/// The rules of kernels, and flagstone's.
#[derive(Clone, Copy, Debug)]
pub struct KernelPages;

impl PageRule for KernelPages {
    fn set_marks(state: &mut PcpState, marks: PcpMarks) {
        state.store_marks(marks);
        if PcpVersion::of(state).is_some_and(|version| version < Series6) {
            state.high = marks.high_min;
        }
    }

    #[inline]
    fn on_alloc(
        state: &mut PcpState,
        order: Order,
        count: u32,
        list_empty: bool,
        zone: ZoneFlags,
    ) -> u32 {
        let Some(version) = PcpVersion::of(state) else {
            return OwnPages::on_alloc(state, order, count, list_empty, zone);
        };
        if version >= Series9 {
            state.free_count >>= 1;
        } else {
            state.free_factor >>= 1;
        }
        if list_empty {
            refill(state, version, order, count, zone)
        } else {
            0
        }
    }

    fn affords(state: &PcpState, order: Order, wanted: u32, net: u64) -> u32 {
        match PcpVersion::of(state) {
            None => OwnPages::affords(state, order, wanted, net),
            Some(_) => wanted,
        }
    }

    #[inline]
    fn on_free(state: &mut PcpState, order: Order, count: u32, zone: ZoneFlags) -> Option<u32> {
        let Some(version) = PcpVersion::of(state) else {
            return OwnPages::on_free(state, order, count, zone);
        };
        if version >= Series5 {
            state.alloc_factor >>= 1;
        }
        let free_high = high_order_drain(state, version, order, count);
        if version >= Series9 {
            state.count_free(order);
        }
        let limit = drain_limit(state, version, count, free_high, zone);
        (count >= limit).then(|| drain_count(state, version, count, limit, free_high))
    }

    fn decay(state: &mut PcpState, count: u32) -> Option<u32> {
        match PcpVersion::of(state) {
            None => OwnPages::decay(state, count),
            Some(version) if version < Series7 => None,
            Some(_) => state.decay_to(state.high_min, count),
        }
    }

    fn moves_runs(state: &PcpState) -> bool {
        PcpVersion::of(state).is_none()
    }

    fn drain_chunk(state: &PcpState) -> u32 {
        match PcpVersion::of(state) {
            Some(V6_19) => state.batch.max(1),
            _ => u32::MAX,
        }
    }
}

#[cold]
fn refill(
    state: &mut PcpState,
    version: PcpVersion,
    order: Order,
    count: u32,
    zone: ZoneFlags,
) -> u32 {
    let base = state.batch;
    if version < Series5 {
        return scaled_by_order(base, order);
    }
    let mut high = high_of(state, version);
    if high < base {
        return 1;
    }
    let factor = if order == Order::ZERO {
        state.alloc_factor
    } else {
        0
    };
    let mut wanted = doubled(base, factor).max(1);
    let tunes = version >= Series7 && state.high_min != state.high_max;
    if tunes && !below_high(version, zone) {
        high = high.saturating_add(wanted).min(state.high_max);
        state.high = high;
    }
    if order == Order::ZERO {
        wanted = state.doubling_refill(wanted, high, count);
    }
    scaled_by_order(wanted, order)
}

/// Whether a free of this order should empty the pageset towards the zone.
fn high_order_drain(state: &mut PcpState, version: PcpVersion, order: Order, count: u32) -> bool {
    if version == Classic {
        return false;
    }
    let was_high_order = state.note_high_order(order);
    let frees = state.consecutive_frees();
    let many_frees = match version {
        version if version < Series9 => state.free_factor != 0,
        Series9 => frees >= state.batch,
        _ => frees >= state.batch.saturating_add(state.high_min / 2),
    };
    let whole_batch = version < Series3 || !state.waits_for_batch() || count >= state.batch;
    is_high(order) && many_frees && (was_high_order || version < Series1) && whole_batch
}

/// The number of kept pages that starts a drain; moves `high` where the version does.
fn drain_limit(
    state: &mut PcpState,
    version: PcpVersion,
    count: u32,
    free_high: bool,
    zone: ZoneFlags,
) -> u32 {
    if version >= Series9 {
        return state.drain_limit(count, free_high, zone);
    }
    let high = high_of(state, version);
    let reclaim = zone.has(ZoneFlags::RECLAIM_ACTIVE);
    let next = doubled(state.batch, state.free_factor);
    if high == 0 {
        0
    } else if version < Series7 {
        match (free_high, reclaim) {
            (true, _) => 0,
            (false, true) if version > Classic => high.min(4 * state.batch),
            _ => high,
        }
    } else if free_high {
        state.lower_high(doubled(state.batch, state.scale_max));
        0
    } else if reclaim {
        state.lower_high(next);
        state.high.min(4 * state.batch)
    } else if state.high_min == state.high_max {
        high
    } else if below_high(version, zone) {
        state.lower_high(next);
        count.max(state.high_min)
    } else {
        // Room for the pages about to be freed, so that the next drain is not cut short.
        let wanted = next.saturating_add(state.batch);
        if count >= high && high < wanted {
            state.high = wanted.clamp(state.high_min, state.high_max);
        }
        high
    }
}

/// How many pages to drain once `count` reached `limit`.
fn drain_count(
    state: &mut PcpState,
    version: PcpVersion,
    count: u32,
    limit: u32,
    free_high: bool,
) -> u32 {
    let batch = state.batch;
    if version == Classic {
        return batch.min(count);
    }
    if free_high && version < Series7 {
        return count;
    }
    if version >= Series9 || free_high || limit < batch {
        return state.drain_count(count, limit, free_high);
    }
    let most = limit - batch;
    let scaled = doubled(batch, state.free_factor);
    // Patch 7 lets the factor grow once more when the drain just fits.
    let fits = if version >= Series7 {
        scaled <= most
    } else {
        scaled < most
    };
    if fits && state.free_factor < state.scale_max {
        state.free_factor += 1;
    }
    bounded(scaled, batch, most)
}

/// `high`, which moves since patch 7 alone.
fn high_of(state: &mut PcpState, version: PcpVersion) -> u32 {
    if version >= Series7 {
        return state.clamped_high();
    }
    state.high = state.high_min;
    state.high
}

fn below_high(version: PcpVersion, zone: ZoneFlags) -> bool {
    version >= Series8 && zone.has(ZoneFlags::BELOW_HIGH)
}

/// A refill of `pages` in blocks of `order`: at least two blocks once pages are kept at all.
fn scaled_by_order(pages: u32, order: Order) -> u32 {
    if pages > 1 {
        (pages >> order.get()).max(2)
    } else {
        pages
    }
}

#[cfg(test)]
#[path = "pagesets_tests.rs"]
mod tests;
