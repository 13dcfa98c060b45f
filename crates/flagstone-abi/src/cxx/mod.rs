//! The C++ allocation operators: plain, array, nothrow, aligned, sized, and their combinations.
//!
//! The four plainest, which programs call most, are in `hot`; all others are here.
//!
//! The mangled names are those of the Itanium ABI where `size_t` is `unsigned long`. Where memory
//! is exhausted, `new` asks the program's new-handler again and again, as [new.delete.single]
//! wants, and then throws `std::bad_alloc` through the C++ library of the program, found at run
//! time: this library itself needs none.

mod refused;

use self::refused::{new_again, new_again_nothrow};
use crate::aligned::allocate_aligned;
use crate::c_abi::{allocate, release};
use core::ffi::c_void;
use core::ptr::NonNull;
use flagstone_core::heap::MIN_ALIGN;
use flagstone_process::static_heap;

/// `std::align_val_t`: a power of two, or the program is wrong.
type Align = usize;
/// `const std::nothrow_t &`.
type NoThrow = *const c_void;

/// `malloc`, or where alignment asks for it, its aligned kin.
fn aligned(align: Align, size: usize) -> *mut c_void {
    if align <= MIN_ALIGN {
        allocate(size)
    } else {
        allocate_aligned(align, size)
    }
}

#[inline(always)]
fn new(align: Align, size: usize) -> *mut c_void {
    match fast(align, size) {
        Some(block) => block.as_ptr().cast(),
        None => new_again(align, size),
    }
}

/// `operator new` without an alignment.
pub fn new_plain(size: usize) -> *mut c_void {
    new(MIN_ALIGN, size)
}

/// `operator new` after one attempt, which `block` came from.
#[cfg(target_arch = "x86_64")]
pub fn new_from(block: Option<NonNull<u8>>, size: usize) -> *mut c_void {
    match block {
        Some(block) => block.as_ptr().cast(),
        None => new_again(MIN_ALIGN, size),
    }
}

#[inline(always)]
fn new_nothrow(align: Align, size: usize) -> *mut c_void {
    match fast(align, size) {
        Some(block) => block.as_ptr().cast(),
        None => new_again_nothrow(align, size),
    }
}

#[inline(always)]
fn fast(align: Align, size: usize) -> Option<NonNull<u8>> {
    if align <= MIN_ALIGN {
        static_heap().alloc_fast(size)
    } else {
        None
    }
}

macro_rules! news {
    ($($name:ident($($parameter:ident: $kind:ty),*) = $new:ident($align:expr);)*) => {$(
        #[doc = "An `operator new`; see the name."]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "mangled names")]
        pub extern "C" fn $name(size: usize, $($parameter: $kind),*) -> *mut c_void {
            $new($align, size)
        }
    )*};
}

news! {
    _ZnwmRKSt9nothrow_t(_tag: NoThrow) = new_nothrow(MIN_ALIGN);
    _ZnamRKSt9nothrow_t(_tag: NoThrow) = new_nothrow(MIN_ALIGN);
    _ZnwmSt11align_val_t(align: Align) = new(align);
    _ZnamSt11align_val_t(align: Align) = new(align);
    _ZnwmSt11align_val_tRKSt9nothrow_t(align: Align, _tag: NoThrow) = new_nothrow(align);
    _ZnamSt11align_val_tRKSt9nothrow_t(align: Align, _tag: NoThrow) = new_nothrow(align);
}

macro_rules! deletes {
    ($($name:ident($($parameter:ident: $kind:ty),*);)*) => {$(
        #[doc = "An `operator delete`; see the name. Sizes and alignments are taken as promises."]
        #[doc = ""]
        #[doc = "# Safety"]
        #[doc = "1. `address` is null or a live block, which nobody uses again."]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "mangled names")]
        pub unsafe extern "C" fn $name(address: *mut c_void, $($parameter: $kind),*) {
            // SAFETY: obligation 1.
            unsafe { release(address) };
        }
    )*};
}

deletes! {
    _ZdlPvRKSt9nothrow_t(_tag: NoThrow);
    _ZdaPvRKSt9nothrow_t(_tag: NoThrow);
    _ZdlPvSt11align_val_t(_align: Align);
    _ZdaPvSt11align_val_t(_align: Align);
    _ZdlPvmSt11align_val_t(_size: usize, _align: Align);
    _ZdaPvmSt11align_val_t(_size: usize, _align: Align);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(_align: Align, _tag: NoThrow);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(_align: Align, _tag: NoThrow);
}
