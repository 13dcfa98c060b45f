//! What a thread holds of the core's locks, as one word.
//!
//! ```text
//!   byte    7     6        5      4      3      2       1      0
//!         [ -- | Zone | Pageset | List | Slab | Barn | Local | Heap ]     locks of each kind
//! ```
//!
//! Locks are taken in ascending order, so a thread that wants a lock of a kind of which, or of a later
//! one, it holds any is a signal handler on top of a holder: one shift tells.
//!
//! Invariants
//! - `held.early`: a lock is counted before it is taken, and until after it was given back. So a handler
//!   that comes in between may find a lock counted that is free, never one uncounted that is held.
//! - `held.balanced`: a handler returns with the word as it found it.
//!
//! Only the thread itself and handlers on top of it change the word: an addition that is no locked
//! instruction. A fork takes hundreds of locks of a kind; what does not fit a byte carries into
//! the next, which never hides a lock that is held.

use super::LockKind;
use crate::sync::Ordering::{Relaxed, SeqCst};
use crate::sync::{AtomicU64, compiler_fence};

/// The word.
#[derive(Debug)]
#[repr(transparent)]
pub struct Held(AtomicU64);

const fn one(kind: LockKind) -> u64 {
    1 << (8 * kind as u32)
}

impl Held {
    /// Nothing is held.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A lock of `kind` is about to be taken.
    #[inline]
    pub fn add(&self, kind: LockKind) {
        self.change(one(kind));
        compiler_fence(SeqCst);
    }

    /// A lock of `kind` was given back, or could not be had.
    #[inline]
    pub fn remove(&self, kind: LockKind) {
        compiler_fence(SeqCst);
        self.change(one(kind).wrapping_neg());
    }

    #[inline]
    fn change(&self, by: u64) {
        // Other machines have fewer words than threads (flagstone-linux).
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            self.0.store(self.0.load(Relaxed).wrapping_add(by), Relaxed);
        } else {
            self.0.fetch_add(by, Relaxed);
        }
    }

    /// Whether a lock of `kind` or of a later one is held.
    #[inline]
    #[must_use]
    pub fn has_from(&self, kind: LockKind) -> bool {
        self.0.load(Relaxed) >= one(kind)
    }
}

impl Default for Held {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_whether_something_of_a_kind_or_of_a_later_one_is_held() {
        let held = Held::new();
        assert!(!held.has_from(LockKind::Heap));
        held.add(LockKind::Barn);
        held.add(LockKind::List);
        held.add(LockKind::List);
        assert!(held.has_from(LockKind::Heap) && held.has_from(LockKind::List));
        assert!(!held.has_from(LockKind::Pageset));
        held.remove(LockKind::List);
        assert!(held.has_from(LockKind::List));
        held.remove(LockKind::List);
        assert!(held.has_from(LockKind::Barn) && !held.has_from(LockKind::Slab));
        held.remove(LockKind::Barn);
        assert!(!held.has_from(LockKind::Heap));
    }
}
