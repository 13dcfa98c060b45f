//! The plain allocation functions.
//!
//! `malloc` and `free` themselves are in `hot`. [`allocate`] and [`release`] are the same for the
//! functions of this library: a gate, a slot step, and for all else cold functions.

use crate::hot::malloc_counting;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use flagstone_process::{blocks, static_heap};

/// Sets `errno` to `ENOMEM`; null.
#[cold]
pub fn out_of_memory() -> *mut c_void {
    // SAFETY: the C library's errno of this thread.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    null_mut()
}

/// A block as C sees it; null with `ENOMEM` for none.
#[inline]
pub fn or_null(block: Option<NonNull<u8>>) -> *mut c_void {
    match block {
        Some(block) => block.as_ptr().cast(),
        None => out_of_memory(),
    }
}

#[cold]
#[inline(never)]
extern "C" fn malloc_cold(size: usize) -> *mut c_void {
    or_null(blocks::alloc_cold(size))
}

/// `malloc` for the functions of this library.
#[inline(always)]
pub fn allocate(size: usize) -> *mut c_void {
    match static_heap().alloc_fast(size) {
        Some(block) => block.as_ptr().cast(),
        None => malloc_cold(size),
    }
}

/// `free` for the functions of this library.
///
/// # Safety
/// 1. `address` is null or a live block, which nobody uses again.
#[inline(always)]
pub unsafe fn release(address: *mut c_void) {
    // SAFETY: obligation 1.
    unsafe { blocks::free(address.cast()) };
}

/// The name old programs have for `free`.
///
/// # Safety
/// 1. As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(address: *mut c_void) {
    // SAFETY: obligation 1.
    unsafe { release(address) };
}

/// C23 7.24.3.4: the caller knows the size; a size that cannot be right ends the program. (The
/// C++ operators do not check: programs that delete through a base class live on.)
///
/// # Safety
/// 1. As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(address: *mut c_void, size: usize) {
    // SAFETY: obligation 1.
    unsafe { blocks::free_within(address.cast(), size, size) };
}

/// C23 7.24.3.5: the caller knows size and alignment; see [`free_sized`].
///
/// # Safety
/// 1. As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(address: *mut c_void, align: usize, size: usize) {
    // An aligned block holds its size, and may be as large as the alignment rounds that up.
    let most = size.max(1).checked_next_multiple_of(align.max(1));
    // SAFETY: obligation 1.
    unsafe { blocks::free_within(address.cast(), size, most.unwrap_or(size)) };
}

/// C23 7.24.3.2.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return out_of_memory();
    };
    match blocks::zeroed_fast(bytes) {
        Some(block) => block.as_ptr().cast(),
        None => calloc_cold(bytes),
    }
}

/// While a profile is taken all of `calloc` is here, so what counts is `malloc`'s assembly.
#[cold]
#[inline(never)]
extern "C" fn calloc_cold(bytes: usize) -> *mut c_void {
    if !blocks::is_counted(bytes) {
        return or_null(blocks::zeroed_cold(bytes));
    }
    let block = malloc_counting(bytes);
    if !block.is_null() {
        // SAFETY: the block has at least that many bytes and is ours.
        unsafe { block.cast::<u8>().write_bytes(0, bytes) };
    }
    block
}

/// C23 7.24.3.7, and for a size of zero glibc's: frees and returns null.
///
/// # Safety
/// 1. `address` is null or a live block; on success it is no longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(address: *mut c_void, size: usize) -> *mut c_void {
    let Some(block) = NonNull::new(address.cast::<u8>()) else {
        return allocate(size);
    };
    if size == 0 {
        // SAFETY: obligation 1.
        unsafe { release(address) };
        return null_mut();
    }
    // SAFETY: obligation 1.
    or_null(unsafe { blocks::realloc(block, size) })
}

/// POSIX.1-2024: `realloc` of `count * size` bytes; `ENOMEM` where that overflows.
///
/// # Safety
/// 1. As for [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    address: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: obligation 1.
        Some(bytes) => unsafe { realloc(address, bytes) },
        None => out_of_memory(),
    }
}

/// glibc's second name of `malloc`; a program that mixes both names must meet one heap.
#[unsafe(no_mangle)]
pub extern "C" fn __libc_malloc(size: usize) -> *mut c_void {
    allocate(size)
}

/// glibc's second name of `free`.
///
/// # Safety
/// 1. As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_free(address: *mut c_void) {
    // SAFETY: obligation 1.
    unsafe { release(address) };
}

/// glibc's second name of `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn __libc_calloc(count: usize, size: usize) -> *mut c_void {
    calloc(count, size)
}

/// glibc's second name of `realloc`.
///
/// # Safety
/// 1. As for [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_realloc(address: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: obligation 1.
    unsafe { realloc(address, size) }
}
