//! Fork handlers, and the one lock of the C library that stands above ours.
//!
//! ```text
//!   fork()  other libraries' handlers   ours: list of streams, sheaves under way, the heap's locks   the system call
//! ```
//!
//! glibc locks its list of open streams after every handler, and before its own allocator. With
//! the heap's locks held first, a thread that flushes all streams could hold the list and wait for
//! a stream whose reader waits for the heap: nobody would go on. So the handler takes the list
//! first, through the functions glibc exports for that; it may be taken again by the same thread.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// One of the three handlers of a registration.
pub type Handler = Option<extern "C" fn()>;

/// glibc's function behind `pthread_atfork`; the last argument names the library that registers.
type Register = extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// `pthread_atfork`.
type Plain = extern "C" fn(Handler, Handler, Handler) -> c_int;

/// Passes a registration on to the C library, for a library that stands before it: to the function
/// of that name in glibc, to `pthread_atfork` itself elsewhere (musl); `ENOMEM` if there is none.
/// Without a `library` the handlers stay for good.
///
/// Handlers run in reverse order of registration before the fork, so the earliest registration
/// locks last and unlocks first, under everybody else's handlers. Registering may allocate.
///
/// Both are found when they are needed, so one build of the library serves both.
pub fn pass_on(prepare: Handler, parent: Handler, child: Handler, library: *mut c_void) -> c_int {
    if NEXT.address().is_null() {
        NEXT.find(libc::RTLD_NEXT, c"__register_atfork");
    }
    let next = NEXT.address();
    if !next.is_null() {
        // SAFETY: that is its type.
        let next = unsafe { core::mem::transmute::<*const (), Register>(next) };
        return next(prepare, parent, child, library);
    }
    if PLAIN.address().is_null() {
        PLAIN.find(libc::RTLD_NEXT, c"pthread_atfork");
    }
    let plain = PLAIN.address();
    if plain.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: that is its type.
    let plain = unsafe { core::mem::transmute::<*const (), Plain>(plain) };
    plain(prepare, parent, child)
}

/// A function of the C library that may not be there (musl has no list to lock).
struct Optional(AtomicUsize);

static LOCK: Optional = Optional(AtomicUsize::new(0));
static UNLOCK: Optional = Optional(AtomicUsize::new(0));
static RESET: Optional = Optional(AtomicUsize::new(0));
static NEXT: Optional = Optional(AtomicUsize::new(0));
static PLAIN: Optional = Optional(AtomicUsize::new(0));

impl Optional {
    fn find(&self, among: *mut c_void, name: &CStr) {
        // SAFETY: a zero-terminated name.
        let address = unsafe { libc::dlsym(among, name.as_ptr()) };
        self.0.store(address.expose_provenance(), Relaxed);
    }

    fn address(&self) -> *const () {
        core::ptr::with_exposed_provenance(self.0.load(Relaxed))
    }

    fn call(&self) {
        let address = self.address();
        if !address.is_null() {
            // SAFETY: all that are called this way are `void (void)`.
            unsafe { core::mem::transmute::<*const (), extern "C" fn()>(address)() }
        }
    }
}

/// Before the heap's locks are taken. The first fork looks the functions up, so that programs which
/// never fork do not pay for that.
///
/// `false` where a thread that takes sheaves does not end soon: nothing is locked then, and the caller
/// [waits](wait) before it asks again.
#[must_use]
pub fn prepare() -> bool {
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if !LOOKED.load(Relaxed) {
        LOCK.find(libc::RTLD_DEFAULT, c"_IO_list_lock");
        UNLOCK.find(libc::RTLD_DEFAULT, c"_IO_list_unlock");
        RESET.find(libc::RTLD_DEFAULT, c"_IO_list_resetlock");
        LOOKED.store(true, Relaxed);
    }
    LOCK.call();
    let alone = crate::seizing::before_fork();
    if !alone {
        UNLOCK.call();
    }
    alone
}

/// Waits, with nothing locked, for the thread that takes sheaves.
pub fn wait() {
    crate::seizing::wait_while_held();
}

/// In the parent, after the heap's locks were given back.
pub fn parent() {
    crate::seizing::after_fork();
    UNLOCK.call();
}

/// What the child must do for this layer: locks of CPUs whose holders no longer exist are freed.
/// A step that was under way in another thread left its sheaf whole (each commits by one store).
/// The list of streams is made anew, as glibc does for a program with threads only.
pub fn child() {
    crate::seizing::after_fork_in_child();
    crate::slots::reset_after_fork();
    crate::membarrier::reset_after_fork();
    crate::filter::reset_after_fork();
    RESET.call();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seizing;
    use std::sync::Barrier;

    /// A handler on top of a thread that takes sheaves forks while another thread does: the latter must let
    /// go of the list of streams, or neither goes on.
    #[test]
    fn a_fork_gives_way_to_one_on_top_of_a_thread_that_takes_sheaves() {
        let (takes, forked) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !seizing::begin() {}
                takes.wait();
                forked.wait();
                assert!(prepare(), "its own taking is nothing to wait for");
                parent();
                seizing::end();
            });
            takes.wait();
            assert!(!prepare(), "somebody takes sheaves");
            forked.wait();
            while !prepare() {
                wait();
            }
            parent();
        });
    }
}
