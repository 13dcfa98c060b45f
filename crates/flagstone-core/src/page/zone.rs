//! A zone: the pages of one memory node, behind one lock.
//!
//! ```text
//!   [ core: lock, free areas, bound, counters | shared: frontier, deferred, in use | flags, marks ]
//!     written under the lock                    written often, read without          read mostly
//! ```
//!
//! Invariants
//! - `zone.counts`: pages below the frontier are in use, free or not mapped, and the zone's numbers
//!   say how many of which.
//! - `zone.parked`: blocks being given back are on the parked list while `releasing` is set.
//! - `zone.published`: with nothing deferred, the numbers read without the lock (in use, frontier)
//!   are those under it.
//! - `zone.frontier`: the frontier is at most what is committed, and that at most the zone's end.
//!
//! Locking: [`LockKind::Zone`], the last lock of a path. A signal handler on top of the holder
//! gets nothing from the zone; what it frees waits on the `deferred` stack, which the next holder
//! empties.

use super::buddy::{FreeAreas, TAILS_MAX, Taken};
use super::deferred::Deferred;
use super::descriptor::{Descriptor, PageKind};
use super::keep::Keep;
use super::list::PageList;
use super::memmap::{Ground, Memmap};
use super::pageset::Pageset;
use super::zone_size::{Managed, ZoneSize};
use crate::base::{CpuId, NodeId, Order, PageCount, Pfn};
use crate::platform::{Access, Guard, Line, Lock, LockKind, Platform};
use crate::policy::ZoneFlags;
use crate::sync::{
    AtomicBool, AtomicU8, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};
use core::marker::PhantomData;
use core::ptr::NonNull;

/// A block handed to an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its head page.
    pub pfn: Pfn,
    /// Every byte of it reads as zero.
    pub zeroed: bool,
}

/// What happened in a zone, in events or pages since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneCounters {
    /// Pages taken out of the free areas (S3's alloc_zone).
    pub alloc_pages: u64,
    /// Pages put back into the free areas.
    pub free_pages: u64,
    /// Times the lock was held by another when it was wanted.
    pub lock_waits: u64,
    /// Times the lock was taken.
    pub lock_takes: u64,
    /// Pages given back to the system, in all.
    pub released_pages: u64,
    /// Calls that gave pages back.
    pub release_calls: u64,
    /// Pages taken from blocks that were not resident.
    pub fresh_pages: u64,
    /// Calls that committed memory.
    pub commit_calls: u64,
}

/// What the zone lock protects. The order is fixed, so that which fields share a line does not change
/// with every field that is added.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ZoneCore {
    pub(crate) areas: FreeAreas,
    pub(crate) committed: Pfn,
    /// Descriptors are committed up to here: as far as the data, or further.
    pub(super) described: Pfn,
    /// What the zone has of the address space behind.
    pub(super) ground: Ground,
    pub(crate) parked: PageList,
    pub(crate) parked_pages: usize,
    pub(crate) releasing: bool,
    /// The thread that gives back while `releasing` is set, by its token.
    pub(super) giver: u64,
    pub(super) keep: Keep,
    pub(super) counters: ZoneCounters,
}

/// A zone.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Zone<P: Platform> {
    core: Lock<ZoneCore>,
    pub(super) shared: Shared,
    flags: AtomicU8,
    size: ZoneSize,
    pagesets: NonNull<Pageset>,
    pub(super) cpus: u32,
    start: Pfn,
    end: Pfn,
    node: NodeId,
    world: PhantomData<fn() -> P>,
}

/// What a zone is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZonePlan {
    pub node: NodeId,
    pub start: Pfn,
    pub end: Pfn,
    pub size: Managed,
    pub pagesets: NonNull<Pageset>,
    pub ground: Ground,
}

/// What is read without the lock.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) frontier: AtomicU32,
    deferred: Deferred,
    /// A giver could not put its blocks back: whoever gives back next does it.
    pub(super) left_parked: AtomicBool,
    in_use: AtomicUsize,
    holes: AtomicUsize,
}

impl<P: Platform> Zone<P> {
    /// A zone as `plan` says, none of its pages committed yet.
    ///
    /// # Safety
    /// 1. `plan.pagesets` starts `P::cpu_count()` pagesets that live as long as the zone.
    pub(super) unsafe fn new(plan: &ZonePlan, map: &Memmap) -> Self {
        Self {
            core: Lock::new(
                LockKind::Zone,
                ZoneCore {
                    areas: FreeAreas::new(plan.start),
                    committed: plan.start,
                    described: plan.start,
                    ground: plan.ground,
                    parked: PageList::new(),
                    parked_pages: 0,
                    releasing: false,
                    giver: 0,
                    keep: Keep::new(map.page_size()),
                    counters: ZoneCounters::default(),
                },
            ),
            shared: Shared {
                frontier: AtomicU32::new(plan.start.0),
                deferred: Deferred::new(),
                left_parked: AtomicBool::new(false),
                in_use: AtomicUsize::new(0),
                holes: AtomicUsize::new(0),
            },
            flags: AtomicU8::new(0),
            size: ZoneSize::new(&plan.size),
            pagesets: plan.pagesets,
            cpus: P::cpu_count(),
            start: plan.start,
            end: plan.end,
            node: plan.node,
            world: PhantomData,
        }
    }

