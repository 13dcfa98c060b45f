//! Man pages and shell completions for packagers: `cargo xtask man DIR`.
//!
//! ```text
//!   DIR/man1/flagstone.1, flagstone-run.1, ...
//!   DIR/completions/flagstone.bash, _flagstone, flagstone.fish
//! ```
//!
//! The command makes both from its own arguments; this only says where they go.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// Shells, and what each calls its file.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "flagstone.bash"),
    ("zsh", "_flagstone"),
    ("fish", "flagstone.fish"),
];

/// Writes all of them below `to`.
pub fn write(root: &Path, to: &Path) -> Result<(), String> {
    let (pages, scripts) = (to.join("man1"), to.join("completions"));
    for folder in [&pages, &scripts] {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    flagstone(root, &[OsStr::new("manual"), pages.as_os_str()])?;
    for (shell, file) in SHELLS {
        let script = flagstone(root, &[OsStr::new("completions"), OsStr::new(shell)])?;
        let file = scripts.join(file);
        std::fs::write(&file, script.stdout).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(())
}

/// Builds the command if need be, and runs it.
fn flagstone(root: &Path, words: &[&OsStr]) -> Result<Output, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg("run").args(["--quiet", "--manifest-path"]);
    command.arg(root.join("Cargo.toml"));
    command
        .args(["--package", "flagstone-cli", "--"])
        .args(words);
    let output = command
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    match output.status.success() {
        true => Ok(output),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
