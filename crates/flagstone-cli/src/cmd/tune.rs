//! `flagstone tune`: which settings are worth having, and where to write them.

use super::replay::{Confirmed, confirm};
use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::outfile;
use crate::terminal::unpadded;
use comfy_table::{CellAlignment, Table, presets};
use flagstone_lab::tape::Recorded;
use flagstone_lab::tune::{Figure, Found, Knob, Question, Tuned, Weights, kernel_settings, tune};
use flagstone_lab::{Cache, MODEL_VERSION, Options, Rules, Spec, Window, names};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Search settings of a policy for a workload or a recorded trace, by throughput and memory.
///
/// Points spread evenly over the knobs' ranges run in short windows; the better half goes on to longer
/// ones, with points between the survivors (successive halving, selected by rank and distance). The last
/// eight are compared with the policy as it is and with the kernels' presets on seeds that the search has
/// not seen. What differs by less than two standard errors does not differ: then the advice is to leave it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone tune larson --machine x86-16 --tasks 8 --knobs sheaf_capacity=8..256,barn_full=1..64
  flagstone tune mmap1 --machine spr-2s-224@16 --policy linux-6.5 --knobs slab_max_order=0..5,cpu_partial=0..240
  flagstone tune app.fst --machine x86-16 --knobs retain_bytes_min=1M..64M,pcp_bytes_max=64K..16M

A trace is searched in its first half and compared in its third and fourth quarters. Figures are simulated: --confirm
replays the trace on real threads, and flagstone run --compare tries the program itself.")]
pub struct Args {
    /// A workload of `sim list`, or a recorded trace
    #[arg(value_name = "WORKLOAD|F")]
    subject: String,
    /// Machine profile, NAME@CPUS, or a TOML file
    #[arg(long, value_name = "M", default_value = "this-machine")]
    machine: String,
    /// Policy whose knobs are searched
    #[arg(long, value_name = "P", default_value = "flagstone")]
    policy: String,
    /// What may be changed, each with its range
    #[arg(
        long,
        value_name = "K=LO..HI,..",
        value_delimiter = ',',
        required = true
    )]
    knobs: Vec<String>,
    /// What counts: one goal, or both, each perhaps with a weight for the advice (throughput=2,memory)
    #[arg(
        long,
        value_name = "G,..",
        value_delimiter = ',',
        default_value = "throughput,memory"
    )]
    goal: Vec<String>,
    /// Tasks [default: all CPUs]
    #[arg(long, value_name = "N")]
    tasks: Option<u32>,
    /// Points to begin with
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(8..=4096))]
    points: u16,
    /// Unseen seeds of the last comparison
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u16).range(2..=100))]
    seeds: u16,
    /// Window of the last comparison: full, quick, or milliseconds
    #[arg(long, value_name = "W", default_value = "quick")]
    window: String,
    /// Replay the trace on real threads with the setting and without, in turns, N times each [default: 7]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "7", require_equals = true, value_parser = clap::value_parser!(u32).range(1..=99))]
    confirm: Option<u32>,
    #[command(flatten)]
    json: Json,
    /// Runs at a time [default: the host's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    model_version: u32,
    workload: &'a str,
    machine: &'a str,
    tasks: u32,
    #[serde(flatten)]
    tuned: &'a Tuned,
    /// None: leave it.
    advice: Option<&'a Found>,
    flagstone_conf: Option<String>,
    kernel: Vec<String>,
    /// On real threads, of the advice, or else of the best point by the goals.
    confirmed: Option<Confirmed>,
    confirmed_conf: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// A usage failure for a wrong call; a finding where the policy as it is cannot be run.
