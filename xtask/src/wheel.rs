//! The Python wheel: `cargo xtask wheel [--out DIR] [--command FILE]`.
//!
//! ```text
//!   flagstone/_native.abi3.so        the extension, built by maturin (crates/flagstone-python)
//!   flagstone/lib/libflagstone.so.0  the library, for LD_PRELOAD
//!   flagstone-0.1.0.data/scripts/    the command, which pip puts on the PATH
//! ```
//!
//! The last two are put into the package's folder before maturin runs; git does not see them there.
//! Needs maturin: on the PATH, or as a module of python3.

use crate::install::{Package, cargo, place, release_command, succeed};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "cargo xtask wheel [--out DIR] [--command FILE]";
const CRATE: &str = "crates/flagstone-python";

/// Builds the wheel as the words say, and prints where it lies.
///
/// # Errors
/// One line: what failed.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let Package {
        target,
        out,
        command,
    } = Package::of(root, words, "wheels", USAGE)?;
    let mut maturin = maturin()?;
    cargo(root, &["build", "--release", "-p", "flagstone-malloc"])?;
    let library = target.join("release/libflagstone.so");
    let command = command.map_or_else(|| release_command(root, &target), Ok)?;
    let package = root.join(CRATE);
    let scripts = folder(&package.join("flagstone.data/scripts"))?;
    stripped(&command, &scripts.join("flagstone"))?;
    let carried = folder(&package.join("python/flagstone/lib"))?;
    place(&library, &carried.join("libflagstone.so.0"), 0o755)?;
    // The extension starts no program on the library: what it would carry for that is taken as built.
    for name in [
        "FLAGSTONE_LIBRARY",
        "FLAGSTONE_LIBRARY_KERNELS",
        "FLAGSTONE_LIBRARY_RECORDER",
    ] {
        maturin.env(name, &library);
    }
    maturin.args(["build", "--release", "--manifest-path"]);
    maturin
        .arg(package.join("Cargo.toml"))
        .arg("--out")
        .arg(out);
    maturin.arg("--target-dir").arg(target.join("python"));
    succeed(&mut maturin)
}

fn maturin() -> Result<Command, String> {
    let answers = |mut command: Command| {
        let output = command.arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    if answers(Command::new("maturin")) {
        return Ok(Command::new("maturin"));
    }
    let module = || {
        let mut python = Command::new("python3");
        python.args(["-m", "maturin"]);
        python
    };
    if answers(module()) {
        return Ok(module());
    }
    Err("maturin is not installed; `pip install maturin` brings it".into())
}

fn folder(path: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.to_owned())
}

/// Copies a program without its debug information, where `strip` is there.
fn stripped(from: &Path, to: &Path) -> Result<(), String> {
    place(from, to, 0o755)?;
    let _ = Command::new("strip").arg("--strip-debug").arg(to).status();
    Ok(())
}
