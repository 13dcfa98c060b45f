//! How the library is linked.
//!
//! - `nodelete`: the kernel keeps addresses of restartable sequences, the C library those of fork
//!   handlers; the library must stay where it is.
//! - `Bsymbolic`: calls among our own functions never take a detour through another library.
//! - `now`: no lazy binding inside `malloc`.

fn main() {
    for argument in [
        "-z,nodelete",
        "-z,now",
        "-Bsymbolic",
        "-soname,libflagstone.so",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
