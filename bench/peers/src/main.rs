//! Builds each peer allocator from the C or C++ sources its crate carries, the way its authors
//! build a preload library, and leaves `<name>-<version>.so` where `flagstone bench` looks.
//!
//! The crates themselves are never compiled: they prefix or hide `malloc`, and a Rust forwarder in
//! front of it would cost each peer a jump that Flagstone does not pay.

mod recipes;
mod sources;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs one build step and says which one failed.
fn step(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let tail: Vec<&str> = text.lines().rev().take(8).collect();
    Err(format!(
        "{:?} ended with {}\n    {}",
        command.get_program(),
        output.status,
        tail.into_iter().rev().collect::<Vec<_>>().join("\n    ")
    ))
}

fn build(peer: &recipes::Peer, found: &sources::Found, out: &Path) -> Result<PathBuf, String> {
    let version = (peer.version)(found);
    let library = out.join(format!("{}-{version}.so", peer.name));
    if library.exists() {
        return Ok(library);
    }
    let work = out.join("work").join(peer.name);
    if work.exists() {
        std::fs::remove_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    }
    std::fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let staged = work.join("peer.so");
    (peer.build)(&found.root, &work, &staged)?;
    std::fs::rename(&staged, &library).map_err(|error| format!("{}: {error}", staged.display()))?;
    std::fs::remove_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    Ok(library)
}

fn main() -> ExitCode {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = match here.join("../..").canonicalize() {
        Ok(root) => root.join("target/peers"),
        Err(error) => {
            eprintln!("{}: {error}", here.display());
            return ExitCode::from(2);
        }
    };
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|name| !recipes::PEERS.iter().any(|peer| peer.name == name.as_str()))
    {
        let known: Vec<&str> = recipes::PEERS.iter().map(|peer| peer.name).collect();
        eprintln!("no peer named '{unknown}'; known: {}", known.join(", "));
        return ExitCode::from(2);
    }
    let all = match sources::find(&here.join("sources/Cargo.toml")) {
        Ok(all) => all,
        Err(line) => {
            eprintln!("peer sources: {line}");
            return ExitCode::from(2);
        }
    };
    let mut failed = false;
    for peer in recipes::PEERS {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == peer.name) {
            continue;
        }
        let result = all
            .get(peer.package)
            .ok_or_else(|| format!("crate {} is not among the sources", peer.package))
            .and_then(|found| build(peer, found, &out));
        match result {
            Ok(library) => println!("{:<12} {}", peer.name, library.display()),
            Err(line) => {
                println!("{:<12} not built: {line}", peer.name);
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
