//! `flagstone sim`: parse and check everything first, then run all rows, then print.

mod host;
mod interleave;
mod plot;
mod table;

use crate::exit::{Failure, Outcome as CommandOutcome};
use crate::outfile;
use flagstone_sim::machine::Machine;
use flagstone_sim::report::Row;
use flagstone_sim::scenario::{NamedPolicy, Outcome, Scenario};
use flagstone_sim::window::Plan;
use flagstone_sim::workload::{Params, Workload};
use flagstone_sim::{Options, Placement, Vm};
use indicatif::ProgressBar;
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// The name that runs random programs at every interleaving instead of a workload.
const INTERLEAVE: &str = "interleave";

/// The name that holds simulation against this host instead of running a workload.
const VALIDATE: &str = "validate";

/// What these names do.
const INSTEAD: [(&str, &str); 2] = [
    (
        INTERLEAVE,
        "random programs, interleaved at every access, all invariants checked",
    ),
    (
        VALIDATE,
        "larson, random-mix and one-alloc-n-free on real threads here, and simulated",
    ),
];

/// Most rows times seeds of one call: beyond it something was mistyped.
const RUNS_MAX: u64 = 100_000;

/// Run the core on virtual CPUs in virtual time.
///
/// The allocator is the real one; the CPUs are not: locks queue, cache lines travel and work
/// takes what the machine's profile says, in virtual time. Figures are simulated, never measured.
/// Shares are percent of the tasks' CPU time. A row that did not settle is marked and never called
/// converged.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone sim hackbench --machine spr-2s-224 --policy linux-7.0 --policy flagstone --tasks 56,224
  flagstone sim one-alloc-n-free --machine xeon-2007-8 --policy flagstone --size 128
  flagstone sim random-mix --machine spr-2s-224@1024 --tasks 1024 --quick --json
  flagstone sim interleave --seeds 10000    random programs, every access interleaved, checked
  flagstone sim --calibrate here.toml       measure this host: its profile, about 15 s
  flagstone sim validate                    the same programs here and simulated, 2 to 3 minutes
  flagstone sim --list

Exit status: 0 done; 1 a run failed, a seed of interleave broke an invariant, a row of
validate is off; 2 a wrong call, a file that cannot be written, a host too small or too
busy. Rows that did not settle are marked in the table and in JSON (converged, settled),
and change no status.")]
pub struct Args {
    /// What to run; `--list` shows all
    #[arg(required_unless_present_any = ["list", "calibrate"])]
    workload: Option<String>,
    /// List workloads, machines and policies
    #[arg(long)]
    list: bool,
    /// Measure this host and write its profile to F, or to stdout
    #[arg(long, value_name = "F", num_args = 0..=1, default_missing_value = "-", conflicts_with = "workload")]
    calibrate: Option<PathBuf>,
    /// Machine profile, or NAME@CPUS to scale one, or a TOML file [default: this-machine; validate
    /// measures the host first]
    #[arg(long, value_name = "M")]
    machine: Option<String>,
    /// Policy; repeat it, or separate by commas, to compare [default: flagstone]
    #[arg(long, value_name = "P", value_delimiter = ',')]
    policy: Vec<String>,
    /// Set a knob on every policy, as in `slab_max_order=4`
    #[arg(long, value_name = "K=V")]
    set: Vec<String>,
    /// Numbers of tasks, one CPU each [default: all CPUs]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    tasks: Vec<String>,
    /// First seed
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Number of seeds; figures are means, the spread is printed
    #[arg(long, default_value_t = 1, value_name = "K")]
    seeds: u32,
    /// Object size in bytes, for workloads that have one
    #[arg(long, value_name = "B")]
    size: Option<usize>,
    /// Time outside the allocator for each operation in nanoseconds [default: the workload's]
    #[arg(long, value_name = "NS")]
    think: Option<f64>,
    /// Fill one socket before the next, as mmap1 does by itself
    #[arg(long, conflicts_with = "spread")]
    compact: bool,
    /// Alternate between sockets, as all other workloads do by themselves
    #[arg(long)]
    spread: bool,
    /// Look for 16 to 32 ms of virtual time instead of 64 to 512; validate: one short pass
    #[arg(long)]
    quick: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Plot throughput over tasks, and bytes over time, as SVG into F; `-` plots in the terminal
    #[arg(long, value_name = "F")]
    plot: Option<PathBuf>,
}

/// The checked request.
struct Request {
    workload: &'static Workload,
    machine: Machine,
    policies: Vec<NamedPolicy>,
    tasks: Vec<u32>,
    seeds: Vec<u64>,
    params: Params,
    plan: Plan,
}

