//! Pages that wait for the next holder of a lock: signal handlers on top of its holder left them.
//!
//! ```text
//!   first ─► page ─► page ─► ∅        pushed without the lock, taken whole by the next holder
//! ```
//!
//! The links are those of the descriptors; callers say where, and whoever reads one took it with the head. Pushing is a compare-and-swap on the
//! head; taking everything is one swap, so a page cannot be taken twice and no tag is needed.

use crate::base::Pfn;
use crate::sync::AtomicU32;
use crate::sync::Ordering::{AcqRel, Relaxed, Release};

/// The first of the pages that wait.
#[derive(Debug)]
pub(crate) struct PageStack(AtomicU32);

impl PageStack {
    /// Nothing waits.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(Pfn::NONE.0))
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == Pfn::NONE.0
    }

    /// Leaves a page that is on no list and in nobody else's hands.
    pub(crate) fn push<'a>(&self, link: impl Fn(Pfn) -> &'a AtomicU32, pfn: Pfn) {
        let link = link(pfn);
        let mut first = self.0.load(Relaxed);
        loop {
            link.store(first, Relaxed);
            match self.0.compare_exchange_weak(first, pfn.0, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all of them. Each is the caller's as it comes, and may be put on a list.
    pub(crate) fn take<'a>(
        &self,
        link: impl Fn(Pfn) -> &'a AtomicU32,
    ) -> impl Iterator<Item = Pfn> {
        walk(Pfn(self.0.swap(Pfn::NONE.0, AcqRel)), link)
    }

    /// Those that wait; exact when no other thread is at work.
    pub(crate) fn iter<'a>(
        &self,
        link: impl Fn(Pfn) -> &'a AtomicU32,
    ) -> impl Iterator<Item = Pfn> {
        walk(Pfn(self.0.load(Relaxed)), link)
    }
}

/// The pages from `first` on. A page's link is read before the page is handed out.
fn walk<'a>(first: Pfn, link: impl Fn(Pfn) -> &'a AtomicU32) -> impl Iterator<Item = Pfn> {
    let mut pfn = first;
    core::iter::from_fn(move || {
        let page = Some(pfn).filter(|pfn| pfn.is_some())?;
        pfn = Pfn(link(page).load(Relaxed));
        Some(page)
    })
}

#[cfg(loom)]
impl PageStack {
    pub(crate) fn follow(&self, mistake: crate::sync::followed::Mistake) {
        self.0.follow_swaps(mistake);
    }
}

#[cfg(all(test, loom))]
#[path = "stack_loom.rs"]
mod tests;
