//! Fork: the child gets a heap whose structures are whole and whose locks are free.
//!
//! Before the fork every lock is taken, in order; afterwards both sides give them back. The
//! child also frees the locks of slot steps, whose holders may have been other threads. The
//! registration is the earliest there is, so the C library takes our locks last and frees them
//! first, and other libraries' handlers may allocate.

use crate::init::HEAP;

/// Registers the handlers.
pub fn register() {
    if flagstone_linux::fork::register(prepare, parent, child).is_err() {
        flagstone_linux::write_line(&[
            b"flagstone: no memory for fork handlers; forking from threads is unsafe\n",
        ]);
    }
}

extern "C" fn prepare() {
    HEAP.fork_prepare();
}

extern "C" fn parent() {
    HEAP.fork_done();
}

extern "C" fn child() {
    flagstone_linux::fork::child();
    HEAP.fork_done();
}
