//! Moving blocks between a pageset and its zone.
//!
//! ```text
//!   kernels     zone lock:  take, link, take, link ..        unlink, put, unlink, put ..
//!   flagstone   zone lock:  take a long block                zone lock:  put runs
//!               then:       cut it, link the pieces          before:     join neighbours to runs
//! ```
//!
//! A long block is what taking its pieces one by one would have given (`FreeAreas::take_up_to`),
//! and freeing a run leaves what freeing its pages one by one would: only the time under the lock
//! differs. Which of the two a rule does is [`PageRule::moves_runs`].
//!
//! Locking: the pageset's lock is held by the caller, the zone's is taken here.

use super::descriptor::{PageKind, flag};
use super::list::PageList;
use super::memmap::Memmap;
use super::pageset::{After, LISTS, Lists, Pagesets};
use super::zone::{Zone, ZoneCore, set_tails};
use crate::base::{Order, PageCount, Pfn, ilog2};
use crate::platform::{Access, Line, Platform, Work};
use crate::policy::PageRule;
use crate::sync::Ordering::Relaxed;

/// Runs put back in one section of the zone's lock. The default policy drains up to 252 pages at
/// once: two sections where all are scattered. Doubling makes it one and takes another KiB of stack.
const RUNS: usize = 128;

/// Neighbouring pages on their way back, all resident or all untouched.
#[derive(Clone, Copy)]
struct Run {
    pfn: Pfn,
    /// Twice the pages, and one where they are untouched.
    pages: u32,
}

const _: () = assert!(
    size_of::<[Run; RUNS]>() <= 1024,
    "threads have small stacks"
);

impl<P: Pagesets> Zone<P> {
    /// Fetches up to `blocks` blocks of `order` from the zone, in one lock section. The list of
    /// that order is empty.
    #[cold]
    #[inline(never)]
    pub(super) fn refill(&self, set: &mut Lists, map: &Memmap, order: Order, blocks: u32) {
        let Some(mut core) = self.lock(map) else {
            return;
        };
        let runs = P::Rule::moves_runs(&set.state);
        let list = &mut set.lists[order.get() as usize];
        let mut got = 0;
        while got < blocks {
            let most = match runs {
                true => longest(order, blocks - got),
                false => order,
            };
            let Some(taken) = self.take_up_to(&mut core, map, order, most) else {
                break;
            };
            let pages = taken.order.pages();
            let untouched = self.hand_out(&mut core, map, taken, pages, PageKind::Pageset);
            map.descriptor(taken.pfn).mark(flag::RELEASED, untouched);
            if !runs {
                set_tails(map, taken.pfn, pages);
            }
            list.push_tail(map, taken.pfn);
            got += 1 << (taken.order.get() - order.get());
        }
        self.publish_alloc(&mut core, map);
        drop(core);
        if runs {
            self.cut(list, map, order);
        }
        let pages = got * order.pages().0 as u32;
        set.count += pages;
        set.counters.refills += 1;
        set.counters.refill_pages += u64::from(pages);
    }

    /// Cuts the blocks of a list into blocks of `order`. They are the pageset's alone.
    fn cut(&self, list: &mut PageList, map: &Memmap, order: Order) {
        for first in core::mem::take(list).iter(map) {
            let block = map.descriptor(first);
            let whole = block.order().pages();
            let flags = block.flags.load(Relaxed);
            let known = block.pages.load(Relaxed).min(order.pages().0 as u32);
            for offset in (0..whole.0).step_by(order.pages().0) {
                let pfn = first.plus(PageCount(offset));
                let piece = map.descriptor(pfn);
                if offset > 0 {
                    P::touch(Line::Page, (&raw const *piece).cast(), Access::Write);
                    P::work(Work::Blocks(1));
                }
                piece.set_kind(PageKind::Pageset);
                piece.set_order(order);
                piece.set_node(self.node());
                piece.flags.store(flags, Relaxed);
                let known = if offset == 0 { known } else { 1 };
                piece.pages.store(known, Relaxed);
                set_tails(map, pfn, order.pages());
                list.push_tail(map, pfn);
            }
        }
    }

