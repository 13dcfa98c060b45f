//! The budget: what the stores of free memory may hold together.
//!
//! ```text
//!   bound  =  max(min, in use × share)   ≥   free pages + barns + kept huge blocks + sheaves
//!                                            └ zones ┘    └──── parked ────────┘   └ estimated
//!   above the bound   goes back, by whoever freed it; while something is owed for that, what was in use
//!                     just now stays; beyond CREDIT_NS what was in use in the last two seconds
//!   below             stays; after a deep fall of the heap it goes down to the floor, if paid for
//! ```
//!
//! Pagesets have bounds of their own. Upkeep estimates sheaves, and pages make room for them.
#![forbid(unsafe_code)]

use super::config::Retention;
use crate::policy::{Allowance, HOLE_NS, PAGE_NS, SHRINK_NS, SLAB_NS};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Part of what is in use beyond the least bound that stays while something is owed, of what was in use just now. Why
/// two: with four, programs that swing fault a fifth more pages; with one, they fault as many, and more may stay.
const OWED_SHARE: usize = 2;

/// Nanoseconds that giving back may cost a program beyond its share of the time. Why 500 ms: eight swings of 114 MB
/// and thirty of 40. Halving it has longer ones keep memory sooner.
const CREDIT_NS: u64 = 500_000_000;

/// What may stay, and what is parked above the page layer.
#[derive(Debug)]
pub struct Budget {
    /// Bytes that may always be free: a knob.
    pub min: AtomicUsize,
    /// Of the bytes in use so many 1024ths may be free: a knob.
    pub share: AtomicUsize,
    /// Most bytes by what the process may use (ADR 0013).
    pub(super) most: AtomicUsize,
    /// Bytes in kept huge blocks.
    kept: AtomicUsize,
    /// Bytes of free objects that sheaves of CPUs may hold.
    pub sheaves: AtomicUsize,
    /// What giving back free pages may cost below the bound.
    pub pages: Allowance,
    /// What giving back may cost at all.
    pub all: Allowance,
    /// What looking for pages inside slabs and giving those back may cost.
    pub sweeps: Allowance,
    /// What slow paths count of the whole heap.
    pub calls: Calls,
    /// The same.
    pub moved: Moved,
}

/// Slow-path calls, and bytes freed as calls, up to the next upkeep: in a line of their own.
#[derive(Debug)]
#[repr(align(64))]
pub struct Calls {
    /// The count.
    pub made: AtomicUsize,
    /// Since something is owed: the moment from which on the next call is an upkeep's; zero: none.
    pub due: AtomicU64,
}

/// What slow paths count where they move a sheaf or a slab: in another, or each would wait for the other's.
#[derive(Debug)]
#[repr(align(64))]
pub struct Moved {
    /// Bytes in barns.
    pub barns: AtomicUsize,
    /// Bytes flushed into slabs that can be swept, since the last look.
    pub flushed: AtomicUsize,
    /// The generation of the next slab.
    pub slabs: AtomicU32,
}

impl Budget {
    pub(super) const fn new(rule: &Retention) -> Self {
        Self {
            min: AtomicUsize::new(rule.min_bytes),
            share: AtomicUsize::new(rule.share),
            most: AtomicUsize::new(usize::MAX),
            kept: AtomicUsize::new(0),
            sheaves: AtomicUsize::new(0),
            pages: Allowance::new(0),
            all: Allowance::new(CREDIT_NS),
            sweeps: Allowance::new(0),
            calls: Calls {
                made: AtomicUsize::new(0),
                due: AtomicU64::new(0),
            },
            moved: Moved {
                barns: AtomicUsize::new(0),
                flushed: AtomicUsize::new(0),
                slabs: AtomicU32::new(1),
            },
        }
    }

    /// Bytes that may be free while `in_use` bytes are in use.
    #[inline]
    #[must_use]
    pub fn bound(&self, in_use: usize) -> usize {
        let share = (in_use / 1024).saturating_mul(self.share.load(Relaxed));
        share
            .max(self.min.load(Relaxed))
            .min(self.most.load(Relaxed))
    }

    /// Bytes that stay of free pages after a deep fall to `in_use` bytes. Why a 64th: more frees follow a fall; at
    /// a 32nd the floor is a visible part of what is left after frees at random. A 16th of the least bound keeps
    /// small heaps from giving back page by page.
    #[inline]
    #[must_use]
    pub fn floor(&self, in_use: usize) -> usize {
        (in_use / 64)
            .max(self.min.load(Relaxed) / 16)
            .min(self.bound(in_use))
    }

    /// Bytes of free pages that may stay: the bound less what the others hold, and the floor at least.
    #[inline]
    #[must_use]
    pub fn room_for_pages(&self, in_use: usize) -> usize {
        let others = self.parked() + self.sheaves.load(Relaxed);
        self.bound(in_use)
            .saturating_sub(others)
            .max(self.floor(in_use))
    }

    /// Bytes parked above the page layer: in barns and in kept huge blocks.
    #[inline]
    #[must_use]
    pub fn parked(&self) -> usize {
        self.kept.load(Relaxed) + self.moved.barns.load(Relaxed)
    }

    /// Counts a huge block that is kept.
    #[inline]
    pub fn park(&self, bytes: usize) {
        self.kept.fetch_add(bytes, Relaxed);
    }

    /// Counts one that is kept no more.
    #[inline]
    pub fn unpark(&self, bytes: usize) {
        self.kept.fetch_sub(bytes, Relaxed);
    }

    /// Of free bytes that were in use `lately`, or `just_now`, those that stay: the first once the credit is used up, unless
    /// they are many; the second while anything is owed, but none of a heap that falls to nothing.
    pub fn unpaid(&self, lately: usize, just_now: usize, in_use: usize, now: u64) -> usize {
        match lately <= self.most.load(Relaxed) && !self.all.affords(now) {
            true => lately,
            false if self.affords(now) => 0,
            false => just_now.min(in_use.saturating_sub(self.min.load(Relaxed)) / OWED_SHARE),
        }
    }

    /// Whether giving back below the bound is paid for.
    #[must_use]
    pub fn affords(&self, now: u64) -> bool {
        self.pages.affords(now)
    }

    /// Charges pages that were given back and are wanted again.
    pub fn charge_pages(&self, pages: usize, now: u64) {
        self.pages.charge(pages as u64 * PAGE_NS, now);
        self.charge_huge(pages, now);
    }

    /// The same of huge blocks.
    pub fn charge_huge(&self, pages: usize, now: u64) {
        self.all.charge(pages as u64 * PAGE_NS, now);
    }

    /// Charges pages inside slabs that were given back and are wanted again.
    pub fn charge_holes(&self, pages: usize, now: u64) {
        self.sweeps.charge(pages as u64 * HOLE_NS, now);
    }

    /// Charges emptying all caches.
    pub fn charge_shrink(&self, now: u64) {
        self.pages.charge(SHRINK_NS, now);
        self.all.charge(SHRINK_NS, now);
    }

    /// Charges a look through slabs.
    pub fn charge_slabs(&self, slabs: usize, now: u64) {
        self.sweeps.charge(slabs as u64 * SLAB_NS, now);
    }
}
