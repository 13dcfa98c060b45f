//! The geometry of a cache's slabs: how objects lie in a run of pages.
//!
//! ```text
//!   run  [ object 0 | object 1 | ... | object n-1 | tail ]      pages × page size
//!          ◄─ size ─►                               waste
//! ```
//!
//! A run is a buddy block when its length is a power of two, otherwise a block whose tail was
//! given back. Free links lie *aside*, in the descriptors, when objects are at least a sixteenth
//! of a page and there is room
//! for them, otherwise inside the free objects. The engines of older kernels ask for the place
//! those kernels use ([`LinkPlace`]), so that the same memory is touched.

use crate::base::{Order, PageCount, PageSize};
use crate::page::{OBJECTS_PER_PAGE_MAX, Spacing};

/// Link value, outside, of an object that is handed out (or never was).
pub(super) const ALLOCATED: u16 = 0xFFFE;

/// Most objects whose links fit in bytes: [`ALLOCATED`] and
/// [`NO_OBJECT`](super::state::NO_OBJECT) keep their low bytes.
pub(super) const LINKS_MAX: usize = ALLOCATED as u8 as usize;

/// Shift of the fixed-point reciprocal. Exact for offsets and sizes up to 4 MiB.
const RECIPROCAL_SHIFT: u32 = 42;

/// Where a free object's link lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkPlace {
    /// Among the descriptors of the slab's pages.
    Aside,
    /// In the object.
    Inside,
    /// In an array at the end of the slab, behind the last object.
    Tail,
}

/// Bytes of one link of [`LinkPlace::Tail`].
const TAIL_LINK_BYTES: usize = 2;

/// How objects lie in a slab. Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    size: u32,
    objects: u16,
    pages: u16,
    link_offset: u32,
    page_shift: u8,
    spacing: Spacing,
    place: LinkPlace,
    reciprocal: u64,
}

impl Geometry {
    /// Slabs of `pages` pages holding objects of stride `size`; `None` if not even one object
    /// fits or there would be more than 32767.
    ///
    /// `link_offset` is where a free object keeps its link when links are not aside.
    #[must_use]
    pub fn new(
        size: usize,
        link_offset: usize,
        pages: PageCount,
        page_size: PageSize,
        spacing: Spacing,
    ) -> Option<Self> {
        let bytes = pages.bytes(page_size);
        let objects = bytes.checked_div(size)?;
        if objects == 0 || objects > 32767 || bytes > page_size.block_bytes(Order::MAX) {
            return None;
        }
        Some(Self {
            size: size as u32,
            objects: objects as u16,
            pages: pages.0 as u16,
            link_offset: link_offset as u32,
            page_shift: page_size.shift() as u8,
            spacing,
            place: if size * OBJECTS_PER_PAGE_MAX >= page_size.bytes()
                && objects <= spacing.links_room(pages.0).min(LINKS_MAX)
            {
                LinkPlace::Aside
            } else {
                LinkPlace::Inside
            },
            reciprocal: (1u64 << RECIPROCAL_SHIFT).div_ceil(size as u64),
        })
    }

    /// The same slab with its links inside the objects, as SLUB has them.
    #[must_use]
    pub const fn with_links_inside(mut self) -> Self {
        self.place = LinkPlace::Inside;
        self
    }

    /// The same slab with at most `objects` objects and its links outside them, as SLAB has
    /// them; `None` if neither descriptors nor the tail have room for the links.
    #[must_use]
    pub const fn with_links_outside(mut self, objects: u32) -> Option<Self> {
        if objects == 0 {
            return None;
        }
        if objects < self.objects as u32 {
            self.objects = objects as u16;
        }
        if matches!(self.place, LinkPlace::Aside) {
            return Some(self);
        }
        self.place = LinkPlace::Tail;
        if self.tail_bytes() < self.objects as usize * TAIL_LINK_BYTES {
            return None;
        }
        Some(self)
    }

    /// Objects that lie in one line of 64 bytes as a whole, with none across its end; 1 where there are fewer than two.
    #[inline]
    #[must_use]
    pub const fn per_line(&self) -> u32 {
        match self.size {
            16 => 4,
            32 => 2,
            _ => 1,
        }
    }

