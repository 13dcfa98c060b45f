//! What a thread knows: its stream, and whether it is inside the recorder.
//!
//! Two words of initial-exec thread-local storage, found by one load and one addition. The standard
//! library's thread-locals would call `__tls_get_addr`, which may allocate.

use crate::stream::Stream;

/// A thread's words; all zeroes at first.
#[repr(C)]
pub struct Local {
    /// The thread's stream, null before its first event.
    pub stream: *mut Stream,
    /// Not zero while the thread is inside the recorder.
    pub depth: u64,
}

core::arch::global_asm!(
    ".pushsection .tbss.flagstone_record_local,\"awT\",@nobits",
    ".balign 16",
    ".globl flagstone_record_local",
    ".hidden flagstone_record_local",
    ".type flagstone_record_local,@object",
    ".size flagstone_record_local,16",
    "flagstone_record_local: .zero 16",
    ".popsection",
);

/// This thread's words.
#[inline]
#[cfg(target_arch = "x86_64")]
pub fn local() -> *mut Local {
    let address: *mut Local;
    // SAFETY: the thread pointer's first word is its own address; the offset is fixed at load time.
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + flagstone_record_local@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) address,
            options(pure, readonly, nostack),
        );
    }
    address
}

/// This thread's words.
#[inline]
#[cfg(target_arch = "aarch64")]
pub fn local() -> *mut Local {
    let address: *mut Local;
    // SAFETY: the offset is fixed at load time.
    unsafe {
        core::arch::asm!(
            "mrs {1}, tpidr_el0",
            "adrp {0}, :gottprel:flagstone_record_local",
            "ldr {0}, [{0}, :gottprel_lo12:flagstone_record_local]",
            "add {0}, {0}, {1}",
            out(reg) address,
            out(reg) _,
            options(pure, readonly, nostack),
        );
    }
    address
}
