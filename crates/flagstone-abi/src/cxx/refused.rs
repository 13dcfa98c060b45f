//! `operator new` where memory is refused: handler, again, and at last an exception or null.
//!
//! ```text
//!   try ──► a block ──────────────────────────────► return it
//!    ▲  └─► null ──► which function now?
//!    │                 the new-handler ──► call it ─┐   it may throw:
//!    └──────────────────────────────────────────────┘     new           passes through
//!                      none: throw bad_alloc (new)        new(nothrow)  caught here, null
//!                            or return null (nothrow)
//! ```
//!
//! The handler is C++ and may throw. A Rust frame must not be unwound, so the loop itself is a few
//! instructions of assembly with unwind tables, and what Rust knows (allocating, finding the
//! functions) is called from there and returns. `nothrow` catches like a `catch (...)` (catch.rs).
//!
//! Nothing of the C++ library or the unwinder is linked: both are looked up when they are needed,
//! and are there then, because somebody just threw. Architectures without the assembly do the
//! same loop in Rust; there an exception thrown by a new-handler ends the program.

use super::{Align, aligned};
use core::ffi::{CStr, c_void};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod catch;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod looped;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub use looped::{new_again, new_again_nothrow};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use portable::{new_again, new_again_nothrow};

/// A function without parameters whose result, if any, is a pointer.
type Plain = extern "C" fn() -> *mut c_void;

/// Looks a function of another library up.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a zero-terminated name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// Looks a function up that takes nothing.
fn find_plain(name: &CStr) -> Option<Plain> {
    // SAFETY: every name asked for through here is such a function.
    find(name).map(|address| unsafe { core::mem::transmute::<*mut c_void, Plain>(address) })
}

/// One more attempt; null if refused.
pub(super) extern "C" fn attempt(align: Align, size: usize) -> *mut c_void {
    aligned(align, size)
}

/// The program's new-handler; `None` if it has none.
pub(super) extern "C" fn new_handler() -> Option<Plain> {
    let get = find_plain(c"_ZSt15get_new_handlerv")?;
    let handler = get();
    if handler.is_null() {
        return None;
    }
    // SAFETY: `std::new_handler` is `void (*)()`; nobody looks at the result.
    Some(unsafe { core::mem::transmute::<*mut c_void, Plain>(handler) })
}

/// The program's new-handler, or else what throws `std::bad_alloc`.
pub(super) extern "C" fn handler_or_thrower() -> Plain {
    let found = new_handler()
        .or_else(|| find_plain(c"_ZSt17__throw_bad_allocv"))
        .or_else(|| find_plain(c"_ZNSt3__117__throw_bad_allocB8ne180100Ev"))
        .or_else(|| find_plain(c"_ZNSt3__117__throw_bad_allocEv"));
    if let Some(found) = found {
        return found;
    }
    flagstone_linux::write_line(&[
        b"flagstone: out of memory in operator new, and no C++ library to throw with\n",
    ]);
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}
