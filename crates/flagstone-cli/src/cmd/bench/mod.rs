//! `flagstone bench`: Flagstone beside the allocators found on this machine, in one interleaved run.

pub(crate) mod allocators;
mod catalog;
mod child;
mod docs;
pub(crate) mod figures;
mod html;
mod means;
mod process;
mod real;
mod report;
mod runner;
mod targets;

use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::outfile;
use crate::source::machine;
use allocators::full_name;
pub use allocators::{Allocator, FLAGSTONE};
use catalog::{Inner, Workload};
pub use child::process::page_bytes;
use child::{Job, Scale};
pub use figures::Summary;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
pub use process::{command as command_on, finish as finish_command};
use runner::{Bench, Measured};
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare Flagstone with the allocators installed here.
///
/// Every run is a process of its own with the allocator preloaded; runs are interleaved (A B C,
/// A B C ...). Shown are the median, the range, the ratio to the best median, peak resident size
/// and page faults. "tie" means the distance to the best is smaller than the distance between the
/// quartiles of either, and the ranges meet: no difference was shown.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    flagstone bench pair batch-lifo --quick\n  \
    flagstone bench larson --threads 1,2,4 --against glibc,jemalloc\n  \
    flagstone bench real --against glibc        compilers, git, databases, languages\n  \
    flagstone bench --targets --json bench.json\n  \
    flagstone bench pair python --html bench.html   a chart for each workload, in one file\n\n\
    More peers, in their newest versions:\n  \
    cargo run --release --manifest-path bench/peers/Cargo.toml\n\n\
    Exit status: 0 all ran, 1 an allocator failed or (with --targets) a target was missed, \
    2 usage or environment.")]
pub struct Args {
    /// Workloads by name, start of a name, or pattern with '*'; all but the real programs unless given (see --list)
    workloads: Vec<String>,
    /// Peers: 'all', names (glibc,jemalloc), name-version, or paths of libraries
    #[arg(
        long,
        value_name = "all|NAME",
        value_delimiter = ',',
        default_value = "all"
    )]
    against: Vec<String>,
    /// Thread counts, for workloads that run with several
    #[arg(long, value_name = "N", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Runs per allocator [default: 7, with --quick 3]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Small sizes and three runs: a first look, not a result
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    json: Json,
    /// Write a self-contained HTML report to F: machine, programs, a chart and a table for each
    /// workload, targets
    #[arg(long, value_name = "F")]
    html: Option<PathBuf>,
    /// Write the tables of this run into the Markdown document F, between its two markers
    #[arg(long, value_name = "F")]
    docs: Option<PathBuf>,
    /// The library measured as flagstone [default: FLAGSTONE_LIB, or the one inside this program]
    #[arg(long, value_name = "PATH")]
    lib: Option<PathBuf>,
    /// Measure only the peers
    #[arg(long, conflicts_with = "lib")]
    without_flagstone: bool,
    /// Print only the figures Flagstone set itself to reach, and exit 1 when one is missed
    #[arg(long, conflicts_with = "without_flagstone")]
    targets: bool,
    /// List the workloads and the allocators found, and do nothing
    #[arg(long)]
    list: bool,
    /// Amount of work
    #[arg(long, hide = true, value_enum)]
    scale: Option<Scale>,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let workloads = catalog::select(&args.workloads).map_err(Failure::Usage)?;
    let mut chosen = Vec::new();
    if !args.without_flagstone && !args.list {
        let library = allocators::flagstone_library(args.lib.as_deref()).map_err(Failure::Usage)?;
        chosen.push(Allocator {
            name: FLAGSTONE.into(),
            version: String::new(),
            library: Some(library),
            unusable: None,
        });
    }
    chosen.extend(allocators::choose(&args.against).map_err(Failure::Usage)?);
    if args.list {
        return list(&workloads, &chosen);
    }
    if args.threads.contains(&0) || args.runs == Some(0) {
        return Err(Failure::Usage(
            "--threads and --runs must be at least 1".into(),
        ));
    }
    let scratch =
        tempfile::tempdir().map_err(|error| Failure::Usage(format!("scratch folder: {error}")))?;
    let bench = prepare(args, scratch.path())?;
    let chosen = identify(&bench, chosen)?;
    measure_all(args, &bench, &workloads, &chosen)
}

