//! The limit that a user sets to what the heap holds from the system.
//!
//! ```text
//!   held = pages of blocks and free pages with memory behind them, by node      told under each zone's lock
//!        + reservations since the heap was built: huge blocks, the allocator's own   counted here
//!   a block of pages, a huge block, a longer one ─► held ≤ limit?  no: refused, as if the system had no memory
//! ```
//!
//! So the core does what it does without memory: gives up all it keeps, asks once more, and refuses. Without a
//! limit a page asked for costs one load, and a reservation two.
//!
//! What a node was last told to hold may have fallen since; the face tells it again before it believes a refusal
//! ([`note_held`]).

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use flagstone_core::base::NodeId;

/// Nodes that are told apart; those beyond share the last one.
const NODES: usize = 64;

/// Bytes; zero for no limit.
static LIMIT: AtomicUsize = AtomicUsize::new(0);
/// Bytes that a page takes with what describes it.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Pages by node, as last told.
static HELD: [AtomicUsize; NODES] = [const { AtomicUsize::new(0) }; NODES];
/// Whether reservations are counted: not that of the pages.
static COUNTS: AtomicBool = AtomicBool::new(false);
/// Bytes of reservations.
static BESIDE: AtomicUsize = AtomicUsize::new(0);
/// Requests of the core that were refused.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// From now on reservations are counted. Called once, when the heap is built.
pub fn begin() {
    COUNTS.store(true, Relaxed);
}

/// Sets the limit; zero ends it. `page_bytes` is what a page takes with its part of the tables.
pub fn set(bytes: usize, page_bytes: usize) {
    PAGE_BYTES.store(page_bytes, Relaxed);
    LIMIT.store(bytes, Relaxed);
}

/// The limit; zero for none.
#[inline]
#[must_use]
pub fn limit() -> usize {
    LIMIT.load(Relaxed)
}

/// Tells what a node holds now.
pub fn note_held(node: NodeId, pages: usize) {
    HELD[usize::from(node.0).min(NODES - 1)].store(pages, Relaxed);
}

/// Bytes held, as far as told and counted.
#[must_use]
pub fn held() -> usize {
    let pages: usize = HELD.iter().map(|pages| pages.load(Relaxed)).sum();
    pages * PAGE_BYTES.load(Relaxed) + BESIDE.load(Relaxed)
}

/// Requests of the core that the limit refused.
#[must_use]
pub fn refused() -> u64 {
    REFUSED.load(Relaxed)
}

/// Whether a node may come to hold so many pages.
#[inline]
pub(crate) fn may_hold(node: NodeId, pages: impl FnOnce() -> usize) -> bool {
    limit() == 0 || fits_after(|| note_held(node, pages()))
}

/// Whether what is reserved already may be used.
#[inline]
pub(crate) fn may_commit() -> bool {
    limit() == 0 || fits_after(|| {})
}

#[cold]
fn fits_after(note: impl FnOnce()) -> bool {
    note();
    let fits = held() <= limit();
    if !fits {
        REFUSED.fetch_add(1, Relaxed);
    }
    fits
}

/// Counts a reservation.
pub(crate) fn reserved(bytes: usize) {
    if COUNTS.load(Relaxed) {
        BESIDE.fetch_add(bytes, Relaxed);
    }
}

/// A reservation, or a part of one, is given up.
pub(crate) fn released(bytes: usize) {
    if COUNTS.load(Relaxed) {
        let less = |held: usize| Some(held.saturating_sub(bytes));
        let _ = BESIDE.fetch_update(Relaxed, Relaxed, less);
    }
}

/// Whether a reservation may be `new` bytes long instead of `old`: counted then.
pub(crate) fn resized(old: usize, new: usize) -> bool {
    if new <= old {
        released(old - new);
        return true;
    }
    reserved(new - old);
    let may = may_commit();
    if !may {
        released(new - old);
    }
    may
}

/// Takes [`resized`] back: the system refused.
pub(crate) fn resize_undone(old: usize, new: usize) {
    match new > old {
        true => released(new - old),
        false => reserved(old - new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: the figures are the process's.
    #[test]
    fn what_is_held_is_pages_and_reservations_and_the_limit_refuses_more() {
        assert!(may_hold(NodeId(0), || unreachable!(
            "nobody asks without a limit"
        )));
        reserved(77);
        assert_eq!(held(), 0, "before there is a heap nothing is counted");
        begin();
        set(1 << 20, 4096);
        assert!(may_hold(NodeId(0), || 100));
        reserved(300 << 10);
        assert_eq!(held(), (400 + 300) << 10);
        assert!(may_commit());
        assert!(!resized(300 << 10, 700 << 10));
        assert!(resized(300 << 10, 400 << 10));
        assert!(may_hold(NodeId(0), || 156));
        let before = refused();
        assert!(!may_hold(NodeId(1), || 1), "the sum of all nodes");
        assert_eq!(refused(), before + 1);
        note_held(NodeId(1), 0);
        note_held(NodeId(0), 200);
        assert!(!may_commit());
        released(400 << 10);
        assert!(may_commit());
        set(0, 4096);
        assert!(may_hold(NodeId(0), || unreachable!()));
    }
}
