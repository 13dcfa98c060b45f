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

/// Rounds that only spin: together about 8 microseconds, a few times the length of a hold.
const SPIN_ROUNDS: u32 = 9;
/// Rounds after that which let another thread run.
const YIELD_ROUNDS: u32 = 30;
/// The longest nap, in nanoseconds. Why naps at all: a real-time thread that yields to a holder
/// of lower priority would wait for ever.
const NAP_NS_MAX: u32 = 1_000_000;

/// Waits in round `round`: spin, then yield, then nap for 50 µs growing to 1 ms.
///
/// A yield is a nap that is over already: the thread leaves its CPU and comes back at once. It takes 15 µs
/// where nobody else wants the CPU. sched_yield takes 1.4, but a filter may not expect it of a malloc, and on a
/// CPU with another busy thread it takes that thread's whole slice: 3.9 ms beside 40 µs (Linux 6.18).
#[cold]
pub fn pause(round: u32) {
    if round < SPIN_ROUNDS {
        for _ in 0..1u32 << round {
            core::hint::spin_loop();
        }
    } else if round < SPIN_ROUNDS + YIELD_ROUNDS {
        nap(libc::FUTEX_WAIT_BITSET, 1);
    } else {
        let naps = (round - SPIN_ROUNDS - YIELD_ROUNDS).min(10);
        nap(libc::FUTEX_WAIT, (50_000u32 << naps).min(NAP_NS_MAX));
    }
}

/// Waits for a word that nobody wakes: until `ns` nanoseconds after now (`FUTEX_WAIT`), or after the clock's
/// start (`FUTEX_WAIT_BITSET`). A wait that a signal ends is as good.
fn nap(operation: libc::c_int, ns: u32) {
    let word = 0u32;
    let end = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(ns),
    };
    let arguments = [
        (&raw const word).expose_provenance(),
        (operation | libc::FUTEX_PRIVATE_FLAG) as usize,
        word as usize,
        (&raw const end).expose_provenance(),
        0,
        u32::MAX as usize,
    ];
    // SAFETY: the kernel reads the word and the time, which live during the call.
    unsafe { sys::call(libc::SYS_futex, arguments) };
}