    /// Puts at least `pages` pages back into the zone, from the tails of the lists, the list
    /// `start` first.
    #[cold]
    #[inline(never)]
    pub(super) fn drain(&self, set: &mut Lists, map: &Memmap, pages: u32, start: usize) -> After {
        let mut left = pages.min(set.count);
        if left == 0 {
            return After::Nothing;
        }
        set.counters.drains += 1;
        if P::Rule::moves_runs(&set.state) {
            return self.drain_runs(set, map, left, start);
        }
        let chunk = P::Rule::drain_chunk(&set.state);
        let mut after = After::Nothing;
        let mut index = start;
        while left > 0 {
            let Some(mut core) = self.lock(map) else {
                break;
            };
            let mut now = left.min(chunk);
            while now > 0 {
                while set.lists[index].is_empty() {
                    index = (index + 1) % LISTS;
                }
                let moved = self.drain_one(set, &mut core, map, index);
                now = now.saturating_sub(moved);
                left = left.saturating_sub(moved);
            }
            if self.publish_free(&mut core, map) {
                after = After::ReleaseExcess;
            }
        }
        after
    }

    fn drain_one(&self, set: &mut Lists, core: &mut ZoneCore, map: &Memmap, index: usize) -> u32 {
        let Some((pfn, untouched)) = set.unlink_oldest(map, index) else {
            return u32::MAX;
        };
        let pages = 1 << index;
        self.put(core, map, pfn, PageCount(pages), !untouched);
        pages as u32
    }

    fn drain_runs(&self, set: &mut Lists, map: &Memmap, pages: u32, start: usize) -> After {
        let (mut left, mut index) = (pages, start);
        let mut after = After::Nothing;
        while left > 0 {
            let mut room = [Run::NONE; RUNS];
            let (found, rest) = gather::<P>(set, map, left, &mut index, &mut room);
            let runs = &room[..found];
            left = rest;
            let Some(mut core) = self.lock(map) else {
                for run in runs {
                    self.deferred().push(map, run.pfn, run.pages());
                }
                break;
            };
            for run in runs {
                self.put(&mut core, map, run.pfn, run.pages(), !run.untouched());
            }
            if self.publish_free(&mut core, map) {
                after = After::ReleaseExcess;
            }
        }
        after
    }
}

/// The longest block that holds no more than `blocks` of `order`.
fn longest(order: Order, blocks: u32) -> Order {
    Order::new(order.get() + ilog2(u64::from(blocks))).unwrap_or(Order::MAX)
}

/// Unlinks at least `left` pages, or as many as `runs` have room for; answers how many runs they
/// are and how many pages are left. Neighbours that follow each other become one run.
fn gather<P: Platform>(
    set: &mut Lists,
    map: &Memmap,
    left: u32,
    index: &mut usize,
    runs: &mut [Run; RUNS],
) -> (usize, u32) {
    let (mut left, mut found) = (left, 0);
    while left > 0 && found < RUNS {
        while set.lists[*index].is_empty() {
            *index = (*index + 1) % LISTS;
        }
        let Some((pfn, untouched)) = set.unlink_oldest(map, *index) else {
            break;
        };
        let pages = 1 << *index;
        let page = map.descriptor(pfn);
        P::touch(Line::Page, (&raw const *page).cast(), Access::Write);
        left = left.saturating_sub(pages as u32);
        let last = found.checked_sub(1).map(|at| &mut runs[at]);
        match last.filter(|run| run.untouched() == untouched) {
            Some(run) if run.pfn.plus(run.pages()) == pfn => {
                page.set_kind(PageKind::Tail);
                run.pages += 2 * pages as u32;
            }
            Some(run) if pfn.plus(PageCount(pages)) == run.pfn => {
                map.descriptor(run.pfn).set_kind(PageKind::Tail);
                run.pfn = pfn;
                run.pages += 2 * pages as u32;
            }
            _ => {
                runs[found] = Run {
                    pfn,
                    pages: 2 * pages as u32 + u32::from(untouched),
                };
                found += 1;
            }
        }
    }
    (found, left)
}

impl Run {
    const NONE: Self = Self {
        pfn: Pfn::NONE,
        pages: 0,
    };

    fn pages(self) -> PageCount {
        PageCount(self.pages as usize / 2)
    }

    fn untouched(self) -> bool {
        self.pages % 2 == 1
    }
}

impl Lists {
    /// Takes the oldest block of a list, and whether it was never used since it left the zone.
    fn unlink_oldest(&mut self, map: &Memmap, index: usize) -> Option<(Pfn, bool)> {
        let pfn = self.lists[index].pop_tail(map)?;
        self.count -= 1 << index;
        self.counters.drain_pages += 1 << index;
        Some((pfn, map.descriptor(pfn).has(flag::RELEASED)))
    }
}
