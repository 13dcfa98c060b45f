//! The loops as functions of Rust, where they are written in assembly.

use super::super::Align;
use core::ffi::c_void;

unsafe extern "C" {
    fn flagstone_new_again(align: Align, size: usize) -> *mut c_void;
    fn flagstone_new_again_nothrow(align: Align, size: usize) -> *mut c_void;
}

/// Allocates, calling the program's new-handler at every refusal until it succeeds; without a
/// handler throws `std::bad_alloc`. What the handler throws passes through.
#[inline(always)]
pub fn new_again(align: Align, size: usize) -> *mut c_void {
    // SAFETY: the loop of this machine; any size, and any alignment that is a power of two.
    unsafe { flagstone_new_again(align, size) }
}

/// The same, with null where there is no handler or it throws.
#[inline(always)]
pub fn new_again_nothrow(align: Align, size: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { flagstone_new_again_nothrow(align, size) }
}
