//! A program that limits its own address space: the heap's reservation gives way.
//!
//! The kernel counts what a library reserved like any mapping. Below a limit lowered to less than
//! that, nothing could be mapped any more, no thread's stack and no library. So `setrlimit` and
//! `prlimit` are interposed, and after a change the heap keeps only what is committed (ADR 0025). A
//! limit that is changed from outside, or by a bare system call, is met at the next huge block.

use core::ffi::{c_int, c_uint};
use flagstone_process::blocks;
use flagstone_process::fork::in_its_process;
use libc::{pid_t, rlimit};

/// A function under its own name and the one with 64 bits, which all numbers have here.
macro_rules! under_names {
    ($doc:literal, [$($name:ident)*], $arguments:tt => $call:expr) => {$(
        #[doc = $doc]
        ///
        /// # Safety
        /// 1. Pointers are null, where that means something, or valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name $arguments -> c_int {
            // SAFETY: obligation 1.
            unsafe { $call }
        }
    )*};
}

under_names! {
    "Sets a limit of this process.", [setrlimit setrlimit64],
    (resource: c_uint, new: *const rlimit) => change(0, resource, new, core::ptr::null_mut())
}

under_names! {
    "Sets and asks for a limit of any process.", [prlimit prlimit64],
    (pid: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) =>
        change(pid, resource, new, old)
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
    if resource == libc::RLIMIT_AS as c_uint && !new.is_null() && in_its_process() {
        blocks::fit_address_space();
    }
    0
}
