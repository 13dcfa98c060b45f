//! `flagstone replay`: a trace run again on real threads, on one allocator after another.
//!
//! ```text
//!   trace ─ compile ─► program (a file: operations by thread, slots, live bytes over time)
//!                        │ mapped by
//!                        │ or made again for each run, window by window, if it is too long (feed)
//!   measure ─ starts ─► player, a process with the allocator preloaded ─► samples in that file
//!                        │
//!   figures, view, html  time, peak and mean resident memory, faults
//! ```

mod ancestry;
mod beside;
mod chosen;
mod compile;
mod confirm;
mod early;
mod feed;
mod figures;
mod file;
mod html;
mod measure;
mod player;
mod program;
mod segments;
mod view;

use super::bench::{FLAGSTONE, choose_allocators};
use super::trace;
use crate::exit::{Failure, Outcome};
use crate::{outfile, progress};
pub use confirm::{Confirmed, confirm};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a recorded trace again on other allocators.
///
/// Each allocator gets a process of its own, preloaded; runs take turns. Threads, their order where
/// a block crosses from one to another, sizes, alignments and resizes are the trace's. Every block is
/// touched as far as the trace knows, a byte a page. Resident memory is the process's own, without the
/// replayer's.
///
/// Exit status: 0 fine, 1 if a run failed, 2 for a wrong call or file.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone replay app.fst
  flagstone replay app.fst --against glibc,jemalloc,./libother.so --runs 7 --html app.html
  flagstone replay app.fst --pace real
  flagstone replay app.fst --against glibc,jemalloc --beside -- ./app --its --words")]
pub struct Args {
    /// The trace file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Allocators: `all`, names as in `bench`, or libraries by path; flagstone is always first
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "glibc"
    )]
    against: Vec<String>,
    /// Runs of each allocator
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// How operations follow each other [default: fast; with --beside: real]
    #[arg(long, value_enum)]
    pace: Option<Pace>,
    /// The process to replay, where the trace has several [default: the one with most events]
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
    /// Bytes of operations in the temporary file at most (k, M, G); longer traces are read again for each run,
    /// in windows of 256M at most [default: half of what is free in TMPDIR, else /var/tmp; at most 8G]
    #[arg(long, value_name = "SIZE", value_parser = crate::cmd::record::size)]
    spool: Option<u64>,
    /// Write the figures as one JSON document to this file, or to standard output (`-`)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", require_equals = true)]
    json: Option<PathBuf>,
    /// Write a page with the memory of every allocator over time to this file
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with = "beside")]
    html: Option<PathBuf>,
    /// Run the recorded command too, on each allocator, and show how near the replay comes to it
    #[arg(long, requires = "command")]
    beside: bool,
    /// With --beside: the command and its arguments
    #[arg(last = true, requires = "beside", value_name = "CMD")]
    command: Vec<OsString>,
}

/// How operations follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Pace {
    /// As fast as possible.
    Fast,
    /// As fast as possible, but no thread a thousandth of the trace's time ahead of another.
    Together,
    /// With the pauses of the trace.
    Real,
}

impl Pace {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Together => "together",
            Self::Real => "real",
        }
    }

    /// The pace of this name; `fast` for any other.
    fn of(name: &[u8]) -> Self {
        match name {
            b"real" => Self::Real,
            b"together" => Self::Together,
            _ => Self::Fast,
        }
    }
}

/// What the command line of a player begins with.
const PLAYER: &str = "--player";

/// Runs this process as a player if it was started as one and is not one yet (`early.rs`).
pub fn player_process() -> Option<Outcome> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != "replay" || words.next()? != PLAYER {
        return None;
    }
    let file = PathBuf::from(words.next()?);
    let pace = Pace::of(words.next()?.as_encoded_bytes());
    Some(match player::play(&file, pace) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(line) => Err(Failure::Finding(format!("replay: {line}"))),
    })
}

/// Replays a trace.
///
/// # Errors
/// A usage failure for a file that is no trace or an allocator that is not there; a finding if a run
/// fails.
pub fn run(args: &Args) -> Outcome {
    outfile::all_writable("replay", args.json.as_deref(), &[args.html.as_deref()])?;
    let recorded = trace::open("replay", &args.file)?;
    let pace = args.pace.unwrap_or(match args.beside {
        true => Pace::Real,
        false => Pace::Fast,
    });
    let mut wanted = vec![FLAGSTONE.to_owned()];
    wanted.extend(args.against.iter().cloned());
    let allocators =
        choose_allocators(&wanted).map_err(|line| Failure::Usage(format!("replay: {line}")))?;
    if args.beside {
        let compiled = compile::compile(&recorded, args.process, args.spool)
            .map_err(|why| Failure::Usage(format!("replay: {}: {why}", args.file.display())))?;
        return beside::run(args, pace, &recorded, &compiled, &allocators);
    }
    let bar = progress::bar(
        allocators.len() as u64 * u64::from(args.runs) + 1,
        "replay {bar:30} {pos}/{len} {left}",
    );
    let compiled = compile::compile(&recorded, args.process, args.spool)
        .map_err(|why| Failure::Usage(format!("replay: {}: {why}", args.file.display())))?;
    bar.inc(1);
    let mut runs = Vec::new();
    for round in 0..args.runs {
        for allocator in &allocators {
            let played = measure::play(&recorded, &compiled, allocator, pace);
            let run = played.map_err(|why| {
                Failure::Finding(format!(
                    "replay: {}, run {}: {why}",
                    allocator.name,
                    round + 1
                ))
            })?;
            runs.push((allocator.name.clone(), run));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let figures = figures::Document::of(&recorded, &compiled, &allocators, &runs, pace);
    if let Some(file) = &args.json {
        figures::write(&figures, file)?;
    }
    if let Some(file) = &args.html {
        outfile::write("replay", file, &html::page(&figures))?;
    }
    if args.json.as_deref() != Some(std::path::Path::new("-")) {
        view::print(&figures);
    }
    Ok(ExitCode::SUCCESS)
}
