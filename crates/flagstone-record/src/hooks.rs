//! The C library's allocation functions: passed on, and noted.
//!
//! An allocation is noted after it was served, a free before it is passed on: so an address is never
//! handed out, in the file's time, before it was given up.

use crate::stream::{note, note_alloc, note_at, note_free};
use crate::{life, look, next};
use core::ffi::c_void;
use core::ptr::null_mut;
use flagstone_trace::{Event, Request, clock};

#[inline]
fn allocated(address: *mut c_void, request: Request) -> *mut c_void {
    if life::recording() && life::sampled(address) {
        look::made(address as usize, request.size as usize);
        note(&Event::Alloc {
            address: address as u64,
            request,
        });
    }
    address
}

#[inline]
fn plain(size: usize) -> Request {
    Request {
        size: size as u64,
        ..Request::default()
    }
}

fn aligned(align: usize, size: usize) -> Request {
    Request {
        align_log2: align.max(1).trailing_zeros() as u8,
        ..plain(size)
    }
}

fn zeroed(size: usize) -> Request {
    Request {
        zeroed: true,
        ..plain(size)
    }
}

/// Notes a free of `address`, with what of a large block was touched.
#[inline]
fn freed(address: *mut c_void) {
    if address.is_null() || !life::recording() || !life::sampled(address) {
        return;
    }
    touched(address);
    note_free(address as u64);
}

/// Notes what of a large block was touched.
#[inline]
fn touched(address: *mut c_void) {
    if let Some(pages) = look::gone(address as usize) {
        note(&Event::Touched {
            bytes: (pages as u64) << 12,
        });
    }
}

/// `malloc`, passed on.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    match unsafe { next::malloc(size) } {
        Some(address) => {
            if life::recording() && life::sampled(address) {
                look::made(address as usize, size);
                note_alloc(address as u64, size as u64);
            }
            address
        }
        None => next::early(size, 16),
    }
}

/// `calloc`, passed on.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let bytes = count.saturating_mul(size);
    // SAFETY: no preconditions.
    match unsafe { next::calloc(count, size) } {
        Some(address) => allocated(address, zeroed(bytes)),
        None => next::early(bytes, 16),
    }
}

/// `free`, passed on.
///
/// # Safety
/// 1. As the C library says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(address: *mut c_void) {
    if next::is_early(address) {
        return;
    }
    freed(address);
    // SAFETY: obligation 1.
    unsafe { next::free(address) };
}

/// `realloc`, passed on.
///
/// # Safety
/// 1. As the C library says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(address: *mut c_void, size: usize) -> *mut c_void {
    if address.is_null() {
        return malloc(size);
    }
    if next::is_early(address) {
        let new = malloc(size);
        if !new.is_null() {
            let rest = address as usize - next::early_base();
            let bytes = size.min(next::EARLY_BYTES - rest);
            // SAFETY: both pieces have that many bytes.
            unsafe { new.cast::<u8>().copy_from(address.cast(), bytes) };
        }
        return new;
    }
    if !life::recording() {
        // SAFETY: obligation 1.
        return unsafe { next::realloc(address, size) }.unwrap_or(null_mut());
    }
    touched(address);
    let before = clock::now();
    // SAFETY: obligation 1.
    let new = unsafe { next::realloc(address, size) }.unwrap_or(null_mut());
    resized(before, address, new, size);
    new
}

/// A resize is noted after it was served. One that moved gave its old block up before: another thread
/// may have got that already, which readers know (docs/trace-format.md, "Moves").
fn resized(before: u64, old: *mut c_void, new: *mut c_void, size: usize) {
    let (from, to) = (old as u64, new as u64);
    let (of_sample, stays) = (life::sampled(old), from == to || new.is_null());
    if size == 0 && new.is_null() {
        note_at(before, &Event::Free { address: from });
    } else if of_sample && (stays || life::sampled(new)) {
        if !new.is_null() {
            look::resized(to as usize, size);
        }
        note(&Event::Realloc {
            old: from,
            new: to,
            size: size as u64,
        });
    } else if !stays {
        if of_sample {
            note_at(before, &Event::Free { address: from });
        }
        allocated(new, plain(size));
    }
}

/// `reallocarray`, as a `realloc`.
///
/// # Safety
/// 1. As the C library says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    address: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: obligation 1.
        Some(bytes) => unsafe { realloc(address, bytes) },
        None => {
            // SAFETY: the C library's errno of this thread.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            null_mut()
        }
    }
}

/// `posix_memalign`, passed on.
///
/// # Safety
/// 1. As the C library says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> i32 {
    // SAFETY: obligation 1.
    let answer = unsafe { next::posix_memalign(out, align, size) }.unwrap_or(libc::ENOMEM);
    if answer == 0 {
        // SAFETY: obligation 1.
        allocated(unsafe { *out }, aligned(align, size));
    }
    answer
}

/// `aligned_alloc`, passed on.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    match unsafe { next::aligned_alloc(align, size) } {
        Some(address) => allocated(address, aligned(align, size)),
        None => next::early(size, align),
    }
}

/// `memalign`, passed on.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    match unsafe { next::memalign(align, size) } {
        Some(address) => allocated(address, aligned(align, size)),
        None => next::early(size, align),
    }
}

/// `valloc`, passed on.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    let address = unsafe { next::valloc(size) }.unwrap_or(null_mut());
    allocated(address, aligned(4096, size))
}

/// `pvalloc`, passed on.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    let address = unsafe { next::pvalloc(size) }.unwrap_or(null_mut());
    allocated(address, aligned(4096, size))
}

/// `malloc_trim`, passed on; 0 where the allocator below has none.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(keep: usize) -> i32 {
    if life::recording() {
        note(&Event::Trim { keep: keep as u64 });
    }
    // SAFETY: no preconditions.
    unsafe { next::malloc_trim(keep) }.unwrap_or(0)
}

/// C23's free with a size, as a `free`.
///
/// # Safety
/// 1. As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(address: *mut c_void, _size: usize) {
    // SAFETY: obligation 1.
    unsafe { free(address) };
}

/// C23's free with alignment and size, as a `free`.
///
/// # Safety
/// 1. As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(address: *mut c_void, _align: usize, _size: usize) {
    // SAFETY: obligation 1.
    unsafe { free(address) };
}

/// The name old programs have for [`free`].
///
/// # Safety
/// 1. As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(address: *mut c_void) {
    // SAFETY: obligation 1.
    unsafe { free(address) };
}
