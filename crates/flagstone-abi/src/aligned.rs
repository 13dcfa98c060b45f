//! The aligned allocation functions.

use crate::c_abi::{allocate, or_null, out_of_memory};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use flagstone_core::heap::MIN_ALIGN;
use flagstone_core::platform::Platform;
use flagstone_linux::Linux;
use flagstone_process::blocks;

/// `size` bytes aligned to `align`, a power of two; null with `ENOMEM` for none.
pub fn allocate_aligned(align: usize, size: usize) -> *mut c_void {
    debug_assert!(align.is_power_of_two());
    if align <= MIN_ALIGN {
        allocate(size)
    } else {
        or_null(blocks::alloc_aligned(align, size))
    }
}

fn invalid() -> *mut c_void {
    // SAFETY: the C library's errno of this thread.
    unsafe { *libc::__errno_location() = libc::EINVAL };
    null_mut()
}

/// C23 7.24.3.1 as glibc 2.38 has it: any power of two, any size; else `EINVAL`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if align.is_power_of_two() {
        allocate_aligned(align, size)
    } else {
        invalid()
    }
}

/// glibc's: an alignment that is no power of two counts as the next one; `EINVAL` where there is
/// none.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => allocate_aligned(align, size),
        None => invalid(),
    }
}

/// POSIX: the result through `*out`, an error number as the value; `*out` changes only on success.
/// Without memory `errno` is set too, as glibc does and programs rely on; otherwise it stays.
///
/// # Safety
/// 1. `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    match blocks::alloc_aligned(align, size) {
        Some(block) => {
            // SAFETY: obligation 1.
            unsafe { out.write(block.as_ptr().cast()) };
            0
        }
        None => {
            out_of_memory();
            libc::ENOMEM
        }
    }
}

/// BSD's: aligned to a page.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    allocate_aligned(Linux::page_size().bytes(), size)
}

/// glibc's: whole pages.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    let page = Linux::page_size().bytes();
    match size.checked_next_multiple_of(page) {
        Some(bytes) => allocate_aligned(page, bytes),
        None => out_of_memory(),
    }
}

/// glibc's second name of [`memalign`].
#[unsafe(no_mangle)]
pub extern "C" fn __libc_memalign(align: usize, size: usize) -> *mut c_void {
    memalign(align, size)
}

/// glibc's second name of [`valloc`].
#[unsafe(no_mangle)]
pub extern "C" fn __libc_valloc(size: usize) -> *mut c_void {
    valloc(size)
}

/// glibc's second name of [`pvalloc`].
#[unsafe(no_mangle)]
pub extern "C" fn __libc_pvalloc(size: usize) -> *mut c_void {
    pvalloc(size)
}

/// glibc's second name of [`posix_memalign`].
///
/// # Safety
/// 1. As for [`posix_memalign`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __posix_memalign(
    out: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    // SAFETY: obligation 1.
    unsafe { posix_memalign(out, align, size) }
}
