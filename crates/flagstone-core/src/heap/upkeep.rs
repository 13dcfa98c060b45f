//! Upkeep: what rides on the program's own slow-path calls, since there is no thread of ours.
//!
//! ```text
//!   every so often  has the heap fallen?                         →  caches shrink, free pages go
//!   every so often  has a second passed?                         →  pagesets decay, limits are
//!                                                                   looked at again
//! ```

use super::falls::{Course, HELD_LONG_NS, HELD_NS};
use super::heap::Heap;
use super::huge_block::{HugeBlock, HugeCount};
use super::ready::{OBSERVED_BYTES, Ready};
use crate::platform::{Access, Line, LockKind, MAX_CACHES, RawLock};
use crate::slab::{Engines, Part, Slabs};
use crate::sync::{AtomicUsize, Ordering::Relaxed};
use core::ptr::NonNull;

/// Slow-path calls between two looks at the clock.
const LOOK_EVERY: usize = 64;

/// Bytes freed that count as one more call: a heap is looked at once for each MiB that leaves it. Halving
/// it doubles the looks of a program that frees much; doubling it lets 2 MiB go by unseen at a fall's end.
const CALL_BYTES: usize = 16 << 10;

/// Looks between two estimates of what caches hold free. Why 4: an estimate visits every cache; with 8 a swing of 60 MB
/// leaves 6 MiB more.
const ESTIMATE_EVERY: usize = 4;

/// Nanoseconds between two looks, at most, of a program that owes something and still comes by. Halving it doubles
/// the looks of one that seldom does; doubling it gives back no sooner than the debt is paid anyway.
const OWED_LOOK_NS: u64 = 10_000_000;

/// A heap that never had more than this in use is not worth asking what the process may use: it
/// cannot hold more in caches, and the answer takes some twenty system calls. After a second it
/// is asked anyway.
const LOOK_BYTES_MIN: usize = 4 << 20;

impl<P: Engines> Ready<P> {
    /// The slab allocator.
    #[must_use]
    pub fn slabs(&self) -> &Slabs<P> {
        &self.slabs
    }

    /// Bytes in huge blocks.
    #[must_use]
    pub fn huge_bytes(&self) -> usize {
        self.huge_table().map_or(0, |table| table.bytes())
    }

    /// Huge blocks now, and the most there ever were; zeroes on top of the table's holder.
    #[must_use]
    pub fn huge_counts(&self) -> (HugeCount, HugeCount) {
        self.huge_table()
            .map_or_else(|_| Default::default(), |table| (table.now(), table.peak()))
    }

    /// Visits every huge block, under the table's lock; none on top of its holder.
    pub fn each_huge(&self, visit: impl FnMut(&HugeBlock)) {
        if let Ok(table) = self.huge_table() {
            table.blocks().for_each(visit);
        }
    }

    /// Visits every freed huge block that is kept, under the same lock.
    pub fn each_kept(&self, visit: impl FnMut(&HugeBlock)) {
        if let Ok(table) = self.huge_table() {
            table.kept.blocks().for_each(visit);
        }
    }

    /// Where the table of huge blocks lies, and its bytes.
    #[must_use]
    pub fn huge_table_memory(&self) -> Option<(NonNull<u8>, usize)> {
        self.huge_table().ok()?.memory::<P>()
    }

    /// From now on [`Platform::observe`] is called not only by upkeep, but also before a block of
    /// [`OBSERVED_BYTES`] or more is allocated or freed.
    pub fn watch(&self) {
        self.watched.store(true, Relaxed);
    }

    /// Counts slow-path calls up to the next upkeep. Whoever stores the largest number here, from
    /// outside, has it done by the next call.
    pub fn bell(&self) -> &AtomicUsize {
        &self.slabs.pages().budget().calls.made
    }

    /// Lets an observer look, if there is one, before much changes at once.
    #[inline]
    pub(super) fn before_large(&self, bytes: usize) {
        if bytes >= OBSERVED_BYTES && self.watched.load(Relaxed) {
            P::observe();
        }
    }

    /// Upkeep due at a slow-path call: cheap unless something is to be done. The call freed `bytes`, with those of the fast
    /// path before it.
    #[inline]
    pub(super) fn upkeep(&self, bytes: usize) {
        let calls = 1 + (bytes / CALL_BYTES).min(LOOK_EVERY - 1);
        let counted = self.bell();
        P::touch(Line::Heap, (&raw const *counted).cast(), Access::Write);
        let before = counted.load(Relaxed);
        let due = self.slabs.pages().budget().calls.due.load(Relaxed);
        // A program that seldom comes by must not keep for long what could not be paid for at once.
        let mut now = before.wrapping_add(calls);
        if due != 0 && P::now() >= due {
            now = (before | (LOOK_EVERY * ESTIMATE_EVERY - 1)).wrapping_add(1);
        }
        counted.store(now, Relaxed);
        if before / LOOK_EVERY != now / LOOK_EVERY {
            self.upkeep_now(now / LOOK_EVERY);
        }
    }

