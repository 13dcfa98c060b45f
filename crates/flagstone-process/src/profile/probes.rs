//! Static probes for tracers (bpftrace, perf, OpenTelemetry's profiler), on the sampled path alone.
//!
//! ```text
//!   otel_memory:alloc(address, bytes, weight)     a block was sampled
//!   otel_memory:free(address)                     a sampled block is given back
//! ```
//!
//! A probe is an instruction that does nothing and a note in the file (`.note.stapsdt`): where the instruction is, where a
//! count of tracers lies (the semaphore), the probe's name, and in which registers its arguments are. The note
//! is not loaded. The contract of the two is OpenTelemetry's (ebpf-profiler, design document 00003): `weight` is how
//! many allocated bytes the sample stands for. A tracer that counts itself in switches sampling on (switch.rs).

use super::switch;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::switch::{SEMAPHORES_AT, SWITCH};

/// The instruction and the note of one probe.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! probe {
    ($name:literal, $arguments:literal) => {
        concat!(
            "990: nop\n",
            ".pushsection .note.stapsdt, \"\", @note\n",
            ".balign 4\n",
            ".4byte 992f - 991f, 994f - 993f, 3\n",
            "991: .asciz \"stapsdt\"\n",
            "992: .balign 4\n",
            "993: .8byte 990b\n",
            ".8byte 0\n",
            ".8byte {switch} + {semaphore}\n",
            ".asciz \"otel_memory\"\n",
            ".asciz \"",
            $name,
            "\"\n",
            ".asciz \"",
            $arguments,
            "\"\n",
            "994: .balign 4\n",
            ".popsection\n",
        )
    };
}

/// A block was sampled.
#[inline]
pub fn alloc(block: *mut u8, bytes: u64, weight: u64) {
    if switch::is_traced(0) {
        fire_alloc(block, bytes, weight);
    }
}

/// A sampled block is given back.
#[inline]
pub fn free(block: *mut u8) {
    if switch::is_traced(1) || switch::is_traced(0) {
        fire_free(block);
    }
}

#[cold]
#[inline(never)]
fn fire_alloc(block: *mut u8, bytes: u64, weight: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction does nothing.
    unsafe {
        core::arch::asm!(
            probe!("alloc", "8@%rdi 8@%rsi 8@%rdx"),
            in("rdi") block, in("rsi") bytes, in("rdx") weight,
            switch = sym SWITCH, semaphore = const SEMAPHORES_AT,
            options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction does nothing.
    unsafe {
        core::arch::asm!(
            probe!("alloc", "8@x0 8@x1 8@x2"),
            in("x0") block, in("x1") bytes, in("x2") weight,
            switch = sym SWITCH, semaphore = const SEMAPHORES_AT,
            options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (block, bytes, weight);
}

#[cold]
#[inline(never)]
fn fire_free(block: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction does nothing.
    unsafe {
        core::arch::asm!(
            probe!("free", "8@%rdi"),
            in("rdi") block,
            switch = sym SWITCH, semaphore = const SEMAPHORES_AT + 2,
            options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction does nothing.
    unsafe {
        core::arch::asm!(
            probe!("free", "8@x0"),
            in("x0") block,
            switch = sym SWITCH, semaphore = const SEMAPHORES_AT + 2,
            options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = block;
}
