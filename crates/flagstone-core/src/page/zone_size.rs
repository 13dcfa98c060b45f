//! How the span is shared out among nodes, how much of a zone may be used, and the watermarks that follow.
//!
//! A zone's span is address space, which is plenty; what may be used is memory, which a
//! container limits and may limit anew. Read without a lock on the way of every page; written by
//! upkeep alone. Readers may see a new low mark beside an old high one for a moment: both only
//! decide how eagerly pages are kept.
#![forbid(unsafe_code)]

use crate::base::Order;
use crate::policy::Watermarks;
use crate::sync::Ordering::Relaxed;
use crate::sync::{AtomicU64, AtomicUsize};

/// Pages a zone may use, and its marks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Managed {
    /// Pages: the span, or its share of the memory limit.
    pub pages: usize,
    /// Free pages at which something happens.
    pub marks: Watermarks,
}

/// The same, changeable.
#[derive(Debug)]
pub(super) struct ZoneSize {
    pages: AtomicUsize,
    low: AtomicU64,
    high: AtomicU64,
    min: AtomicU64,
    promo: AtomicU64,
}

impl ZoneSize {
    pub(super) fn new(managed: &Managed) -> Self {
        Self {
            pages: AtomicUsize::new(managed.pages),
            low: AtomicU64::new(managed.marks.low),
            high: AtomicU64::new(managed.marks.high),
            min: AtomicU64::new(managed.marks.min),
            promo: AtomicU64::new(managed.marks.promo),
        }
    }

    pub(super) fn set(&self, managed: &Managed) {
        self.pages.store(managed.pages, Relaxed);
        self.low.store(managed.marks.low, Relaxed);
        self.high.store(managed.marks.high, Relaxed);
        self.min.store(managed.marks.min, Relaxed);
        self.promo.store(managed.marks.promo, Relaxed);
    }

    /// Pages that may be used.
    #[inline]
    pub(super) fn pages(&self) -> usize {
        self.pages.load(Relaxed)
    }

    /// Free pages below which background reclaim would run.
    #[inline]
    pub(super) fn low(&self) -> u64 {
        self.low.load(Relaxed)
    }

    /// Free pages above which it would stop.
    #[inline]
    pub(super) fn high(&self) -> u64 {
        self.high.load(Relaxed)
    }

    /// All four.
    pub(super) fn marks(&self) -> Watermarks {
        Watermarks {
            min: self.min.load(Relaxed),
            low: self.low(),
            high: self.high(),
            promo: self.promo.load(Relaxed),
        }
    }
}

/// How the span is shared out among nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    pub zones: u32,
    /// Binary logarithm of the pages of a share; 31 for a zone that has everything.
    pub shift: u32,
    pub pages_each: u32,
}

impl Shares {
    pub fn of(pages: usize, nodes: u32) -> Self {
        let share = if nodes > 1 { pages / nodes as usize } else { 0 };
        if share < Order::MAX.pages().0 {
            return Self {
                zones: 1,
                shift: 31,
                pages_each: pages as u32,
            };
        }
        let shift = crate::base::ilog2(share as u64);
        Self {
            zones: nodes,
            shift,
            pages_each: 1 << shift,
        }
    }
}