/// Runs the command.
pub fn run(args: &Args) -> CommandOutcome {
    no_use_of(args).map_err(|line| Failure::Usage(format!("sim: {line}")))?;
    if args.list {
        table::list(args.json);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &args.calibrate {
        outfile::writable("sim", path)?;
        return host::calibrate(Some(path.as_path()).filter(|path| *path != Path::new("-")));
    }
    if args.workload.as_deref() == Some(VALIDATE) {
        let profile = args.machine.as_deref().map(machine).transpose();
        let profile = profile.map_err(|line| Failure::Usage(format!("sim: {line}")))?;
        return host::validate(profile, args.quick, args.json);
    }
    if args.workload.as_deref() == Some(INTERLEAVE) {
        let seeds = seeds(args).map_err(|line| Failure::Usage(format!("sim: {line}")))?;
        return interleave::run(&seeds, args.json);
    }
    let request = check(args).map_err(|line| Failure::Usage(format!("sim: {line}")))?;
    if let Some(path) = args.plot.as_deref() {
        outfile::writable("sim", path)?;
    }
    // Whether this host has room is known before the first run, and no finding.
    let room = Vm::try_new(request.machine.clone(), Options::default()).map(drop);
    room.map_err(|line| Failure::Usage(format!("sim: {line}")))?;
    let started = Instant::now();
    let rows = rows(&request).map_err(|line| Failure::Finding(format!("sim: {line}")))?;
    if args.json {
        println!("{}", table::json(&request, &rows));
    } else {
        table::print(&request, &rows, started.elapsed());
    }
    if let Some(path) = args.plot.as_deref() {
        plot::draw(path, &request, &rows).map_err(|line| Failure::Usage(format!("sim: {line}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses what a call would silently ignore.
fn no_use_of(args: &Args) -> Result<(), String> {
    let word = args.workload.as_deref();
    let (name, used): (&str, &[&str]) = match word {
        _ if args.list => ("--list", &["--json"]),
        _ if args.calibrate.is_some() => ("--calibrate", &[]),
        Some(VALIDATE) => (VALIDATE, &["--machine", "--quick", "--json"]),
        Some(INTERLEAVE) => (INTERLEAVE, &["--seed", "--seeds", "--json"]),
        _ if args.json && args.plot.as_deref() == Some(Path::new("-")) => {
            return Err("--json prints one document: plot into a file, not with --plot -".into());
        }
        _ => return Ok(()),
    };
    let given = [
        ("a workload", word.is_some_and(|word| word != name)),
        ("--machine", args.machine.is_some()),
        ("--policy", !args.policy.is_empty()),
        ("--set", !args.set.is_empty()),
        ("--tasks", !args.tasks.is_empty()),
        ("--seed", args.seed != 1),
        ("--seeds", args.seeds != 1),
        ("--size", args.size.is_some()),
        ("--think", args.think.is_some()),
        ("--compact", args.compact),
        ("--spread", args.spread),
        ("--quick", args.quick),
        ("--json", args.json),
        ("--plot", args.plot.is_some()),
    ];
    let useless = |(option, given): &&(&str, bool)| *given && !used.contains(option);
    match given.iter().find(useless) {
        Some((option, _)) => Err(format!("{name} has no use for {option}: leave it out")),
        None => Ok(()),
    }
}

fn check(args: &Args) -> Result<Request, String> {
    let name = args.workload.as_deref().unwrap_or_default();
    let workload =
        Workload::named(name).map_err(|line| format!("{line}, {INTERLEAVE}, {VALIDATE}"))?;
    let machine = machine(args.machine.as_deref().unwrap_or("this-machine"))?;
    let default = [String::from("flagstone")];
    let names = if args.policy.is_empty() {
        &default[..]
    } else {
        &args.policy
    };
    let policies = names.iter().map(|name| policy(name, &args.set));
    let policies = policies.collect::<Result<Vec<_>, _>>()?;
    let tasks = tasks(args, workload, &machine)?;
    let seeds = seeds(args)?;
    let runs = policies.len() as u64 * tasks.len() as u64 * u64::from(args.seeds);
    if runs > RUNS_MAX {
        return Err(format!(
            "{runs} runs asked for; at most {RUNS_MAX} in one call"
        ));
    }
    if let Some(size) = args.size {
        workload.check_size(size)?;
    }
    if args
        .think
        .is_some_and(|think| !(0.0..=1e9).contains(&think))
    {
        return Err("--think is from 0 to 1000000000 ns".into());
    }
    Ok(Request {
        workload,
        machine,
        policies,
        tasks,
        seeds,
        params: Params {
            size: args.size,
            think_ns: args.think,
            placement: match (args.compact, args.spread) {
                (true, _) => Some(Placement::Compact),
                (_, true) => Some(Placement::Spread),
                _ => None,
            },
            ..Params::default()
        },
        plan: if args.quick { Plan::QUICK } else { Plan::FULL },
    })
}

/// The seeds asked for.
fn seeds(args: &Args) -> Result<Vec<u64>, String> {
    if args.seeds == 0 {
        return Err("--seeds 0 runs nothing; give at least 1".into());
    }
    if u64::from(args.seeds) > RUNS_MAX {
        return Err(format!(
            "--seeds {}: at most {RUNS_MAX} in one call",
            args.seeds
        ));
    }
    let last = args.seed.checked_add(u64::from(args.seeds) - 1);
    let last = last.ok_or_else(|| {
        format!(
            "--seed {} leaves no room for {} seeds",
            args.seed, args.seeds
        )
    })?;
    Ok((args.seed..=last).collect())
}

/// A built-in profile or one from a file, scaled where `@CPUS` follows.
fn machine(name: &str) -> Result<Machine, String> {
    let (path, cpus) = match name.rsplit_once('@') {
        Some((path, cpus)) => (path, Some(cpus)),
        None => (name, None),
    };
    if !path.ends_with(".toml") {
        return Machine::named(name);
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::InvalidData => "it is not text".to_owned(),
            _ => error.to_string(),
        };
        format!("machine `{path}`: {what}; a profile is a TOML file, as `flagstone sim --calibrate F` writes one")
    })?;
    let stem = Path::new(path).file_stem().unwrap_or_default();
    // Mistakes are told with the way to the file, figures with its name.
    let mut machine = Machine::parse(path, &text)?;
    machine.name = stem.to_string_lossy().into_owned();
    let Some(cpus) = cpus else {
        return Ok(machine);
    };
    let count = cpus
        .parse()
        .map_err(|_| format!("machine `{name}`: `{cpus}` is not a CPU count"))?;
    machine.scaled(count)
}

fn policy(name: &str, settings: &[String]) -> Result<NamedPolicy, String> {
    let mut named = NamedPolicy::parse(name)?;
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(format!("--set {setting}: give it as KEY=VALUE"));
        };
        named
            .policy
            .set(key, value)
            .map_err(|error| error.to_string())?;
        named.name = format!("{} {setting}", named.name);
    }
    Ok(named)
}

fn tasks(args: &Args, workload: &Workload, machine: &Machine) -> Result<Vec<u32>, String> {
    let cpus = machine.cpus();
    if args.tasks.is_empty() {
        let all = cpus / workload.tasks.step * workload.tasks.step;
        if all < workload.tasks.least {
            return Err(format!(
                "{} needs {} CPUs or more, and machine `{}` has {cpus}",
                workload.name, workload.tasks.least, machine.name
            ));
        }
        return Ok(vec![all]);
    }
    let parsed = args.tasks.iter().map(|word| {
        let count: u32 = word
            .parse()
            .map_err(|_| format!("--tasks `{word}`: not a number of tasks"))?;
        workload.check_tasks(count, cpus, &machine.name)?;
        Ok(count)
    });
    parsed.collect()
}

/// Runs every policy with every number of tasks and every seed, spread over the host's cores.
fn rows(request: &Request) -> Result<Vec<Row>, String> {
    let mut runs = Vec::new();
    for &tasks in &request.tasks {
        for policy in &request.policies {
            for &seed in &request.seeds {
                runs.push(Scenario {
                    machine: &request.machine,
                    workload: request.workload,
                    policy,
                    tasks,
                    seed,
                    params: &request.params,
                    plan: request.plan,
                });
            }
        }
    }
    let bar = progress(runs.len() as u64);
    let outcomes: Result<Vec<Outcome>, String> = runs
        .par_iter()
        .map(|scenario| {
            let outcome = scenario.run().map_err(|line| {
                format!(
                    "{} on {}: {line}",
                    scenario.policy.name, scenario.machine.name
                )
            });
            bar.inc(1);
            outcome
        })
        .collect();
    bar.finish_and_clear();
    let outcomes = outcomes?;
    let chunks = outcomes.chunks(request.seeds.len());
    let heads = runs.chunks(request.seeds.len()).map(|chunk| &chunk[0]);
    Ok(heads
        .zip(chunks)
        .map(|(head, seeds)| Row::new(&head.policy.name, head.tasks, seeds))
        .collect())
}

/// See [`crate::progress`].
fn progress(runs: u64) -> ProgressBar {
    crate::progress::bar(runs, "{bar:30} {pos}/{len} runs, {elapsed}, {left}")
}