pub fn run(args: &Args) -> Outcome {
    let usage = |line: String| Failure::Usage(format!("tune: {line}"));
    let question = question(args).map_err(usage)?;
    outfile::all_writable("tune", args.json.path(), &[])?;
    let room = flagstone_sim::Vm::try_new(
        question.spec.machine.clone(),
        flagstone_sim::Options::default(),
    );
    room.map(drop).map_err(usage)?;
    let options = Options {
        cache: Cache::of_user(),
        jobs: args.jobs.map(usize::from),
    };
    let bar = crate::progress::spinner("{pos} runs, {elapsed}");
    let tuned = tune(&question, &options, |_| bar.inc(1));
    bar.finish_and_clear();
    let tuned = tuned.map_err(|line| Failure::Finding(format!("tune: {line}")))?;
    let settings = tried(&tuned).map(|found| conf(&found.settings));
    let confirmed = match (args.confirm, &settings) {
        (Some(runs), Some(settings)) => {
            let value = settings.trim_start_matches(CONF);
            let done = confirm(Path::new(&args.subject), value, runs);
            Some(done.map_err(|line| Failure::Finding(format!("tune: --confirm: {line}")))?)
        }
        _ => None,
    };
    if args.json.path().is_some() {
        document(args, &question, &tuned, (confirmed, settings))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&question, &tuned);
    if let (Some(confirmed), Some(settings)) = (confirmed, settings) {
        tell(&confirmed, &settings);
    }
    Ok(ExitCode::SUCCESS)
}

/// The setting to try on real threads: the advice, or else the point of the search with the best figures.
fn tried(tuned: &Tuned) -> Option<&Found> {
    let mut own = tuned.points.iter();
    tuned
        .advice()
        .or_else(|| own.find(|point| point.on_front && !point.is_default && !point.is_other))
}