    /// Bytes from one object to the next.
    #[inline]
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size as usize
    }

    /// Objects in one slab.
    #[inline]
    #[must_use]
    pub const fn objects(&self) -> u32 {
        self.objects as u32
    }

    /// Pages in one slab.
    #[inline]
    #[must_use]
    pub const fn pages(&self) -> PageCount {
        PageCount(self.pages as usize)
    }

    /// Bytes of one slab, the tail included.
    #[inline]
    #[must_use]
    pub const fn slab_bytes(&self) -> usize {
        (self.pages as usize) << self.page_shift
    }

    /// Bytes at the end of a slab that no object uses.
    #[inline]
    #[must_use]
    pub const fn tail_bytes(&self) -> usize {
        self.slab_bytes() - self.size() * self.objects as usize
    }

    /// The block order of a slab, if its length is a power of two that pagesets keep or a
    /// single block; other lengths are runs.
    #[inline]
    #[must_use]
    pub fn order(&self) -> Option<Order> {
        if self.pages.is_power_of_two() {
            Order::new(self.pages.trailing_zeros())
        } else {
            None
        }
    }

    /// Where free links lie.
    #[inline]
    #[must_use]
    pub const fn link_place(&self) -> LinkPlace {
        self.place
    }

    /// Whether free links lie in the descriptors, not in the objects.
    #[inline]
    #[must_use]
    pub const fn links_aside(&self) -> bool {
        matches!(self.place, LinkPlace::Aside)
    }

    /// Where the link of object `index` lies under [`LinkPlace::Tail`], from the slab's start.
    #[inline]
    #[must_use]
    pub const fn tail_link_offset(&self, index: u32) -> usize {
        self.slab_bytes() - (index as usize + 1) * TAIL_LINK_BYTES
    }

    /// Where a free object keeps its link ([`LinkPlace::Inside`]).
    #[inline]
    #[must_use]
    pub const fn link_offset(&self) -> usize {
        self.link_offset as usize
    }

    /// Binary logarithm of the page size.
    #[inline]
    #[must_use]
    pub const fn page_shift(&self) -> u32 {
        self.page_shift as u32
    }

    /// Distance of object `index` from the start of its slab.
    #[inline]
    #[must_use]
    pub const fn offset_of(&self, index: u32) -> usize {
        index as usize * self.size as usize
    }

    /// The object that starts `offset` bytes into the slab; `None` if none starts there.
    #[inline]
    #[must_use]
    pub const fn index_of(&self, offset: usize) -> Option<u32> {
        let index = (offset as u64 * self.reciprocal) >> RECIPROCAL_SHIFT;
        if index as usize * self.size as usize == offset && index < self.objects as u64 {
            Some(index as u32)
        } else {
            None
        }
    }

    /// Where the link of object `index` lies under [`LinkPlace::Aside`], in bytes from where the
    /// slab's links begin.
    #[inline]
    #[must_use]
    pub const fn aside_link_offset(&self, index: u32) -> usize {
        self.spacing.link_offset(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_object_start_is_found_and_nothing_else() {
        for page in [PageSize::K4, PageSize::K64] {
            for size in (8..2048)
                .step_by(8)
                .chain([4096, 4608, 20480, 32768, 65536])
            {
                for pages in [1usize, 2, 3, 5, 8] {
                    let Some(g) = Geometry::new(size, 0, PageCount(pages), page, Spacing::Packed)
                    else {
                        continue;
                    };
                    for index in 0..g.objects() {
                        let offset = g.offset_of(index);
                        assert_eq!(g.index_of(offset), Some(index));
                        assert_eq!(g.index_of(offset + 1), None);
                        assert_eq!(g.index_of(offset + size / 2 + 1), None);
                    }
                    assert_eq!(g.index_of(g.offset_of(g.objects())), None);
                }
            }
        }
    }

    #[test]
    fn links_aside_never_share_a_byte_nor_lie_where_a_page_is_described() {
        for (spacing, least) in [(Spacing::Packed, 4), (Spacing::Lines, 1)] {
            for size in (256..9000).step_by(8) {
                for pages in least..=8 {
                    let slab = Geometry::new(size, 0, PageCount(pages), PageSize::K4, spacing);
                    let Some(g) = slab else { continue };
                    assert!(g.links_aside(), "{size} bytes in {pages} pages");
                    let links: BTreeSet<_> =
                        (0..g.objects()).map(|i| g.aside_link_offset(i)).collect();
                    assert_eq!(links.len(), g.objects() as usize);
                    // From the head's descriptor on: descriptors end with what every page needs.
                    let own = size_of::<crate::page::Descriptor>();
                    for at in links.iter().map(|link| own + link) {
                        assert!(at < pages * spacing.bytes());
                        match spacing {
                            Spacing::Packed => assert!(at % own < 24),
                            Spacing::Lines => assert!(at / own % 2 == 1),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_slab_without_room_for_links_keeps_them_in_its_objects() {
        let of = |size, pages| {
            Geometry::new(size, 0, PageCount(pages), PageSize::K4, Spacing::Packed)
                .expect("fits")
                .link_place()
        };
        assert_eq!(of(256, 1), LinkPlace::Inside);
        assert_eq!(of(256, 2), LinkPlace::Inside);
        assert_eq!(of(352, 2), LinkPlace::Aside);
        assert_eq!(of(4096, 1), LinkPlace::Inside);
    }
}
