//! Links of free objects: where they lie, and how damage to them is noticed.
//!
//! ```text
//!   aside   (size ≥ page / 16)   a byte among the descriptors: next index, none, or handed out
//!   inside  (smaller)            8 bytes in the object:   [ seal 48 bits | next index 16 bits ]
//!   tail    (SLAB's way)         u16 array behind the last object: as aside
//! ```
//!
//! An object that is handed out carries no link: `ALLOCATED` aside, a broken seal inside. So
//! freeing it twice into its slab is noticed, and a write to a free object breaks the seal. The
//! seal depends on the object's address, the slab's generation and a secret of the heap, so that
//! stale memory of an earlier slab does not look sealed. Its link lies at the middle of an object, so one word may
//! bear seals of several objects: generations are spread, or those of one equal another's.
//!
//! Invariants
//! - `chain.linked`: every object on a slab's chain has a link; no object handed out has one.

use super::geometry::{ALLOCATED, Geometry, LINKS_MAX, LinkPlace};
use super::state::NO_OBJECT;
use crate::platform::{Access, Fault, Line, Platform};
use crate::sync::{AtomicU8, AtomicU16, AtomicU64, Ordering::Relaxed};
use core::marker::PhantomData;
use core::ptr::NonNull;

/// What is needed to read and write the links of one slab.
pub struct Links<'a, P: Platform> {
    /// Where links aside begin.
    aside: NonNull<u8>,
    start: NonNull<u8>,
    geometry: &'a Geometry,
    secret: u64,
    world: PhantomData<P>,
}

impl<'a, P: Platform> Links<'a, P> {
    /// The links of a slab whose first byte is `start`, and whose links aside begin at `aside`.
    /// `seal_base` is [`Links::seal_of`] the slab, noted earlier where its descriptor need not be
    /// read: its line may be in use elsewhere.
    ///
    /// # Safety
    /// 1. A live slab of this geometry starts at `start`; `aside` is where the page layer puts
    ///    its links, and `seal_base` is this slab's.
    #[inline]
    #[must_use]
    pub unsafe fn new(
        aside: NonNull<u8>,
        start: NonNull<u8>,
        geometry: &'a Geometry,
        seal_base: u64,
    ) -> Self {
        Self {
            aside,
            start,
            geometry,
            secret: seal_base,
            world: PhantomData,
        }
    }

