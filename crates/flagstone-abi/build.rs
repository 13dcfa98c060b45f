//! Tells the fast path whether the distance to the area of restartable sequences is one that the
//! heap's crate knows (`flagstone_near`).

fn main() {
    println!("cargo::rustc-check-cfg=cfg(flagstone_near)");
    if std::env::var_os("DEP_FS_PROCESS_NEAR").is_some() {
        println!("cargo::rustc-cfg=flagstone_near");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
