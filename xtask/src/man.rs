//! Man pages and shell completions for packagers: `cargo xtask man DIR`.
//!
//! ```text
//!   DIR/man1/flagstone.1, flagstone-run.1, ...
//!   DIR/completions/flagstone.bash, _flagstone, flagstone.fish
//! ```
//!
//! The command makes both from its own arguments; this only says where they go.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Output};

/// Shells, and what each calls its file.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "flagstone.bash"),
    ("zsh", "_flagstone"),
    ("fish", "flagstone.fish"),
];

/// Builds the command if need be, and writes all of them below `to`.
///
/// # Errors
/// One line.
pub fn write(root: &Path, to: &Path) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg("run").args(["--quiet", "--manifest-path"]);
    command.arg(root.join("Cargo.toml"));
    command.args(["--package", "flagstone-cli", "--"]);
    let command: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_owned)
        .collect();
    write_by(&command, to)
}

/// Writes all of them below `to` by a command that is built: a program and its first words.
///
/// # Errors
/// One line.
pub fn write_by(command: &[OsString], to: &Path) -> Result<(), String> {
    let (pages, scripts) = (to.join("man1"), to.join("completions"));
    for folder in [&pages, &scripts] {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    flagstone(command, &[OsStr::new("manual"), pages.as_os_str()])?;
    for (shell, file) in SHELLS {
        let script = flagstone(command, &[OsStr::new("completions"), OsStr::new(shell)])?;
        let file = scripts.join(file);
        std::fs::write(&file, script.stdout).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(())
}

fn flagstone(command: &[OsString], words: &[&OsStr]) -> Result<Output, String> {
    let (program, first) = command.split_first().expect("a command has a program");
    let output = Command::new(program).args(first).args(words).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    match output.status.success() {
        true => Ok(output),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
