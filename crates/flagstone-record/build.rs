//! How the recorder is linked: it stays loaded (fork handlers and thread exits call into it), binds
//! at start (never inside `malloc`), its constructor runs before those of all libraries (they allocate),
//! and calls among its own functions take no detour.

fn main() {
    for argument in [
        "-z,nodelete",
        "-z,now",
        "-z,initfirst",
        "-Bsymbolic",
        "-soname,libflagstone_record.so",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed,-ldl,--pop-state");
    println!("cargo::rerun-if-changed=build.rs");
}
