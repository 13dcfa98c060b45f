//! The memmap: where pages, and what is known about them, lie in one reservation.
//!
//! ```text
//!   reserve ─► [ control | page map | resident bits | descriptors | slack ][ data ............ ]
//!                          1 B/page   1 bit/page   32 or 64 B/page          ▲ aligned to a block
//!                                                                           │ of Order::MAX
//!                                                                           pfn 0
//! ```
//!
//! Parts are committed as the zones' frontiers advance: page map and resident bits as one prefix
//! of all pages (so that any address below [`Memmap::map_limit`] may be looked up without a
//! lock), descriptors and data zone by zone.
//!
//! Every pointer into the reservation is derived here, from the base of its part.
//!
//! Invariants
//! - `memmap.limit`: page map bytes and resident bits of all pages below the limit are readable.

use super::budget::Budget;
use super::config::Retention;
use super::descriptor::{Descriptor, Spacing};
use super::resident::Resident;
use super::whole::Whole;
use crate::base::{Order, PageCount, PageSize, Pfn};
use crate::platform::{NotMapped, Platform};
use crate::sync::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use core::ptr::NonNull;

/// What the caller has of the address space that is not committed yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ground {
    /// It is reserved: nobody else gets it, and a limit counts it.
    Reserved,
    /// Nothing: it is mapped when needed, if nobody else came first.
    Claimed,
}

/// Rounds for which a zone waits while another extends the page map. Why so few: that takes two system
/// calls, and a signal handler on top of the other zone's holder must not wait for ever.
const EXTEND_ROUNDS: u32 = 1000;

/// Bytes of each part, all rounded to pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub control: usize,
    pub map: usize,
    pub resident: usize,
    pub descriptors: usize,
    pub data: usize,
    align: usize,
    spacing: Spacing,
}

impl Layout {
    /// The parts for `data` bytes of pages and `control` bytes of zones and pagesets.
    pub(super) fn of(page_size: PageSize, control: usize, data: usize, spacing: Spacing) -> Self {
        let pages = data >> page_size.shift();
        let whole = |bytes: usize| bytes.next_multiple_of(page_size.bytes());
        Self {
            control: whole(control),
            map: whole(pages),
            resident: whole(pages.div_ceil(64) * 8),
            descriptors: whole(pages * spacing.bytes()),
            data,
            align: page_size.block_bytes(Order::MAX),
            spacing,
        }
    }

    /// Bytes in front of the data, slack excluded.
    pub(super) fn header(&self) -> usize {
        self.control + self.map + self.resident + self.descriptors
    }

    /// Bytes to reserve, and their alignment.
    pub(super) fn reservation(&self) -> (usize, usize) {
        (
            self.header().next_multiple_of(self.align) + self.data,
            self.align,
        )
    }

    fn control_offset(&self) -> usize {
        self.header().next_multiple_of(self.align) - self.header()
    }
}

/// The parts of the reservation, as addresses.
#[derive(Debug)]
pub struct Memmap {
    data: NonNull<u8>,
    map: NonNull<u8>,
    descriptors: NonNull<u8>,
    spacing: Spacing,
    resident: Resident,
    whole: Whole,
    page_size: PageSize,
    pages: u32,
    /// Bytes of data, counted from the base, whose page map may be read (`memmap.limit`).
    limit: AtomicUsize,
    budget: Budget,
    /// Whether page map and resident bits beyond the limit are claimed only.
    claimed: AtomicBool,
    /// Held by the zone that extends page map and resident bits.
    extending: AtomicBool,
}

// SAFETY: addresses of memory that lives as long as the allocator and holds only atomics or
// pages that their owners use.
unsafe impl Send for Memmap {}
// SAFETY: as above.
unsafe impl Sync for Memmap {}

impl Memmap {
    /// The parts of `reservation`, laid out by `layout`; also answers where control starts, in which
    /// the bits of whole blocks lie at `whole`.
    ///
    /// # Safety
    /// 1. `reservation` starts a live reservation of `layout.reservation()`.
    /// 2. Control has room for the bits there, and is committed before any is used.
    pub(super) unsafe fn new(
        reservation: NonNull<u8>,
        layout: &Layout,
        page_size: PageSize,
        whole: usize,
        rule: &Retention,
        ground: Ground,
    ) -> (Self, NonNull<u8>) {
        // SAFETY: obligation 1: all offsets stay inside the reservation.
        let at = |offset: usize| unsafe { reservation.byte_add(offset) };
        let control = layout.control_offset();
        let map = control + layout.control;
        let resident = map + layout.map;
        let descriptors = resident + layout.resident;
        let pages = layout.data >> page_size.shift();
        let memmap = Self {
            data: at(descriptors + layout.descriptors),
            map: at(map),
            descriptors: at(descriptors),
            spacing: layout.spacing,
            // SAFETY: obligation 1; committed before use by `commit`.
            resident: unsafe { Resident::new(at(resident).cast()) },
            // SAFETY: obligation 2.
            whole: unsafe { Whole::new(at(control + whole).cast(), pages) },
            page_size,
            pages: pages as u32,
            limit: AtomicUsize::new(0),
            budget: Budget::new(rule),
            claimed: AtomicBool::new(ground == Ground::Claimed),
            extending: AtomicBool::new(false),
        };
        (memmap, at(control))
    }

