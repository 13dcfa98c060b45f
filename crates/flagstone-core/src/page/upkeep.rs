//! Upkeep of the page layer: what is not an allocation or a free.
//!
//! ```text
//!   tick      once a second, from slow paths: pagesets and bounds decay
//!   apply     the means changed: pages that may be used, watermarks, marks of pagesets
//!   trim      on request: pagesets emptied, free memory given back
//!   snapshot  figures
//!   fork      the heap takes and gives back all locks; recover_after_fork in the child
//! ```

use super::allocator::PageAllocator;
use super::build::{marks_of, size_of_zone};
use super::config::Retention;
use super::pageset::{PagesetCounters, PagesetSnapshot, Pagesets};
use super::snapshot::{PageSnapshot, ZoneSnapshot};
use super::zone::Zone;
use crate::base::{CpuId, Means, NodeId, Order, PageCount, Pfn};
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;

/// Nanoseconds between two steps of decay: the kernel's statistics interval
/// (docs: linux-policies 6.4).
pub const TICK_NS: u64 = 1_000_000_000;

impl<P: Pagesets> PageAllocator<P> {
    /// Keeps free memory within `means` from now on. `false` if a signal handler on top of a
    /// lock's holder could not tell every part; then it is to be tried again.
    pub fn apply(&self, means: &Means) -> bool {
        let config = &self.config;
        let policy = Policy {
            limits: config.policy.limits.within(means),
            ..config.policy
        };
        let zones = self.zones().count() as u32;
        let pages = self.span_bytes() >> self.page_size().shift();
        let limit = config.managed_bytes.unwrap_or(means.memory_bytes);
        let size = size_of_zone(pages, zones, limit, self.page_size(), config);
        let most = match config.retention {
            Retention::KEEP_ALL => usize::MAX,
            _ => means.store_bytes(),
        };
        self.budget().most.store(most, Relaxed);
        let mut all = true;
        for zone in self.zones() {
            zone.size().set(&size);
            let marks = marks_of::<P>(zone.node(), &size, &policy);
            for cpu in 0..P::cpu_count() {
                all &= zone.set_marks(self.memmap(), CpuId(cpu), marks);
            }
            zone.release_excess(self.memmap());
        }
        all
    }

    /// After a deep fall of the heap: pagesets are emptied, and little free memory stays from now
    /// on, until some that was given back is wanted again.
    #[inline(never)]
    pub fn settle(&self) {
        self.drain_pagesets();
        for zone in self.zones() {
            zone.note_fall(self.memmap());
        }
    }

    /// Gives free memory back until at most `keep_bytes` of it stay resident; pagesets are
    /// emptied. Answers the bytes given back.
    pub fn trim(&self, keep_bytes: usize) -> usize {
        self.drain_pagesets();
        let shift = self.page_size().shift();
        let mut keep = keep_bytes >> shift;
        let mut pages = 0;
        for zone in self.zones() {
            pages += zone.release_down_to(self.memmap(), keep);
            let left = ZoneSnapshot::of_areas(zone, self.memmap());
            let left = left.map_or(0, |areas| areas.free_resident_pages);
            keep = keep.saturating_sub(left);
        }
        pages << shift
    }

    /// Empties every CPU's pagesets into the zones.
    pub fn drain_pagesets(&self) {
        for zone in self.zones() {
            for cpu in 0..P::cpu_count() {
                zone.drain_all_of(self.memmap(), CpuId(cpu));
            }
        }
    }

    /// Lets time pass: at most once in [`TICK_NS`] pagesets and bounds decay. Called by slow
    /// paths; there is no thread of ours. Answers whether they did.
    #[inline]
    pub fn tick(&self) -> bool {
        let now = P::now();
        let last = self.ticked.load(Relaxed);
        if now.wrapping_sub(last) < TICK_NS {
            return false;
        }
        let taken = self.ticked.compare_exchange(last, now, Relaxed, Relaxed);
        taken.is_ok() && last != 0 && self.decay()
    }

    #[cold]
    fn decay(&self) -> bool {
        for zone in self.zones() {
            for cpu in 0..P::cpu_count() {
                zone.decay_pageset(self.memmap(), CpuId(cpu));
            }
            zone.release_excess(self.memmap());
        }
        true
    }

