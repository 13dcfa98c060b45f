//! Says which layouts this core has: a digest of its sources and of the compiler that lays them out.
//!
//! A reader that interprets another process's heap by these types compares it first (ADR 0032).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    let mut files = Vec::new();
    collect(Path::new("src"), &mut files);
    files.sort();
    let mut digest = 0xcbf2_9ce4_8422_2325;
    for file in files {
        let name = file.to_string_lossy().into_owned();
        let text = fs::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        digest = fold(fold(digest, name.as_bytes()), &text);
    }
    let compiler = Command::new(variable("RUSTC")).arg("-vV").output();
    digest = fold(digest, &compiler.expect("cargo names its compiler").stdout);
    digest = fold(digest, variable("TARGET").as_bytes());
    println!("cargo::rustc-env=CORE_LAYOUT_DIGEST={digest}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are readable") {
        let path = entry.expect("the sources are readable").path();
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

/// FNV-1a: tells sources apart; not a protection.
fn fold(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