    /// Where data starts: the address of pfn 0.
    #[inline]
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.data
    }

    /// The page map: one byte for each page.
    #[inline]
    #[must_use]
    pub const fn page_map(&self) -> NonNull<u8> {
        self.map
    }

    /// The page size.
    #[inline]
    #[must_use]
    pub const fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Pages of data reserved at the start.
    #[inline]
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Bytes of data, counted from the base, below which page map bytes may be read.
    #[inline]
    #[must_use]
    pub const fn map_limit(&self) -> &AtomicUsize {
        &self.limit
    }

    /// What all stores of free memory may hold together.
    #[inline]
    pub(crate) const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Which pages of free blocks are resident.
    #[inline]
    pub(crate) const fn resident(&self) -> &Resident {
        &self.resident
    }

    /// Which blocks of the largest order are free and whole.
    #[inline]
    pub(crate) const fn whole(&self) -> &Whole {
        &self.whole
    }

    /// A page's descriptor. The page must lie below its zone's frontier.
    #[inline]
    #[must_use]
    pub fn descriptor(&self, pfn: Pfn) -> &Descriptor {
        debug_assert!(pfn.0 < self.pages, "{pfn:?}");
        // SAFETY: pfns of this allocator lie inside the reservation, and their descriptors were
        // committed (zeroed: valid) before the frontier passed them.
        unsafe { self.descriptor_at(pfn).cast().as_ref() }
    }

    #[inline]
    fn descriptor_at(&self, pfn: Pfn) -> NonNull<u8> {
        // SAFETY: as above: inside the reservation.
        unsafe {
            self.descriptors
                .byte_add(pfn.index() << self.spacing.shift())
        }
    }

    /// How descriptors lie.
    #[inline]
    #[must_use]
    pub const fn spacing(&self) -> Spacing {
        self.spacing
    }

    /// Where the links of a slab begin ([`Spacing::link_offset`]): behind its head's descriptor.
    #[inline]
    #[must_use]
    pub fn links_of(&self, pfn: Pfn) -> NonNull<u8> {
        // SAFETY: no further than the end of the descriptors.
        unsafe { self.descriptor_at(pfn).byte_add(size_of::<Descriptor>()) }
    }

    /// A page's address.
    #[inline]
    #[must_use]
    pub fn address(&self, pfn: Pfn) -> NonNull<u8> {
        debug_assert!(pfn.0 <= self.pages, "{pfn:?}");
        // SAFETY: as above: inside the reservation.
        unsafe { self.data.byte_add(pfn.index() << self.page_size.shift()) }
    }

    /// The page that holds `address`, if it is below the page map's limit.
    #[inline]
    #[must_use]
    pub fn lookup(&self, address: *const u8) -> Option<Pfn> {
        let offset = address.addr().wrapping_sub(self.data.addr().get());
        (offset < self.limit.load(Acquire))
            .then_some(Pfn((offset >> self.page_size.shift()) as u32))
    }

    /// The descriptors of free blocks that need not be resident: all but those in the system page of
    /// the head's, or all of blocks of the largest order, which are on no list. `None` if there are
    /// none.
    pub(super) fn idle_descriptors(
        &self,
        pfn: Pfn,
        pages: PageCount,
    ) -> Option<(NonNull<u8>, usize)> {
        let page = self.page_size.bytes();
        let each = self.spacing.bytes();
        let head = if pages < Order::MAX.pages() { each } else { 0 };
        let from = (pfn.index() * each + head).next_multiple_of(page);
        let to = ((pfn.index() + pages.0) * each) & !(page - 1);
        if from >= to {
            return None;
        }
        // SAFETY: inside the descriptors of the reservation's pages.
        let start = unsafe { self.descriptors.byte_add(from) };
        Some((start, to - from))
    }

    /// Commits the descriptors of the pages `from..to`.
    ///
    /// # Errors
    /// Nothing changed.
    pub(super) fn commit_descriptors<P: Platform>(
        &self,
        from: Pfn,
        to: Pfn,
        ground: Ground,
    ) -> Result<(), NotMapped> {
        let each = self.spacing.bytes();
        let (first, last) = (from.index() * each, to.index() * each);
        self.commit_part::<P>(self.descriptors, first, last, ground)
    }

    /// Commits the data of the pages `from..to`.
    ///
    /// # Errors
    /// Nothing changed.
    pub(super) fn commit_data<P: Platform>(
        &self,
        from: Pfn,
        to: Pfn,
        ground: Ground,
    ) -> Result<(), NotMapped> {
        let page = self.page_size.bytes();
        let (first, last) = (from.index() * page, to.index() * page);
        self.commit_part::<P>(self.data, first, last, ground)
    }

    /// Commits page map and resident bits of all pages below `to`.
    ///
    /// # Errors
    /// The limit has not moved.
    pub(super) fn extend<P: Platform>(&self, to: Pfn) -> Result<(), NotMapped> {
        let wanted = to.index() << self.page_size.shift();
        let mut round = 0;
        while self.limit.load(Acquire) < wanted {
            if !self.extending.swap(true, Acquire) {
                let extended = self.extend_alone::<P>(to);
                self.extending.store(false, Release);
                return extended;
            }
            if round == EXTEND_ROUNDS {
                return Err(NotMapped::Refused);
            }
            P::pause(round);
            round += 1;
        }
        Ok(())
    }

    fn extend_alone<P: Platform>(&self, to: Pfn) -> Result<(), NotMapped> {
        let known = self.known();
        if to.index() <= known {
            return Ok(());
        }
        let ground = match self.claimed.load(Relaxed) {
            true => Ground::Claimed,
            false => Ground::Reserved,
        };
        // Pages whose resident bits fill a page become known together: 128 MiB of data with 4 KiB pages.
        let together = self.page_size.bytes() * 8;
        let target = to.index().next_multiple_of(together);
        let target = target.min(self.pages as usize);
        self.commit_part::<P>(self.map, known, target, ground)?;
        let (bits, last) = (known / 8, target.div_ceil(64) * 8);
        if let Err(refused) = self.commit_part::<P>(self.resident.base(), bits, last, ground) {
            if ground == Ground::Claimed {
                let (start, bytes) = self.range(self.map, known, target);
                // SAFETY: mapped just now, used by nobody. Where it cannot be unmapped no zone grows
                // any more.
                let _undone = unsafe { P::unmap(start, bytes) };
            }
            return Err(refused);
        }
        self.limit
            .fetch_max(target << self.page_size.shift(), AcqRel);
        Ok(())
    }

    /// Pages whose page map may be read.
    fn known(&self) -> usize {
        self.limit.load(Acquire) >> self.page_size.shift()
    }

    /// Gives up address space: the descriptors from `described` and the data from `committed` to a
    /// zone's end. From then on that ground is claimed only.
    ///
    /// # Safety
    /// 1. They are reserved and were never committed; the zone's lock is held.
    pub(super) unsafe fn give_up<P: Platform>(&self, described: Pfn, committed: Pfn, end: Pfn) {
        let (page, each) = (self.page_size.bytes(), self.spacing.bytes());
        // SAFETY: obligation 1.
        unsafe {
            self.give_up_part::<P>(
                self.descriptors,
                described.index() * each,
                end.index() * each,
            );
            self.give_up_part::<P>(self.data, committed.index() * page, end.index() * page);
        }
    }

    /// The same for page map and resident bits beyond the limit. They stay where another zone is just
    /// extending them.
    pub(super) fn give_up_rest<P: Platform>(&self) {
        if self.extending.swap(true, Acquire) {
            return;
        }
        if !self.claimed.swap(true, Relaxed) {
            let (known, all) = (self.known(), self.pages as usize);
            // SAFETY: beyond the limit nothing was committed, and nobody else may do it now.
            unsafe {
                self.give_up_part::<P>(self.map, known, all);
                self.give_up_part::<P>(self.resident.base(), known / 8, all.div_ceil(64) * 8);
            }
        }
        self.extending.store(false, Release);
    }

    /// # Safety
    /// 1. The bytes from the first whole page are reserved, and nobody uses them.
    unsafe fn give_up_part<P: Platform>(&self, part: NonNull<u8>, from: usize, to: usize) {
        let (start, bytes) = self.range(part, from, to);
        if bytes > 0 {
            // SAFETY: obligation 1. Where the world cannot, it stays reserved.
            let _done = unsafe { P::unmap(start, bytes) };
        }
    }

    /// The system pages of a part that begin at or behind byte `from` and before byte `to`.
    fn range(&self, part: NonNull<u8>, from: usize, to: usize) -> (NonNull<u8>, usize) {
        let page = self.page_size.bytes();
        let from = from.next_multiple_of(page);
        let bytes = to.next_multiple_of(page).saturating_sub(from);
        // SAFETY: inside the part, whose length is whole pages.
        (unsafe { part.byte_add(from) }, bytes)
    }

    fn commit_part<P: Platform>(
        &self,
        part: NonNull<u8>,
        from: usize,
        to: usize,
        ground: Ground,
    ) -> Result<(), NotMapped> {
        // What comes before was committed, the rest of its last page with it.
        let (start, bytes) = self.range(part, from, to);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: whole pages inside the part, not committed yet.
        unsafe {
            match ground {
                Ground::Reserved => P::commit(start, bytes).map_err(|_| NotMapped::Refused),
                Ground::Claimed => P::map(start, bytes),
            }
        }
    }
}
