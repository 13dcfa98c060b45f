//! A zone's way through its pagesets: taking a block, putting one, and their upkeep.
//!
//! Locking: the pageset's lock, tried and never waited for but by upkeep.

use super::descriptor::{PageKind, flag};
use super::memmap::Memmap;
use super::pageset::{After, Lists, PagesetCounters, PagesetSnapshot, Pagesets};
use super::zone::{Block, Zone};
use crate::base::{CpuId, Order, Pfn};
use crate::platform::{Access, Line, Work};
use crate::policy::{PageRule, PcpMarks, PcpState};
use crate::sync::Ordering::Relaxed;

/// Bytes that a CPU's pageset may hold however little is in use. Doubling saves a program that
/// frees and takes a few megabytes of pages over and over half of its visits to the zone.
const PARKED_BYTES_MIN: usize = 1 << 20;

/// Beyond that a CPU's pageset holds at most this part of the pages in use, as a divisor. Halving it lets a
/// program of 64 MiB park 16 on each CPU.
const PARKED_SHARE: usize = 8;

impl<P: Pagesets> Zone<P> {
    /// A block of `order` from the CPU's pageset, refilled where it is empty. `None` if the
    /// pageset's lock is held or the zone has nothing left.
    #[inline]
    pub(super) fn alloc_cached(&self, map: &Memmap, cpu: CpuId, order: Order) -> Option<Block> {
        let mut set = self.pageset(cpu).enter::<P>()?;
        let index = order.get() as usize;
        let empty = set.lists[index].is_empty();
        let count = set.count;
        let wanted = P::Rule::on_alloc(&mut set.state, order, count, empty, self.flags());
        if wanted > 0 {
            let blocks = set.affords::<P::Rule>(order, wanted);
            self.refill(&mut set, map, order, blocks);
        }
        let pfn = set.lists[index].pop_head(map)?;
        let page = map.descriptor(pfn);
        P::touch(Line::Page, (&raw const *page).cast(), Access::Write);
        P::work(Work::Fast);
        set.count -= order.pages().0 as u32;
        set.counters.allocs += 1;
        drop(set);
        let zeroed = page.has(flag::RELEASED);
        page.flags.store(0, Relaxed);
        page.set_kind(PageKind::Run);
        Some(Block { pfn, zeroed })
    }

    /// Frees a block into the CPU's pageset; `false`, and nothing changed, if its lock is held.
    ///
    /// # Safety
    /// 1. `pfn` heads a live block of `order` of this zone, given up by its owner.
    #[inline]
    pub(super) unsafe fn free_cached(
        &self,
        map: &Memmap,
        cpu: CpuId,
        pfn: Pfn,
        order: Order,
    ) -> bool {
        let Some(mut set) = self.pageset(cpu).enter::<P>() else {
            return false;
        };
        let page = map.descriptor(pfn);
        P::touch(Line::Page, (&raw const *page).cast(), Access::Write);
        P::work(Work::FastFree);
        page.set_kind(PageKind::Pageset);
        page.set_order(order);
        page.flags.store(0, Relaxed);
        let index = order.get() as usize;
        set.lists[index].push_head(map, pfn);
        set.count += order.pages().0 as u32;
        set.counters.frees += 1;
        let count = set.count;
        let pages = match P::Rule::on_free(&mut set.state, order, count, self.flags()) {
            Some(pages) => {
                if order > Order::ZERO && drains_high_order(&set.state, count, pages) {
                    set.counters.free_high += 1;
                }
                pages
            }
            None => self.beyond_share(&set, map),
        };
        if pages > 0 {
            let after = self.drain(&mut set, map, pages, index);
            drop(set);
            self.finish(map, after);
        }
        true
    }

    /// Pages to put back so that the pageset holds half of what the budget lets one CPU's hold: the
    /// pages a CPU frees while the heap shrinks are the system's. Zero while it holds no more.
    #[inline]
    fn beyond_share(&self, set: &Lists, map: &Memmap) -> u32 {
        let least = PARKED_BYTES_MIN >> map.page_size().shift();
        if set.count as usize <= least || !P::Rule::moves_runs(&set.state) {
            return 0;
        }
        let most = least.max(self.in_use() / PARKED_SHARE);
        match set.count as usize > most {
            true => set.count - most as u32 / 2,
            false => 0,
        }
    }