    /// A second passed on one CPU: its pagesets decay. For worlds that have a worker on every CPU,
    /// as a kernel's statistics do, instead of [`PageAllocator::tick`].
    pub fn tick_cpu(&self, cpu: CpuId) {
        for zone in self.zones() {
            zone.decay_pageset(self.memmap(), cpu);
        }
    }

    /// Pages outside the free areas, those in pagesets included, as last noted: without a lock.
    #[must_use]
    pub fn in_use(&self) -> PageCount {
        PageCount(self.zones().map(Zone::in_use).sum())
    }

    /// Of those, pages that were not given back inside their blocks: what is resident, or was
    /// never touched.
    #[must_use]
    pub fn live(&self) -> PageCount {
        PageCount(self.in_use().0.saturating_sub(self.holes().0))
    }

    /// What the page layer holds. A zone that the caller holds (from a signal handler) is left out.
    #[must_use]
    pub fn snapshot(&self) -> PageSnapshot {
        let mut total = ZoneSnapshot::default();
        for zone in self.zones() {
            total.add(&ZoneSnapshot::of(zone, self.memmap()).unwrap_or_default());
        }
        let known = self.map_limit().load(Relaxed) >> self.page_size().shift();
        PageSnapshot {
            page_bytes: self.page_size().bytes(),
            zones: self.zones().count(),
            memmap_bytes: total.committed_pages * self.memmap().spacing().bytes()
                + known
                + known / 8,
            memmap_resident_bytes: self.memmap_resident(&total),
            total,
            own_bytes: self.own_bytes.load(Relaxed),
            control_bytes: self.control_bytes,
            hole_bytes_total: self.hole_bytes.load(Relaxed),
        }
    }

    /// An upper bound: descriptors never touched below a frontier count too.
    fn memmap_resident(&self, total: &ZoneSnapshot) -> usize {
        let each = self.memmap().spacing().bytes();
        // Of each bare block one page of descriptors stays.
        let stays = total.bare_blocks * self.page_size().bytes();
        let whole = Order::MAX.pages();
        let block = self.memmap().idle_descriptors(Pfn(0), whole);
        let idle = (total.bare_pages * each).saturating_sub(stays)
            + total.idle_blocks * block.map_or(0, |(_, bytes)| bytes);
        total.frontier_pages * (each + 1) + total.frontier_pages / 8 - idle
    }

    /// One zone's figures; `None` for a node without a zone or on top of a lock's holder.
    #[must_use]
    pub fn zone_snapshot(&self, node: NodeId) -> Option<ZoneSnapshot> {
        let zone = self.zones().nth(usize::from(node.0))?;
        ZoneSnapshot::of(zone, self.memmap())
    }

    /// Pages in one CPU's pageset of one zone, and what happened in it since the start; `None` as for
    /// [`PageAllocator::zone_snapshot`]. Cheaper than a snapshot: no list is walked.
    #[must_use]
    pub fn pageset_counts(&self, node: NodeId, cpu: CpuId) -> Option<(u32, PagesetCounters)> {
        self.with_pageset(node, cpu)?.pageset_counts(cpu)
    }

    /// One CPU's pageset of one zone; `None` as for [`PageAllocator::zone_snapshot`].
    #[must_use]
    pub fn pageset_snapshot(&self, node: NodeId, cpu: CpuId) -> Option<PagesetSnapshot> {
        let zone = self.with_pageset(node, cpu)?;
        zone.pageset_snapshot(self.memmap(), cpu)
    }

    /// A node's zone, if it has a pageset of `cpu`.
    fn with_pageset(&self, node: NodeId, cpu: CpuId) -> Option<&Zone<P>> {
        let zone = self.zones().nth(usize::from(node.0));
        zone.filter(|_| cpu.0 < P::cpu_count())
    }

    /// Finishes what threads that are gone had begun: in the child of a fork, with all locks free.
    pub fn recover_after_fork(&self) {
        for zone in self.zones() {
            zone.recover_parked(self.memmap());
        }
    }

    /// Every lock of the page layer, in the order in which they may be taken.
    pub(crate) fn each_lock(&self, mut step: impl FnMut(&crate::platform::RawLock)) {
        for zone in self.zones() {
            for cpu in 0..P::cpu_count() {
                step(zone.pageset(CpuId(cpu)).raw());
            }
        }
        for zone in self.zones() {
            step(zone.raw());
        }
    }
}
