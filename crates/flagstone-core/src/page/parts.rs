//! Where the page layer's own data lies: for the ledger.

use super::allocator::PageAllocator;
use crate::base::Pfn;
use crate::platform::Platform;
use crate::sync::Ordering::Acquire;
use core::ptr::NonNull;

impl<P: Platform> PageAllocator<P> {
    /// For each zone its first page and its frontier: the pages that were ever used.
    pub fn used_spans(&self) -> impl Iterator<Item = (Pfn, Pfn)> {
        self.zones().map(|zone| (zone.start(), zone.frontier()))
    }

    /// Calls `visit` with the start and the bytes of every part that describes pages: page map,
    /// resident bits, and the descriptors below each zone's frontier.
    pub fn each_memmap_part(&self, mut visit: impl FnMut(NonNull<u8>, usize)) {
        let known = self.map_limit().load(Acquire) >> self.page_size().shift();
        visit(self.page_map(), known);
        visit(self.memmap().resident().base(), known / 8);
        for (start, end) in self.used_spans().filter(|(start, end)| start < end) {
            let first = NonNull::from(self.descriptor(start));
            let bytes = (end.0 - start.0) as usize * self.memmap().spacing().bytes();
            visit(first.cast(), bytes);
        }
    }

    /// The start and the bytes of the zones and pagesets: all that lies before the page map.
    #[must_use]
    pub fn control_part(&self) -> (NonNull<u8>, usize) {
        let end = self.page_map().addr().get();
        match self.zones().next() {
            Some(zone) => {
                let start = NonNull::from(zone).cast::<u8>();
                (start, end - start.addr().get())
            }
            None => (self.page_map(), 0),
        }
    }

    /// Calls `visit` with the addresses of the reservation's parts: control and memmap, and each
    /// zone's data as far as it was not given up.
    pub fn each_reserved_part(&self, mut visit: impl FnMut(usize, usize)) {
        let (control, _) = self.control_part();
        visit(control.addr().get(), self.base().addr().get());
        for zone in self.zones() {
            let [start, end] = [zone.start(), zone.end()].map(|pfn| self.address(pfn).addr().get());
            visit(start, end);
        }
    }
}
