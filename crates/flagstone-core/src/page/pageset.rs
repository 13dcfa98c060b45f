//! Per-CPU pagesets: free blocks of orders 0 to 3 that a CPU takes without the zone lock.
//!
//! ```text
//!   order 0   head ─► ▪ ─ ▪ ─ ▪ ─ ▪ ◄─ tail      allocate and free at the head (warm)
//!   order 1   head ─► ▪▪ ◄─ tail                 refill and drain at the tail (cold)
//!   order 2   ...
//!   order 3   ...            count: pages in all four; marks and moves: policy::PageRule
//! ```
//!
//! One pageset for each CPU and zone. How many blocks to fetch and when to drain how many is
//! decided by [`PageRule`] alone; this file is the structure, `cached` takes and puts, `moves` fetches from
//! the zone and puts back.
//!
//! Invariants
//! - `pageset.count`: `count` is the number of pages on the lists.
//! - `pageset.owned`: every block on a list says `Pageset` and the list's order, and carries
//!   `RELEASED` exactly if it was never used since it left the zone as not resident.
//!
//! Locking: [`LockKind::Pageset`], tried and never waited for; who fails goes to the zone.
//! Cost of a hit: one compare-and-swap, the pageset's lines and one descriptor.

use super::list::PageList;
use crate::base::Order;
use crate::platform::{Access, Guard, Line, Lock, LockKind, Platform, RawLock};
use crate::policy::{PageRule, PcpState};
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// Orders a pageset keeps.
pub(super) const LISTS: usize = Order::COSTLY.get() as usize + 1;

/// A world that says which rules its pagesets know.
pub trait Pagesets: Platform {
    /// Those rules.
    type Rule: PageRule;
}

/// What happened in a pageset since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PagesetCounters {
    /// Blocks allocated through it.
    pub allocs: u64,
    /// Blocks freed through it.
    pub frees: u64,
    /// Times blocks were fetched from the zone.
    pub refills: u64,
    /// Pages fetched.
    pub refill_pages: u64,
    /// Times blocks were put back into the zone.
    pub drains: u64,
    /// Pages put back.
    pub drain_pages: u64,
    /// Drains that consecutive high-order frees caused (S3's free_high).
    pub free_high: u64,
}

impl PagesetCounters {
    /// Adds another pageset's events.
    pub fn add(&mut self, other: &Self) {
        self.allocs += other.allocs;
        self.frees += other.frees;
        self.refills += other.refills;
        self.refill_pages += other.refill_pages;
        self.drains += other.drains;
        self.drain_pages += other.drain_pages;
        self.free_high += other.free_high;
    }
}

/// A pageset's marks and contents at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PagesetSnapshot {
    /// Pages on its lists.
    pub count: u32,
    /// Those of them that are resident.
    pub resident: u32,
    /// Pages at which a free drains; 0 until first used.
    pub high: u32,
    /// Lower bound of `high`.
    pub high_min: u32,
    /// Upper bound of `high`.
    pub high_max: u32,
    /// Pages moved at once, before scaling.
    pub batch: u32,
    /// What happened.
    pub counters: PagesetCounters,
}

/// What the pageset's lock protects.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) lists: [PageList; LISTS],
    pub(super) state: PcpState,
    pub(super) count: u32,
    pub(super) counters: PagesetCounters,
    /// Allocations and frees when the last second ended.
    pub(super) seen: u64,
    /// Pages put back beyond those taken, at most so far.
    pub(super) forgiven: u64,
}

/// The pageset of one CPU and zone: two lines apart from the next one, whose prefetcher shares neighbours.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Pageset {
    pub(super) lists: Lock<Lists>,
    /// Times the lock was held by another, so that the zone had to serve.
    bypassed: AtomicU64,
}

/// Bytes of one pageset, whatever its rule: all rules share one layout.
pub const PAGESET_BYTES: usize = size_of::<Pageset>();

const _: () = assert!(PAGESET_BYTES <= 256, "a pageset is at most four lines");
const _: () = assert!(
    size_of::<Lock<Lists>>() + (13 - LISTS) * size_of::<PageList>() + 8 <= 256,
    "thirteen lists, as the kernel keeps, would still fit four lines"
);

/// What a drain leaves to do once the pageset's lock is dropped.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    Nothing,
    ReleaseExcess,
}

impl Lists {
    /// How many of `wanted` blocks this CPU may fetch, by what it took from the zone and has not put back
    /// ([`PageRule::affords`]). Pages of others that it put back do not count against it.
    pub(super) fn affords<R: PageRule>(&mut self, order: Order, wanted: u32) -> u32 {
        let (taken, put) = (self.counters.refill_pages, self.counters.drain_pages);
        self.forgiven = self.forgiven.max(put.saturating_sub(taken));
        let net = taken + self.forgiven - put;
        R::affords(&self.state, order, wanted, net)
    }
}

impl Pageset {
    /// An empty pageset.
    pub(super) fn new(state: PcpState) -> Self {
        Self {
            lists: Lock::new(
                LockKind::Pageset,
                Lists {
                    lists: [PageList::new(); LISTS],
                    state,
                    count: 0,
                    counters: PagesetCounters::default(),
                    seen: 0,
                    forgiven: 0,
                },
            ),
            bypassed: AtomicU64::new(0),
        }
    }

    /// The lock's word, for fork handling.
    pub(super) fn raw(&self) -> &RawLock {
        self.lists.raw()
    }

    /// Times the zone had to serve because the lock was held.
    pub(super) fn bypassed(&self) -> u64 {
        self.bypassed.load(Relaxed)
    }

    #[inline]
    pub(super) fn enter<P: Platform>(&self) -> Option<Guard<'_, P, Lists>> {
        let guard = self.lists.try_lock::<P>();
        match guard {
            Some(lists) => {
                P::touch(Line::Pageset, (&raw const self.lists).cast(), Access::Write);
                Some(lists)
            }
            None => {
                self.bypassed.fetch_add(1, Relaxed);
                None
            }
        }
    }

    /// Waits for the lock, for upkeep; `None` on top of the holder of this lock or of a zone's. That
    /// is asked before waiting: the holder may be waiting for the zone, and upkeep can be left out.
    pub(super) fn enter_waiting<P: Platform>(&self) -> Option<Guard<'_, P, Lists>> {
        if let Some(lists) = self.lists.try_lock::<P>() {
            return Some(lists);
        }
        if P::holds_from(LockKind::Pageset) {
            return None;
        }
        self.lists.lock::<P>().ok()
    }
}
