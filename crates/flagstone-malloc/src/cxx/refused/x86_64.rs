//! The loops around the new-handler, in assembly (System V calling convention).
//!
//! Both keep `align` in rbx and `size` in r12 over the calls. Unwind tables say where the caller's
//! registers are; the nothrow loop also names its personality routine.

use super::super::Align;
use super::catch::{personality, swallow};
use super::{attempt, handler_or_thrower, new_handler};
use core::ffi::c_void;

core::arch::global_asm!(
    ".pushsection .text.flagstone_new_again,\"ax\",@progbits",
    ".globl flagstone_new_again",
    ".hidden flagstone_new_again",
    ".type flagstone_new_again,@function",
    ".p2align 4",
    "flagstone_new_again:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rbx, rdi",
    "mov r12, rsi",
    "2:",
    "mov rdi, rbx",
    "mov rsi, r12",
    "call {attempt}",
    "test rax, rax",
    "jnz 3f",
    "call {handler_or_thrower}",
    "call rax",
    "jmp 2b",
    "3:",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_endproc",
    ".size flagstone_new_again, .-flagstone_new_again",
    ".popsection",
    attempt = sym attempt,
    handler_or_thrower = sym handler_or_thrower,
);

core::arch::global_asm!(
    ".pushsection .text.flagstone_new_again_nothrow,\"ax\",@progbits",
    ".globl flagstone_new_again_nothrow",
    ".hidden flagstone_new_again_nothrow",
    ".type flagstone_new_again_nothrow,@function",
    ".globl flagstone_new_caught",
    ".hidden flagstone_new_caught",
    ".p2align 4",
    "flagstone_new_again_nothrow:",
    ".cfi_startproc",
    // 0x1b: relative to here, signed, four bytes.
    ".cfi_personality 0x1b, {personality}",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rbx, rdi",
    "mov r12, rsi",
    "2:",
    "mov rdi, rbx",
    "mov rsi, r12",
    "call {attempt}",
    "test rax, rax",
    "jnz 3f",
    "call {new_handler}",
    "test rax, rax",
    "jz 3f",
    "call rax",
    "jmp 2b",
    // The unwinder comes back here with the exception in rax and the stack as it was.
    "flagstone_new_caught:",
    "mov rdi, rax",
    "call {swallow}",
    "3:",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_endproc",
    ".size flagstone_new_again_nothrow, .-flagstone_new_again_nothrow",
    ".popsection",
    attempt = sym attempt,
    new_handler = sym new_handler,
    swallow = sym swallow,
    personality = sym personality,
);

unsafe extern "C" {
    fn flagstone_new_again(align: Align, size: usize) -> *mut c_void;
    fn flagstone_new_again_nothrow(align: Align, size: usize) -> *mut c_void;
}

/// Allocates, calling the program's new-handler at every refusal until it succeeds; without a
/// handler throws `std::bad_alloc`. What the handler throws passes through.
#[inline(always)]
pub fn new_again(align: Align, size: usize) -> *mut c_void {
    // SAFETY: the loop above; any size, and any alignment that is a power of two.
    unsafe { flagstone_new_again(align, size) }
}

/// The same, with null where there is no handler or it throws.
#[inline(always)]
pub fn new_again_nothrow(align: Align, size: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { flagstone_new_again_nothrow(align, size) }
}
