//! Looks into the slab layer for `verify` and `stats`: nothing here changes anything.
//!
//! All answers are exact only while nothing is under way on the heap.

use super::cache::Cache;
use super::engine::Engines;
use super::slab::Slab;
use super::slabs::Slabs;
use crate::base::Pfn;
use crate::page::PageKind;
use crate::sync::Ordering::Relaxed;

/// One slab, for a look at its links.
pub struct SlabView<'a, P: Engines> {
    slab: Slab<'a, P>,
}

impl<'a, P: Engines> SlabView<'a, P> {
    /// The heads of all slabs of a cache, in the order of their pages.
    pub fn heads(slabs: &'a Slabs<P>, cache: &'a Cache) -> impl Iterator<Item = Pfn> + 'a {
        let pages = slabs.pages();
        let limit = pages.map_limit().load(Relaxed) >> pages.page_size().shift();
        (0..limit as u32).map(Pfn).filter(move |&pfn| {
            let of = slabs.cache_of_page(pfn);
            of.is_some_and(|of| of.id() == cache.id())
                && pages.descriptor(pfn).kind() == PageKind::Slab
        })
    }

    /// One slab of a cache.
    #[must_use]
    pub fn of(slabs: &'a Slabs<P>, cache: &'a Cache, pfn: Pfn) -> Self {
        // SAFETY: callers have the page from `heads` of this cache.
        let slab = unsafe { Slab::at(slabs, cache, pfn) };
        Self { slab }
    }

    /// The slab's first page.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        self.slab.pfn
    }

    /// The link of object `index`: the object behind it or [`NO_OBJECT`]; `None` if it carries
    /// no (valid) link, as objects that are handed out do not.
    #[must_use]
    pub fn link(&self, index: u32) -> Option<u32> {
        if index >= self.slab.cache.geometry().objects() {
            return None;
        }
        self.slab.links.peek(index)
    }
}
