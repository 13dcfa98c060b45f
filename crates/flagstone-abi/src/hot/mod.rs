//! The functions programs call most: `malloc`, `free`, and the C++ operators like them.
//!
//! On x86-64 they are whole functions in assembly (x86_64.rs): the gate of
//! `flagstone_core::heap::Gate` and the slot steps of `flagstone_linux`, nothing between, so that
//! neither a spare move nor a second look at the result costs anything. They hold only for the
//! usual case: what the gate or the slot does not let pass goes to the functions below. These are
//! complete, made of the portable gate and steps, and serve everywhere else.

#[cfg(target_arch = "x86_64")]
use crate::c_abi::or_null;
use crate::c_abi::{allocate, release};
use crate::cxx;
use core::ffi::c_void;

#[cfg(not(target_arch = "x86_64"))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

/// `malloc` for a function of this library that finds the gate diverted.
#[inline(always)]
pub fn malloc_counting(size: usize) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    return x86_64::malloc_far(size);
    #[cfg(not(target_arch = "x86_64"))]
    malloc_slow(size)
}

/// `malloc`, whatever it takes.
#[cfg_attr(target_arch = "x86_64", inline(never))]
#[cfg_attr(not(target_arch = "x86_64"), inline(always))]
extern "C" fn malloc_slow(size: usize) -> *mut c_void {
    allocate(size)
}

/// `free`, whatever it takes.
///
/// # Safety
/// 1. `address` is null or a live block, which nobody uses again.
#[cfg_attr(target_arch = "x86_64", inline(never))]
#[cfg_attr(not(target_arch = "x86_64"), inline(always))]
unsafe extern "C" fn free_slow(address: *mut c_void) {
    // SAFETY: obligation 1.
    unsafe { release(address) };
}

/// What is left of `free` when the block bears its mark and the sheaf has no room.
///
/// # Safety
/// 1. As for [`free_slow`]; the caller put the mark on.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe extern "C" fn free_marked(address: *mut c_void) {
    // SAFETY: obligation 1.
    unsafe { flagstone_process::blocks::free_marked(address.cast()) };
}

/// `operator new`, whatever it takes.
#[cfg_attr(target_arch = "x86_64", inline(never))]
#[cfg_attr(not(target_arch = "x86_64"), inline(always))]
extern "C" fn new_slow(size: usize) -> *mut c_void {
    cxx::new_plain(size)
}

/// What is left of `malloc` when the countdown to a profile's next sample has run out.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
extern "C" fn malloc_due(size: usize) -> *mut c_void {
    or_null(flagstone_process::blocks::alloc_due(size))
}

/// What is left of `malloc` when the size was counted and the sheaf is empty.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
extern "C" fn malloc_missed(size: usize) -> *mut c_void {
    or_null(flagstone_process::blocks::alloc_counted(size))
}

/// As [`malloc_due`], of `operator new`.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
extern "C" fn new_due(size: usize) -> *mut c_void {
    cxx::new_from(flagstone_process::blocks::alloc_due(size), size)
}

/// As [`malloc_missed`], of `operator new`.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
extern "C" fn new_missed(size: usize) -> *mut c_void {
    cxx::new_from(flagstone_process::blocks::alloc_counted(size), size)
}
