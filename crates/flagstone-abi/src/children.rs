//! `vfork` and `clone`: children and threads that run in storage which the kernel does not keep for them.
//!
//! Both are interposed and passed on; who runs there has no index from then on ([`flagstone_linux::strangers`]).
//! A bare system call in instructions of a program's own is not noticed.

use crate::next::Next;
use core::ffi::{c_int, c_void};
use flagstone_linux::strangers::{self, Lent};
use libc::pid_t;

type Start = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `clone` with all the arguments it may have.
type Clone = unsafe extern "C" fn(
    Start,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut pid_t,
    *mut c_void,
    *mut pid_t,
) -> c_int;

static CLONE: Next = Next::new();

/// What a child does that runs in its parent's storage while that waits.
struct Child {
    start: Start,
    argument: *mut c_void,
}

/// # Safety
/// 1. `child` is a [`Child`], and the caller runs in storage whose owner waits.
unsafe extern "C" fn start_without_index(child: *mut c_void) -> c_int {
    // SAFETY: obligation 1.
    unsafe {
        strangers::disown_caller();
        let Child { start, argument } = child.cast::<Child>().read();
        start(argument)
    }
}

/// Makes a child or a thread; see the C library's function.
///
/// # Safety
/// 1. As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    start: Start,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut pid_t,
    storage: *mut c_void,
    child: *mut pid_t,
) -> c_int {
    // SAFETY: that is its type; callers pass as many of these arguments as the flags ask for.
    let next = unsafe { core::mem::transmute::<*const (), Clone>(CLONE.address(c"clone")) };
    let has = |flag| flags & flag != 0;
    if has(libc::CLONE_VM) && has(libc::CLONE_SETTLS) {
        // SAFETY: obligation 1: nobody runs there yet.
        unsafe { disown_storage(storage) };
    } else if has(libc::CLONE_VM) && has(libc::CLONE_VFORK) {
        let mut own = Child { start, argument };
        let lent = Lent::now();
        let own = (&raw mut own).cast();
        // SAFETY: obligation 1; this frame lasts while the child is in it, as the caller waits.
        let result = unsafe {
            next(
                start_without_index,
                stack,
                flags,
                own,
                parent,
                storage,
                child,
            )
        };
        lent.take_back();
        return result;
    }
    // SAFETY: obligation 1.
    unsafe { next(start, stack, flags, argument, parent, storage, child) }
}

/// Takes the index from storage that a thread is to have. Where the ABI says that it begins with its own address,
/// what does not is no storage that C code can run in.
///
/// # Safety
/// 1. `storage` is null or a thread pointer of the ABI, of a thread that does not run yet.
unsafe fn disown_storage(storage: *mut c_void) {
    // SAFETY: obligation 1.
    let is_whole = !storage.is_null()
        && (cfg!(not(target_arch = "x86_64"))
            || unsafe { storage.cast::<*mut c_void>().read() } == storage);
    if is_whole {
        // SAFETY: obligation 1.
        unsafe { strangers::disown(storage.expose_provenance()) };
    }
}

/// Stores `error` in `errno`; -1.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
extern "C" fn failed(error: c_int) -> pid_t {
    // SAFETY: the C library's errno of this thread.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// A child that runs in its parent's memory and storage while the parent waits; see the C library's function.
///
/// The child returns first and uses the stack, so what the parent needs later stays in registers.
///
/// # Safety
/// 1. As for the C library's function.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn vfork() -> pid_t {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_register rip, rdi",
        "mov rsi, qword ptr [rip + {index}]",
        "test rsi, rsi",
        "jz 2f",
        "mov edx, dword ptr fs:[rsi]",
        "2: mov eax, {number}",
        "syscall",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rip, 0",
        "test rsi, rsi",
        "jz 4f",
        "test rax, rax",
        "jnz 3f",
        "mov dword ptr fs:[rsi], {nobody}",
        "ret",
        // The parent: its index back, unless the kernel wrote one.
        "3: mov r8, rax",
        "mov eax, {nobody}",
        "cmpxchg dword ptr fs:[rsi], edx",
        "mov rax, r8",
        "4: cmp rax, -4096",
        "ja 5f",
        "ret",
        "5: mov edi, eax",
        "neg edi",
        "jmp {failed}",
        ".cfi_endproc",
        index = sym flagstone_linux::slots::INDEX_OFFSET,
        number = const libc::SYS_vfork,
        nobody = const strangers::NOBODY as i32,
        failed = sym failed,
    )
}

/// A child that runs in its parent's memory and storage while the parent waits; see the C library's function.
///
/// # Safety
/// 1. As for the C library's function.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn vfork() -> pid_t {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "adrp x9, {index}",
        "ldr x9, [x9, :lo12:{index}]",
        "mrs x10, tpidr_el0",
        "add x10, x10, x9",
        "cbz x9, 2f",
        "ldr w11, [x10]",
        "2: mov x0, {flags}",
        "mov x1, xzr",
        "mov x2, xzr",
        "mov x3, xzr",
        "mov x4, xzr",
        "mov x8, {number}",
        "svc 0",
        "cbz x9, 5f",
        "mov w12, -1",
        "cbnz x0, 3f",
        "str w12, [x10]",
        "ret",
        // The parent: its index back, unless the kernel wrote one.
        "3: ldxr w13, [x10]",
        "cmp w13, w12",
        "b.ne 4f",
        "stxr w14, w11, [x10]",
        "cbnz w14, 3b",
        "4: clrex",
        "5: cmn x0, 4095",
        "b.cs 6f",
        "ret",
        "6: neg w0, w0",
        "b {failed}",
        ".cfi_endproc",
        index = sym flagstone_linux::slots::INDEX_OFFSET,
        flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
        number = const libc::SYS_clone,
        failed = sym failed,
    )
}

/// glibc's second name of [`vfork`].
///
/// # Safety
/// 1. As for [`vfork`].
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __vfork() -> pid_t {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("jmp {vfork}", vfork = sym vfork);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("b {vfork}", vfork = sym vfork);
}

/// Finds the next library's functions now.
pub fn find() {
    CLONE.find(c"clone");
}
