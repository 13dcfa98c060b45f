//! `flagstone sim run`: one table of rows, each a policy with a number of tasks.

use super::compared::Compared;
use super::{RUNS_MAX, plot, table, usage};
use crate::args::{Json, Policies};
use crate::exit::Outcome;
use crate::outfile;
use flagstone_lab::table as records;
use flagstone_lab::{Answer, Cache, Options, Record, Row, Rules, Spec, Window, names, sim, units};
use flagstone_sim::machine::Machine;
use flagstone_sim::progress::is_ended;
use flagstone_sim::workload::{WORKLOADS, Workload};
use flagstone_sim::{Placement, Vm};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Run a workload on a machine under policies: one row for each policy and number of tasks.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone sim run hackbench --machine spr-2s-224 --policy linux-7.0,flagstone --tasks 56,224
  flagstone sim run larson --size 4K --think 3us --seeds 5 --json=larson.json
  flagstone sim run mmap1 --quick --records runs.csv
  flagstone sim run --spec run.json         what a record's `spec` column says, again

A record is one run with one seed: all figures, and all that is needed to run it again. Runs are kept
and not made twice (`flagstone sim cache`). A run that fails loses only itself.")]
pub struct RunArgs {
    /// What to run; `sim list` shows all
    #[arg(required_unless_present = "spec")]
    pub(super) workload: Option<String>,
    #[command(flatten)]
    pub(super) options: RunOptions,
    /// Run the specs in F, one JSON object a line, or the `spec` of records; `-` is standard input
    #[arg(long, value_name = "F", conflicts_with_all = ["workload", "machine", "policy", "set", "tasks", "seed", "seeds", "size", "think", "compact", "spread", "quick", "window"])]
    pub(super) spec: Option<PathBuf>,
}

/// What can be said about a run.
#[derive(clap::Args)]
pub struct RunOptions {
    /// Machine profile, or NAME@CPUS to scale one, or a TOML file [default: this-machine]
    #[arg(long, value_name = "M")]
    machine: Option<String>,
    #[command(flatten)]
    policies: Policies,
    /// Numbers of tasks, one CPU each [default: all CPUs]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    tasks: Vec<String>,
    /// First seed
    #[arg(long, default_value = "1", value_name = "S")]
    seed: String,
    /// Number of seeds; figures are means, the spread is printed
    #[arg(long, default_value = "1", value_name = "K")]
    seeds: String,
    /// Object size in bytes (8K works), for workloads that have one
    #[arg(long, value_name = "B")]
    size: Option<String>,
    /// Time outside the allocator for each operation: 300, 300ns, 3us [default: the workload's]
    #[arg(long, value_name = "NS")]
    think: Option<String>,
    /// Fill one socket before the next, as mmap1 does by itself
    #[arg(long, conflicts_with = "spread")]
    compact: bool,
    /// Alternate between sockets, as all other workloads do by themselves
    #[arg(long)]
    spread: bool,
    /// Look for 16 to 32 ms of virtual time instead of 64 to 512
    #[arg(long)]
    quick: bool,
    /// Look once, for so long: 5ms; or until it settles, from the first length to the last: 64..128ms
    #[arg(long, value_name = "MS", conflicts_with = "quick")]
    window: Option<String>,
    #[command(flatten)]
    pub(super) json: Json,
    /// Write one record for each run to F: JSON lines, or CSV or Parquet if F ends so; `-` is
    /// standard output
    #[arg(long, value_name = "F")]
    records: Option<PathBuf>,
    /// Plot throughput over tasks, and bytes over time, as SVG into F; `-` plots in the terminal
    #[arg(long, value_name = "F")]
    plot: Option<PathBuf>,
    /// Runs at a time [default: the host's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Make every run, keep none
    #[arg(long)]
    no_cache: bool,
}

impl RunOptions {
    /// Where the document goes.
    pub(super) fn json(&self) -> &Json {
        &self.json
    }

    /// The machine asked for.
    pub(super) fn machine(&self) -> Result<Machine, String> {
        names::machine(self.machine.as_deref().unwrap_or("this-machine"))
    }

    /// Refuses options that a command would ignore.
    pub(super) fn none_of(&self, useless: &[&str]) -> Result<(), String> {
        let mut given = self
            .given()
            .filter(|(option, given)| *given && useless.contains(option));
        match given.next() {
            Some((option, _)) => Err(format!("a trace has no use for {option}: leave it out")),
            None => Ok(()),
        }
    }

