//! The functions programs call most, on machines for which they are not written in assembly.

use super::{free_slow, malloc_slow, new_slow};
use core::ffi::c_void;

macro_rules! allocating {
    ($($(#[$doc:meta])* $name:ident or $slow:path;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(size: usize) -> *mut c_void {
            $slow(size)
        }
    )*};
}

macro_rules! freeing {
    ($($(#[$doc:meta])* $name:ident($($size:ident)?);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// 1. `address` is null or a live block, which nobody uses again.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(address: *mut c_void $(, $size: usize)?) {
            // SAFETY: obligation 1.
            unsafe { free_slow(address) };
        }
    )*};
}

allocating! {
    /// C23 7.24.3.6. A size of zero gives a block of its own.
    malloc or malloc_slow;
    /// `operator new(size_t)`.
    #[allow(non_snake_case, reason = "mangled names")]
    _Znwm or new_slow;
    /// `operator new[](size_t)`.
    #[allow(non_snake_case, reason = "mangled names")]
    _Znam or new_slow;
}

freeing! {
    /// C23 7.24.3.3. Keeps `errno`.
    free();
    /// `operator delete(void *)`.
    #[allow(non_snake_case, reason = "mangled names")]
    _ZdlPv();
    /// `operator delete[](void *)`.
    #[allow(non_snake_case, reason = "mangled names")]
    _ZdaPv();
    /// `operator delete(void *, size_t)`: sizes are taken as promises.
    #[allow(non_snake_case, reason = "mangled names")]
    _ZdlPvm(_size);
    /// `operator delete[](void *, size_t)`.
    #[allow(non_snake_case, reason = "mangled names")]
    _ZdaPvm(_size);
}
