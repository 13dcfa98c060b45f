//! Frees that come at the wrong moment: from a signal handler on top of the zone lock's holder.
//!
//! ```text
//!   deferred ─► block ─► block ─► ∅        pushed by handlers, taken whole by the next holder
//! ```
//!
//! Pushing is a compare-and-swap on the head; taking everything is one swap, so a block cannot be
//! taken twice and no tag is needed.

use super::descriptor::PageKind;
use super::memmap::Memmap;
use super::zone::{Zone, ZoneCore};
use crate::base::{PageCount, Pfn};
use crate::platform::Platform;
use crate::sync::Ordering::{AcqRel, Relaxed, Release};

impl<P: Platform> Zone<P> {
    /// Head of the deferred stack, for `verify`.
    pub(crate) fn deferred(&self) -> Pfn {
        Pfn(self.shared.deferred.load(Relaxed))
    }

    /// Leaves a block for the next holder of the lock.
    ///
    /// # Safety
    /// 1. As for `free`.
    #[cold]
    pub(super) unsafe fn defer(&self, map: &Memmap, pfn: Pfn, pages: PageCount) {
        let page = map.descriptor(pfn);
        page.set_kind(PageKind::Parked);
        page.spare.store(pages.0 as u32, Relaxed);
        let head = &self.shared.deferred;
        let mut first = head.load(Relaxed);
        loop {
            page.next.store(first, Relaxed);
            match head.compare_exchange_weak(first, pfn.0, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    #[cold]
    pub(super) fn drain_deferred(&self, core: &mut ZoneCore, map: &Memmap) {
        let mut pfn = Pfn(self.shared.deferred.swap(Pfn::NONE.0, AcqRel));
        while pfn.is_some() {
            let page = map.descriptor(pfn);
            let next = Pfn(page.next.load(Relaxed));
            let pages = PageCount(page.spare.load(Relaxed) as usize);
            self.put(core, map, pfn, pages, true);
            pfn = next;
        }
        // What is too much is given back at the next free.
        let _ = self.publish_free(core);
    }
}