    /// First page.
    pub(crate) const fn start(&self) -> Pfn {
        self.start
    }

    /// First page beyond.
    pub(crate) const fn end(&self) -> Pfn {
        self.end
    }

    /// First page never used yet; descriptors below it are committed.
    #[inline]
    pub(crate) fn frontier(&self) -> Pfn {
        Pfn(self.shared.frontier.load(Acquire))
    }

    /// The zone's node.
    #[inline]
    pub(super) const fn node(&self) -> NodeId {
        self.node
    }

    /// The zone's state as its pagesets' rules see it.
    #[inline]
    pub(super) fn flags(&self) -> ZoneFlags {
        ZoneFlags(self.flags.load(Relaxed))
    }

    /// A CPU's pageset.
    #[inline]
    pub(super) fn pageset(&self, cpu: CpuId) -> &Pageset {
        let index = cpu.0.min(self.cpus - 1) as usize;
        // SAFETY: there are `cpus` pagesets (obligation 1 of `new`).
        unsafe { self.pagesets.add(index).as_ref() }
    }

    /// Pages that may still be used: managed pages that are not in use.
    #[inline]
    pub(super) fn free(&self) -> u64 {
        self.size.pages().saturating_sub(self.in_use()) as u64
    }

    /// How many pages the zone may use, and its watermarks.
    pub(super) fn size(&self) -> &ZoneSize {
        &self.size
    }

    /// Whether background reclaim would run: fewer pages are free than the low watermark.
    #[inline]
    pub(super) fn is_low(&self) -> bool {
        self.free() <= self.size.low()
    }

    /// Pages outside the free areas, as of the last lock section.
    #[inline]
    pub(crate) fn in_use(&self) -> usize {
        self.shared.in_use.load(Relaxed)
    }

    /// Pages inside live blocks that their owners gave back.
    #[inline]
    pub(super) fn holes(&self) -> usize {
        self.shared.holes.load(Relaxed)
    }

    /// Counts pages of a live block as given back.
    pub(super) fn add_holes(&self, pages: usize) {
        self.shared.holes.fetch_add(pages, Relaxed);
    }

    /// Counts pages given back as used again.
    pub(super) fn remove_holes(&self, pages: usize) {
        self.shared.holes.fetch_sub(pages, Relaxed);
    }

    /// The lock's word, for fork handling.
    pub(super) fn raw(&self) -> &crate::platform::RawLock {
        self.core.raw()
    }

