//! The example kernel (`examples/kernel`): flagstone-core as the page and slab allocator of a machine with
//! nothing else on it, booted by an emulator.

use crate::{SCRATCH, cargo, run, workspace};
use flagstone_tests::{LIMIT, finish, need, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const TARGET: &str = "x86_64-unknown-none";

/// The kernel, built once.
fn kernel() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        need("qemu-system-x86_64", "qemu-system-x86")?;
        let mut rustc = Command::new("rustc");
        let libraries = rustc.args(["--print", "target-libdir", "--target", TARGET]);
        if !Path::new(run(libraries).trim()).exists() {
            skip(&format!(
                "no Rust library for {TARGET} (rustup target add {TARGET})"
            ));
            return None;
        }
        let target = Path::new(SCRATCH).join("kernel");
        let mut build = cargo();
        build.current_dir(workspace().join("examples/kernel"));
        build.args(["build", "--release", "--locked", "--quiet"]);
        build.env("CARGO_TARGET_DIR", &target);
        build
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        run(&mut build);
        Some(target.join(TARGET).join("release/flagstone-kernel"))
    };
    BUILT.get_or_init(make).as_deref()
}

/// Boots it on so many CPUs, and looks at its last line.
fn boots_on(cpus: u32) {
    let Some(kernel) = kernel() else { return };
    let mut boot = Command::new(workspace().join("examples/kernel/run"));
    boot.arg(kernel).arg(cpus.to_string());
    let finished = finish(&mut boot, LIMIT);
    let said = finished.stdout.trim();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with(&format!("{cpus} CPUs, ")), "{finished:?}");
    assert!(last.ends_with("; verify: ok"), "{said}");
    assert!(
        said.contains("under load: ") && said.contains("all freed: 0 objects live"),
        "{said}"
    );
    assert!(finished.status.success(), "{finished:?}");
}

#[test]
fn a_kernel_on_four_cpus_keeps_the_invariants_under_load_and_interrupts() {
    boots_on(4);
}

#[test]
fn a_kernel_on_sixty_four_cpus_keeps_the_invariants_under_load_and_interrupts() {
    boots_on(64);
}