fn tell(confirmed: &Confirmed, settings: &str) {
    let change = |default: f64, tuned: f64| (tuned / default.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
    let Confirmed {
        runs,
        default_cpu_ns_per_op: time,
        tuned_cpu_ns_per_op: tuned_time,
        default_mean_bytes: bytes,
        tuned_mean_bytes: tuned_bytes,
    } = confirmed;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    println!(
        "on real threads, {settings} beside the default, {runs} runs each in turns, medians (least..most):"
    );
    println!(
        "  processor time of an operation  {:.1} ({:.1}..{:.1}) -> {:.1} ({:.1}..{:.1}) ns  {:+.1} %",
        time.median,
        time.min,
        time.max,
        tuned_time.median,
        tuned_time.min,
        tuned_time.max,
        change(time.median, tuned_time.median)
    );
    println!(
        "  mean resident memory            {:.2} ({:.2}..{:.2}) -> {:.2} ({:.2}..{:.2}) MiB  {:+.1} %",
        mib(bytes.median),
        mib(bytes.min),
        mib(bytes.max),
        mib(tuned_bytes.median),
        mib(tuned_bytes.min),
        mib(tuned_bytes.max),
        change(bytes.median, tuned_bytes.median)
    );
}

/// How a setting for programs begins.
const CONF: &str = "FLAGSTONE_CONF=";

fn question(args: &Args) -> Result<Question, String> {
    let goals = Weights::parse(&args.goal)?;
    let knobs = args
        .knobs
        .iter()
        .map(|knob| Knob::parse(knob))
        .collect::<Result<Vec<_>, _>>()?;
    let machine = names::machine(&args.machine)?;
    let policy = Rules::parse(&args.policy, &[])?;
    let file = Path::new(&args.subject);
    let mut spec = if file.is_file() {
        let (recorded, about) = Recorded::of(file, 1, false)?;
        let tasks = about.streams.clamp(1, machine.cpus());
        Spec {
            tasks,
            ..Spec::played(machine, policy, recorded)
        }
    } else {
        let workload = names::workload(&args.subject)?;
        let tasks = machine.cpus() / workload.tasks.step * workload.tasks.step;
        Spec {
            tasks,
            policy,
            ..Spec::new(&args.subject, machine, "flagstone")?
        }
    };
    spec.tasks = args.tasks.unwrap_or(spec.tasks);
    spec.window = Window::parse(&args.window)?;
    spec.check()?;
    if args.confirm.is_some() && (!file.is_file() || spec.policy.name != "flagstone") {
        return Err("--confirm replays a recorded trace on the library: give the file of one, and --policy flagstone".into());
    }
    let presets = ["linux-6.5", "linux-6.18", "linux-7.0", "flagstone"];
    let others = presets.into_iter().filter(|name| *name != spec.policy.name);
    Ok(Question {
        others: others.map(str::to_owned).collect(),
        spec,
        knobs,
        points: usize::from(args.points),
        seeds: u64::from(args.seeds),
        goals,
    })
}

/// Settings as one variable.
fn conf(settings: &[String]) -> String {
    let all: Vec<String> = settings
        .iter()
        .map(|setting| setting.replacen('=', ":", 1))
        .collect();
    format!("{CONF}{}", all.join(","))
}

/// Whether the policy is a kernel's.
fn of_kernel(question: &Question) -> bool {
    question.spec.policy.name.starts_with("linux-")
}

fn document(
    args: &Args,
    question: &Question,
    tuned: &Tuned,
    (confirmed, confirmed_conf): (Option<Confirmed>, Option<String>),
) -> Result<(), Failure> {
    let advice = tuned.advice();
    let settings = advice.map(|found| found.settings.as_slice());
    let document = Document {
        schema: "flagstone.tune/1",
        model_version: MODEL_VERSION,
        workload: &args.subject,
        machine: &question.spec.machine.name,
        tasks: question.spec.tasks,
        tuned,
        advice,
        flagstone_conf: settings.map(conf),
        kernel: settings
            .filter(|_| of_kernel(question))
            .map(kernel_settings)
            .unwrap_or_default(),
        confirmed_conf: confirmed_conf.filter(|_| confirmed.is_some()),
        confirmed,
    };
    if let Some(file) = args.json.path() {
        outfile::write_json("tune: --json", file, &document)?;
    }
    Ok(())
}

fn print(question: &Question, tuned: &Tuned) {
    let spec = &question.spec;
    println!(
        "{} on {}, {} tasks, {} (simulated, model version {MODEL_VERSION}); {} runs; figures over {} seeds{} that the search has not seen",
        spec.workload.name,
        spec.machine.name,
        spec.tasks,
        spec.policy.name,
        tuned.runs,
        question.seeds,
        match spec.workload.trace {
            Some(_) => " and the second half of the trace",
            None => "",
        }
    );
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "",
        "ops/task/s",
        "± %",
        "gain %",
        "mean MiB",
        "± %",
        "gain %",
        "settings",
    ]);
    let percent =
        |spread: f64, mean: f64| format!("{:.1}", spread / mean.max(f64::MIN_POSITIVE) * 100.0);
    let gain = |is_default: bool, gain: Figure| match is_default {
        true => String::new(),
        false => format!("{:+.1} ± {:.1}", gain.mean, gain.spread),
    };
    for point in &tuned.points {
        let mark = match (point.on_front, point.better) {
            (true, true) => "*+",
            (true, false) => "*",
            (false, true) => "+",
            (false, false) => "",
        };
        let name = match (point.is_default, point.is_other) {
            (true, _) => format!("{} as it is", point.policy),
            (_, true) => point.policy.clone(),
            _ => point.settings.join(" "),
        };
        table.add_row([
            mark.to_owned(),
            format!("{:.0}", point.ops.mean),
            percent(point.ops.spread, point.ops.mean),
            gain(point.is_default, point.ops_gain),
            format!("{:.2}", point.bytes.mean / f64::from(1 << 20)),
            percent(point.bytes.spread, point.bytes.mean),
            gain(point.is_default, point.bytes_gain),
            name,
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if (1..7).contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{}", unpadded(&table));
    println!(
        "*  nothing here beats it in {}; +  better than the policy as it is beyond the spread{}",
        match tuned.goals.single() {
            true => "the goal",
            false => "both",
        },
        match tuned.goals.single() {
            true => "",
            false => ", and worse in nothing",
        }
    );
    println!("gain: beside the policy as it is, on the same seed and part; positive is better");
    match tuned.advice() {
        None => {
            println!("leave it: no setting is better than the policy as it is beyond the spread")
        }
        Some(found) if of_kernel(question) => {
            println!("worth trying:");
            kernel_settings(&found.settings)
                .iter()
                .for_each(|line| println!("  {line}"));
        }
        Some(found) => println!("worth trying: {}", conf(&found.settings)),
    }
    for line in &tuned.failures {
        eprintln!("flagstone: tune: {line}");
    }
}
