//! `flagstone sim`: the core on virtual CPUs, and this host beside it.
//!
//! ```text
//!   run         workload × policies × tasks × seeds ─► specs ─► records ─► rows    run.rs, table.rs
//!   list        names that run takes              calibrate, validate   this host
//!   replay      a recorded trace                  pagesets  page events of a kernel
//!   interleave  random programs, checked          cache     runs that are kept
//!   fit         prices and think times from base rows
//! ```
//!
//! Parse and check everything first, then run, then print. `sim NAME` is short for `sim run NAME`.

mod cache;
mod compared;
mod fit;
mod host;
mod interleave;
mod list;
mod pagesets;
mod plot;
mod replay;
mod run;
mod table;

use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::outfile;
use flagstone_lab::{names, units};
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Most rows times seeds of one call: beyond it something was mistyped.
const RUNS_MAX: u64 = 100_000;

/// Run the core on virtual CPUs in virtual time.
///
/// The allocator is the real one; the CPUs are not: locks queue, cache lines travel and work
/// takes what the machine's profile says, in virtual time. Figures are simulated, never measured.
/// Shares are percent of the tasks' CPU time. A row that did not settle is marked and never called
/// converged. `sim NAME` is short for `sim run NAME`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  flagstone sim hackbench --machine spr-2s-224 --policy linux-7.0,flagstone --tasks 56,224
  flagstone sim one-alloc-n-free --machine xeon-2007-8 --policy flagstone --size 128
  flagstone sim run random-mix --machine spr-2s-224@1024 --quick --records runs.jsonl
  flagstone sim interleave --seeds 10000    random programs, every access interleaved, checked
  flagstone sim calibrate here.toml         measure this host: its profile, about 15 s
  flagstone sim validate                    the same programs here and simulated, 2 to 3 minutes
  flagstone sim fit                         prices from base rows, every setting in a log
  flagstone sim list                        workloads, machines, policies

Exit status: 0 done; 1 a run failed, a seed of interleave broke an invariant, a row of
validate is off; 2 a wrong call, a file that cannot be written, a host too small or too
busy. Rows that did not settle are marked in the table and in JSON (converged, settled),
and change no status.")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    short: Short,
}

/// What is asked for without a subcommand.
#[derive(clap::Args)]
struct Short {
    /// What to run; `sim list` shows all
    workload: Option<String>,
    #[command(flatten)]
    options: run::RunOptions,
    /// As `sim list`
    #[arg(long, hide = true)]
    list: bool,
    /// As `sim calibrate`
    #[arg(long, hide = true, value_name = "F", num_args = 0..=1, default_missing_value = "-", conflicts_with = "workload")]
    calibrate: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(Box<run::RunArgs>),
    List(list::ListArgs),
    Calibrate(host::CalibrateArgs),
    Fit(fit::FitArgs),
    Validate(host::ValidateArgs),
    Interleave(interleave::InterleaveArgs),
    Pagesets(pagesets::PagesetsArgs),
    Replay(Box<replay::ReplayArgs>),
    Cache(cache::CacheArgs),
}

/// Runs the command.
///
/// # Errors
/// A usage failure for a wrong call; a finding where a run failed or is off.
pub fn run(args: &Args) -> Outcome {
    let short = &args.short;
    match &args.command {
        Some(Command::Run(args)) => run::run(
            args.workload.as_deref(),
            &args.options,
            args.spec.as_deref(),
        ),
        Some(Command::List(args)) => list::run(&args.json),
        Some(Command::Fit(args)) => fit::run(args),
        Some(Command::Calibrate(args)) => host::calibrate(&args.file),
        Some(Command::Validate(args)) => host::validate(args),
        Some(Command::Interleave(args)) => interleave::run(args),
        Some(Command::Pagesets(args)) => pagesets::run(args),
        Some(Command::Replay(args)) => replay::run(args),
        Some(Command::Cache(args)) => cache::run(args),
        None if short.list => {
            no_use("--list", short, &["--json"])?;
            list::run(&short.options.json)
        }
        None if short.calibrate.is_some() => {
            no_use("--calibrate", short, &[])?;
            host::calibrate(short.calibrate.as_deref().unwrap_or(Path::new("-")))
        }
        None => run::run(short.workload.as_deref(), &short.options, None),
    }
}

/// Refuses what an older spelling would silently ignore.
fn no_use(name: &str, short: &Short, used: &[&str]) -> Result<(), Failure> {
    let workload = short.workload.is_some();
    let given = short.options.given();
    let all = std::iter::once(("a workload", workload)).chain(given);
    let mut useless = all.filter(|(option, given)| *given && !used.contains(option));
    match useless.next() {
        Some((option, _)) => Err(usage(format!(
            "{name} has no use for {option}: leave it out"
        ))),
        None => Ok(()),
    }
}

/// A wrong call, in one line.
fn usage(line: String) -> Failure {
    Failure::Usage(format!("sim: {line}"))
}

/// Writes a document where `--json` says.
fn write_json<T: serde::Serialize>(json: &Json, document: &T) -> Outcome {
    if let Some(file) = json.path() {
        outfile::write_json("sim: --json", file, document)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Seeds from `first` on, so many of them.
fn seeds(first: &str, count: &str) -> Result<Vec<u64>, String> {
    let first = units::count(first).map_err(|why| format!("--seed {why}"))?;
    let count = units::count(count).map_err(|why| format!("--seeds {why}"))?;
    if count == 0 {
        return Err("--seeds 0 runs nothing; give at least 1".into());
    }
    if count > RUNS_MAX {
        return Err(format!("--seeds {count}: at most {RUNS_MAX} in one call"));
    }
    let last = first.checked_add(count - 1);
    let last = last.ok_or_else(|| format!("--seed {first} leaves no room for {count} seeds"))?;
    Ok((first..=last).collect())
}

/// See [`crate::progress`].
fn progress(runs: u64) -> ProgressBar {
    crate::progress::bar(
        runs,
        "{bar:30} {pos}/{len} runs, {simulated}, {elapsed}, {left}",
    )
}

/// A machine by name or file.
fn machine(name: &str) -> Result<flagstone_sim::Machine, String> {
    names::machine(name)
}