/// The measured process: `flagstone bench --child NAME SCALE THREADS`, told apart before the
/// command line is parsed, so that parsing neither warms the allocator nor adds to what is
/// resident. Nothing when these are not its arguments.
pub fn measured_process() -> Option<Outcome> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != "bench" {
        return None;
    }
    match words.next()?.to_str()? {
        "--child" => {}
        real::watch::WATCH => return Some(real::watch::watch(words)),
        _ => return None,
    }
    let mut words = words.filter_map(|word| word.into_string().ok());
    let (name, scale, threads) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
    Some(run_child(&name, Scale::named(&scale)?, threads))
}

/// The allocators of a call, in its order, `flagstone` among them: the library inside this program, or
/// the one that `FLAGSTONE_LIB` names.
///
/// # Errors
/// A line that names what is not there.
pub fn choose_allocators(wanted: &[String]) -> Result<Vec<Allocator>, String> {
    let mut chosen: Vec<Allocator> = Vec::new();
    for want in wanted {
        let found = if want == FLAGSTONE {
            vec![Allocator {
                name: FLAGSTONE.into(),
                version: env!("CARGO_PKG_VERSION").into(),
                library: Some(allocators::flagstone_library(None)?),
                unusable: None,
            }]
        } else {
            allocators::choose(std::slice::from_ref(want))?
        };
        for one in found {
            if chosen.iter().all(|known| known.name != one.name) {
                chosen.push(one);
            }
        }
    }
    Ok(chosen)
}

fn run_child(name: &str, scale: Scale, threads: usize) -> Outcome {
    if name == PROBE {
        let line = serde_json::to_string(&child::probe::identity());
        println!(
            "{}",
            line.map_err(|error| Failure::Finding(error.to_string()))?
        );
        return Ok(ExitCode::SUCCESS);
    }
    let Some(inner) = Inner::named(name) else {
        return Err(Failure::Usage(format!("{name} is not run by this program")));
    };
    child::run(|job| inner.run(job), Job { threads, scale })
        .map_err(|damage| Failure::Finding(damage.0))?;
    Ok(ExitCode::SUCCESS)
}

/// Name under which a measured process only says who it is.
const PROBE: &str = "probe";

fn list(workloads: &[Workload], peers: &[Allocator]) -> Outcome {
    println!("Workloads");
    for workload in workloads {
        println!(
            "  {:<18} {:<10} {}",
            workload.name, workload.unit, workload.what
        );
        if !workload.like.is_empty() {
            println!("  {:<29} as {}", "", workload.like);
        }
    }
    println!("\nAllocators found besides flagstone");
    for peer in peers {
        let place = peer
            .library
            .as_ref()
            .map_or("the C library".into(), |path| path.display().to_string());
        println!("  {:<18} {:<10} {place}", peer.name, peer.version);
    }
    Ok(ExitCode::SUCCESS)
}

fn prepare(args: &Args, scratch: &std::path::Path) -> Result<Bench, Failure> {
    let usage = |what: &str, error: std::io::Error| Failure::Usage(format!("{what}: {error}"));
    let script = scratch.join("python.py");
    std::fs::write(&script, include_str!("python.py")).map_err(|e| usage("scratch file", e))?;
    let scale = args.scale.unwrap_or(if args.quick {
        Scale::Quick
    } else {
        Scale::Full
    });
    let own = std::env::current_exe().map_err(|error| usage("this program", error))?;
    Ok(Bench {
        scale,
        runs: args.runs.unwrap_or(scale.pick(7, 3, 1)),
        scene: real::Scene {
            folder: scratch.join("real"),
            own,
            python: runner::find_python(),
            script,
        },
    })
}

