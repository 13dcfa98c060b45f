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

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for argument in [
        "-z,nodelete",
        "-z,now",
        "-Bsymbolic",
        "-soname,libflagstone.so.0",
        &format!("-T,{folder}/layout.ld"),
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed,-ldl,--pop-state");
    for file in ["build.rs", "layout.ld"] {
        println!("cargo::rerun-if-changed={file}");
    }
}
