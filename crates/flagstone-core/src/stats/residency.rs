//! Which pages the system holds memory for.
//!
//! The world answers in runs; a survey asks once for all pages below the frontiers and keeps the
//! answer as one bit for each page, in address space it reserves for the time of the walk.

use crate::base::{PageCount, Pfn};
use crate::page::PageAllocator;
use crate::slab::Engines;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// Answers which pages are resident.
pub trait Residency {
    /// Calls `run(first, pages)` for every maximal run of resident pages among the `pages` that
    /// start at `start`, in rising order; `first` counts from `start`.
    fn resident_runs(
        &mut self,
        start: NonNull<u8>,
        pages: PageCount,
        run: &mut dyn FnMut(usize, usize),
    );

    /// Resident pages among the `pages` that start at `start`.
    fn count(&mut self, start: NonNull<u8>, pages: PageCount) -> usize {
        let mut sum = 0;
        self.resident_runs(start, pages, &mut |_, pages| sum += pages);
        sum
    }
}

/// Takes every page for resident: for worlds that cannot tell.
#[derive(Clone, Copy, Debug)]
pub struct Everything;

impl Residency for Everything {
    fn resident_runs(
        &mut self,
        _start: NonNull<u8>,
        pages: PageCount,
        run: &mut dyn FnMut(usize, usize),
    ) {
        if pages.0 > 0 {
            run(0, pages.0);
        }
    }
}

/// Zeroed memory for the time of a walk, in address space of its own.
pub(super) struct Scratch<P: Engines> {
    memory: NonNull<u8>,
    bytes: usize,
    world: PhantomData<P>,
}

impl<P: Engines> Scratch<P> {
    /// Whole pages that hold `bytes`; `None` if the system has none.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let page = P::page_size().bytes();
        let bytes = bytes.max(1).next_multiple_of(page);
        Some(Self {
            memory: P::reserve_whole(bytes, page)?,
            bytes,
            world: PhantomData,
        })
    }

    /// Its first byte.
    pub(super) fn memory(&self) -> NonNull<u8> {
        self.memory
    }
}

impl<P: Engines> Drop for Scratch<P> {
    fn drop(&mut self) {
        // SAFETY: the whole reservation, and nobody uses it again.
        unsafe { P::release(self.memory, self.bytes) };
    }
}

/// One bit for each page below the last frontier.
pub(super) struct PageBits<P: Engines> {
    words: Scratch<P>,
    pages: usize,
}

impl<P: Engines> PageBits<P> {
    /// Asks `residency` about every page that was ever used; `None` without memory for the bits.
    pub(super) fn ask(pages: &PageAllocator<P>, residency: &mut dyn Residency) -> Option<Self> {
        let count = pages.used_spans().map(|(_, end)| end.index()).max()?;
        let mut bits = Self {
            words: Scratch::new(count.div_ceil(8))?,
            pages: count,
        };
        for (start, end) in pages.used_spans() {
            let span = PageCount(end.index() - start.index());
            residency.resident_runs(pages.address(start), span, &mut |first, run| {
                bits.set(start.index() + first, run);
            });
        }
        Some(bits)
    }

    fn slice(&mut self) -> &mut [u64] {
        // SAFETY: committed, zeroed, and this value's own.
        unsafe {
            core::slice::from_raw_parts_mut(
                self.words.memory().cast().as_ptr(),
                self.words.bytes / 8,
            )
        }
    }

    fn set(&mut self, first: usize, run: usize) {
        let end = (first + run).min(self.pages);
        let words = self.slice();
        let mut at = first;
        while at < end {
            let bit = at % 64;
            let here = (end - at).min(64 - bit);
            words[at / 64] |= (u64::MAX >> (64 - here)) << bit;
            at += here;
        }
    }

    /// Whether a page is resident.
    #[inline]
    pub(super) fn has(&self, page: usize) -> bool {
        if page >= self.pages {
            return false;
        }
        // SAFETY: there is a bit for every page below `pages`.
        let word = unsafe { self.words.memory().cast::<u64>().add(page / 64).read() };
        word >> (page % 64) & 1 != 0
    }

    /// Resident pages of a range.
    pub(super) fn count(&self, pfn: Pfn, pages: PageCount) -> usize {
        (pfn.index()..pfn.index() + pages.0)
            .filter(|&page| self.has(page))
            .count()
    }

    /// Resident bytes of the range of `bytes` that starts `offset` bytes into page `pfn`.
    pub(super) fn bytes_in(&self, pfn: Pfn, offset: usize, bytes: usize) -> usize {
        let page = P::page_size().bytes();
        let (start, end) = (offset, offset + bytes);
        let mut sum = 0;
        for index in start / page..end.div_ceil(page) {
            if self.has(pfn.index() + index) {
                sum += end.min((index + 1) * page) - start.max(index * page);
            }
        }
        sum
    }
}
