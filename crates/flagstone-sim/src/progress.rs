//! What is seen of runs from outside, and told to them: how far their clocks have gone, and to end.
//!
//! All runs of the process together, since a person waits for all of them. Nothing here changes what a run
//! computes: one that is ended has no result.

use crate::costs::{NS, Ps};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static SIMULATED_NS: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);

/// Nanoseconds of virtual time that steady runs have simulated so far, all together.
#[must_use]
pub fn simulated_ns() -> u64 {
    SIMULATED_NS.load(Relaxed)
}

/// Has every run end at its next look, without a result. May be called in a signal handler.
pub fn end_all() {
    ENDED.store(true, Relaxed);
}

/// Whether runs were told to end.
#[must_use]
pub fn is_ended() -> bool {
    ENDED.load(Relaxed)
}

/// A run went on by `step`; whether it may go on.
pub(crate) fn went_on(step: Ps) -> bool {
    SIMULATED_NS.fetch_add(step / NS, Relaxed);
    !is_ended()
}
