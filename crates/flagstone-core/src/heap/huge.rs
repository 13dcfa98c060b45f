//! Operations on huge blocks: too large for the page layer, each its own reservation.
//!
//! ```text
//!   alloc ─► kept.rs: one that was freed ─► else a reservation    ─► huge_table.rs
//!   free  ─► huge_table.rs               ─► kept.rs, or given back
//! ```

use super::huge_block::HugeBlock;
use super::huge_table::HugeTable;
use super::kept::Evicted;
use super::ready::Ready;
use super::strays::Strays;
use crate::base::Order;
use crate::platform::{Fault, Guard, Reentered};
use crate::slab::Engines;
use crate::sync::Ordering::Relaxed;
use core::ptr::NonNull;

/// Kept blocks may come to one part in so many of those in use.
const KEPT_SHARE: usize = 8;

/// The same while huge blocks are asked for. Why three: a program that replaces one of fifteen blocks of 5 to 25 MiB
/// at a time faults 126,000 pages, with a quarter 139,000 and with an eighth 212,000; a half costs 5 % more memory.
const KEPT_SHARE_WANTED: usize = 3;

/// Bytes of the longest block: no address space of today's processors has room for a longer one.
pub(super) const HUGE_MAX: usize = isize::MAX as usize >> if usize::BITS == 64 { 15 } else { 0 };

impl<P: Engines> Ready<P> {
    /// A block of its own for `size` bytes, zeroed on request.
    pub(super) fn alloc_huge(
        &self,
        size: usize,
        align: usize,
        zeroed: bool,
    ) -> Option<NonNull<u8>> {
        let bytes = size.checked_next_multiple_of(P::page_size().bytes())?;
        if bytes > HUGE_MAX {
            return None;
        }
        self.free_strays();
        if let Some(start) = self.take_kept(bytes, size, align) {
            if zeroed {
                // SAFETY: the block is ours alone and has at least `size` bytes.
                unsafe { start.write_bytes(0, size) };
            }
            return Some(start);
        }
        let block = HugeBlock::at(self.reserve(bytes, align)?, bytes, size);
        self.list(block)
            .unwrap_or_else(|_| self.alloc_unlisted(bytes, align, size))
    }

    /// Memory for a block. Where the system refuses, the page layer gives up some of its address space.
    fn reserve(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let start = P::reserve(bytes, align).or_else(|| {
            let room = self.slabs.pages().make_room();
            room.then(|| P::reserve(bytes, align)).flatten()
        })?;
        // SAFETY: the whole fresh reservation, given back if nobody gets it.
        unsafe {
            if P::commit(start, bytes).is_err() {
                P::release(start, bytes);
                return None;
            }
        }
        P::mapped_huge(start, bytes);
        Some(start)
    }

    /// A block for a signal handler that does not get the table: whoever has it next lists the block.
    #[cold]
    fn alloc_unlisted(&self, bytes: usize, align: usize, size: usize) -> Option<NonNull<u8>> {
        let bytes = bytes.checked_add(P::page_size().bytes())?;
        let start = self.reserve(bytes, align)?;
        let block = HugeBlock::at(start, bytes, size);
        // SAFETY: nobody else knows the block; its last page is beyond what is asked for.
        unsafe { self.unlisted.push::<P>(block) };
        Some(start)
    }

