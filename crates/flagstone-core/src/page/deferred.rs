//! Frees that come at the wrong moment: from a signal handler on top of the zone lock's holder.
//!
//! ```text
//!   deferred ─► block ─► block ─► ∅        pushed by handlers, taken whole by the next holder (stack.rs)
//! ```

use super::descriptor::PageKind;
use super::memmap::Memmap;
use super::zone::{Zone, ZoneCore};
use crate::base::{PageCount, Pfn};
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;

impl<P: Platform> Zone<P> {
    /// The blocks that wait, for `verify`.
    pub(crate) fn deferred(&self, map: &Memmap) -> impl Iterator<Item = Pfn> {
        self.shared.deferred.iter(|pfn| &map.descriptor(pfn).next)
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
        self.shared
            .deferred
            .push(|pfn| &map.descriptor(pfn).next, pfn);
    }

    #[cold]
    pub(super) fn drain_deferred(&self, core: &mut ZoneCore, map: &Memmap) {
        for pfn in self.shared.deferred.take(|pfn| &map.descriptor(pfn).next) {
            let pages = PageCount(map.descriptor(pfn).spare.load(Relaxed) as usize);
            self.put(core, map, pfn, pages, true);
        }
        // What is too much is given back at the next free.
        let _ = self.publish_free(core, map);
    }
}
