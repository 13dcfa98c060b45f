//! C++'s operators: an allocator below may bring its own, which would by-pass the C functions.
//!
//! Each operator asks the C function below for memory. Where there is none, the throwing forms go on to
//! the operator below as if nothing had happened, so its new-handler and its exception pass no frame of
//! ours; that jump is why they are assembly.

use crate::hooks::{free, malloc, memalign};
use crate::next::look_up;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

macro_rules! throwing {
    ($($symbol:ident $next:ident $find:ident $serve:ident $name:literal;)*) => {
        $(
            static $next: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

            extern "C" fn $find() {
                found(&$next, $name);
            }

            /// A throwing operator.
            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub extern "C" fn $symbol() {
                core::arch::naked_asm!(
                    "push rdi",
                    "push rsi",
                    "sub rsp, 8",
                    "call {serve}",
                    "add rsp, 8",
                    "pop rsi",
                    "pop rdi",
                    "test rax, rax",
                    "jz 2f",
                    "ret",
                    "2:",
                    "push rdi",
                    "push rsi",
                    "sub rsp, 8",
                    "call {find}",
                    "add rsp, 8",
                    "pop rsi",
                    "pop rdi",
                    "jmp qword ptr [rip + {next}]",
                    serve = sym $serve,
                    find = sym $find,
                    next = sym $next,
                )
            }

            /// A throwing operator.
            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub extern "C" fn $symbol() {
                core::arch::naked_asm!(
                    "stp x29, x30, [sp, #-32]!",
                    "stp x0, x1, [sp, #16]",
                    "bl {serve}",
                    "cbz x0, 2f",
                    "ldp x29, x30, [sp], #32",
                    "ret",
                    "2:",
                    "bl {find}",
                    "ldp x0, x1, [sp, #16]",
                    "ldp x29, x30, [sp], #32",
                    "adrp x16, {next}",
                    "ldr x16, [x16, :lo12:{next}]",
                    "br x16",
                    serve = sym $serve,
                    find = sym $find,
                    next = sym $next,
                )
            }
        )*
    };
}

throwing! {
    _Znwm NEXT_NEW find_new serve_plain c"_Znwm";
    _Znam NEXT_NEW_ARRAY find_new_array serve_plain c"_Znam";
    _ZnwmSt11align_val_t NEXT_NEW_ALIGNED find_new_aligned serve_aligned c"_ZnwmSt11align_val_t";
    _ZnamSt11align_val_t NEXT_NEW_ARRAY_ALIGNED find_new_array_aligned serve_aligned c"_ZnamSt11align_val_t";
}

extern "C" fn serve_plain(size: usize) -> *mut c_void {
    malloc(size.max(1))
}

extern "C" fn serve_aligned(size: usize, align: usize) -> *mut c_void {
    memalign(align, size.max(1))
}

/// Finds the operator below. A program without one has no C++ library that could throw.
#[cold]
fn found(next: &AtomicPtr<c_void>, name: &CStr) {
    let address = look_up(name);
    if address.is_null() {
        // SAFETY: no preconditions.
        unsafe { libc::abort() }
    }
    next.store(address, Relaxed);
}

macro_rules! quiet {
    ($($symbol:ident($($argument:ident: $kind:ty),*) = $call:expr;)*) => {
        $(
            /// An operator that answers null.
            #[unsafe(no_mangle)]
            pub extern "C" fn $symbol($($argument: $kind),*) -> *mut c_void {
                $call
            }
        )*
    };
}

quiet! {
    _ZnwmRKSt9nothrow_t(size: usize, _quiet: *const c_void) = serve_plain(size);
    _ZnamRKSt9nothrow_t(size: usize, _quiet: *const c_void) = serve_plain(size);
    _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, _quiet: *const c_void) = serve_aligned(size, align);
    _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, _quiet: *const c_void) = serve_aligned(size, align);
}

macro_rules! delete {
    ($($symbol:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            /// An operator delete.
            ///
            /// # Safety
            /// 1. As C++ says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol(address: *mut c_void $(, $argument: $kind)*) {
                // SAFETY: obligation 1.
                unsafe { free(address) };
            }
        )*
    };
}

delete! {
    _ZdlPv();
    _ZdaPv();
    _ZdlPvm(_size: usize);
    _ZdaPvm(_size: usize);
    _ZdlPvRKSt9nothrow_t(_quiet: *const c_void);
    _ZdaPvRKSt9nothrow_t(_quiet: *const c_void);
    _ZdlPvSt11align_val_t(_align: usize);
    _ZdaPvSt11align_val_t(_align: usize);
    _ZdlPvmSt11align_val_t(_size: usize, _align: usize);
    _ZdaPvmSt11align_val_t(_size: usize, _align: usize);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(_align: usize, _quiet: *const c_void);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(_align: usize, _quiet: *const c_void);
}
