//! Ticks: the processor's own counter, in units of 32, comparable between CPUs.
//!
//! `flagstone record` measures what a unit lasts and writes it into the file's header. Why 32: some ten
//! nanoseconds, less than an object takes from one CPU to another, and a difference of most pairs of
//! events is one byte.

/// Bits of the processor's counter that a unit leaves out.
pub const SHIFT: u32 = 5;

/// Now.
#[inline]
#[cfg(target_arch = "x86_64")]
pub fn now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() >> SHIFT }
}

/// Now.
#[inline]
#[cfg(target_arch = "aarch64")]
pub fn now() -> u64 {
    let ticks: u64;
    // SAFETY: the counter is readable for programs on Linux.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Nanoseconds of one unit, measured against the system's clock for some hundredths of a second.
#[cfg(feature = "std")]
#[must_use]
pub fn tick_ns() -> f64 {
    const LOOK: std::time::Duration = std::time::Duration::from_millis(30);
    let (began, first) = (std::time::Instant::now(), now());
    while began.elapsed() < LOOK {
        std::hint::spin_loop();
    }
    let (last, elapsed) = (now(), began.elapsed());
    elapsed.as_nanos() as f64 / last.saturating_sub(first).max(1) as f64
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("flagstone-trace knows the counters of x86-64 and aarch64");
