//! `flagstone run`: a command on Flagstone, and afterwards where its memory went.
//!
//! ```text
//!   settings   --policy and --set, checked, as variables the library reads
//!   program    what CMD is: found, executable, something a library can be put into
//!   child      start, signals, end                reports   what its processes left
//!   document   flagstone.run/1                    view      the same as text
//! ```

pub(super) mod child;
mod document;
pub(super) mod program;
mod reports;
mod settings;
mod view;

use crate::exit::{Failure, Outcome};
use crate::preload;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a command on Flagstone and show where its memory went.
///
/// The command keeps its own stdin, stdout, stderr, signals and exit status (128 + n after signal
/// n). Afterwards stderr shows its caches, a ledger of its resident memory and its page layer;
/// docs/ledger.md says what each line means.
///
/// Exit status: that of the command; 127 if it is not found, 126 if it cannot be executed, 2 for
/// a wrong call or a program no library can be put into.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone run -- python3 -c 'print(sum(range(10**6)))'
  flagstone run --policy linux-7.0 --set barn_full=2 --json ledger.json -- sort big.txt")]
pub struct Args {
    /// Policy of the heap: a kernel's, or flagstone's own; +name composes [default: flagstone]
    #[arg(long, value_name = "P")]
    policy: Option<String>,
    /// Override one setting of the policy, a size may end in K, M or G; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the figures as one JSON document to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print nothing afterwards
    #[arg(long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// A usage failure for a wrong policy, setting or file, or a program no library can be put into.
pub fn run(args: &Args) -> Outcome {
    let settings = settings::Settings::of(args.policy.as_deref(), &args.set)?;
    let program = match program::find(&args.command[0]) {
        Ok(program) => program,
        Err(program::Refusal::Code(code, line)) => {
            eprintln!("flagstone: run: {line}");
            return Ok(ExitCode::from(code));
        }
        Err(program::Refusal::Usage(line)) => return Err(Failure::Usage(format!("run: {line}"))),
    };
    let document = args
        .json
        .as_deref()
        .map(document::Target::open)
        .transpose()?;
    let library = preload::library_path(preload::serving(settings.policy_name()))?;
    let reports = reports::Directory::new()?;
    let report = (
        "FLAGSTONE_RUN_REPORT".into(),
        Some(reports.path().as_os_str().to_owned()),
    );
    let (set, removed) = settings.variables();
    let set = set
        .into_iter()
        .map(|(name, value)| (name.into(), Some(value)));
    let removed = removed.into_iter().map(|name| (name.into(), None));
    let variables: Vec<_> = set.chain(removed).chain([report]).collect();
    let ended = match child::run(&child::Start {
        program: &program,
        command: &args.command,
        preload: &[library],
        variables: &variables,
    }) {
        Ok(ended) => ended,
        Err(child::NotStarted { code, line }) => {
            eprintln!("flagstone: run: {line}");
            return Ok(ExitCode::from(code));
        }
    };
    let found = reports.read(ended.process);
    let outcome = document::Outcome::of(&args.command, &settings, &ended, &found);
    if let Some(target) = document {
        target.write(&outcome)?;
    }
    if !args.quiet {
        view::print(&outcome, &found);
    }
    Ok(ExitCode::from(ended.code()))
}