    /// What seals the links of a slab of this `generation`, apart from their addresses.
    #[inline]
    #[must_use]
    pub const fn seal_of(secret: u64, generation: u32) -> u64 {
        secret ^ (generation as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }

    /// The seal of the link of the object at `address`: the upper 48 bits.
    #[inline]
    const fn sealed(base: u64, address: u64) -> u64 {
        (base ^ address.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15) & !0xFFFF
    }

    /// What seals this slab's links, apart from their addresses.
    #[inline]
    #[must_use]
    pub fn seal_base(&self) -> u64 {
        self.secret
    }

    /// The address of object `index`.
    #[inline]
    #[must_use]
    pub fn object(&self, index: u32) -> NonNull<u8> {
        // SAFETY: `index` is below the slab's object count wherever this type gets one from.
        unsafe { self.start.byte_add(self.geometry.offset_of(index)) }
    }

    /// The link of `index` aside.
    #[inline]
    fn aside(&self, index: u32) -> &AtomicU8 {
        let offset = self.geometry.aside_link_offset(index);
        // SAFETY: obligation 1 of `new`: the descriptors of all pages of the slab follow the
        // head's, and the geometry saw to it that they have room for every object's link.
        unsafe { self.aside.byte_add(offset).cast().as_ref() }
    }

    /// The link of `index` at the end of the slab.
    #[inline]
    fn tail(&self, index: u32) -> &AtomicU16 {
        let offset = self.geometry.tail_link_offset(index);
        // SAFETY: the geometry saw to it that the tail holds a link for every object; the offset
        // is even and slabs start at a page.
        unsafe { self.start.byte_add(offset).cast().as_ref() }
    }

    /// The link of `index` outside its object.
    #[inline]
    fn outside(&self, index: u32) -> u16 {
        if self.geometry.link_place() == LinkPlace::Tail {
            return self.tail(index).load(Relaxed);
        }
        match self.aside(index).load(Relaxed) {
            link if usize::from(link) < LINKS_MAX => u16::from(link),
            mark => 0xFF00 | u16::from(mark),
        }
    }

    #[inline]
    fn set_outside(&self, index: u32, link: u16) {
        if self.geometry.link_place() == LinkPlace::Tail {
            self.tail(index).store(link, Relaxed);
        } else {
            self.aside(index).store(link as u8, Relaxed);
        }
    }

    #[inline]
    fn is_outside(&self) -> bool {
        self.geometry.link_place() != LinkPlace::Inside
    }

    #[inline]
    fn inside(&self, index: u32) -> &AtomicU64 {
        let offset = self.geometry.offset_of(index) + self.geometry.link_offset();
        // SAFETY: the link lies inside the object (layout rule) and is aligned to a word; the
        // object is free, so only the slab's owner reaches it.
        unsafe { self.start.byte_add(offset).cast::<AtomicU64>().as_ref() }
    }

    #[inline]
    fn seal(&self, index: u32) -> u64 {
        Self::sealed(self.secret, self.object(index).as_ptr() as u64)
    }

    /// Begins to fetch the lines of the links, where they lie inside the objects.
    #[inline(never)]
    pub fn fetch_ahead(&self) {
        /// Bytes of a line; where lines are longer some are asked for twice.
        const LINE: usize = 64;
        if self.geometry.link_place() == LinkPlace::Inside {
            let step = (LINE / self.geometry.size()).max(1);
            for index in (0..self.geometry.objects()).step_by(step) {
                P::fetch_ahead(core::ptr::from_ref(self.inside(index)).cast());
            }
        }
    }

    /// Marks `index` as free with `next` behind it. Ends the program if it is free already.
    #[inline]
    pub fn free(&self, index: u32, next: u32) {
        if self.is_outside() {
            // Load, then store: the link belongs to one caller at a time.
            if self.outside(index) != ALLOCATED {
                P::fatal(Fault::DoubleFree, self.object(index).as_ptr());
            }
            self.set_outside(index, next as u16);
        } else {
            P::touch(Line::Object, self.object(index).as_ptr(), Access::Write);
            let link = self.inside(index);
            let seal = self.seal(index);
            let old = link.load(Relaxed);
            if old & !0xFFFF == seal {
                P::fatal(Fault::DoubleFree, self.object(index).as_ptr());
            }
            link.store(seal | u64::from(next as u16), Relaxed);
        }
    }

    /// Points the free object `index` at another `next`.
    #[inline]
    pub fn relink(&self, index: u32, next: u32) {
        if self.is_outside() {
            self.set_outside(index, next as u16);
        } else {
            self.inside(index)
                .store(self.seal(index) | u64::from(next as u16), Relaxed);
        }
    }

    /// The free object behind `index`, or [`NO_OBJECT`]; `None` if `index` carries no valid link.
    #[inline]
    #[must_use]
    pub fn peek(&self, index: u32) -> Option<u32> {
        let next = if self.is_outside() {
            Some(self.outside(index)).filter(|&next| next != ALLOCATED)
        } else {
            let word = self.inside(index).load(Relaxed);
            (word & !0xFFFF == self.seal(index)).then_some(word as u16)
        };
        next.map(u32::from)
            .filter(|&next| next == NO_OBJECT || next < self.geometry.objects())
    }

    /// The free object behind `index`. Ends the program if the link is damaged.
    #[inline]
    #[must_use]
    pub fn next(&self, index: u32) -> u32 {
        if !self.is_outside() {
            P::touch(Line::Object, self.object(index).as_ptr(), Access::Read);
        }
        match self.peek(index) {
            Some(next) => next,
            None => self.damaged(index),
        }
    }

    /// Whether object `index` is on the chain of free objects; only where links are aside.
    #[must_use]
    pub fn is_free_aside(&self, index: u32) -> bool {
        debug_assert!(self.geometry.links_aside());
        self.outside(index) != ALLOCATED
    }

    /// Takes the mark of a free object off: it is handed out. Returns the object behind it.
    #[inline]
    pub fn take(&self, index: u32) -> u32 {
        let next = self.next(index);
        if self.is_outside() {
            self.set_outside(index, ALLOCATED);
        } else {
            self.inside(index).store(0, Relaxed);
        }
        next
    }

    /// Marks all objects of a new slab as never handed out.
    pub fn reset(&self) {
        if self.is_outside() {
            for index in 0..self.geometry.objects() {
                self.set_outside(index, ALLOCATED);
            }
        }
    }

    /// Links all objects of a slab that nobody else knows, in ascending order: the chain starts
    /// at object 0. Touches every object where the links are inside, as the kernels do.
    pub fn link_all(&self) {
        for index in 0..self.geometry.objects() {
            let next = match index + 1 {
                past if past == self.geometry.objects() => NO_OBJECT,
                next => next,
            };
            if !self.is_outside() {
                P::touch(Line::Object, self.object(index).as_ptr(), Access::Write);
            }
            self.relink(index, next);
        }
    }

    #[cold]
    #[inline(never)]
    fn damaged(&self, index: u32) -> ! {
        P::fatal(Fault::CorruptedFreeList, self.object(index).as_ptr())
    }
}

#[cfg(loom)]
impl<P: Platform> Links<'_, P> {
    /// Has loom follow the link of object `index`.
    pub fn follow(&self, index: u32) {
        match self.geometry.link_place() {
            LinkPlace::Inside => self.inside(index).follow(),
            LinkPlace::Aside => self.aside(index).follow(),
            LinkPlace::Tail => self.tail(index).follow(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::testing::Testing;
    use std::collections::HashSet;

    /// A word holds the link of one object in one slab, and of a neighbour's in the next.
    #[test]
    fn no_two_slabs_seal_neighbours_alike() {
        let mut seen = HashSet::new();
        for generation in 0..1 << 16 {
            let base = Links::<Testing>::seal_of(0x1234_5678_9ABC_DEF0, generation);
            for apart in [0, 8, 16, 48, 64, 128, 1024, 8192] {
                let seal = Links::<Testing>::sealed(base, 0x7F00_1990_D000 + apart);
                assert!(seen.insert(seal), "{generation} {apart}");
            }
        }
    }
}
