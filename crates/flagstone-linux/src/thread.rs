//! A thread's name for locks, and how a thread waits.

use crate::sys;

/// The thread pointer: distinct for live threads, never zero, readable at any time.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn token() -> u64 {
    let token: u64;
    // SAFETY: the first word at the thread pointer is its own address (x86-64 ELF TLS).
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) token,
            options(nostack, readonly, preserves_flags));
    }
    token
}

/// The thread pointer: distinct for live threads, never zero, readable at any time.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn token() -> u64 {
    let token: u64;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) token,
            options(nostack, nomem, preserves_flags));
    }
    token
}

/// The thread's handle: distinct for live threads, never zero.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn token() -> u64 {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as u64 }
}

/// Rounds that only spin: together about 2 microseconds, the length of a short hold.
const SPIN_ROUNDS: u32 = 7;
/// Rounds after that which let another thread run.
const YIELD_ROUNDS: u32 = 32;
/// The longest nap, in nanoseconds. Why naps at all: a real-time thread that yields to a holder
/// of lower priority would wait for ever.
const NAP_NS_MAX: u32 = 1_000_000;

/// Waits in round `round`: spin, then yield, then nap for 50 µs growing to 1 ms.
#[cold]
pub fn pause(round: u32) {
    if round < SPIN_ROUNDS {
        for _ in 0..1u32 << round {
            core::hint::spin_loop();
        }
    } else if round < SPIN_ROUNDS + YIELD_ROUNDS {
        // SAFETY: no arguments, no memory.
        unsafe { sys::call(libc::SYS_sched_yield, [0; 6]) };
    } else {
        let naps = (round - SPIN_ROUNDS - YIELD_ROUNDS).min(10);
        let nap = libc::timespec {
            tv_sec: 0,
            tv_nsec: i64::from((50_000u32 << naps).min(NAP_NS_MAX)),
        };
        // SAFETY: the kernel reads one timespec; an interrupted nap is as good.
        unsafe {
            sys::call(
                libc::SYS_nanosleep,
                [(&raw const nap) as usize, 0, 0, 0, 0, 0],
            )
        };
    }
}