    /// Does what a drain left to do.
    #[inline]
    fn finish(&self, map: &Memmap, after: After) {
        if after == After::ReleaseExcess {
            self.release_excess(map);
        }
    }

    /// Empties one CPU's pageset.
    pub(super) fn drain_all_of(&self, map: &Memmap, cpu: CpuId) {
        let Some(mut set) = self.pageset(cpu).enter_waiting::<P>() else {
            return;
        };
        let after = match set.count {
            0 => After::Nothing,
            count => self.drain(&mut set, map, count, 0),
        };
        drop(set);
        self.finish(map, after);
    }

    /// A second passed: lets one CPU's pageset shrink (docs: linux-policies 6.4, decay).
    pub(super) fn decay_pageset(&self, map: &Memmap, cpu: CpuId) {
        let Some(mut set) = self.pageset(cpu).lists.try_lock::<P>() else {
            return;
        };
        let events = set.counters.allocs + set.counters.frees;
        if events == 0 {
            return;
        }
        let count = set.count;
        let mut pages = P::Rule::decay(&mut set.state, count).unwrap_or(0);
        if P::node_of(cpu) != self.node() {
            if events == set.seen {
                pages = pages.max(set.state.remote_idle(count).unwrap_or(0));
            } else {
                set.state.remote_used();
            }
        }
        set.seen = events;
        let after = self.drain(&mut set, map, pages, 0);
        drop(set);
        self.finish(map, after);
    }

    /// Gives one CPU's pageset other marks, and puts back what is above them; `false`, and
    /// nothing changed, on top of the lock's holder.
    pub(super) fn set_marks(&self, map: &Memmap, cpu: CpuId, marks: PcpMarks) -> bool {
        let Some(mut set) = self.pageset(cpu).enter_waiting::<P>() else {
            return false;
        };
        P::Rule::set_marks(&mut set.state, marks);
        let slice = P::cache_slice_bytes() as u64;
        set.state.set_cache_slice(slice, P::page_size().shift());
        let excess = set.count.saturating_sub(marks.high_max);
        let after = self.drain(&mut set, map, excess, 0);
        drop(set);
        self.finish(map, after);
        true
    }

    /// One CPU's pageset as it is; `None` on top of the lock's holder.
    pub(super) fn pageset_snapshot(&self, map: &Memmap, cpu: CpuId) -> Option<PagesetSnapshot> {
        let set = self.pageset(cpu).enter_waiting::<P>()?;
        let mut resident = 0;
        for (index, list) in set.lists.iter().enumerate() {
            let touched = |&pfn: &Pfn| !map.descriptor(pfn).has(flag::RELEASED);
            resident += (list.iter(map).filter(touched).count() as u32) << index;
        }
        Some(PagesetSnapshot {
            count: set.count,
            resident,
            high: set.state.high,
            high_min: set.state.high_min,
            high_max: set.state.high_max,
            batch: set.state.batch,
            counters: set.counters,
        })
    }

    /// Pages on the lists of one CPU's pageset and what happened in it, without walking them; `None`
    /// on top of the lock's holder.
    pub(super) fn pageset_counts(&self, cpu: CpuId) -> Option<(u32, PagesetCounters)> {
        let set = self.pageset(cpu).enter_waiting::<P>()?;
        Some((set.count, set.counters))
    }

    /// Calls `step` with every block of a CPU's pageset and its list's order, for `verify`.
    pub(crate) fn each_cached(
        &self,
        map: &Memmap,
        cpu: CpuId,
        mut step: impl FnMut(Pfn, usize),
    ) -> u32 {
        let Some(set) = self.pageset(cpu).enter_waiting::<P>() else {
            return 0;
        };
        for (index, list) in set.lists.iter().enumerate() {
            list.iter(map).for_each(|pfn| step(pfn, index));
        }
        set.count
    }
}

/// Whether a drain after a high-order free came from consecutive high-order frees: it takes
/// everything (up to the cap), while any other drain leaves at least a batch.
fn drains_high_order(state: &PcpState, count: u32, pages: u32) -> bool {
    let cap = u64::from(state.batch) << state.scale_max;
    pages == count || u64::from(pages) == cap
}
