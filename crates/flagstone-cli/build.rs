//! Builds the preload library beside the command and hands its bytes over.
//!
//! A library that is put into other programs has its own profile and its own kind (`no_std`, one
//! shared object), so it is built by a second cargo with a target directory of its own inside
//! `OUT_DIR`. That cargo sees none of this build's flags, asks no network, and needs nothing that
//! this build has not fetched already.
//!
//! It is built twice: as programs get it, and with the engines of old kernels plugged in, for
//! `flagstone run --policy linux-6.5` (ADR 0028).
//!
//! `FLAGSTONE_LIBRARY=<file>`, `FLAGSTONE_LIBRARY_KERNELS=<file>` and `FLAGSTONE_LIBRARY_RECORDER=<file>`
//! in the environment take those files instead (for packagers).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The library's file name.
const LIBRARY: &str = "libflagstone.so";
/// The same for the one with guests.
const KERNELS: &str = "libflagstone-kernels.so";
/// The recorder of traces.
const RECORDER: &str = "libflagstone_record.so";
/// What the recorder is made of; the last crate has it as its result.
const RECORDER_SOURCES: [&str; 4] = [
    "flagstone-core",
    "flagstone-linux",
    "flagstone-trace",
    "flagstone-record",
];
/// What the library is made of: its crates, beside this one; the last has it as its result.
const SOURCES: [&str; 6] = [
    "flagstone-core",
    "flagstone-kernels",
    "flagstone-linux",
    "flagstone-process",
    "flagstone-abi",
    "flagstone-malloc",
];

fn main() {
    println!("cargo::rerun-if-env-changed=FLAGSTONE_LIBRARY");
    println!("cargo::rerun-if-env-changed=FLAGSTONE_LIBRARY_KERNELS");
    println!("cargo::rerun-if-env-changed=FLAGSTONE_LIBRARY_RECORDER");
    println!("cargo::rerun-if-changed=build.rs");
    lay_out();
    let out = PathBuf::from(variable("OUT_DIR"));
    let crates = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let crates = crates.parent().expect("this crate lies beside the others");
    let (library, commit) = match env::var_os("FLAGSTONE_LIBRARY") {
        Some(file) => (PathBuf::from(file), "an unknown commit".to_owned()),
        None => (
            build(crates, &out, &SOURCES, LIBRARY, &[]),
            commit_of(crates, &SOURCES).unwrap_or_else(|| "an unknown commit".into()),
        ),
    };
    println!("cargo::rustc-env=LIBRARY_COMMIT={commit}");
    // Empty: not known.
    let parts = parts(crates);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    for part in &parts {
        println!("cargo::rerun-if-changed={}", crates.join(part).display());
    }
    let whole = commit_of(crates, &parts).unwrap_or_default();
    println!("cargo::rustc-env=COMMAND_COMMIT={whole}");
    carry("FLAGSTONE_LIBRARY_DIGEST", &library, &out.join(LIBRARY));
    let kernels = match env::var_os("FLAGSTONE_LIBRARY_KERNELS") {
        Some(file) => PathBuf::from(file),
        None => build(crates, &out, &SOURCES, LIBRARY, &["--features", "kernels"]),
    };
    // Tests get these variables too: the library leaves alone what begins so.
    let digest = "FLAGSTONE_LIBRARY_KERNELS_DIGEST";
    carry(digest, &kernels, &out.join(KERNELS));
    let recorder = match env::var_os("FLAGSTONE_LIBRARY_RECORDER") {
        Some(file) => PathBuf::from(file),
        None => build(crates, &out, &RECORDER_SOURCES, RECORDER, &[]),
    };
    let digest = "FLAGSTONE_LIBRARY_RECORDER_DIGEST";
    carry(digest, &recorder, &out.join(RECORDER));
    println!(
        "cargo::rustc-env=SIMULATED_CODE_DIGEST={:016x}",
        simulated_code(crates)
    );
}

