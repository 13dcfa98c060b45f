//! Typed object caches for C: `fs_cache_*`, `fs_sheaf_*` of `flagstone/flagstone.h`.

use crate::c_abi::{allocate, or_null, release};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::{NonNull, null_mut};
use flagstone_process::objects::{CacheError, CacheRequest, Objects};

/// `struct fs_cache_options`. `size` says how much of it the caller's header has.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Options {
    size: usize,
    align: usize,
    ctor: Option<unsafe extern "C" fn(*mut c_void)>,
    limit: usize,
}

/// Objects set aside: this head, then `count` addresses.
#[repr(C)]
pub struct Sheaf {
    cache: *const Objects,
    count: usize,
    left: usize,
}

fn refuse(error: c_int) {
    // SAFETY: the C library's errno of this thread.
    unsafe { *libc::__errno_location() = error };
}

/// The options as far as the caller's header knows them.
///
/// # Safety
/// 1. `given` is null or has as many readable bytes as its first field says.
unsafe fn options(given: *const Options) -> Option<Options> {
    let mut options = Options {
        size: size_of::<Options>(),
        align: 0,
        ctor: None,
        limit: 0,
    };
    if !given.is_null() {
        // SAFETY: obligation 1.
        let size = unsafe { (*given).size };
        if size < size_of::<usize>() || size > 4096 {
            return None;
        }
        let known = size.min(size_of::<Options>());
        // SAFETY: obligation 1, and the target is no smaller.
        unsafe {
            given
                .cast::<u8>()
                .copy_to_nonoverlapping((&raw mut options).cast(), known);
        }
    }
    Some(options)
}

/// Makes a cache; null with `EINVAL`, or `ENOMEM` where no more can be made.
///
/// # Safety
/// 1. `name` is a string, `given` null or options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cache_create(
    name: *const c_char,
    object_size: usize,
    given: *const Options,
) -> *mut Objects {
    // SAFETY: obligation 1.
    let (name, options) = unsafe { (CStr::from_ptr(name), options(given)) };
    let (Ok(name), Some(options)) = (name.to_str(), options) else {
        refuse(libc::EINVAL);
        return null_mut();
    };
    let mut request = CacheRequest::new(name, object_size);
    request.align = options.align;
    // SAFETY: both take one pointer and return nothing.
    request.ctor = options.ctor.map(|ctor| unsafe { transmute(ctor) });
    let made = Objects::new(&request, options.limit);
    let made = made.map_err(|error| match error {
        CacheError::Size | CacheError::Align => libc::EINVAL,
        _ => libc::ENOMEM,
    });
    let objects = match made {
        Ok(objects) => objects,
        Err(error) => {
            refuse(error);
            return null_mut();
        }
    };
    let place = allocate(size_of::<Objects>()).cast::<Objects>();
    if place.is_null() {
        // Nothing was handed out yet.
        let _ = objects.destroy();
    } else {
        // SAFETY: a block of that size is ours.
        unsafe { place.write(objects) };
    }
    place
}

/// Ends a cache; `EBUSY` while objects are handed out. Null is fine.
///
/// # Safety
/// 1. `cache` is null or live, and on success not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cache_destroy(cache: *mut Objects) -> c_int {
    // SAFETY: obligation 1.
    let Some(objects) = (unsafe { cache.as_ref() }) else {
        return 0;
    };
    match objects.destroy() {
        Ok(()) => {
            // SAFETY: obligation 1: the block is given up.
            unsafe { release(cache.cast()) };
            0
        }
        Err(_) => libc::EBUSY,
    }
}

/// An object; null with `ENOMEM` at the limit or without memory.
///
/// # Safety
/// 1. `cache` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cache_alloc(cache: *const Objects) -> *mut c_void {
    // SAFETY: obligation 1.
    or_null(unsafe { &*cache }.alloc())
}

/// Gives an object back; null is fine.
///
/// # Safety
/// 1. `cache` is live, and `object` came from it and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cache_free(cache: *const Objects, object: *mut c_void) {
    if let Some(object) = NonNull::new(object.cast()) {
        // SAFETY: obligation 1.
        unsafe { (*cache).free(object) };
    }
}

