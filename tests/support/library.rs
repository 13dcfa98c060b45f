//! Which library the suites preload.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library under test: `FLAGSTONE_LIB`, or the one `cargo build --release` makes, built once.
///
/// A release build on purpose: what is tested is what users preload.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| match std::env::var_os("FLAGSTONE_LIB") {
        Some(given) => Path::new(&given)
            .canonicalize()
            .unwrap_or_else(|error| panic!("FLAGSTONE_LIB={}: {error}", given.display())),
        None => build("flagstone-malloc", "libflagstone.so"),
    })
}

/// Whether the library is Flagstone: with another allocator in `FLAGSTONE_LIB` (to see that a
/// suite itself is right) what only Flagstone promises is skipped.
pub fn is_flagstone() -> bool {
    let name = library()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    name.starts_with("libflagstone")
}

/// The `flagstone` program of the same build.
pub fn build_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("flagstone-cli", "flagstone"))
}

fn build(package: &str, file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace's folder");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet", "-p", package])
        .current_dir(root)
        .status()
        .expect("cargo runs");
    assert!(
        status.success(),
        "cargo build --release -p {package} failed"
    );
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let built = target.join("release").join(file);
    assert!(built.is_file(), "{} was not built", built.display());
    built
}
