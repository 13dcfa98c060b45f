//! One slab: taking objects out of it, putting chains of objects back.
//!
//! ```text
//!   take_into   chain objects first, then objects never handed out     by whoever isolated it
//!   put_chain   one compare-and-swap; list work only when the slab     by anybody, any time
//!               was full or becomes empty
//! ```
//!
//! All engines are written over these two steps (docs: linux-policies 4.4 and 5.4).

use super::cache::Cache;
use super::chain::Links;
use super::node::Node;
use super::slabs::Slabs;
use super::state::SlabState;
use crate::base::Pfn;
use crate::page::{Descriptor, PageKind, Pagesets};
use crate::platform::{Access, Fault, Line, Platform};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use core::ptr::NonNull;

/// A live slab of a known cache.
pub struct Slab<'a, P: Platform> {
    /// The heap it belongs to.
    pub slabs: &'a Slabs<P>,
    /// Its cache.
    pub cache: &'a Cache,
    /// Its first page.
    pub pfn: Pfn,
    /// That page's descriptor.
    pub descriptor: &'a Descriptor,
    /// The links of its free objects.
    pub links: Links<'a, P>,
}

/// A chain of free objects of one slab, linked but not yet part of it.
#[derive(Clone, Copy)]
pub struct Chain {
    /// Index of the first object.
    pub first: u32,
    /// Index of the last one.
    pub last: u32,
    /// How many they are.
    pub count: u32,
}

/// What a taker got, and whether the slab was full at that moment.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub count: u32,
    pub full: bool,
}

/// One object that was taken, and whether the slab was full at that moment.
#[derive(Clone, Copy)]
pub(crate) struct TakenOne {
    pub object: NonNull<u8>,
    pub full: bool,
}

impl Taken {
    pub(super) const NOTHING: Self = Self {
        count: 0,
        full: false,
    };
}

impl<'a, P: Pagesets> Slab<'a, P> {
    /// The slab headed by `pfn`.
    ///
    /// # Safety
    /// 1. `pfn` heads a live slab of `cache`.
    pub unsafe fn at(slabs: &'a Slabs<P>, cache: &'a Cache, pfn: Pfn) -> Self {
        let descriptor = slabs.pages().descriptor(pfn);
        let start = slabs.pages().address(pfn);
        let seal = Links::<P>::seal_of(slabs.secret(), descriptor.spare.load(Relaxed));
        let aside = slabs.pages().links_of(pfn);
        // SAFETY: obligation 1.
        let links = unsafe { Links::new(aside, start, cache.geometry(), seal) };
        Self {
            slabs,
            cache,
            pfn,
            descriptor,
            links,
        }
    }

    /// The slab that holds `object`, and the object's index in it. Ends the program if no object
    /// of the cache starts there.
    ///
    /// # Safety
    /// 1. The page map named `cache` for the page of `object`, and the slab is still live
    ///    (the object is handed out, or the program freed it wrongly).
    pub unsafe fn holding(
        slabs: &'a Slabs<P>,
        cache: &'a Cache,
        object: NonNull<u8>,
    ) -> (Self, u32) {
        let pages = slabs.pages();
        let head = pages
            .pfn_of(object.as_ptr())
            .and_then(|pfn| pages.head_of(pfn));
        let Some(head) = head.filter(|&h| pages.descriptor(h).kind() == PageKind::Slab) else {
            P::fatal(Fault::InvalidFree, object.as_ptr())
        };
        // SAFETY: obligation 1.
        let slab = unsafe { Self::at(slabs, cache, head) };
        let index = slab.index(object);
        (slab, index)
    }

    /// The index of `object`. Ends the program if no object handed out starts there.
    #[inline]
    pub fn index(&self, object: NonNull<u8>) -> u32 {
        let start = self.slabs.pages().address(self.pfn).as_ptr() as usize;
        let offset = (object.as_ptr() as usize).wrapping_sub(start);
        match self.cache.geometry().index_of(offset) {
            Some(index) if index < self.fresh() => index,
            _ => P::fatal(Fault::InvalidFree, object.as_ptr()),
        }
    }

    /// Whether `object` lies in this slab.
    #[inline]
    pub fn contains(&self, object: NonNull<u8>) -> bool {
        let start = self.slabs.pages().address(self.pfn).as_ptr() as usize;
        (object.as_ptr() as usize).wrapping_sub(start) < self.cache.geometry().slab_bytes()
    }

    /// The state word now.
    #[inline]
    pub fn state(&self) -> SlabState {
        SlabState(self.descriptor.state.load(Acquire))
    }

    /// Replaces the state word if it is still `old`.
    #[inline]
    pub fn swap_state(&self, old: SlabState, new: SlabState) -> bool {
        let swapped = self
            .descriptor
            .state
            .compare_exchange(old.0, new.0, AcqRel, Relaxed)
            .is_ok();
        P::changed();
        swapped
    }

    /// Objects from this index on were never handed out.
    #[inline]
    pub fn fresh(&self) -> u32 {
        u32::from(self.descriptor.fresh.load(Relaxed))
    }

    /// Says that the slab's line is about to be used.
    pub fn touch(&self, access: Access) {
        P::touch(
            Line::Slab,
            core::ptr::from_ref(self.descriptor).cast(),
            access,
        );
    }

    /// The node whose list this slab belongs to.
    pub fn node(&self) -> &'a Node {
        self.slabs.node(self.cache.id(), self.descriptor.node())
    }
}