/// Takes `count` objects or none; how many.
///
/// # Safety
/// 1. `cache` is live, and `out` has room for `count` addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cache_alloc_bulk(
    cache: *const Objects,
    count: usize,
    out: *mut Option<NonNull<u8>>,
) -> usize {
    if count == 0 {
        return 0;
    }
    // SAFETY: obligation 1; an address and an optional one have the same form, and what is there is
    // set to null before it is read.
    let taken = unsafe {
        out.write_bytes(0, count);
        (*cache).alloc_all(core::slice::from_raw_parts_mut(out, count))
    };
    if taken {
        return count;
    }
    refuse(libc::ENOMEM);
    0
}

/// Gives `count` objects back.
///
/// # Safety
/// 1. As for [`fs_cache_free`], of each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cache_free_bulk(
    cache: *const Objects,
    count: usize,
    objects: *const *mut c_void,
) {
    for at in 0..count {
        // SAFETY: obligation 1.
        unsafe { fs_cache_free(cache, objects.add(at).read()) };
    }
}

/// Changes the limit of a cache made with one; `EINVAL` for others, and for zero.
///
/// # Safety
/// 1. `cache` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cache_set_limit(cache: *const Objects, limit: usize) -> c_int {
    // SAFETY: obligation 1.
    match unsafe { (*cache).set_limit(limit) } {
        true => 0,
        false => libc::EINVAL,
    }
}

/// Gives back what the cache holds beyond the objects handed out.
///
/// # Safety
/// 1. `cache` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cache_shrink(cache: *const Objects) {
    // SAFETY: obligation 1.
    unsafe { (*cache).shrink() };
}

/// Sets `count` objects aside; null with `ENOMEM`, or `EINVAL` for none.
///
/// # Safety
/// 1. `cache` is live, and stays so until [`fs_sheaf_return`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_cache_prefill(cache: *const Objects, count: usize) -> *mut Sheaf {
    let bytes = count
        .checked_mul(size_of::<usize>())
        .and_then(|bytes| bytes.checked_add(size_of::<Sheaf>()));
    let (Some(bytes), true) = (bytes, count > 0) else {
        refuse(libc::EINVAL);
        return null_mut();
    };
    let sheaf = allocate(bytes).cast::<Sheaf>();
    if sheaf.is_null() {
        return null_mut();
    }
    // SAFETY: the block has room for the head and `count` addresses; obligation 1.
    unsafe {
        sheaf.write(Sheaf {
            cache,
            count,
            left: count,
        });
        if fs_cache_alloc_bulk(cache, count, sheaf.add(1).cast()) == count {
            return sheaf;
        }
        release(sheaf.cast());
    }
    null_mut()
}

/// One of the objects set aside; null when none is left.
///
/// # Safety
/// 1. `sheaf` is live and this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_sheaf_alloc(sheaf: *mut Sheaf) -> *mut c_void {
    // SAFETY: obligation 1; addresses below `left` are objects.
    unsafe {
        match (*sheaf).left.checked_sub(1) {
            Some(left) => {
                (*sheaf).left = left;
                sheaf.add(1).cast::<*mut c_void>().add(left).read()
            }
            None => null_mut(),
        }
    }
}

/// Objects left of those set aside.
///
/// # Safety
/// 1. `sheaf` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_sheaf_left(sheaf: *const Sheaf) -> usize {
    // SAFETY: obligation 1.
    unsafe { (*sheaf).left }
}

/// Gives the rest back, and the sheaf; null is fine.
///
/// # Safety
/// 1. `sheaf` is null or live, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_sheaf_return(sheaf: *mut Sheaf) {
    if sheaf.is_null() {
        return;
    }
    // SAFETY: obligation 1; addresses below `left` are objects.
    unsafe {
        let objects = sheaf.add(1).cast::<*mut c_void>();
        fs_cache_free_bulk((*sheaf).cache, (*sheaf).left, objects);
        release(sheaf.cast());
    }
}
