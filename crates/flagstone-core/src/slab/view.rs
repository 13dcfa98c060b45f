//! Looks into the slab layer for `verify` and `stats`: nothing here changes anything.
//!
//! All answers are exact only while nothing is under way on the heap.

use super::cache::Cache;
use super::engine::Engines;
use super::slab::Slab;
use super::slabs::Slabs;
use crate::base::{NodeId, Pfn};
use crate::page::PageKind;
use crate::sync::Ordering::Relaxed;

/// One slab, for a look at its links.
pub struct SlabView<'a, P: Engines> {
    slab: Slab<'a, P>,
}

impl<P: Engines> SlabView<'_, P> {
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

impl<P: Engines> Slabs<P> {
    /// The heads of all slabs of a cache, in the order of their pages.
    pub fn slab_heads<'a>(&'a self, cache: &'a Cache) -> impl Iterator<Item = Pfn> + 'a {
        let limit = self.pages().map_limit().load(Relaxed) >> self.pages().page_size().shift();
        (0..limit as u32).map(Pfn).filter(|&pfn| {
            self.cache_of_page(pfn)
                .is_some_and(|of| of.id() == cache.id())
                && self.pages().descriptor(pfn).kind() == PageKind::Slab
        })
    }

    /// One slab of a cache.
    #[must_use]
    pub fn view<'a>(&'a self, cache: &'a Cache, pfn: Pfn) -> SlabView<'a, P> {
        // SAFETY: callers have the page from `slab_heads` of this cache.
        let slab = unsafe { Slab::at(self, cache, pfn) };
        SlabView { slab }
    }

    /// First slab of a node's partial list.
    #[must_use]
    pub fn partial_head(&self, cache: &Cache, node: NodeId) -> Pfn {
        let list = self.node(cache.id(), node).list().lock::<P>();
        list.map_or(Pfn::NONE, |list| list.head())
    }
}
