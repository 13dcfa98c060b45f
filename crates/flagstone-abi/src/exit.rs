//! The end of a process, as late as it can be seen.
//!
//! ```text
//!   exit         __cxa_atexit without a library: after the handlers and destructors of all
//!                libraries that are registered later, the C library's own streams excepted
//!   quick_exit   at_quick_exit, or what it is made of in glibc
//!   _exit, _Exit the symbols themselves
//! ```
//!
//! A process that ends by a signal or by the bare system call leaves its last sample.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use flagstone_process::{profile, report};

unsafe extern "C" {
    fn __cxa_atexit(
        handler: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
}

/// glibc's part of `at_quick_exit`, which every program for it has a copy of.
type AtQuickExit = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void) -> c_int;
/// The whole of it, in a C library that keeps it itself (musl).
type AtQuick = extern "C" fn(extern "C" fn()) -> c_int;

/// The last report and profile, if they were asked for.
fn end() {
    profile::finish();
    report::finish();
}

unsafe extern "C" fn at_exit(_argument: *mut c_void) {
    end();
}

extern "C" fn at_quick() {
    end();
}

/// Registers the handlers, once. Refusal only costs the report.
pub fn register() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if REGISTERED.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the handlers live as long as the program: the library is never unloaded.
    unsafe { __cxa_atexit(at_exit, ptr::null_mut(), ptr::null_mut()) };
    register_quick();
}

/// Which of the two functions there is, is asked at run time: one build serves both C libraries.
fn register_quick() {
    // SAFETY: zero-terminated names.
    let (part, whole) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"__cxa_at_quick_exit".as_ptr()),
            libc::dlsym(libc::RTLD_DEFAULT, c"at_quick_exit".as_ptr()),
        )
    };
    if !part.is_null() {
        // SAFETY: that is its type; the handler lives as long as the program.
        unsafe { core::mem::transmute::<*mut c_void, AtQuickExit>(part)(at_exit, ptr::null_mut()) };
    } else if !whole.is_null() {
        // SAFETY: that is its type.
        unsafe { core::mem::transmute::<*mut c_void, AtQuick>(whole)(at_quick) };
    }
}

fn leave(status: c_int) -> ! {
    end();
    loop {
        // SAFETY: the call does not return.
        unsafe {
            flagstone_linux::sys::call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]);
        }
    }
}

/// Ends the process at once, after its report if one was asked for.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    leave(status)
}

/// As [`_exit`], by its C99 name.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    leave(status)
}
