//! A program that limits its own address space: the heap's reservation gives way.
//!
//! The kernel counts what a library reserved like any mapping. Below a limit lowered to less than
//! that, nothing could be mapped any more, no thread's stack and no library. So `setrlimit` and
//! `prlimit` are interposed, and after a change the heap keeps half of what is left. A limit that
//! is changed from outside, or by a bare system call, is met at the next huge block.

use crate::fork::in_its_process;
use crate::init::static_heap;
use core::ffi::{c_int, c_uint};
use libc::{pid_t, rlimit};

/// Sets a limit of this process.
///
/// # Safety
/// 1. `new` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_uint, new: *const rlimit) -> c_int {
    // SAFETY: obligation 1.
    unsafe { change(0, resource, new, core::ptr::null_mut()) }
}

/// The same: all numbers have 64 bits.
///
/// # Safety
/// 1. As for [`setrlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_uint, new: *const rlimit) -> c_int {
    // SAFETY: obligation 1.
    unsafe { change(0, resource, new, core::ptr::null_mut()) }
}

/// Sets and asks for a limit of any process.
///
/// # Safety
/// 1. `new` and `old` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    pid: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: obligation 1.
    unsafe { change(pid, resource, new, old) }
}

/// The same: all numbers have 64 bits.
///
/// # Safety
/// 1. As for [`prlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    pid: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: obligation 1.
    unsafe { change(pid, resource, new, old) }
}

/// # Safety
/// 1. `new` and `old` are null or valid.
unsafe fn change(pid: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: obligation 1.
    let result = unsafe { flagstone_linux::limits::prlimit(pid, resource, new, old) };
    if result < 0 {
        // SAFETY: the C library's errno of this thread.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    // A child that shares its parent's memory until it starts a program limits only itself.
    if resource == libc::RLIMIT_AS && !new.is_null() && in_its_process() {
        static_heap().fit_address_space();
    }
    0
}