    #[cold]
    #[inline(never)]
    fn upkeep_now(&self, looks: usize) {
        let used = self.slabs.pages().in_use().bytes(P::page_size());
        let second = self.slabs.pages().tick();
        if second || (self.slabs.bounds.unknown() && used >= LOOK_BYTES_MIN) {
            self.slabs.fit_to_means();
        }
        if second {
            self.age_kept();
        }
        if second || looks % ESTIMATE_EVERY == 0 {
            self.slabs.estimate_sheaves();
        }
        self.slabs.sweep_if_due();
        self.follow_falls();
        P::observe();
    }

    /// Shrinks caches, and after a deep fall the bound on free pages, when the heap has fallen.
    fn follow_falls(&self) {
        let idle = self.slabs.idle_bytes.load(Relaxed);
        let used = self.slabs.used_bytes();
        let budget = self.slabs.pages().budget();
        let now = P::now();
        P::touch(Line::Heap, (&raw const self.deep).cast(), Access::Write);
        P::touch(Line::Heap, (&raw const self.empty).cast(), Access::Write);
        let held_ns = self.deep.held_ns(used, now);
        let held = held_ns >= HELD_NS;
        let affords = || held || budget.affords(now);
        let over = || idle + budget.parked() > budget.bound(used) && budget.all.affords(now);
        match (
            self.deep.follow(used, held, affords),
            self.empty.follow(used.saturating_sub(idle), false, over),
        ) {
            (Course::Fell, _) | (_, Course::Fell) => {
                if held {
                    budget.pages.forgive();
                }
                if held_ns >= HELD_LONG_NS {
                    budget.all.forgive();
                }
                self.slabs.shrink_all();
                self.slabs.pages().settle();
            }
            (Course::Rose, _) | (_, Course::Rose) => budget.charge_shrink(now),
            _ => {}
        }
        let owes = !budget.affords(now);
        let due = if owes { now + OWED_LOOK_NS } else { 0 };
        budget.calls.due.store(due, Relaxed);
    }

    /// Gives back all that is cached, but `keep` bytes of free pages. Returns bytes given back
    /// to the system.
    pub fn trim(&self, keep: usize) -> usize {
        self.slabs.shrink_all();
        self.slabs.sweep();
        self.drop_kept() + self.slabs.pages().trim(keep)
    }

    /// Every lock, in the order in which they may be taken.
    pub(super) fn each_lock(&self, mut visit: impl FnMut(&RawLock)) {
        visit(self.slabs.registry_lock());
        visit(self.huge.raw());
        for cache in self.slabs.live_caches() {
            cache.each_local_lock(&self.slabs, &mut visit);
        }
        for barns in [true, false] {
            for cache in self.slabs.live_caches() {
                for Part { node, .. } in Part::all(&self.slabs, cache) {
                    visit(match barns {
                        true => node.barn.raw_lock(),
                        false => node.raw_lock(),
                    });
                }
            }
        }
        self.slabs.pages().each_lock(visit);
    }

    /// Whether the caller must do without what needs a lock: it is a signal handler on top of a holder,
    /// or in the child of a fork that left a lock with a thread which is not there.
    pub(super) fn is_on_top(&self) -> bool {
        P::holds_from(LockKind::Heap) || self.forking.left_something()
    }

    /// A block straight from the system for a signal handler whose request of `size` bytes, aligned
    /// to `align`, found in use what it needs: by the thread below it. It does not wait, for the thread
    /// below cannot go on meanwhile. `None` for all but handlers: memory is exhausted.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_beside(&self, align: usize, size: usize) -> Option<NonNull<u8>> {
        let on_top = self.is_on_top();
        if on_top {
            self.roomy.store(true, Relaxed);
        }
        on_top
            .then(|| self.alloc_huge(size.max(1), align.max(P::page_size().bytes()), false))
            .flatten()
    }
}

impl<P: Engines> Heap<P> {
    /// Gives back all that is cached, but `keep` bytes of free pages; see [`Ready::trim`].
    pub fn trim(&self, keep: usize) -> usize {
        self.ready_if_built().map_or(0, |ready| ready.trim(keep))
    }

    /// Less may be mapped: the page layer gives up address space it does not use.
    pub fn fit_address_space(&self) {
        if let Some(ready) = self.ready_if_built() {
            ready.slabs.pages().fit_address_space();
        }
    }

    /// The last look of a program that ends: what lies in sheaves goes to its slabs, where a double
    /// free that was not noticed so far is, unless the block was handed out again.
    pub fn last_look(&self) {
        /// Objects of barns looked at. Why so few: each may be a cache miss, and a program that
        /// ends should end; the sheaves of CPUs are bounded themselves.
        const BARN_OBJECTS_MAX: u32 = 8192;
        if let Some(ready) = self.ready_if_built() {
            ready.slabs.look_through(BARN_OBJECTS_MAX);
        }
    }
}

const _: () = assert!(MAX_CACHES <= 256, "cache ids fit the page map's bytes");

#[cfg(test)]
#[path = "upkeep_tests.rs"]
mod tests;
