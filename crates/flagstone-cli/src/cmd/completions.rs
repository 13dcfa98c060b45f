//! `flagstone completions` and `flagstone manual`: made from the arguments themselves, so
//! they cannot fall behind them.

use crate::exit::{Failure, Outcome};
use clap_complete::Shell;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone completions bash > ~/.local/share/bash-completion/completions/flagstone
  flagstone completions zsh > ~/.zfunc/_flagstone
  flagstone completions fish > ~/.config/fish/completions/flagstone.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Write the man pages of this command and of all its subcommands to a directory.
#[derive(clap::Args)]
pub struct ManualArgs {
    /// The directory, which must exist
    directory: PathBuf,
}

/// Prints the completions of `command`.
///
/// # Errors
/// A usage failure if standard output takes no more.
pub fn run(args: &Args, mut command: clap::Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "flagstone", &mut script);
    let mut stdout = std::io::stdout().lock();
    let printed = stdout.write_all(&script).and_then(|()| stdout.flush());
    printed.map_err(|error| Failure::Usage(format!("completions: standard output: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the man pages of `command`.
///
/// # Errors
/// A usage failure if a page cannot be written.
pub fn manual(args: &ManualArgs, command: clap::Command) -> Outcome {
    clap_mangen::generate_to(command, &args.directory).map_err(|error| {
        Failure::Usage(format!("manual: {}: {error}", args.directory.display()))
    })?;
    Ok(ExitCode::SUCCESS)
}