/// Checks every preload and drops a second entry of the same name and version. One that cannot be
/// preloaded stays, without figures: each table then says why.
fn identify(bench: &Bench, chosen: Vec<Allocator>) -> Result<Vec<Allocator>, Failure> {
    let mut known: Vec<Allocator> = Vec::new();
    for mut allocator in chosen {
        match bench.identify(&mut allocator) {
            Ok(())
                if known
                    .iter()
                    .any(|one| full_name(one) == full_name(&allocator)) => {}
            Ok(()) => known.push(allocator),
            Err(line) if allocator.name == FLAGSTONE => {
                return Err(Failure::Usage(format!("{}: {line}", allocator.name)));
            }
            Err(line) => {
                eprintln!(
                    "flagstone: {} cannot run here: {line}",
                    full_name(&allocator)
                );
                allocator.unusable = Some(format!("skipped: {line}"));
                known.push(allocator);
            }
        }
    }
    Ok(known)
}

fn measure_all(args: &Args, bench: &Bench, workloads: &[Workload], on: &[Allocator]) -> Outcome {
    let to_stdout = args.json.to_stdout();
    let files = [args.html.as_deref(), args.docs.as_deref()];
    outfile::all_writable("bench", args.json.path(), &files)?;
    let document = args.docs.as_deref().map(docs::readable).transpose()?;
    let quiet = args.targets || to_stdout;
    let plan = plan(args, workloads);
    let bar = progress(plan.len() * bench.runs * on.len());
    let mut results: Vec<Measured> = Vec::new();
    for (workload, threads) in plan {
        let result = bench.measure(workload, threads, on, |name| {
            bar.set_message(format!("{} on {name}", workload.name));
            bar.inc(1);
        });
        if !quiet {
            bar.suspend(|| println!("{}", report::table(&result)));
        }
        results.push(result);
    }
    bar.finish_and_clear();
    if !quiet {
        print!("{}", means::tables(&means::places(&results)));
    }
    finish(args, bench, on, &results, document.as_deref())
}

/// Every workload with each of its thread counts.
fn plan<'a>(args: &Args, workloads: &'a [Workload]) -> Vec<(&'a Workload, usize)> {
    let mut plan = Vec::new();
    for workload in workloads {
        let given = workload.scales && !args.threads.is_empty();
        let counts = if given {
            &args.threads
        } else {
            &workload.threads
        };
        for &count in counts {
            if count < workload.least {
                let (name, least) = (&workload.name, workload.least);
                eprintln!("flagstone: {name} needs {least} threads: left out with {count}");
                continue;
            }
            plan.push((workload, count));
        }
    }
    plan
}

fn finish(
    args: &Args,
    bench: &Bench,
    on: &[Allocator],
    results: &[Measured],
    document: Option<&str>,
) -> Outcome {
    let to_stdout = args.json.to_stdout();
    let with_flagstone = on.iter().any(|allocator| allocator.name == FLAGSTONE);
    let mut list = if with_flagstone {
        targets::targets(results)
    } else {
        Vec::new()
    };
    if !args.workloads.is_empty() {
        // Of the chosen workloads only: the others were not asked about.
        list.retain(|target| target.got.is_some());
    }
    let spoken_of = args.targets || list.iter().any(|target| target.reached.is_some());
    if args.targets || (spoken_of && !to_stdout) {
        print!("{}", targets::summary(&list));
    }
    let missed = list.iter().any(|target| target.reached == Some(false));
    if let Some(path) = args.json.path() {
        outfile::write_json("bench", path, &report::document(results, list.clone()))?;
    }
    let about = html::About {
        machine: machine::machine(),
        commit: env!("LIBRARY_COMMIT"),
        library: allocators::flagstone_origin(args.lib.as_deref()),
        runs: bench.runs,
        full: bench.scale == Scale::Full,
    };
    if let (Some(path), Some(text)) = (&args.docs, document) {
        outfile::write("bench", path, &docs::with_tables(text, results, &about))?;
    }
    if let Some(path) = &args.html {
        let list: &[_] = if spoken_of { &list } else { &[] };
        let page = html::page(results, on, list, &about);
        outfile::write("bench", path, &page)?;
    }
    let failed = results
        .iter()
        .flat_map(|result| &result.outcomes)
        .any(|outcome| {
            outcome
                .failure
                .as_ref()
                .is_some_and(|line| !line.starts_with("skipped"))
        });
    Ok(ExitCode::from(u8::from(failed || (args.targets && missed))))
}

fn progress(runs: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