    /// Takes the lock and empties the deferred stack; `None` on top of the holder.
    #[inline]
    pub(crate) fn lock(&self, map: &Memmap) -> Option<Guard<'_, P, ZoneCore>> {
        let mut core = match self.core.try_lock::<P>() {
            Some(core) => core,
            None => {
                let mut core = self.core.lock::<P>().ok()?;
                core.counters.lock_waits += 1;
                core
            }
        };
        P::touch(Line::Zone, (&raw const self.core).cast(), Access::Write);
        core.counters.lock_takes += 1;
        if !self.shared.deferred.is_empty() {
            self.drain_deferred(&mut core, map);
        }
        Some(core)
    }

    #[cold]
    fn drain_deferred(&self, core: &mut ZoneCore, map: &Memmap) {
        for (pfn, pages) in self.shared.deferred.take(map) {
            self.put(core, map, pfn, pages, true);
        }
        // What is too much is given back at the next free.
        let _ = self.publish_free(core, map);
    }

    /// The blocks that handlers left.
    pub(crate) fn deferred(&self) -> &Deferred {
        &self.shared.deferred
    }

    /// A run of `pages`, at most a block of the largest order.
    pub(super) fn alloc(&self, map: &Memmap, pages: PageCount) -> Option<Block> {
        let order = Order::new(crate::base::fls(pages.0 as u64 - 1))?;
        let mut core = self.lock(map)?;
        let taken = self.take_up_to(&mut core, map, order, order)?;
        core.areas.give_back_tail::<P>(map, taken, pages);
        let zeroed = self.hand_out(&mut core, map, taken, pages, PageKind::Run);
        self.publish_alloc(&mut core, map);
        drop(core);
        set_tails(map, taken.pfn, pages);
        Some(Block {
            pfn: taken.pfn,
            zeroed,
        })
    }

    /// Puts a block or run back; what it held is resident. Never fails.
    ///
    /// # Safety
    /// 1. `pfn` heads a live block of `pages` pages of this zone, given up by its owner.
    #[inline]
    pub(super) unsafe fn free_pages(&self, map: &Memmap, pfn: Pfn, pages: PageCount) {
        // SAFETY: obligation 1.
        unsafe { self.free_with_holes(map, pfn, pages, 0) };
    }

    /// Puts a block back some of whose pages were given back before: page `i` where bit `i` of
    /// `holes` is set.
    ///
    /// # Safety
    /// 1. As for `free_pages`; nobody wrote to the pages of `holes` since.
    #[inline]
    pub(super) unsafe fn free_with_holes(
        &self,
        map: &Memmap,
        pfn: Pfn,
        pages: PageCount,
        holes: u32,
    ) {
        let Some(mut core) = self.lock(map) else {
            // The holes, called resident, are given back once more.
            return self.deferred().push(map, pfn, pages);
        };
        map.resident().set(pfn, pages);
        each_run(holes, |first, len| {
            map.resident()
                .clear(pfn.plus(PageCount(first)), PageCount(len));
        });
        self.put(&mut core, map, pfn, pages, false);
        let excess = self.publish_free(&mut core, map);
        drop(core);
        if excess {
            self.release_excess(map);
        }
    }

    /// Frees the tail of a run: its pages from `new` on.
    ///
    /// # Safety
    /// 1. `pfn` heads a live run of `old` pages of this zone; the caller owns it; `0 < new < old`.
    pub(super) unsafe fn shrink(&self, map: &Memmap, pfn: Pfn, old: PageCount, new: PageCount) {
        let tail = pfn.plus(new);
        let rest = PageCount(old.0 - new.0);
        if old.0 > TAILS_MAX {
            map.descriptor(pfn).pages.store(1, Relaxed);
            set_tails(map, pfn, new);
        } else {
            map.descriptor(pfn).pages.store(new.0 as u32, Relaxed);
        }
        map.descriptor(tail).pages.store(1, Relaxed);
        // SAFETY: obligation 1: the tail is nobody else's.
        unsafe { self.free_pages(map, tail, rest) };
    }

    /// Lengthens a run in place if the pages behind it are free.
    ///
    /// # Safety
    /// 1. As for `shrink`, with `old < new`.
    pub(super) unsafe fn grow(
        &self,
        map: &Memmap,
        pfn: Pfn,
        old: PageCount,
        new: PageCount,
    ) -> bool {
        let Some(mut core) = self.lock(map) else {
            return false;
        };
        if !self.may_hold(&core, new.0 - old.0) {
            return false;
        }
        let wanted = pfn.plus(new);
        let mut at = pfn.plus(old);
        while at < wanted {
            if at >= self.end() {
                return false;
            }
            if at == core.areas.frontier() && !self.advance(&mut core, map) {
                return false;
            }
            let page = map.descriptor(at);
            if page.kind() != PageKind::Buddy {
                return false;
            }
            at = at.plus(page.order().pages());
        }
        at = pfn.plus(old);
        while at < wanted {
            let taken = core.areas.take_at::<P>(map, at);
            let pages = PageCount((wanted.0 - at.0) as usize).min(taken.order.pages());
            core.areas.give_back_tail::<P>(map, taken, pages);
            self.hand_out(&mut core, map, taken, pages, PageKind::Tail);
            at = at.plus(pages);
        }
        self.publish_alloc(&mut core, map);
        drop(core);
        set_tails(map, pfn, new);
        true
    }

    /// A block of `order` from the free areas, or a longer one up to `most` (see
    /// [`FreeAreas::take_up_to`]), advancing the frontier where needed.
    pub(super) fn take_up_to(
        &self,
        core: &mut ZoneCore,
        map: &Memmap,
        order: Order,
        most: Order,
    ) -> Option<Taken> {
        loop {
            if let Some(taken) = core.areas.take_up_to::<P>(map, order, most) {
                if self.may_hold(core, 0) {
                    return Some(taken);
                }
                core.areas
                    .free_range::<P>(map, taken.pfn, taken.order.pages());
                return (most > order)
                    .then(|| self.take_up_to(core, map, order, order))
                    .flatten();
            }
            let again = core.areas.gone_pages() > 0 && self.map_again(core, map);
            if !again && !self.advance(core, map) {
                return None;
            }
        }
    }

    /// Whether the zone may hold what it does, and `more` pages.
    fn may_hold(&self, core: &ZoneCore, more: usize) -> bool {
        P::may_hold(self.node, || {
            self.live(core) + core.areas.resident() + core.parked_pages + more
        })
    }

    /// Makes `pages` of a taken block somebody's; answers whether they read as zero.
    pub(super) fn hand_out(
        &self,
        core: &mut ZoneCore,
        map: &Memmap,
        taken: Taken,
        pages: PageCount,
        kind: PageKind,
    ) -> bool {
        let page = map.descriptor(taken.pfn);
        page.set_kind(kind);
        page.set_order(taken.order);
        page.set_node(self.node);
        page.flags.store(0, Relaxed);
        core.counters.alloc_pages += pages.0 as u64;
        let zeroed = taken.released || !map.resident().any(taken.pfn, pages);
        if zeroed {
            core.counters.fresh_pages += pages.0 as u64;
            core.keep.note_reused(map.budget(), pages.0, P::now);
        }
        zeroed
    }

    /// Puts pages back into the free areas; `used` unless what is resident is noted already.
    pub(super) fn put(
        &self,
        core: &mut ZoneCore,
        map: &Memmap,
        pfn: Pfn,
        pages: PageCount,
        used: bool,
    ) {
        if used {
            map.resident().set(pfn, pages);
        }
        core.counters.free_pages += pages.0 as u64;
        core.areas.free_range::<P>(map, pfn, pages);
    }

    /// Publishes what is read without the lock, after pages left the free areas. A zone below its high
    /// watermark, or reclaiming below the low one, says so until it is above the high one (linux-policies 6.4).
    #[inline]
    pub(super) fn publish_alloc(&self, core: &mut ZoneCore, map: &Memmap) {
        let in_use = self.used(core);
        self.shared.in_use.store(in_use, Relaxed);
        core.keep.note_use(map.budget(), in_use);
        let free = self.free();
        if free <= self.size.high() {
            self.fell_below(free);
        }
    }

    #[cold]
    fn fell_below(&self, free: u64) {
        let mut flags = self.flags().with(ZoneFlags::BELOW_HIGH);
        if free <= self.size.low() {
            flags = flags.with(ZoneFlags::RECLAIM_ACTIVE);
        }
        self.flags.store(flags.0, Relaxed);
    }

    /// Publishes what is read without the lock, after pages came back; answers whether too much
    /// free memory is resident.
    #[inline]
    pub(super) fn publish_free(&self, core: &mut ZoneCore, map: &Memmap) -> bool {
        let in_use = self.used(core);
        self.shared.in_use.store(in_use, Relaxed);
        core.keep.note_use(map.budget(), in_use);
        if self.flags.load(Relaxed) != 0 && self.free() > self.size.high() {
            self.flags.store(ZoneFlags::NONE.0, Relaxed);
        }
        let (resident, live) = (core.areas.resident(), self.live(core));
        !core.releasing && core.keep.is_excess(map.budget(), resident, live, P::now)
    }

    /// Pages below the frontier that are neither free nor parked.
    pub(crate) fn used(&self, core: &ZoneCore) -> usize {
        let known = (core.areas.frontier().0 - self.start.0) as usize;
        known - core.areas.pages() - core.areas.gone_pages() - core.parked_pages
    }

    /// Of those, pages that were not given back inside their blocks.
    pub(crate) fn live(&self, core: &ZoneCore) -> usize {
        self.used(core).saturating_sub(self.holes())
    }
}

