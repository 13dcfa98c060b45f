//! `flagstone sweep`: many runs from one file, on as many processes and machines as there are.
//!
//! ```text
//!   sweep SPEC.toml --out DIR     what is missing in DIR, a file for each record     this file
//!   sweep collect DIR -o F        all of them as one table                           collect.rs
//!   sweep report DIR --html F     curves, heat maps, the front                       report.rs, html.rs
//! ```
//!
//! The rules are the library's ([`flagstone_lab::sweep`]); this is its command.

mod collect;
mod html;
mod report;

use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::outfile;
use flagstone_lab::sweep::{Done, Shard, parse};
use flagstone_lab::{Options, Spec, sweep};
use flagstone_sim::{MODEL_VERSION, Vm};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make every run that a file describes and a folder lacks.
///
/// The file names workloads, machines, policies, knobs, numbers of tasks and seeds, each a value or a
/// list; every combination is a run. A record is a file in the folder, named by the digest of all that
/// decides the run. Killed at any instant, the next call goes on.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  flagstone sweep grid.toml --out runs
  flagstone sweep grid.toml --out runs --shard 3/8      the third of eight parts
  flagstone sweep grid.toml --out runs --shard auto     in a Slurm array or a Kubernetes indexed job
  flagstone sweep collect runs -o runs.parquet
  flagstone sweep report runs --html runs.html

A file:
  workload = [\"mmap1\", \"larson\"]
  machine = \"spr-2s-224@16\"
  policy = [\"linux-6.5\", \"linux-7.0\", \"flagstone\"]
  tasks = [1, 4, 16]
  seeds = 5
  window = \"quick\"
  [knobs]
  sheaf_capacity = [16, 32, 64]

docs/sweep.md has every key, the variables of schedulers, and job scripts.")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    runs: Runs,
}

#[derive(clap::Subcommand)]
enum Command {
    Collect(collect::CollectArgs),
    Report(report::ReportArgs),
}

/// The call without a subcommand.
#[derive(clap::Args)]
struct Runs {
    /// What to run, as TOML
    #[arg(value_name = "SPEC.toml")]
    file: Option<PathBuf>,
    /// Folder of the records
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only part I of N, or what the scheduler's variables say
    #[arg(long, value_name = "I/N|auto", default_value = "1/1")]
    shard: String,
    /// Runs at a time [default: the host's cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Say what would be run, and run nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: Json,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    model_version: u32,
    shard: [u32; 2],
    asked: usize,
    there: usize,
    made: usize,
    failures: &'a [String],
}

/// Runs the command.
///
/// # Errors
/// A usage failure for a wrong file or folder.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        Some(Command::Collect(args)) => collect::run(args),
        Some(Command::Report(args)) => report::run(args),
        None => runs(&args.runs),
    }
}

fn usage(line: String) -> Failure {
    Failure::Usage(format!("sweep: {line}"))
}

fn runs(args: &Runs) -> Outcome {
    let file = args.file.as_deref();
    let file = file.ok_or_else(|| usage("give a file that says what to run".into()))?;
    let shard = Shard::parse(&args.shard, |name| std::env::var(name).ok());
    let shard = shard.map_err(|why| usage(format!("--{why}")))?;
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| usage(format!("{}: {error}", file.display())))?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let plan = parse(&file.display().to_string(), &text, folder).map_err(usage)?;
    let specs = shard.of(&plan.specs);
    outfile::all_writable("sweep", args.json.path(), &[])?;
    if args.dry_run {
        return dry(&plan.specs, &specs, shard);
    }
    let out = args.out.as_deref();
    let out = out.ok_or_else(|| usage("--out DIR says where the records go".into()))?;
    // Whether this host has room is known before the first run.
    if let Some(largest) = specs
        .iter()
        .max_by_key(|spec| Vm::address_bytes(&spec.machine))
    {
        let room = Vm::try_new(largest.machine.clone(), flagstone_sim::Options::default());
        room.map(drop).map_err(usage)?;
    }
    crate::exit::on_interrupt(
        "flagstone: sweep: interrupted; records so far are kept, the same call goes on\n",
    );
    let there = "{bar:30} {pos}/{len} runs, {elapsed}, {left}";
    let bar = crate::progress::bar(specs.len() as u64, there);
    let options = Options {
        cache: None,
        jobs: args.jobs.map(usize::from),
    };
    let missing = sweep::missing(&specs, out).map_err(usage)?;
    bar.inc((specs.len() - missing) as u64);
    // The time left is that of what is made now.
    bar.reset_eta();
    let done = sweep::sweep(&specs, out, &options, |_| bar.inc(1));
    bar.finish_and_clear();
    told(args, shard, &done.map_err(usage)?, out)
}

fn dry(all: &[Spec], specs: &[Spec], shard: Shard) -> Outcome {
    println!(
        "{} runs, {} of them in part {} of {}",
        all.len(),
        specs.len(),
        shard.index,
        shard.count
    );
    for spec in specs {
        println!("{}  {}", spec.digest(), spec.to_json());
    }
    Ok(ExitCode::SUCCESS)
}

fn told(args: &Runs, shard: Shard, done: &Done, out: &Path) -> Outcome {
    if let Some(file) = args.json.path() {
        let document = Document {
            schema: "flagstone.sweep/1",
            model_version: MODEL_VERSION,
            shard: [shard.index, shard.count],
            asked: done.asked,
            there: done.there,
            made: done.made,
            failures: &done.failures,
        };
        outfile::write_json("sweep: --json", file, &document)?;
    } else {
        println!(
            "{} runs: {} made, {} there before, {} failed; records are in {}",
            done.asked,
            done.made,
            done.there,
            done.failures.len(),
            out.display()
        );
    }
    for line in &done.failures {
        eprintln!("flagstone: sweep: {line}");
    }
    Ok(ExitCode::from(u8::from(!done.failures.is_empty())))
}