    /// `spec` with the workload's parameters and the window that are asked for.
    pub(super) fn applied(&self, mut spec: Spec) -> Result<Spec, String> {
        let size = self.size.as_deref().map(units::bytes).transpose();
        spec.workload.size = size.map_err(|why| format!("--size {why}"))?;
        let think = self.think.as_deref().map(units::nanoseconds).transpose();
        spec.workload.think_ns = think.map_err(|why| format!("--think {why}"))?;
        spec.workload.placement = match (self.compact, self.spread) {
            (true, _) => Some(Placement::Compact),
            (_, true) => Some(Placement::Spread),
            _ => None,
        };
        spec.window = match (&self.window, self.quick) {
            (Some(window), _) => Window::parse(window)?,
            (None, true) => Window::QUICK,
            (None, false) => Window::FULL,
        };
        spec.check()?;
        Ok(spec)
    }

    /// A row for each number of tasks and policy, with all seeds. Without a policy it is the base's.
    pub(super) fn grid(&self, base: &Spec, all_tasks: &[u32]) -> Result<Request, String> {
        let policies = self.policies.rules_or(&base.policy.name)?;
        tell_useless(&policies)?;
        let seeds = super::seeds(&self.seed, &self.seeds)?;
        let runs = policies.len() as u64 * all_tasks.len() as u64 * seeds.len() as u64;
        if runs > RUNS_MAX {
            return Err(format!(
                "{runs} runs asked for; at most {RUNS_MAX} in one call"
            ));
        }
        let mut request = Request {
            specs: Vec::new(),
            rows: Vec::new(),
        };
        for &tasks in all_tasks {
            for policy in &policies {
                request.rows.push((request.specs.len(), seeds.len()));
                request.specs.extend(seeds.iter().map(|&seed| Spec {
                    tasks,
                    seed,
                    policy: Rules::clone(policy),
                    ..base.clone()
                }));
            }
        }
        Ok(request)
    }

    /// How runs are made.
    pub(super) fn how(&self) -> Options {
        Options {
            cache: (!self.no_cache).then(Cache::of_user).flatten(),
            jobs: self.jobs.map(usize::from),
        }
    }

    /// Options and whether each was given.
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static str, bool)> {
        [
            ("--machine", self.machine.is_some()),
            ("--policy", !self.policies.policy.is_empty()),
            ("--set", !self.policies.set.is_empty()),
            ("--tasks", !self.tasks.is_empty()),
            ("--seed", self.seed != "1"),
            ("--seeds", self.seeds != "1"),
            ("--size", self.size.is_some()),
            ("--think", self.think.is_some()),
            ("--compact", self.compact),
            ("--spread", self.spread),
            ("--quick", self.quick),
            ("--window", self.window.is_some()),
            ("--json", self.json.json.is_some()),
            ("--records", self.records.is_some()),
            ("--plot", self.plot.is_some()),
            ("--jobs", self.jobs.is_some()),
            ("--no-cache", self.no_cache),
        ]
        .into_iter()
    }
}

/// The checked request: specs row by row, the seeds of a row beside each other.
pub(super) struct Request {
    pub(super) specs: Vec<Spec>,
    /// Where each row's specs begin, and how many there are.
    pub(super) rows: Vec<(usize, usize)>,
}

impl Request {
    /// The first spec: workload, machine and first seed are those of all where it is a table of one.
    pub(super) fn first(&self) -> &Spec {
        &self.specs[0]
    }

    /// The workload.
    pub(super) fn workload(&self) -> &'static Workload {
        Workload::named(&self.first().workload.name).unwrap_or(Workload::played())
    }

    /// Seeds of a row.
    pub(super) fn seeds(&self) -> usize {
        self.rows[0].1
    }
}

/// What came out: rows of those runs that ended well, their records, and the others in a line each.
pub(super) struct Results {
    pub(super) rows: Vec<Row>,
    pub(super) records: Vec<Record>,
    pub(super) failures: Vec<String>,
    /// Runs found in the cache.
    pub(super) kept: usize,
    /// Operations simulated now.
    pub(super) simulated: u64,
}

