//! A program that confines itself: from then on no call but those for memory.
//!
//! Filters are installed through `prctl`, or through `syscall`, for which the C library has no other function.
//! Both are interposed and passed on; the heap hears of it before ([`flagstone_process::confine`]). A program that
//! makes the bare system call in instructions of its own is not noticed.

use crate::next::Next;
use core::ffi::{c_int, c_long};
use flagstone_linux::strangers;
use flagstone_process::confine;

/// `prctl` with the arguments that any of its uses has.
type Prctl = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
/// `syscall` with as many arguments as a system call can have.
type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

static PRCTL: Next = Next::new();
static SYSCALL: Next = Next::new();

/// Finds the next library's functions now: later calls may come where nothing can be looked up, such as from
/// the child of a `vfork`.
pub fn find() {
    PRCTL.find(c"prctl");
    SYSCALL.find(c"syscall");
}

/// Makes the call that installs a filter.
fn confine<T: Default + PartialOrd>(call: impl FnOnce() -> T) -> T {
    confine::begin();
    let result = call();
    if result < T::default() {
        confine::refused();
    }
    result
}

fn installs_filter(option: usize) -> bool {
    option == libc::PR_SET_SECCOMP as usize
}

/// Of the operations of `seccomp` the first two install something; the others ask.
fn operation_installs(operation: usize) -> bool {
    operation <= libc::SECCOMP_SET_MODE_FILTER as usize
}

/// Passed on; noticed where it installs a filter.
///
/// # Safety
/// 1. As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, b: usize, c: usize, d: usize, e: usize) -> c_int {
    // SAFETY: that is its type; callers pass as many of these arguments as the option has, in the same places.
    let next = unsafe { core::mem::transmute::<*const (), Prctl>(PRCTL.address(c"prctl")) };
    // SAFETY: obligation 1.
    let call = || unsafe { next(option, b, c, d, e) };
    if installs_filter(option as usize) {
        confine(call)
    } else {
        call()
    }
}

/// Makes a call of `rseq` about the caller's own area. A program that ends the registration, to register an area of
/// its own, leaves this thread without an index.
///
/// # Safety
/// 1. `call` is such a call, with these flags.
unsafe fn call_and_disown(call: impl FnOnce() -> c_long, flags: usize) -> c_long {
    const UNREGISTER: usize = 1;
    let result = call();
    if result == 0 && flags == UNREGISTER {
        // SAFETY: from now on the kernel does not keep the area.
        unsafe { strangers::disown_caller() };
    }
    result
}

/// Passed on; noticed where it installs a filter, or ends the registration of the caller's area of restartable
/// sequences.
///
/// # Safety
/// 1. As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: that is its type; as for `prctl`.
    let next = unsafe { core::mem::transmute::<*const (), Syscall>(SYSCALL.address(c"syscall")) };
    // SAFETY: obligation 1.
    let call = || unsafe { next(number, a, b, c, d, e, f) };
    if number == libc::SYS_rseq && strangers::is_area_of_caller(a) {
        // SAFETY: obligation 1.
        return unsafe { call_and_disown(call, c) };
    }
    let installs = match number {
        libc::SYS_seccomp => operation_installs(a),
        libc::SYS_prctl => installs_filter(a),
        _ => false,
    };
    if installs { confine(call) } else { call() }
}
