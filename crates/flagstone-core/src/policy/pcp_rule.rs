//! The seam for rules of pagesets: which rule a policy names, and what one does with a pageset.
//!
//! ```text
//!   P::Rule ──┬─ OwnPages      the product: flagstone's rule alone (`pcp_tuning`)
//!             └─ a guest's     flagstone-kernels: those of kernels, and flagstone's
//! ```
//!
//! The world names the implementation ([`Pagesets`](crate::page::Pagesets)), the policy the rule ([`PcpRule`]). All
//! rules share one [`PcpState`], so a pageset's memory is the same under each (ADR 0046).
#![forbid(unsafe_code)]

use super::pcp_marks::{PcpMarks, PcpZone};
use super::pcp_state::{PcpState, ZoneFlags};
use crate::base::Order;
use core::fmt;

/// Which rule moves pages between a pageset and its zone. Two are the same if their numbers are.
#[derive(Clone, Copy)]
pub struct PcpRule {
    /// What a [`PageRule`] knows it by; 0 is flagstone's.
    pub id: u8,
    /// The marks of a zone's pagesets.
    pub marks: fn(&PcpZone) -> PcpMarks,
    /// The largest block that a pageset keeps.
    pub largest: Order,
}

impl PcpRule {
    /// The default policy's: 6.7's with small first refills.
    pub const FLAGSTONE: Self = Self {
        id: 0,
        marks: PcpMarks::tuned,
        largest: Order::COSTLY,
    };
}

impl PartialEq for PcpRule {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for PcpRule {}

impl fmt::Debug for PcpRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PcpRule({})", self.id)
    }
}

/// How many pages a pageset fetches and gives back. A pageset keeps the lists and `count` and calls:
///
/// 1. every allocation of an allowed order: [`PageRule::on_alloc`]; a non-zero answer is the number
///    of *blocks* of that order to fetch before popping, as far as [`PageRule::affords`] goes;
/// 2. every free: push the block, add its pages to `count`, then [`PageRule::on_free`]; an answer
///    is the number of *pages* to drain, the freed block's list first;
/// 3. about once a second: [`PageRule::decay`], then drain what it answers.
pub trait PageRule: 'static {
    /// Replaces the marks, as on a watermark change or CPU hotplug.
    fn set_marks(state: &mut PcpState, marks: PcpMarks);

    /// Notes an allocation of `order`; answers how many blocks to fetch first, 0 if none.
    ///
    /// `count` is the pages now in the pageset, `list_empty` whether the wanted list is.
    fn on_alloc(
        state: &mut PcpState,
        order: Order,
        count: u32,
        list_empty: bool,
        zone: ZoneFlags,
    ) -> u32;

    /// Of `wanted` blocks of `order` so many as a CPU may fetch that has taken `net` pages more from
    /// the zone than it put back.
    fn affords(state: &PcpState, order: Order, wanted: u32, net: u64) -> u32;

    /// Notes a free of `order`; answers how many pages to drain, if any.
    ///
    /// `count` already includes the freed block.
    fn on_free(state: &mut PcpState, order: Order, count: u32, zone: ZoneFlags) -> Option<u32>;

    /// Lets an idle pageset shrink. Answers the pages to drain now; `None` means nothing is left to
    /// do until the pageset is used again.
    fn decay(state: &mut PcpState, count: u32) -> Option<u32>;

    /// Whether whole runs of pages cross the zone's lock, to be cut and joined outside it, and the
    /// budget bounds what a pageset holds: flagstone's way.
    fn moves_runs(state: &PcpState) -> bool;

    /// Most pages that one section of the zone's lock may drain.
    fn drain_chunk(state: &PcpState) -> u32;
}