/// Runs the command.
pub(super) fn run(workload: Option<&str>, options: &RunOptions, spec: Option<&Path>) -> Outcome {
    let mut json = options.json.clone();
    let mut workload = workload;
    let given = json.json.clone();
    // `sim --json NAME`: the name is no file's.
    if let (None, None, Some(word)) = (workload, spec, given.as_deref().and_then(Path::to_str))
        && WORKLOADS.iter().any(|known| known.name == word)
    {
        workload = Some(word);
        json.json = Some("-".into());
    }
    let request = match spec {
        Some(file) => from_file(file),
        None => check(workload, options),
    };
    let request = request.map_err(usage)?;
    finish(&request, options, &json, |_| None)
}

/// Makes the runs and writes what is asked for; `compared` stands behind the table and in the document.
pub(super) fn finish(
    request: &Request,
    options: &RunOptions,
    json: &Json,
    compared: impl Fn(&[Row]) -> Option<Compared>,
) -> Outcome {
    outfile::all_writable("sim", json.path(), &[])?;
    let outputs = [("--records", &options.records), ("--plot", &options.plot)];
    for (name, file) in outputs {
        if let Some(file) = file {
            outfile::writable(&format!("sim: {name}"), file)?;
        }
    }
    if let Some(file) = &options.plot {
        plot::is_svg(file).map_err(usage)?;
    }
    let to_stdout = [
        json.path(),
        options.records.as_deref(),
        options.plot.as_deref(),
    ];
    if to_stdout
        .iter()
        .filter(|file| **file == Some(Path::new("-")))
        .count()
        > 1
    {
        return Err(usage(
            "only one document goes to standard output: give --json, --records or --plot a file"
                .into(),
        ));
    }
    // Whether this host has room is known before the first run, and no finding.
    let room = Vm::try_new(
        request.first().machine.clone(),
        flagstone_sim::Options::default(),
    );
    room.map(drop).map_err(usage)?;
    let began = Instant::now();
    crate::exit::note_interrupts(interrupted);
    let results = results(request, options);
    if is_ended() && results.records.is_empty() {
        return Ok(ended(request, &results, options));
    }
    match (json.path(), options.records.as_deref()) {
        (Some(file), _) => outfile::write_json(
            "sim: --json",
            file,
            &table::document(request, &results, compared(&results.rows)),
        )?,
        (None, Some(file)) if file == Path::new("-") => {}
        (None, _) => {
            table::print(request, &results, began.elapsed());
            if let Some(compared) = compared(&results.rows) {
                compared.print();
            }
        }
    }
    if let Some(file) = &options.records {
        write_records(file, &results.records)?;
    }
    if let Some(file) = &options.plot {
        plot::draw(file, request, &results.rows)?;
    }
    if is_ended() {
        return Ok(ended(request, &results, options));
    }
    for line in &results.failures {
        eprintln!("flagstone: sim: {line}");
    }
    Ok(ExitCode::from(u8::from(!results.failures.is_empty())))
}

/// Ctrl-C ends the runs that go on, and what is done is shown; a second one ends the command.
extern "C" fn interrupted(_signal: i32) {
    if is_ended() {
        crate::exit::leave_now();
    }
    flagstone_sim::progress::end_all();
}

/// What an interrupted call says last.
fn ended(request: &Request, results: &Results, options: &RunOptions) -> ExitCode {
    let kept = match options.how().cache {
        Some(_) => "; they are kept for the next call",
        None => "",
    };
    let (done, all) = (results.records.len(), request.specs.len());
    eprintln!("flagstone: sim: interrupted; {done} of {all} runs are done{kept}");
    ExitCode::from(crate::exit::INTERRUPTED as u8)
}

/// Says which settings change nothing.
fn tell_useless(policies: &[Rules]) -> Result<(), String> {
    for rules in policies {
        for knob in rules.without_effect()? {
            eprintln!(
                "flagstone: sim: --set {knob} has no effect on {}",
                rules.name
            );
        }
    }
    Ok(())
}

/// Records as the file's name says.
pub(crate) fn write_records(file: &Path, all: &[Record]) -> Result<(), crate::exit::Failure> {
    let mut bytes = Vec::new();
    let written = match file.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => records::csv(all, &mut bytes),
        Some("parquet") => records::parquet(all, &mut bytes),
        _ => records::json_lines(all, &mut bytes).map_err(|error| error.to_string()),
    };
    written.map_err(|why| usage(format!("--records {}: {why}", file.display())))?;
    if file == Path::new("-") {
        return outfile::write("sim: --records", file, &String::from_utf8_lossy(&bytes));
    }
    outfile::whole(file, &bytes)
        .map_err(|why| usage(format!("--records {}: {why}", file.display())))
}

