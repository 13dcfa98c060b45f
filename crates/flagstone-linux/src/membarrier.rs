//! The fence that aborts restartable sequences on other CPUs.
//!
//! After [`fence`] returns, every critical section of this process that was under way when it
//! was called has committed or will restart, and all of their stores are visible here.

use crate::sys;
use core::sync::atomic::{AtomicU8, Ordering};

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ`, Linux 5.10.
const FENCE: usize = 1 << 7;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ`, Linux 5.10.
const REGISTER: usize = 1 << 8;

const UNKNOWN: u8 = 0;
const READY: u8 = 1;
const ABSENT: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Fences asked for.
#[cfg(test)]
pub static FENCES: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

fn membarrier(command: usize) -> isize {
    // SAFETY: the commands used here take no pointers.
    unsafe { sys::call(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) }
}

/// Whether fences work here; registers this process at the first call (about 10 µs once there
/// are threads, so not at start-up).
pub fn ready() -> bool {
    match STATE.load(Ordering::Relaxed) {
        READY => true,
        ABSENT => false,
        _ => {
            let works = membarrier(REGISTER) == 0 && membarrier(FENCE) == 0;
            let state = if works { READY } else { ABSENT };
            STATE.store(state, Ordering::Relaxed);
            works
        }
    }
}

/// Aborts the critical sections under way on all CPUs. All of them, because under `mm_cid` a
/// slot does not say which CPU runs it. `false` if the kernel refused.
#[must_use]
pub fn fence() -> bool {
    #[cfg(test)]
    FENCES.fetch_add(1, Ordering::Relaxed);
    let result = membarrier(FENCE);
    if sys::is_error(result, libc::EPERM) {
        // The registration is the address space's; ask again where it did not survive.
        return membarrier(REGISTER) == 0 && membarrier(FENCE) == 0;
    }
    result == 0
}

/// In the child of a fork: find out again.
pub fn reset_after_fork() {
    if STATE.load(Ordering::Relaxed) == READY {
        STATE.store(UNKNOWN, Ordering::Relaxed);
    }
}
