//! Packages as their users get them: built, installed into a clean place, and used from there.

mod debian;
mod image;
mod nix;
mod wheel;

use flagstone_tests::{LIMIT, finish};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace's folder")
}

/// An empty folder of this process.
fn fresh(name: &str) -> PathBuf {
    let folder = Path::new(SCRATCH).join(format!("packages-{}", std::process::id()));
    let folder = folder.join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    folder
}

/// A command that knows where programs lie, a home of its own, and nothing else but what pip needs to
/// find its index.
fn clean(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().current_dir(folder);
    let kept = |name: &str| name == "PATH" || name.starts_with("PIP_") || name.contains("_PROXY");
    let kept = |name: &str| kept(name) || name.ends_with("_proxy") || name.starts_with("SSL_CERT");
    let variables = std::env::vars_os();
    command.envs(variables.filter(|(name, _)| name.to_str().is_some_and(kept)));
    command.env("HOME", folder).env("LC_ALL", "C.UTF-8");
    command
}

/// Runs to the end and expects status 0; what it wrote to stdout and to stderr.
fn run(command: &mut Command) -> (String, String) {
    attempt(command).unwrap_or_else(|line| panic!("{line}"))
}

/// The same; a line where it fails.
fn attempt(command: &mut Command) -> Result<(String, String), String> {
    let name = format!("{command:?}");
    let finished = finish(command, 2 * LIMIT);
    match finished.status.success() {
        true => Ok((finished.stdout, finished.stderr)),
        false => Err(format!(
            "{name}: {}\n{}{}",
            finished.status, finished.stdout, finished.stderr
        )),
    }
}

/// `cargo xtask` with these words.
fn xtask(words: &[&OsStr]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace());
    command.args(["run", "--quiet", "-p", "xtask", "--"]);
    command.args(words);
    command
}