fn check(workload: Option<&str>, options: &RunOptions) -> Result<Request, String> {
    let name = workload.ok_or("which workload? `flagstone sim list` shows all")?;
    let workload = known(name)?;
    let machine = options.machine()?;
    let tasks = tasks(options, workload, &machine)?;
    let mut base = Spec::new(name, machine, "flagstone")?;
    base.tasks = tasks[0];
    let base = options.applied(base)?;
    options.grid(&base, &tasks)
}

/// A workload, or what was probably meant, the subcommands among it.
fn known(name: &str) -> Result<&'static Workload, String> {
    names::workload(name).map_err(|line| {
        let commands = [
            "run",
            "list",
            "calibrate",
            "validate",
            "interleave",
            "cache",
        ];
        match names::closest(name, commands) {
            Some(near) if !line.contains("did you mean") => {
                line.replacen("; known", &format!("; did you mean 'sim {near}'? known"), 1)
            }
            _ => line,
        }
    })
}

fn tasks(options: &RunOptions, workload: &Workload, machine: &Machine) -> Result<Vec<u32>, String> {
    let cpus = machine.cpus();
    if options.tasks.is_empty() {
        let all = cpus / workload.tasks.step * workload.tasks.step;
        if all < workload.tasks.least {
            return Err(format!(
                "{} needs {} CPUs or more, and machine `{}` has {cpus}",
                workload.name, workload.tasks.least, machine.name
            ));
        }
        return Ok(vec![all]);
    }
    let parsed = options.tasks.iter().map(|word| {
        let count: u32 = word
            .parse()
            .map_err(|_| format!("--tasks `{word}`: not a number of tasks"))?;
        workload.check_tasks(count, cpus, &machine.name)?;
        Ok(count)
    });
    parsed.collect()
}

/// Specs, or records that hold them, one JSON object a line.
fn from_file(file: &Path) -> Result<Request, String> {
    let text = match file == Path::new("-") {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(file),
    };
    let text = text.map_err(|error| format!("--spec {}: {error}", file.display()))?;
    let one = |line: &str| match Record::from_json(line) {
        Ok(record) => record.spec(),
        Err(_) => Spec::from_json(line),
    };
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let specs = lines.map(|(at, line)| {
        one(line).map_err(|why| format!("--spec {}, line {}: {why}", file.display(), at + 1))
    });
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    if specs.is_empty() {
        return Err(format!("--spec {}: no spec in it", file.display()));
    }
    let rows = (0..specs.len()).map(|at| (at, 1)).collect();
    Ok(Request { specs, rows })
}

/// Makes the runs, as many at a time as the host has cores.
fn results(request: &Request, options: &RunOptions) -> Results {
    let bar = super::progress(request.specs.len() as u64);
    let answers = sim(&request.specs, &options.how(), |_| bar.inc(1));
    bar.finish_and_clear();
    let fresh = answers.iter().filter(|answer| answer.fresh);
    let simulated = fresh
        .filter_map(|a| Some(a.run.as_ref().ok()?.record.simulated_ops))
        .sum();
    let mut rows = Vec::new();
    for &(from, count) in &request.rows {
        let runs: Vec<_> = answers[from..from + count]
            .iter()
            .filter_map(|a| a.run.as_ref().ok())
            .collect();
        let of_row: Vec<&Record> = runs.iter().map(|run| &run.record).collect();
        if let Some(first) = runs.first() {
            rows.push(Row::new(&of_row, &first.history));
        }
    }
    let failure = |answer: &Answer| {
        let why = answer.run.as_ref().err()?;
        let spec = &request.specs[answer.index];
        Some(format!("{} tasks, seed {}: {why}", spec.tasks, spec.seed))
    };
    Results {
        rows,
        failures: answers.iter().filter_map(failure).collect(),
        kept: answers.iter().filter(|answer| !answer.fresh).count(),
        simulated,
        records: answers
            .into_iter()
            .filter_map(|a| Some(a.run.ok()?.record))
            .collect(),
    }
}