    /// The table of huge blocks, with every block in it there was memory for.
    ///
    /// # Errors
    /// `Reentered` for a signal handler on top of the table's holder, or of another lock's while the
    /// table does not come free.
    pub(crate) fn huge_table(&self) -> Result<Guard<'_, P, HugeTable>, Reentered> {
        let mut table = self.huge.lock::<P>()?;
        self.unlisted.list_in::<P>(&mut table);
        Ok(table)
    }

    /// Lists a block that nobody else knows and answers where it starts; gives it back where that
    /// cannot be.
    fn list(&self, block: HugeBlock) -> Result<Option<NonNull<u8>>, Reentered> {
        let listed = self
            .huge_table()
            .map(|mut table| table.insert::<P>(block).is_ok());
        if !matches!(listed, Ok(true)) {
            self.end(block);
        }
        listed.map(|listed| NonNull::new(block.address as *mut u8).filter(|_| listed))
    }

    /// Ends the reservation of a block that is in nobody's hands and that the table does not know.
    fn end(&self, block: HugeBlock) {
        if let Some(start) = NonNull::new(block.address as *mut u8) {
            // SAFETY: the caller's: a whole reservation of ours that nobody uses.
            unsafe { P::release(start, block.bytes) };
        }
    }

    /// A kept block of `bytes`, listed for a request of `size`.
    fn take_kept(&self, bytes: usize, size: usize, align: usize) -> Option<NonNull<u8>> {
        let budget = self.slabs.pages().budget();
        let mut table = self.huge_table().ok()?;
        let Some(kept) = table.kept.take(bytes, align) else {
            let again = table.kept.wanted_again(bytes);
            budget.charge_huge(again >> P::page_size().shift(), P::now());
            return None;
        };
        drop(table);
        budget.unpark(kept.bytes);
        let mut block = self.fit(kept, bytes, align)?;
        block.requested = size;
        self.list(block).ok()?
    }

    /// Grows a block that is in nobody's hands to `bytes` if it is shorter; `None` where it cannot
    /// grow, and then it is given back.
    fn fit(&self, mut block: HugeBlock, bytes: usize, align: usize) -> Option<HugeBlock> {
        let start = NonNull::new(block.address as *mut u8)?;
        if block.bytes < bytes {
            let may_move = align <= P::page_size().bytes();
            // SAFETY: one whole committed reservation.
            let grown = may_move.then(|| unsafe { P::remap(start, block.bytes, bytes) });
            let Some(grown) = grown.flatten() else {
                self.end(block);
                return None;
            };
            block = HugeBlock::at(grown, bytes, 0);
        }
        Some(block)
    }

    /// The huge block that starts at `address`, if there is one.
    ///
    /// # Errors
    /// `Reentered` for a signal handler on top of the table's holder: nobody knows; neither where
    /// memory is exhausted and a block could not be listed.
    pub(super) fn huge_at(&self, address: NonNull<u8>) -> Result<Option<HugeBlock>, Reentered> {
        let found = self.huge_table()?.get(address.as_ptr() as usize);
        if found.is_none() && !self.unlisted.is_empty() {
            return Err(Reentered);
        }
        Ok(found)
    }

    /// Gives a huge block back, and before it those that handlers could not.
    pub(super) fn free_huge(&self, address: NonNull<u8>) {
        self.free_strays();
        self.free_one_huge(address);
    }

    /// Gives back what handlers could not, unless the table is in use: a handler that waited for each
    /// of them would keep the thread below from going on, and leave one more.
    pub(super) fn free_strays(&self) {
        if self.huge.raw().holder() != 0 {
            return;
        }
        let mut stray = self.strays.take();
        while let Some(address) = stray {
            // SAFETY: pushed by `free_one_huge`, taken by nobody else.
            stray = unsafe { Strays::behind(address) };
            self.free_one_huge(address);
            while let Some(address) = stray.filter(|_| self.huge.raw().holder() != 0) {
                // SAFETY: as above, and it is in nobody's hands.
                unsafe {
                    stray = Strays::behind(address);
                    self.strays.push(address);
                }
            }
        }
    }

    fn free_one_huge(&self, address: NonNull<u8>) {
        self.before_large(super::ready::OBSERVED_BYTES);
        let most = self.kept_most();
        let freed = match self.huge_table() {
            Ok(mut table) => table.remove(address.as_ptr() as usize).map(|block| {
                let room = self.kept_room(&mut table, block.bytes, most);
                self.slabs.pages().budget().park(block.bytes);
                table.kept.keep(block, room)
            }),
            // SAFETY: the caller gave the block up, and its start is committed.
            Err(_) => return unsafe { self.strays.push(address) },
        };
        match freed {
            Some(evicted) => {
                let _ = self.drop_evicted(Ok(evicted));
            }
            // SAFETY: as above.
            None if !self.unlisted.is_empty() => unsafe { self.strays.push(address) },
            None => P::fatal(Fault::InvalidFree, address.as_ptr()),
        }
    }

    /// Most bytes that may be kept: a store of what the process may use, which is looked at before
    /// the first huge block is freed.
    fn kept_most(&self) -> usize {
        if self.slabs.bounds.unknown() {
            self.slabs.fit_to_means();
        }
        self.slabs.bounds.store_bytes.load(Relaxed)
    }

    /// Bytes that may be kept when `freed` of them are new, whole pages and at most `most`.
    fn kept_room(&self, table: &mut HugeTable, freed: usize, most: usize) -> usize {
        let share = match table.kept.wanted {
            true => KEPT_SHARE_WANTED,
            false => KEPT_SHARE,
        };
        let (budget, in_use, now) = (self.slabs.pages().budget(), table.bytes(), P::now());
        table.kept.lately.note(in_use + freed);
        let lately = table.kept.lately.most(now).saturating_sub(in_use);
        let room = budget.bound(0).max(in_use / share);
        let room = room.max(budget.unpaid(lately, 0, in_use, now));
        room.min(most) & !(P::page_size().bytes() - 1)
    }

    /// A second passed: what nobody wanted meanwhile goes.
    pub(super) fn age_kept(&self) {
        let _ = self.drop_evicted(self.huge_table().map(|mut table| table.kept.age()));
    }

    /// Gives all kept blocks back; answers their bytes.
    pub(super) fn drop_kept(&self) -> usize {
        self.drop_evicted(self.huge_table().map(|mut table| table.kept.evict(0)))
    }

    /// Gives blocks back that were parked, if only for a moment.
    fn drop_evicted(&self, evicted: Result<Evicted, Reentered>) -> usize {
        let mut bytes = 0;
        for block in evicted.iter().flat_map(Evicted::iter) {
            self.end(*block);
            bytes += block.bytes;
        }
        self.slabs.pages().budget().unpark(bytes);
        bytes
    }

    /// Resizes a huge block that stays huge; `None` if it cannot or should not.
    ///
    /// # Safety
    /// 1. The caller owns the block.
    pub(super) unsafe fn resize_huge(&self, block: HugeBlock, size: usize) -> Option<NonNull<u8>> {
        let bytes = size.checked_next_multiple_of(P::page_size().bytes())?;
        if bytes <= Order::MAX.pages().bytes(P::page_size()) {
            return None;
        }
        // SAFETY: obligation 1.
        unsafe { self.remap_huge(block, bytes, size) }
    }

    /// Gives back the whole pages behind the first `size` bytes of a huge block, if that can be. It
    /// stays in the table, however short it becomes.
    ///
    /// # Safety
    /// 1. The caller owns the huge block of at least `size` bytes that starts at `address`.
    pub(super) unsafe fn cut_huge(&self, address: NonNull<u8>, size: usize) {
        let bytes = size.max(1).next_multiple_of(P::page_size().bytes());
        if let Ok(Some(block)) = self.huge_at(address) {
            // SAFETY: obligation 1.
            let _cut = unsafe { self.remap_huge(block, bytes, size) };
        }
    }

    /// Makes a huge block `bytes` long. Its entry leaves the table meanwhile, so that nobody waits for
    /// the system under the lock; the table keeps room for it.
    unsafe fn remap_huge(
        &self,
        block: HugeBlock,
        bytes: usize,
        size: usize,
    ) -> Option<NonNull<u8>> {
        let start = NonNull::new(block.address as *mut u8)?;
        self.huge_table().ok()?.take_out(block.address)?;
        let moved = if bytes == block.bytes {
            Some(start)
        } else {
            // SAFETY: the block is one whole committed reservation, owned by the caller.
            unsafe { P::remap(start, block.bytes, bytes) }
        };
        let now = moved.map_or(block, |moved| HugeBlock::at(moved, bytes, size));
        self.put_back(now);
        moved
    }

    /// Lists a block again that was taken out. A signal handler waits too: the holder of the table is
    /// another thread, since the block was taken out before, and waits for no lock of ours itself.
    /// Only in the child of a fork on top of a holder may the table be out of reach for ever.
    fn put_back(&self, block: HugeBlock) {
        let mut round = 0;
        let mut table = loop {
            match self.huge_table() {
                Ok(table) => break table,
                Err(_) if self.huge.raw().is_out_of_reach::<P>() => return,
                Err(_) => P::pause(round),
            }
            round += 1;
        };
        table.put_back(block);
    }
}
