//! Where this machine's C library keeps its area of restartable sequences.
//!
//! The fast path has that distance as a constant (`RSEQ_CS_OFFSET`, and the configuration
//! `flagstone_near`). A library that then runs beside another C library notices, and reads it.
//! Dependents with fast paths of their own get it as `DEP_FS_PROCESS_NEAR`.

use std::ffi::{c_char, c_void};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Bytes from the area's start to `rseq_cs`.
const RSEQ_CS: isize = 8;

/// Distance from the thread pointer to `rseq_cs` in this machine's C library, if all programs have
/// the same: up to glibc 2.41 the area lies in the thread's own structure, behind the pointer.
/// Later it lies before it, as far as the program's thread-local variables push it.
fn rseq_cs() -> Option<isize> {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    if of("HOST") != of("TARGET") {
        return None;
    }
    // SAFETY: a null handle is the default search, the name ends in a zero.
    let offset = unsafe { dlsym(std::ptr::null_mut(), c"__rseq_offset".as_ptr()) };
    if offset.is_null() {
        return None;
    }
    // SAFETY: that symbol is a constant of type ptrdiff_t.
    let offset = unsafe { offset.cast::<isize>().read() };
    (offset > 0).then_some(offset + RSEQ_CS)
}

fn main() {
    println!("cargo::rustc-check-cfg=cfg(flagstone_near)");
    if let Some(offset) = rseq_cs() {
        println!("cargo::rustc-cfg=flagstone_near");
        println!("cargo::rustc-env=RSEQ_CS_OFFSET={offset}");
        println!("cargo::metadata=NEAR={offset}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
