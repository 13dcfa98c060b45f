//! Pageset tuning: how many pages a CPU fetches and gives back, and how its limit moves.
//!
//! ```text
//!   pages kept                    high_max  ceiling of the tuning
//!      |   refills raise high  ^
//!      |   decay, reclaim and  v  high      drain when count reaches it
//!      |   high-order frees    |
//!      |                          high_min  where it starts; it falls on to a batch while idle
//! ```
//!
//! 6.7's rule (docs: linux-policies 6.4), with three differences: first refills are small, so is a
//! refill beside what its CPU has taken ([`PageRule::affords`]), and blocks of several pages gather to two
//! batches before they go back.
//!
//! Not here: the marks themselves (`pcp_marks`), which blocks to drain, watermark checks.
#![forbid(unsafe_code)]

use super::pcp_marks::PcpMarks;
use super::pcp_rule::PageRule;
use super::pcp_state::{PcpState, ZoneFlags, doubled, is_high};
use crate::base::Order;

/// Doublings from the first refill of a pageset to the rule's own size; each refill takes one, and a
/// quiet second takes one back. Why four: a CPU that comes once takes 3 pages instead of 63; one that
/// comes back pays three more visits of the zone. More halve a first refill that is small already.
const FIRST_STEPS: u8 = 4;
/// A refill is at most one in so many of the pages its CPU has already taken. Halving it parks up to
/// a quarter of a small program's memory in pagesets (steps alone half of it); doubling it costs a
/// program of 1 MiB sixteen visits of the zone more.
const PARKED_SHARE: u64 = 8;
/// Doublings of a batch that blocks of several pages gather to, when nothing else is freed, before
/// they go back. One more parks another 500 KiB on each CPU that does so (ADR 0014).
const HIGH_ORDER_DOUBLINGS: u8 = 1;

/// Flagstone's rule alone.
#[derive(Clone, Copy, Debug)]
pub struct OwnPages;

impl PageRule for OwnPages {
    fn set_marks(state: &mut PcpState, marks: PcpMarks) {
        state.store_marks(marks);
    }

    #[inline]
    fn on_alloc(
        state: &mut PcpState,
        order: Order,
        count: u32,
        list_empty: bool,
        zone: ZoneFlags,
    ) -> u32 {
        state.free_count >>= 1;
        if list_empty {
            refill(state, order, count, zone)
        } else {
            0
        }
    }

    /// About an eighth is parked beside what is in use.
    fn affords(state: &PcpState, order: Order, wanted: u32, net: u64) -> u32 {
        let least = state.batch >> FIRST_STEPS;
        let pages = u32::try_from(net / PARKED_SHARE).unwrap_or(u32::MAX);
        wanted.min((pages.max(least) >> order.get()).max(1))
    }

    #[inline]
    fn on_free(state: &mut PcpState, order: Order, count: u32, zone: ZoneFlags) -> Option<u32> {
        state.alloc_factor >>= 1;
        let free_high = high_order_drain(state, order, count);
        state.count_free(order);
        let limit = state.drain_limit(count, free_high, zone);
        (count >= limit).then(|| state.drain_count(count, limit, free_high))
    }

    fn decay(state: &mut PcpState, count: u32) -> Option<u32> {
        state.set_own(state.own().saturating_sub(1));
        state.decay_to(state.high_min.min(state.batch), count)
    }

    fn moves_runs(_: &PcpState) -> bool {
        true
    }

    fn drain_chunk(_: &PcpState) -> u32 {
        u32::MAX
    }
}

#[cold]
fn refill(state: &mut PcpState, order: Order, count: u32, zone: ZoneFlags) -> u32 {
    let mut high = state.clamped_high();
    if high < state.batch {
        return 1;
    }
    let factor = match order {
        Order::ZERO => state.alloc_factor,
        _ => 0,
    };
    let taken = state.own().min(FIRST_STEPS);
    state.set_own(FIRST_STEPS.min(taken + 1));
    let mut wanted = (doubled(state.batch, factor) >> (FIRST_STEPS - taken)).max(1);
    if state.high_min != state.high_max && !zone.has(ZoneFlags::BELOW_HIGH) {
        high = high.saturating_add(wanted).min(state.high_max);
        state.high = high;
    }
    if order == Order::ZERO {
        wanted = state.doubling_refill(wanted, high, count);
    }
    (wanted >> order.get()).max(1)
}

/// Whether a free of this order should empty the pageset towards the zone.
fn high_order_drain(state: &mut PcpState, order: Order, count: u32) -> bool {
    let was_high_order = state.note_high_order(order);
    let gathered = doubled(state.batch, HIGH_ORDER_DOUBLINGS.min(state.scale_max));
    is_high(order)
        && was_high_order
        && state.consecutive_frees() >= gathered
        && (!state.waits_for_batch() || count >= gathered)
}

#[cfg(test)]
#[path = "pcp_tuning_tests.rs"]
mod tests;
