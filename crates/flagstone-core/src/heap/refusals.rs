//! Refused requests: when does another reclaim pay?
#![forbid(unsafe_code)]

use crate::sync::AtomicUsize;
use crate::sync::Ordering::Relaxed;

/// Refusals in a row that share one reclaim. Doubling it halves what a program pays that asks for
/// the impossible, and doubles how long a few hundred objects in sheaves may be overlooked.
pub(super) const SPARED: usize = 16;

/// When the last request was refused, and how many since the last reclaim.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Slow-path calls at the last refusal.
    seen: AtomicUsize,
    /// Refusals since the last reclaim.
    spared: AtomicUsize,
}

impl Refusals {
    /// Whether something may be kept, for a refusal after `calls` slow-path calls.
    pub(super) fn is_due(&self, calls: usize) -> bool {
        // The request itself is one call.
        let idle = calls.wrapping_sub(self.seen.swap(calls, Relaxed)) <= 1;
        let spared = self.spared.load(Relaxed);
        let due = !idle || spared == 0 || spared >= SPARED;
        self.spared.store(if due { 1 } else { spared + 1 }, Relaxed);
        due
    }

    /// A reclaim helped: the next refusal reclaims again.
    pub(super) fn note_served(&self) {
        self.spared.store(0, Relaxed);
    }
}
