//! `flagstone run`: a command on Flagstone, and afterwards where its memory went.
//!
//! ```text
//!   answer     where the memory was in one sentence        advice   what to try
//!   runtimes   those with a heap of their own
//!   trial      --try: what those changes bring, measured
//!   timeline   resident size and ledgers over time
//!   settings   --policy and --set, checked, as variables the library reads
//!   looks      from outside, where a process's own samples fall behind
//!   program    what CMD is: found, executable, something a library can be put into
//!   compare    the command on several allocators, in turns
//!   child      start, signals, end                reports   what its processes left
//!   last       the last program of a process, and why it may have run without the library
//!   html       the same as a page
//!   document   flagstone.run/1                    view      the same as text
//! ```

mod advice;
pub(crate) mod answer;
pub(super) mod child;
mod compare;
mod document;
mod html;
mod kept;
pub(super) mod last;
mod looks;
mod near;
pub(super) mod program;
pub(crate) mod reports;
pub(crate) mod runtimes;
mod settings;
pub(super) mod timeline;
mod trial;
pub(crate) mod view;

use super::profile;
use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::{outfile, preload};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a command on Flagstone and show where its memory went.
///
/// The command keeps its own stdin, stdout, stderr, signals and exit status (128 + n after signal
/// n). Afterwards stderr shows where its memory was in one sentence, what to try, a ledger of its
/// resident memory, its caches and its page layer; docs/ledger.md says what each line means.
///
/// With `--json` and no file, or `--json -`, standard output holds the document alone: what the
/// command prints on its standard output then goes to standard error.
///
/// Exit status: that of the command (with --compare 1 if a run failed); 127 if it is not found, 126 if it cannot be executed, 2 for
/// a wrong call or a program no library can be put into.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone run -- python3 -c 'print(sum(range(10**6)))'
  flagstone run --try -- ruby report.rb
  flagstone run --html memory.html -- python3 service.py
  flagstone run --profile heap.pb.gz -- python3 service.py
  flagstone run --all -- gunicorn app:main
  flagstone run --compare glibc,flagstone,linux-7.0 -- sort big.txt
  flagstone run --policy linux-7.0 --set barn_full=2 --json ledger.json -- sort big.txt")]
pub struct Args {
    /// Policy of the heap: a kernel's, or flagstone's own; +name composes [default: flagstone]
    #[arg(long, value_name = "P")]
    policy: Option<String>,
    /// Override one setting of the policy, a size may end in K, M, G or T; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    json: Json,
    /// Write a self-contained HTML report to F: the answer, memory over time, ledger, caches
    #[arg(long, value_name = "F")]
    html: Option<PathBuf>,
    /// Sample where its memory comes from; write that to F in pprof's format (docs/profiles.md)
    #[arg(long, value_name = "F")]
    profile: Option<PathBuf>,
    /// Mean bytes between those samples [default: 512K]
    #[arg(long, value_name = "BYTES", requires = "profile", value_parser = profile::interval)]
    profile_interval: Option<u64>,
    /// Show every process that the command starts, with a ledger each
    #[arg(long)]
    all: bool,
    /// Run the command again with each setting that the answer proposes, and show what it brings:
    /// three runs each, in turns, without input and output
    #[arg(long = "try")]
    trial: bool,
    /// Run the command on several allocators in turns and show one table: glibc, allocators that
    /// bench --list finds, libraries by path, policies with any :key=value; its output is dropped
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1,
          conflicts_with_all = ["policy", "set", "all", "quiet", "html", "profile", "trial"])]
    compare: Vec<String>,
    /// Runs on each allocator, with --compare
    #[arg(long, value_name = "N", default_value_t = 7, requires = "compare",
          value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
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
    if !args.compare.is_empty() {
        let runs = usize::from(args.runs);
        return compare::run(&args.compare, runs, (&program, &args.command), &args.json);
    }
    if let Some(file) = args.json.path() {
        outfile::writable("run: --json", file)?;
    }
    outfile::all_writable(
        "run",
        args.json.path(),
        &[args.html.as_deref(), args.profile.as_deref()],
    )?;
    let output = match args.json.to_stdout() {
        true => child::Output::Error,
        false => child::Output::Own,
    };
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
    let all = args
        .all
        .then(|| ("FLAGSTONE_RUN_ALL".into(), Some("1".into())));
    let profiles = match &args.profile {
        Some(_) => Some(reports::Directory::new()?),
        None => None,
    };
    let sampled = profiles
        .iter()
        .flat_map(|folder| profile::variables(folder.path(), args.profile_interval))
        .map(|(name, value)| (name.into(), Some(value)));
    let variables = set.chain(removed).chain([report]).chain(all);
    let variables: Vec<_> = variables.chain(sampled).collect();
    let mut ended = match child::run(&child::Start {
        program: &program,
        command: &args.command,
        preload: std::slice::from_ref(&library),
        variables: &variables,
        output,
        documents: Some(reports.path()),
    }) {
        Ok(ended) => ended,
        Err(child::NotStarted { code, line }) => {
            eprintln!("flagstone: run: {line}");
            return Ok(ExitCode::from(code));
        }
    };
    let mut found = reports.read(ended.process);
    if let Some(looks) = ended.looks.take() {
        looks.complete(&mut found);
    }
    let name = program.file_name().map(OsStr::as_bytes);
    // The kernel keeps fifteen bytes of a name.
    let is_main =
        |main: &reports::Report| name.is_some_and(|name| name.starts_with(main.program.as_bytes()));
    found.is_go = found.main.as_ref().is_some_and(is_main) && program::is_go(&program);
    let detail = match args.all {
        true => document::Detail::EveryProcess,
        false => document::Detail::Command,
    };
    let mut outcome = document::Outcome::of(&args.command, &settings, (&ended, &found), detail);
    let last = ended.last.as_ref().filter(|_| ended.signal().is_none());
    outcome.unserved = last.and_then(|last| last.unserved(found.main.as_ref(), &library));
    if args.profile.is_some() {
        outcome
            .tries
            .retain(|one| one.rule != advice::Try::CALL_SITES);
    }
    if args.trial && !ended.was_interrupted() {
        let subject = trial::Subject {
            program: &program,
            command: &args.command,
            policy: args.policy.as_deref(),
            set: &args.set,
            exit: ended.code(),
        };
        trial::measure(&subject, &mut outcome.tries)?;
    }
    if let Some(file) = args.json.path() {
        outfile::write_json("run: --json", file, &outcome)?;
    }
    if let Some(file) = &args.html {
        outfile::write("run: --html", file, &html::page(&outcome))?;
    }
    if !args.quiet {
        view::print(&outcome, &found);
    }
    if let (Some(file), Some(folder)) = (&args.profile, &profiles) {
        let killed = ended.signal().map(|_| "it was killed");
        let lost = outcome.unserved.as_deref().or(killed);
        profile::of_run((folder.path(), ended.process), file, args.quiet, lost)?;
    }
    Ok(ExitCode::from(ended.code()))
}