/// Puts a library where the command includes it from, and says its digest.
fn carry(digest_name: &str, from: &Path, to: &Path) {
    let bytes = fs::read(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    fs::write(to, &bytes).expect("OUT_DIR is writable");
    println!("cargo::rustc-env={digest_name}={:016x}", digest(&bytes));
}

/// The last commit that changed these sources, and whether they were changed since; nothing is
/// claimed without a repository of this project. Cargo asks again when the sources change. In an
/// archive made by `git archive` the commit stands in a file, put there by `.gitattributes`.
fn commit_of(crates: &Path, sources: &[&str]) -> Option<String> {
    let archived = fs::read_to_string(crates.join("flagstone-cli/commit.txt")).unwrap_or_default();
    let archived = archived.trim();
    if !archived.is_empty() && archived.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Some(format!("commit {}", &archived[..archived.len().min(12)]));
    }
    let root = crates.parent().expect("crates/ lies in the workspace");
    root.join(".git").exists().then_some(())?;
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(root).args(words).arg("--");
        git.args(sources.iter().map(|name| crates.join(name)));
        let output = git.output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let last = git(&["log", "-1", "--format=%h", "--abbrev=12"])?;
    let changed = !git(&["status", "--porcelain"])?.is_empty();
    let since = if changed { " with changes" } else { "" };
    Some(format!("commit {last}{since}")).filter(|_| !last.is_empty())
}

/// The crates that the command may be made of: all but the Python package, which is made of it.
fn parts(crates: &Path) -> Vec<String> {
    let entries = fs::read_dir(crates).expect("crates/ is readable");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut parts: Vec<String> = names.filter(|name| name != "flagstone-python").collect();
    parts.sort();
    parts
}

/// Hands `layout.ld` to the linker.
fn lay_out() {
    let file = Path::new(&variable("CARGO_MANIFEST_DIR")).join("layout.ld");
    println!("cargo::rerun-if-changed={}", file.display());
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", file.display());
}

/// Digest of everything a simulated figure depends on: the core, the simulator with its machines.
fn simulated_code(crates: &Path) -> u64 {
    let mut files = Vec::new();
    for part in [
        "flagstone-core/src",
        "flagstone-kernels/src",
        "flagstone-sim/src",
        "flagstone-sim/machines",
        "flagstone-sim/data",
    ] {
        let path = crates.join(part);
        println!("cargo::rerun-if-changed={}", path.display());
        collect(&path, &mut files);
    }
    files.sort();
    let mut bytes = Vec::new();
    for file in files {
        bytes.extend(fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    }
    digest(&bytes)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a folder of this project is readable").path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// Builds a library with further words for cargo; where it lies until the next build.
fn build(crates: &Path, out: &Path, sources: &[&str], file: &str, words: &[&str]) -> PathBuf {
    for name in sources {
        for part in ["src", "Cargo.toml", "build.rs", "layout.ld"] {
            let path = crates.join(name).join(part);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    let root = crates.parent().expect("crates/ lies in the workspace");
    for file in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(file).display());
    }
    let (target, host) = (variable("TARGET"), variable("HOST"));
    let target_dir = out.join("library");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["build", "--release", "--offline", "--manifest-path"]);
    let last = sources.last().expect("a library has sources");
    cargo.arg(crates.join(last).join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&target_dir).args(words);
    let mut built = target_dir;
    if target != host {
        cargo.args(["--target", &target]);
        built.push(&target);
    }
    forget_this_build(&mut cargo);
    if target.contains("musl") {
        cargo.env("RUSTFLAGS", "-C target-feature=-crt-static");
    }
    let output = cargo.output().expect("cargo can be started");
    assert!(
        output.status.success(),
        "building the preload library failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    built.join("release").join(file)
}

/// Removes from the environment what this build put there: flags, wrappers, profile settings. The
/// cargo home, the compiler, the linker of a foreign target and network settings stay.
fn forget_this_build(cargo: &mut Command) {
    let kept = ["CARGO_HOME", "CARGO_MAKEFLAGS", "RUSTC"];
    let prefixes = ["CARGO_", "RUSTC", "RUSTDOC", "RUSTFLAGS", "CLIPPY_", "DEP_"];
    let exact = [
        "OUT_DIR",
        "TARGET",
        "HOST",
        "PROFILE",
        "DEBUG",
        "OPT_LEVEL",
        "NUM_JOBS",
        "LD_PRELOAD",
    ];
    for (name, _) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let ours = prefixes.iter().any(|prefix| name.starts_with(prefix)) || exact.contains(&name);
        let settings = name.starts_with("CARGO_NET_") || name.starts_with("CARGO_SOURCE_");
        let linker = name.starts_with("CARGO_TARGET_") && name.ends_with("_LINKER");
        if ours && !settings && !linker && !kept.contains(&name) {
            cargo.env_remove(name);
        }
    }
}

/// FNV-1a: tells builds apart in a file name; not a protection.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
