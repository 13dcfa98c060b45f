//! The heap's operations, for all faces: each exists once in the program.
//!
//! The fast halves are inlined into a face (`static_heap().alloc_fast`, `free_fast`); what they do
//! not let pass comes here. None of these is generic, so that a face has no copy of the allocator.

use crate::init::{heap, static_heap};
use crate::{Linux, limit, profile};
use core::ptr::NonNull;
use flagstone_core::heap::{Freed, TABLE_MAX};
use flagstone_core::platform::{Fault, Platform};

/// What the fast half of an allocation did not serve.
#[cold]
pub fn alloc_cold(size: usize) -> Option<NonNull<u8>> {
    let block = match profile::is_asked() {
        true => profile::alloc(size),
        false => heap().and_then(|heap| heap.alloc_cold(size)),
    };
    or_again(block, || limit::alloc(size))
}

/// An allocation that a fast half counted for a profile, and found due.
#[cold]
pub fn alloc_due(size: usize) -> Option<NonNull<u8>> {
    or_again(profile::alloc_due(size), || limit::alloc(size))
}

/// An allocation that a fast half counted for a profile, and did not serve.
#[cold]
pub fn alloc_counted(size: usize) -> Option<NonNull<u8>> {
    profile::follow();
    let block = heap().and_then(|heap| heap.alloc_cold(size));
    or_again(block, || limit::alloc(size))
}

/// What was refused, once more where there is a limit.
#[inline(always)]
fn or_again(
    block: Option<NonNull<u8>>,
    again: impl FnOnce() -> Option<NonNull<u8>>,
) -> Option<NonNull<u8>> {
    match block {
        None if limit::is_set() => again(),
        block => block,
    }
}

/// A block of at least `size` bytes.
#[inline(always)]
pub fn alloc(size: usize) -> Option<NonNull<u8>> {
    static_heap().alloc_fast(size).or_else(|| alloc_cold(size))
}

/// A zeroed block of at least `size` bytes.
#[inline(always)]
pub fn alloc_zeroed(size: usize) -> Option<NonNull<u8>> {
    zeroed_fast(size).or_else(|| zeroed_cold(size))
}

/// The fast half of [`alloc_zeroed`].
#[inline(always)]
pub fn zeroed_fast(size: usize) -> Option<NonNull<u8>> {
    let block = static_heap().alloc_fast(size)?;
    // SAFETY: the block has at least that many bytes.
    unsafe { block.write_bytes(0, size) };
    Some(block)
}

/// Whether the fast halves let nothing pass, and a face has a counting form for this size: while a profile is taken.
#[inline(always)]
pub fn is_counted(size: usize) -> bool {
    size <= TABLE_MAX && profile::is_on()
}

/// What the fast half of [`alloc_zeroed`] did not serve.
#[cold]
pub fn zeroed_cold(size: usize) -> Option<NonNull<u8>> {
    let block = match profile::is_asked() {
        true => profile::alloc_zeroed(size),
        false => heap().and_then(|heap| heap.alloc_zeroed(size)),
    };
    or_again(block, || limit::alloc_zeroed(size))
}

/// A block of at least `size` bytes at a multiple of `align`, a power of two.
pub fn alloc_aligned(align: usize, size: usize) -> Option<NonNull<u8>> {
    let block = match profile::is_asked() {
        true => profile::alloc_aligned(align, size),
        false => heap().and_then(|heap| heap.alloc_aligned(align, size)),
    };
    or_again(block, || limit::alloc_aligned(align, size))
}

/// Frees a block that the fast half left as it was; null is fine.
///
/// # Safety
/// 1. `address` is null or a live block, which nobody uses again.
#[cold]
pub unsafe fn free_cold(address: *mut u8) {
    if address.is_null() {
        return;
    }
    if profile::is_asked() {
        profile::freed(address);
    }
    match heap() {
        // SAFETY: obligation 1.
        Some(heap) => unsafe { heap.free_cold(address) },
        None => Linux::fatal(Fault::InvalidFree, address),
    }
}

/// Frees a block that bears its mark already, put on by a fast half that found no room.
///
/// # Safety
/// 1. As for [`free_cold`]; the caller put the mark on.
#[cold]
pub unsafe fn free_marked(address: *mut u8) {
    // SAFETY: obligation 1.
    unsafe { static_heap().free_marked(address) };
}

/// Gives a block back; null is fine.
///
/// # Safety
/// 1. As for [`free_cold`].
#[inline(always)]
pub unsafe fn free(address: *mut u8) {
    // SAFETY: obligation 1; the fast half says who put the mark on.
    unsafe {
        match static_heap().free_fast(address) {
            Freed::Done => {}
            Freed::Marked => free_marked(address),
            Freed::NotAtAll => free_cold(address),
        }
    }
}

/// Gives a block back that was asked for with from `least` to `most` bytes; ends the program if
/// that cannot be so.
///
/// # Safety
/// 1. As for [`free_cold`].
pub unsafe fn free_within(address: *mut u8, least: usize, most: usize) {
    if profile::is_asked() {
        profile::freed(address);
    }
    // SAFETY: obligation 1.
    unsafe { static_heap().free_within(address, least, most) };
}

/// Resizes a block; `None` leaves it as it was.
///
/// # Safety
/// 1. `address` is a live block's; after success the old address is not used.
pub unsafe fn realloc(address: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    let moved = match profile::is_asked() {
        // SAFETY: obligation 1.
        true => unsafe { profile::realloc(address, size) },
        // SAFETY: obligation 1.
        false => heap().and_then(|heap| unsafe { heap.realloc(address, size) }),
    };
    // SAFETY: obligation 1: what was refused is as it was.
    or_again(moved, || unsafe { limit::realloc(address, size) })
}

/// Bytes that may be used of a block; zero for null.
///
/// # Safety
/// 1. `address` is null or a live block.
pub unsafe fn usable_size(address: *mut u8) -> usize {
    if address.is_null() {
        return 0;
    }
    match heap() {
        // SAFETY: obligation 1.
        Some(heap) => unsafe { heap.usable_size(address) },
        None => Linux::fatal(Fault::InvalidFree, address),
    }
}

/// Gives free memory back to the system, but `keep` bytes; the bytes given back.
pub fn trim(keep: usize) -> usize {
    static_heap().trim(keep)
}

/// After a limit on address space was lowered.
pub fn fit_address_space() {
    static_heap().fit_address_space();
}

/// The last look for double frees of a program that ends; whether there is a heap to look at.
pub fn last_look() {
    static_heap().last_look();
}