/// Calls `visit` with the first bit and the length of every run of bits set.
pub(crate) fn each_run(bits: u32, mut visit: impl FnMut(usize, usize)) {
    let mut left = bits;
    while left != 0 {
        let first = left.trailing_zeros();
        let len = (left >> first).trailing_ones();
        visit(first as usize, len as usize);
        left &= !((u32::MAX >> (32 - len)) << first);
    }
}

/// Makes the pages of a block name its head, unless it is longer than [`TAILS_MAX`], and the head say how
/// many there are. The block is the caller's already, so no lock is needed (`page.tails`).
pub(super) fn set_tails(map: &Memmap, pfn: Pfn, pages: PageCount) {
    let head = map.descriptor(pfn);
    if pages.0 <= TAILS_MAX {
        name_tails(map, pfn, pages);
    }
    head.pages.store(pages.0 as u32, Relaxed);
}

/// Makes the pages of a block name its head, but for those that do.
pub(super) fn name_tails(map: &Memmap, pfn: Pfn, pages: PageCount) {
    let known = map.descriptor(pfn).pages.load(Relaxed).max(1) as usize;
    for distance in known..pages.0 {
        let tail: &Descriptor = map.descriptor(pfn.plus(PageCount(distance)));
        tail.set_kind(PageKind::Tail);
        tail.pages.store(distance as u32, Relaxed);
    }
}
