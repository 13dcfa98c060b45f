//! Plugins loaded with `RTLD_DEEPBIND` share this heap too.
//!
//! That flag makes a plugin look its symbols up among its own libraries first: it would get the C
//! library's `free` for our blocks and end in a crash (PHP loads its extensions so). `dlopen` is
//! interposed and passed on without the flag. It passes on by a jump: `dlopen` looks at who called
//! it, and must find the caller, not us.

use core::ffi::{c_char, c_void};

/// Finds the next library's `dlopen`; a caller without one has none to call.
extern "C" fn next_dlopen() -> *mut c_void {
    // SAFETY: a zero-terminated name.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    if next.is_null() {
        // SAFETY: no preconditions.
        unsafe { libc::abort() }
    }
    next
}

/// `RTLD_DEEPBIND` in glibc; musl has no such flag, and ignores what it does not know.
const DEEPBIND: i32 = 8;

/// `dlopen` without `RTLD_DEEPBIND`.
///
/// # Safety
/// 1. As for the C library's function.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: i32) -> *mut c_void {
    // Two pushes and the return address leave the stack 8 bytes short of a call's alignment.
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {next}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "and esi, ~{deepbind}",
        "jmp rax",
        ".cfi_endproc",
        next = sym next_dlopen,
        deepbind = const DEEPBIND,
    )
}

/// `dlopen` without `RTLD_DEEPBIND`.
///
/// # Safety
/// 1. As for the C library's function.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: i32) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, -32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "stp x0, x1, [sp, 16]",
        "bl {next}",
        "mov x16, x0",
        "ldp x0, x1, [sp, 16]",
        "ldp x29, x30, [sp], 32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "and w1, w1, ~{deepbind}",
        "br x16",
        ".cfi_endproc",
        next = sym next_dlopen,
        deepbind = const DEEPBIND,
    )
}
