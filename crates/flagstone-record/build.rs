//! How the recorder is linked: it stays loaded (fork handlers and thread exits call into it), binds
//! at start (never inside `malloc`), and calls among its own functions take no detour.

fn main() {
    for argument in [
        "-z,nodelete",
        "-z,now",
        "-Bsymbolic",
        "-soname,libflagstone_record.so",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed,-ldl,--pop-state");
    println!("cargo::rerun-if-changed=build.rs");
}
