//! Links of free objects: where they lie, and how damage to them is noticed.
//!
//! ```text
//!   aside   (size ≥ page / 16)   descriptor.links[part]:  next index, NO_OBJECT, or ALLOCATED
//!   inside  (smaller)            8 bytes in the object:   [ seal 48 bits | next index 16 bits ]
//! ```
//!
//! An object that is handed out carries no link: `ALLOCATED` aside, a broken seal inside. So
//! freeing it twice into its slab is noticed, and a write to a free object breaks the seal. The
//! seal depends on the object's address, the slab's generation and a secret of the heap, so that
//! stale memory of an earlier slab does not look sealed.
//!
//! Invariants
//! - `chain.linked`: every object on a slab's chain has a link; no object handed out has one.

use super::geometry::Geometry;
use super::state::NO_OBJECT;
use crate::page::Descriptor;
use crate::platform::{Access, Fault, Line, Platform};
use crate::sync::Ordering::Relaxed;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// Link value, aside, of an object that is handed out (or never was).
pub const ALLOCATED: u16 = 0xFFFE;

/// What is needed to read and write the links of one slab.
pub struct Links<'a, P: Platform> {
    /// First of the slab's descriptors (they adjoin each other).
    descriptor: &'a Descriptor,
    start: NonNull<u8>,
    geometry: &'a Geometry,
    secret: u64,
    world: PhantomData<P>,
}

impl<'a, P: Platform> Links<'a, P> {
    /// The links of the slab whose head descriptor and first byte are given.
    ///
    /// # Safety
    /// 1. `descriptor` heads a live slab of this geometry starting at `start`, and the
    ///    descriptors of its further pages follow it in memory.
    #[inline]
    #[must_use]
    pub unsafe fn new(
        descriptor: &'a Descriptor,
        start: NonNull<u8>,
        geometry: &'a Geometry,
        secret: u64,
    ) -> Self {
        let secret = secret ^ (u64::from(descriptor.spare.load(Relaxed)) << 20);
        Self {
            descriptor,
            start,
            geometry,
            secret,
            world: PhantomData,
        }
    }

    /// The address of object `index`.
    #[inline]
    #[must_use]
    pub fn object(&self, index: u32) -> NonNull<u8> {
        // SAFETY: `index` is below the slab's object count wherever this type gets one from.
        unsafe { self.start.byte_add(self.geometry.offset_of(index)) }
    }

    #[inline]
    fn aside(&self, index: u32) -> &core::sync::atomic::AtomicU16 {
        let (page, part) = self.geometry.link_cell(self.geometry.offset_of(index));
        let first: *const Descriptor = self.descriptor;
        // SAFETY: obligation 1 of `new`: the descriptors of all pages of the slab follow the
        // head, and `page` is below the slab's length.
        let descriptor = unsafe { &*first.add(page) };
        &descriptor.links[part]
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
        let address = self.object(index).as_ptr() as u64;
        (self.secret ^ address.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15) & !0xFFFF
    }

    /// Marks `index` as free with `next` behind it. Ends the program if it is free already.
    #[inline]
    pub fn free(&self, index: u32, next: u32) {
        if self.geometry.links_aside() {
            let link = self.aside(index);
            if link.swap_relaxed(next as u16) != ALLOCATED {
                P::fatal(Fault::DoubleFree, self.object(index).as_ptr());
            }
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
        if self.geometry.links_aside() {
            self.aside(index).store(next as u16, Relaxed);
        } else {
            self.inside(index)
                .store(self.seal(index) | u64::from(next as u16), Relaxed);
        }
    }

    /// The free object behind `index`. Ends the program if the link is damaged.
    #[inline]
    #[must_use]
    pub fn next(&self, index: u32) -> u32 {
        let next = if self.geometry.links_aside() {
            let next = self.aside(index).load(Relaxed);
            if next == ALLOCATED {
                self.damaged(index)
            } else {
                u32::from(next)
            }
        } else {
            P::touch(Line::Object, self.object(index).as_ptr(), Access::Read);
            let word = self.inside(index).load(Relaxed);
            if word & !0xFFFF == self.seal(index) {
                (word & 0xFFFF) as u32
            } else {
                self.damaged(index)
            }
        };
        if next != NO_OBJECT && next >= self.geometry.objects() {
            self.damaged(index)
        } else {
            next
        }
    }

    /// Whether object `index` is on the chain of free objects; only where links are aside.
    #[must_use]
    pub fn is_free_aside(&self, index: u32) -> bool {
        debug_assert!(self.geometry.links_aside());
        self.aside(index).load(Relaxed) != ALLOCATED
    }

    /// Takes the mark of a free object off: it is handed out. Returns the object behind it.
    #[inline]
    pub fn take(&self, index: u32) -> u32 {
        let next = self.next(index);
        if self.geometry.links_aside() {
            self.aside(index).store(ALLOCATED, Relaxed);
        } else {
            self.inside(index).store(0, Relaxed);
        }
        next
    }

    /// Marks all objects of a new slab as never handed out.
    pub fn reset(&self) {
        if !self.geometry.links_aside() {
            return;
        }
        let first: *const Descriptor = self.descriptor;
        for page in 0..self.geometry.pages().0 {
            // SAFETY: as in `aside`.
            let descriptor = unsafe { &*first.add(page) };
            for link in &descriptor.links {
                link.store(ALLOCATED, Relaxed);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn damaged(&self, index: u32) -> ! {
        P::fatal(Fault::CorruptedFreeList, self.object(index).as_ptr())
    }
}

trait SwapRelaxed {
    fn swap_relaxed(&self, value: u16) -> u16;
}

impl SwapRelaxed for core::sync::atomic::AtomicU16 {
    /// Load then store: the cell belongs to one caller at a time, so no atomic swap is needed.
    #[inline]
    fn swap_relaxed(&self, value: u16) -> u16 {
        let old = self.load(Relaxed);
        self.store(value, Relaxed);
        old
    }
}
