//! How the heap begins in a program that has it linked into itself.
//!
//! A library that is put before the C library begins otherwise: it stands between the program and
//! the C library's registrations (`flagstone_abi`).

use crate::{env, fork, profile, report};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use flagstone_linux::fork::Handler;

unsafe extern "C" {
    safe fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    fn __cxa_atexit(
        handler: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
}

unsafe extern "C" fn finish(_argument: *mut c_void) {
    profile::finish();
    report::finish();
}

fn at_exit() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if REGISTERED.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the handler lives as long as the program. Refusal only costs the report.
    unsafe { __cxa_atexit(finish, null_mut(), null_mut()) };
}

fn at_fork(prepare: Handler, parent: Handler, child: Handler) -> c_int {
    pthread_atfork(prepare, parent, child)
}

/// For a program's constructor: handlers around `fork`, and a report if one is asked for.
pub extern "C" fn begin_in_program() {
    fork::register(at_fork);
    if env::has_any() {
        report::begin(at_fork, at_exit);
        profile::begin(at_fork, at_exit);
    }
}
