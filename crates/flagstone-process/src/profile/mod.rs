//! Heap profiles: which places in a program its memory comes from, by samples.
//!
//! ```text
//!   FLAGSTONE_PROFILE=F  ─┐                                   ┌─► off: the fast path as it is always
//!   flagstone profile PID ┼─► switch ─► gate diverted, tables ┤
//!   a tracer on our probes┘                                   └─► on:
//!
//!   malloc ─► countdown ─► not due: the sheaf, as always
//!                 └─ due ─► whole pages of its own ─► unwind ─► stacks ─┐
//!   free   ─► misses the fast path as every run does ─► live: remove ───┴─► marks in time
//!
//!   end of the process ─► write: F, the tables as they are, and /proc/self/maps
//! ```
//!
//! The decisions and their reasons are in ADR 0037. Here nothing allocates, no lock is waited for, and no
//! function of the C library, of the loader or of the unwinder is called that takes one. The tables lie
//! in a mapping of their own, made when a profile begins. What has no place in them is counted as lost.
//!
//! Invariants
//! - `profile.listed-later`: a sampled block is in the table of live samples from after it is allocated
//!   until before it is freed, so an address is in it at most once.
//! - `profile.at-a-page`: a block in that table begins at a page, so that a free of any other one misses no sample. A small
//!   block that got no pages of its own counts as allocated and is not in the table.

mod area;
mod live;
mod marks;
mod number;
mod probes;
mod sample;
mod stacks;
mod switch;
mod unwind;
mod write;

use crate::Linux;
use crate::init::heap;
use core::ptr::NonNull;
use flagstone_core::heap::{Heap, MIN_ALIGN, TABLE_MAX};
use flagstone_core::platform::Platform;
use flagstone_linux::countdown;

pub use switch::{
    Asked, MEAN_MAX, MEAN_MIN, NoTables, ask, current, follow, forked, is_asked, is_on,
};
pub use write::{before_filter, begin, finish};

/// A block while a profile is asked for, or was once taken: counted here.
#[cold]
pub fn alloc(size: usize) -> Option<NonNull<u8>> {
    follow();
    if !switch::is_on() {
        return heap()?.alloc_cold(size);
    }
    if countdown::count(size as u64) {
        return alloc_due(size);
    }
    plain(heap()?, size)
}

/// A block that the countdown found due.
#[cold]
pub fn alloc_due(size: usize) -> Option<NonNull<u8>> {
    let heap = heap()?;
    match sample::is_taken(size) {
        true => sampled(heap, MIN_ALIGN, size),
        false => plain(heap, size),
    }
}

/// A block for a size that was counted.
fn plain(heap: &Heap<Linux>, size: usize) -> Option<NonNull<u8>> {
    heap.alloc_behind(size).or_else(|| heap.alloc_cold(size))
}

/// A block that is a sample: large ones are what they are, others get pages of their own.
#[inline(never)]
fn sampled(heap: &Heap<Linux>, align: usize, size: usize) -> Option<NonNull<u8>> {
    let apart = (size <= TABLE_MAX)
        .then(|| heap.ready_if_built())
        .flatten()
        .and_then(|ready| {
            let align = align.max(Linux::page_size().bytes());
            ready.alloc_aligned_pages(align, size.max(1))
        });
    let block = match apart {
        Some(block) => block,
        None if align <= MIN_ALIGN => heap.alloc_cold(size)?,
        None => heap.alloc_aligned(align, size)?,
    };
    sample::note(block, size);
    Some(block)
}

/// A zeroed block.
#[cold]
pub fn alloc_zeroed(size: usize) -> Option<NonNull<u8>> {
    follow();
    let heap = heap()?;
    let due = switch::is_on() && countdown::count(size as u64) && sample::is_taken(size);
    if size > TABLE_MAX {
        let block = heap.alloc_zeroed(size)?;
        if due {
            sample::note(block, size);
        }
        return Some(block);
    }
    let block = match due {
        true => sampled(heap, MIN_ALIGN, size)?,
        false => plain(heap, size)?,
    };
    // SAFETY: the block has at least that many bytes and is ours.
    unsafe { block.write_bytes(0, size) };
    Some(block)
}

/// A block at a multiple of `align`.
#[cold]
pub fn alloc_aligned(align: usize, size: usize) -> Option<NonNull<u8>> {
    follow();
    let heap = heap()?;
    let due = switch::is_on() && countdown::count(size as u64) && sample::is_taken(size);
    match due {
        true => sampled(heap, align, size),
        false => heap.alloc_aligned(align, size),
    }
}

/// Resizes a block: as much is allocated as is asked for now, and what was there is freed.
///
/// # Safety
/// 1. `address` is a live block's; after success the old address is not used.
#[cold]
pub unsafe fn realloc(address: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    follow();
    let heap = heap()?;
    let due = switch::is_on() && countdown::count(size as u64) && sample::is_taken(size);
    // Out of the table first: once the block is freed, its address may be another thread's sample.
    let before = live::take(address);
    if due && size <= TABLE_MAX {
        // SAFETY: obligation 1.
        let old = unsafe { heap.usable_size(address.as_ptr()) };
        if let Some(new) = sampled(heap, MIN_ALIGN, size) {
            // SAFETY: both blocks have as many bytes and do not overlap; the old one is given up.
            unsafe {
                new.copy_from_nonoverlapping(address, old.min(size));
                heap.free(address.as_ptr());
            }
            sample::gone(address, before);
            return Some(new);
        }
    }
    // SAFETY: obligation 1.
    let moved = unsafe { heap.realloc(address, size) };
    match moved {
        None => live::put_back(address, before),
        Some(new) => {
            sample::gone(address, before);
            if due && size > TABLE_MAX {
                sample::note(new, size);
            }
        }
    }
    moved
}

/// A block is about to be freed.
#[cold]
pub fn freed(address: *mut u8) {
    follow();
    if let Some(address) = NonNull::new(address) {
        let before = live::take(address);
        sample::gone(address, before);
    }
}
