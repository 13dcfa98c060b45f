//! Plugins loaded with `RTLD_DEEPBIND` share this heap too.
//!
//! That flag makes a plugin look its symbols up among its own libraries first: it would get the C
//! library's `free` for our blocks and end in a crash (PHP loads its extensions so). `dlopen` is
//! interposed and passed on without the flag. It passes on by a jump: `dlopen` looks at who called
//! it, and must find the caller, not us.

use core::ffi::c_void;

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

/// `dlopen` without `RTLD_DEEPBIND`.
///
/// # Safety
/// 1. As for the C library's function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(path: *const i8, flags: i32) -> *mut c_void {
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
        deepbind = const libc::RTLD_DEEPBIND,
    )
}
