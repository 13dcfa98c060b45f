//! The model checker on the code of the core and its guests: tests named `loom_...` beside it, built with `--cfg loom` (ADR 0052).

use flagstone_tests::{Finished, LIMIT, finish, skip};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What loom and the core take to build on one busy CPU.
const BUILD: Duration = Duration::from_secs(1200);

/// The core's tests under loom, in a target folder of their own: the flag changes every crate.
fn cargo_test(further: &[&str], limit: Duration) -> Finished {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("loom");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["test", "--lib"])
        .args(["-p", "flagstone-core", "-p", "flagstone-kernels"])
        .args(further)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", "--cfg loom")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    finish(&mut cargo, limit)
}

#[test]
fn the_core_keeps_its_rules_in_every_order_that_loom_tries() {
    let built = cargo_test(&["--no-run"], BUILD);
    if built.stderr.contains("failed to download") || built.stderr.contains("failed to get") {
        return skip("loom is not here and cannot be downloaded");
    }
    assert!(built.status.success(), "{}", built.stderr);
    let finished = cargo_test(&["loom_"], LIMIT);
    let (status, said) = (finished.status, &finished.stdout);
    assert!(status.success(), "{status}\n{said}{}", finished.stderr);
    for module in [
        "page::stack",
        "slab::barn",
        "slab::slabs_loom",
        "heap::strays",
        "cpu_slab_loom",
    ] {
        let ran = said.lines().any(|line| line.contains(module));
        assert!(ran, "no test of {module}:\n{said}");
    }
}
