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
use crate::base::{NodeId, Pfn};
use crate::page::{Descriptor, PageKind, Pagesets, flag};
use crate::platform::{Access, Fault, Line, Platform, Work};
use crate::policy::Engine;
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

    /// A slab none of whose objects was handed out, on no list; the caller owns it.
    pub fn create(slabs: &'a Slabs<P>, cache: &'a Cache, near: NodeId) -> Option<Self> {
        let pages = slabs.pages();
        let geometry = cache.geometry();
        let block = match geometry.order() {
            Some(order) => pages.alloc_block(order, near)?,
            None => pages.alloc_run(geometry.pages(), near)?,
        };
        P::work(Work::NewSlab(match cache.links_when_taken() {
            true => 0,
            false => geometry.pages().0 as u32,
        }));
        let pfn = block.pfn;
        pages.name_tails(pfn, geometry.pages());
        Self::describe(slabs, cache, pfn);
        // SAFETY: just described; nobody else knows it.
        let slab = unsafe { Self::at(slabs, cache, pfn) };
        slab.links.reset();
        slab.node().slabs.fetch_add(1, Relaxed);
        Some(slab)
    }

    /// Makes a block a slab. Its length and its tails are the page layer's to say (`page.tails`).
    fn describe(slabs: &Slabs<P>, cache: &Cache, pfn: Pfn) {
        let geometry = cache.geometry();
        let head = slabs.pages().descriptor(pfn);
        head.cache.store(cache.id().0, Relaxed);
        head.fresh.store(0, Relaxed);
        head.flags.store(0, Relaxed);
        let generation = match geometry.links_aside() {
            true => 0,
            false => slabs.next_generation(),
        };
        head.spare.store(generation, Relaxed);
        let state = SlabState::untouched(geometry.objects());
        head.state.store(state.0, Relaxed);
        head.set_kind(PageKind::Slab);
        slabs.map_pages(pfn, geometry.pages(), cache.id().0 as u8);
    }

    /// Gives an empty slab that is on no list back to the page layer.
    pub fn give_back(&self) {
        let (pages, length) = (self.slabs.pages(), self.cache.geometry().pages());
        let holes = match self.descriptor.has(flag::HOLES) {
            true => self.descriptor.spare.load(Relaxed),
            false => 0,
        };
        self.node().slabs.fetch_sub(1, Relaxed);
        self.slabs.map_pages(self.pfn, length, 0);
        // SAFETY: the slab is empty and on no list, so nobody refers to its pages any more.
        unsafe {
            match self.cache.geometry().order() {
                _ if holes != 0 => pages.free_with_holes(self.pfn, length, holes),
                Some(order) => pages.free_block(self.pfn, order),
                None => pages.free_run(self.pfn, length),
            }
        }
    }

    /// Notes which pages are given back; answers which were.
    pub(super) fn note_holes(&self, holes: u32) -> u32 {
        self.descriptor.mark(flag::HOLES, holes != 0);
        self.descriptor.spare.swap(holes, Relaxed)
    }

    /// Forgets the holes before objects are handed out.
    #[inline]
    pub(super) fn fill_holes(&self) {
        if self.descriptor.has(flag::HOLES) {
            let holes = self.note_holes(0);
            let pages = self.slabs.pages();
            pages.fill_holes(self.pfn, holes);
            let budget = pages.budget();
            budget.charge_holes(holes.count_ones() as usize, P::now());
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

    /// Ends the program unless an object of `cache` that was handed out starts at `object`, or if
    /// it is free in its slab. What is free in a sheaf is not noticed here.
    ///
    /// # Safety
    /// 1. As for `holding`.
    pub(crate) unsafe fn assert_live(slabs: &'a Slabs<P>, cache: &'a Cache, object: NonNull<u8>) {
        // SAFETY: obligation 1.
        let (slab, index) = unsafe { Self::holding(slabs, cache, object) };
        if cache.engine() == Engine::Sheaf && slab.links.peek(index).is_some() {
            P::fatal(Fault::DoubleFree, object.as_ptr());
        }
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
        P::touch(Line::Slab, (&raw const *self.descriptor).cast(), access);
    }

    /// The node whose list this slab belongs to.
    pub fn node(&self) -> &'a Node {
        self.slabs.node(self.cache.id(), self.descriptor.node())
    }
}
