//! The loops around the new-handler, in assembly (AAPCS64).
//!
//! Both keep `align` in x19 and `size` in x20 over the calls. Unwind tables say where the caller's
//! registers are; the nothrow loop also names its personality routine.

use super::catch::{personality, swallow};
use super::{attempt, handler_or_thrower, new_handler};

/// Saves what the loop uses and lays a frame.
macro_rules! enter {
    () => {
        concat!(
            "stp x29, x30, [sp, -32]!\n",
            ".cfi_def_cfa_offset 32\n",
            ".cfi_offset x29, -32\n",
            ".cfi_offset x30, -24\n",
            "mov x29, sp\n",
            "stp x19, x20, [sp, 16]\n",
            ".cfi_offset x19, -16\n",
            ".cfi_offset x20, -8\n",
            "mov x19, x0\n",
            "mov x20, x1",
        )
    };
}

/// Undoes [`enter`] and returns.
macro_rules! leave {
    () => {
        concat!(
            "ldp x19, x20, [sp, 16]\n",
            ".cfi_restore x19\n",
            ".cfi_restore x20\n",
            "ldp x29, x30, [sp], 32\n",
            ".cfi_restore x29\n",
            ".cfi_restore x30\n",
            ".cfi_def_cfa_offset 0\n",
            "ret",
        )
    };
}

core::arch::global_asm!(
    ".pushsection .text.flagstone_new_again,\"ax\",@progbits",
    ".globl flagstone_new_again",
    ".hidden flagstone_new_again",
    ".type flagstone_new_again,@function",
    ".p2align 4",
    "flagstone_new_again:",
    ".cfi_startproc",
    enter!(),
    "2:",
    "mov x0, x19",
    "mov x1, x20",
    "bl {attempt}",
    "cbnz x0, 3f",
    "bl {handler_or_thrower}",
    "blr x0",
    "b 2b",
    "3:",
    leave!(),
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
    enter!(),
    "2:",
    "mov x0, x19",
    "mov x1, x20",
    "bl {attempt}",
    "cbnz x0, 3f",
    "bl {new_handler}",
    "cbz x0, 3f",
    "blr x0",
    "b 2b",
    // The unwinder comes back here with the exception in x0 and the stack as it was.
    "flagstone_new_caught:",
    "bl {swallow}",
    "3:",
    leave!(),
    ".cfi_endproc",
    ".size flagstone_new_again_nothrow, .-flagstone_new_again_nothrow",
    ".popsection",
    attempt = sym attempt,
    new_handler = sym new_handler,
    swallow = sym swallow,
    personality = sym personality,
);
