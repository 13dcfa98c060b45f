//! Fork: the child gets a heap whose structures are whole and whose locks are free.
//!
//! Before the fork every lock is taken, in order; afterwards both sides give them back, but what
//! the forking thread holds below a signal handler stays its own. The child also frees the
//! locks of slot steps, whose holders may have been other threads. The
//! registration is the earliest there is, so the C library takes our locks last and frees them
//! first, and other libraries' handlers may allocate: whoever else registers comes through here
//! first, be it a library whose constructor ran before ours.

use crate::init::static_heap;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use flagstone_linux::filter;
use flagstone_linux::fork::Handler;

/// The process whose memory the heap is; zero where nobody may ask.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Whether the caller's process is the one the heap belongs to; `false` beside a filter, where nobody may ask.
/// The child of a `vfork` is not: it runs in its parent's memory. Nor is a child whose C library ran no fork
/// handlers (`_Fork`, a bare `clone`).
pub fn in_its_process() -> bool {
    let permit = filter::permit();
    permit.is_some() && PROCESS.load(Relaxed) == flagstone_linux::process::id()
}

/// Notes that the heap belongs to the caller's process.
fn note_process() {
    let id = filter::permit().map_or(0, |_permit| flagstone_linux::process::id());
    PROCESS.store(id, Relaxed);
}

/// Registers handlers around `fork`, as `pthread_atfork` does.
pub type AtFork = fn(Handler, Handler, Handler) -> c_int;

/// Registers the handlers, once, by means of `at_fork`: which function that is depends on how the
/// face reaches the C library.
pub fn register(at_fork: AtFork) {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if REGISTERED.swap(true, Relaxed) {
        return;
    }
    note_process();
    if at_fork(Some(prepare), Some(parent), Some(child)) != 0 {
        flagstone_linux::write_line(&[
            b"flagstone: no memory for fork handlers; forking from threads is unsafe\n",
        ]);
    }
}

extern "C" fn prepare() {
    static_heap().wait_for_builder();
    while !is_prepared() {}
}

/// Takes everything in order; `false` if somebody else had to go on first, and nothing is held.
fn is_prepared() -> bool {
    if !flagstone_linux::fork::prepare() {
        flagstone_linux::fork::wait();
        return false;
    }
    if !static_heap().fork_prepare() {
        flagstone_linux::fork::parent();
        static_heap().fork_wait();
        return false;
    }
    true
}

extern "C" fn parent() {
    static_heap().fork_parent();
    flagstone_linux::fork::parent();
}

extern "C" fn child() {
    flagstone_linux::fork::child();
    static_heap().fork_child();
    crate::control::forget();
    crate::limit::forked();
    note_process();
    crate::profile::forked();
}
