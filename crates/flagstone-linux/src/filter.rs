//! System-call filters: what may still be asked of the kernel.
//!
//! A program that confines itself (seccomp) lists the calls it needs. Of its malloc it expects the calls for
//! memory: mmap, munmap, mremap, mprotect, madvise, futex, and write before abort. Any other call may end the
//! program, and nobody can try one without making it. So every other call of this library is made under a
//! [`Permit`], and no permit is given once the program has begun to install a filter.
//!
//! ```text
//!   prctl, seccomp ─► close ─► waits for permits ─► the call ─► refused? open
//! ```
//!
//! The face interposes the functions that install filters. A filter that was there before the program started
//! is another matter: it let the calls of start-up through.
//!
//! Invariants
//! - `filter.closed-first`: when a filter is installed, nobody holds a permit, unless the wait for them was given up.

use core::sync::atomic::{AtomicU32, Ordering};

/// Who may ask, and who is asking.
struct Gatekeeper {
    /// Filters installed, or being installed.
    filters: AtomicU32,
    /// Permits given and not yet returned.
    permits: AtomicU32,
}

static PROCESS: Gatekeeper = Gatekeeper::new();

/// Rounds for which [`close`] waits for permits, about 50 ms. The caller may be a signal handler on top of a
/// permit's holder, so the wait must end.
const PATIENCE: u32 = 90;

/// The right to make calls that a filter might not expect, until it is dropped.
pub struct Permit(&'static Gatekeeper);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// The right to make calls beyond those for memory; `None` beside a filter.
#[must_use]
pub fn permit() -> Option<Permit> {
    PROCESS.ask().then(|| Permit(&PROCESS))
}

/// Ends permits: the caller installs a filter next.
pub fn close() {
    PROCESS.close();
}

/// Takes [`close`] back: the filter was refused.
pub fn open() {
    PROCESS.open();
}

/// In the child of a fork: other threads' permits are gone.
pub(crate) fn reset_after_fork() {
    PROCESS.permits.store(0, Ordering::Relaxed);
}

impl Gatekeeper {
    const fn new() -> Self {
        Self {
            filters: AtomicU32::new(0),
            permits: AtomicU32::new(0),
        }
    }

    fn ask(&self) -> bool {
        // Counted first and asked second; `close` does it the other way round: one of the two sees the other.
        self.permits.fetch_add(1, Ordering::SeqCst);
        let free = self.filters.load(Ordering::SeqCst) == 0;
        if !free {
            self.give_back();
        }
        free
    }

    fn give_back(&self) {
        // The child of a fork starts at zero, also where a handler forked on top of a permit's holder.
        let less = |n: u32| n.checked_sub(1);
        let _ = self
            .permits
            .fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }

    fn close(&self) {
        self.filters.fetch_add(1, Ordering::SeqCst);
        let mut round = 0;
        while self.permits.load(Ordering::SeqCst) != 0 && round < PATIENCE {
            crate::thread::pause(round);
            round += 1;
        }
    }

    fn open(&self) {
        self.filters.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_end_with_a_filter_and_come_back_when_it_is_refused() {
        let keeper = Gatekeeper::new();
        std::thread::scope(|scope| {
            assert!(keeper.ask());
            let closing = scope.spawn(|| keeper.close());
            while keeper.filters.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert!(!keeper.ask(), "a filter is being installed");
            keeper.give_back();
            closing.join().expect("it waited for the one permit");
        });
        assert!(!keeper.ask());
        keeper.open();
        assert!(keeper.ask());
    }

    #[test]
    fn a_filter_installed_on_top_of_a_permits_holder_does_not_wait_for_ever() {
        let keeper = Gatekeeper::new();
        assert!(keeper.ask());
        keeper.close();
        assert!(!keeper.ask());
    }
}
