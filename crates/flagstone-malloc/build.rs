//! How the library is linked.
//!
//! - `nodelete`: the kernel keeps addresses of restartable sequences, the C library those of fork
//!   handlers; the library must stay where it is.
//! - `Bsymbolic`: calls among our own functions never take a detour through another library.
//! - `now`: no lazy binding inside `malloc`.
//! - `nostartfiles`: the C compiler's start-up objects run code of their own at both ends of a
//!   program, in pages that nothing else of ours needs there.
//! - `layout.ld`: which code lies together.
//! - `-ldl`: `dlsym` has a library of its own before glibc 2.34. Since then, and in musl, that
//!   library is empty and nothing comes of it. A build on an old system serves newer ones too.
//!
//! It also tells the fast path where this machine's C library keeps its area of restartable
//! sequences (`RSEQ_CS_OFFSET`, and the configuration `flagstone_near`): a library that then
//! runs beside another one notices, and reads it.

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
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for argument in [
        "-z,nodelete",
        "-z,now",
        "-Bsymbolic",
        "-soname,libflagstone.so",
        &format!("-T,{folder}/layout.ld"),
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed,-ldl,--pop-state");
    println!("cargo::rustc-check-cfg=cfg(flagstone_near)");
    if let Some(offset) = rseq_cs() {
        println!("cargo::rustc-cfg=flagstone_near");
        println!("cargo::rustc-env=RSEQ_CS_OFFSET={offset}");
    }
    for file in ["build.rs", "layout.ld"] {
        println!("cargo::rerun-if-changed={file}");
    }
}
