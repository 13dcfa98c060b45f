//! `flagstone replay FILE --beside -- CMD`: how near a replay comes to the program itself.
//!
//! ```text
//!   for each allocator, in turns:   CMD runs on it, recorded ─► its memory over its operations
//!                                   FILE is replayed on it   ─► the replay's
//!   compared                        peak, mean, area between the curves
//! ```
//!
//! Both are memory of the allocator alone, counted page by page in the same way (`flagstone_trace::resident`).
//! The axis is progress: the share of the operations done, which does not depend on speed.

use super::chosen;
use super::compile::{self, About, Compiled};
use super::figures::Figure;
use super::measure::{self, Run};
use super::view::mib;
use super::{Args, Pace};
use crate::cmd::bench::{Allocator, FLAGSTONE};
use crate::exit::{Failure, Outcome};
use crate::terminal::unpadded;
use crate::{outfile, progress};
use comfy_table::{CellAlignment, Table, presets};
use flagstone_trace::Trace;
use serde::Serialize;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Points of a curve over progress.
const POINTS: usize = 1000;

/// One allocator: the program's own memory, and the replay's.
#[derive(Debug, Serialize)]
pub struct Row {
    pub allocator: String,
    /// Most bytes of the allocator in the program, and its mean over the program's operations.
    pub program_peak_bytes: Figure,
    pub program_mean_bytes: Figure,
    pub replay_peak_bytes: Figure,
    pub replay_mean_bytes: Figure,
    /// The replay's median above the program's, in percent.
    pub peak_percent: f64,
    pub mean_percent: f64,
    /// Area between the curves by the area under the program's, in percent.
    pub distance_percent: Figure,
    /// The same between two runs of the program, each with the next: how far it is from itself. Absent with one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program_distance_percent: Option<Figure>,
    /// The program's own memory beside its allocator, at the end of its operations.
    pub other_bytes: Figure,
    /// Curves over progress, of the last run.
    pub program: Vec<u64>,
    pub replay: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    command: Vec<String>,
    recorded_under: String,
    operations: u64,
    runs: u32,
    rows: Vec<Row>,
}

/// What one run of an allocator showed.
struct Pair {
    program: Vec<f64>,
    replay: Vec<f64>,
    other: u64,
}

/// Compares.
///
/// # Errors
/// A finding if the command or a replay fails.
pub fn run(
    args: &Args,
    pace: Pace,
    recorded: &Trace,
    compiled: &Compiled,
    allocators: &[Allocator],
) -> Outcome {
    let finding = |line: String| Failure::Finding(format!("replay: {line}"));
    let bar = progress::bar(
        allocators.len() as u64 * u64::from(args.runs),
        "beside {bar:30} {pos}/{len} {left}",
    );
    let mut pairs: Vec<Vec<Pair>> = allocators.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.runs {
        for (allocator, pairs) in allocators.iter().zip(&mut pairs) {
            let named = |why: String| finding(format!("{}: {why}", allocator.name));
            let own = program(args, allocator, recorded, compiled).map_err(named)?;
            let run = measure::play(recorded, compiled, allocator, pace).map_err(named)?;
            pairs.push(pair(&own, &run, compiled).map_err(named)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let document = Document {
        schema: "flagstone.beside/1",
        command: recorded.header().command.clone(),
        recorded_under: recorded.header().allocator.clone(),
        operations: compiled.head.ops,
        runs: args.runs,
        rows: allocators
            .iter()
            .zip(&pairs)
            .map(|(allocator, pairs)| row(allocator, pairs))
            .collect(),
    };
    if let Some(file) = &args.json {
        outfile::write_json("replay: --json", file, &document)?;
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        print(&document);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the command on an allocator, with the recorder; its process that does what the replayed one did.
fn program(
    args: &Args,
    allocator: &Allocator,
    recorded: &Trace,
    compiled: &Compiled,
) -> Result<About, String> {
    let io = |error: std::io::Error| error.to_string();
    let file = tempfile::NamedTempFile::with_prefix("flagstone-beside-").map_err(io)?;
    let mut command = Command::new(std::env::current_exe().map_err(io)?);
    command.args(["record", "--quiet", "-o"]).arg(file.path());
    command.arg("--under");
    match (&allocator.library, allocator.name.as_str()) {
        (_, FLAGSTONE) => command.arg(FLAGSTONE),
        (Some(library), _) => command.arg(library),
        (None, _) => command.arg("glibc"),
    };
    command.arg("--").args(&args.command);
    command.envs(allocator.environment().iter().copied());
    let ended = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(io)?;
    if !ended.success() {
        return Err(format!("the command ended with {ended}"));
    }
    let trace = Trace::open(file.path()).map_err(|error| error.to_string())?;
    let process = chosen::alike(recorded, (compiled.process, compiled.image), &trace)?;
    compile::survey(&trace, Some(process)).map_err(|why| why.to_string())
}

fn pair(own: &About, run: &Run, compiled: &Compiled) -> Result<Pair, String> {
    let Some(last) = own.own.last() else {
        return Err("the recorder could not look at the program's memory (no /proc?)".into());
    };
    let heap: Vec<(u64, u64)> = own.own.iter().map(|look| (look.ns, look.heap)).collect();
    Ok(Pair {
        program: over_progress(&heap, own),
        replay: over_progress(&run.curve, compiled),
        other: last.other,
    })
}

/// A curve of bytes over the trace's time as a curve over the operations done, at equal distances.
fn over_progress(curve: &[(u64, u64)], of: &About) -> Vec<f64> {
    let all = of.head.ops.max(1) as f64;
    let points: Vec<(f64, f64)> = curve
        .iter()
        .map(|&(ns, bytes)| (between(&of.progress, ns) / all, bytes as f64))
        .collect();
    let mut at = 0;
    (0..POINTS)
        .map(|point| {
            let place = (point as f64 + 0.5) / POINTS as f64;
            while at + 1 < points.len() && points[at + 1].0 <= place {
                at += 1;
            }
            let Some(&(x, y)) = points.get(at) else {
                return 0.0;
            };
            match points.get(at + 1) {
                Some(&(next, bytes)) if next > x && place > x => {
                    y + (bytes - y) * (place - x) / (next - x)
                }
                _ => y,
            }
        })
        .collect()
}

/// Operations done at a time.
fn between(progress: &[(u64, u64)], ns: u64) -> f64 {
    let at = progress.partition_point(|point| point.0 <= ns);
    let before = at.checked_sub(1).map_or((0, 0), |at| progress[at]);
    match progress.get(at) {
        Some(next) if next.0 > before.0 => {
            let part = (ns - before.0) as f64 / (next.0 - before.0) as f64;
            before.1 as f64 + (next.1 - before.1) as f64 * part
        }
        _ => before.1 as f64,
    }
}

fn peak(curve: &[f64]) -> f64 {
    curve.iter().copied().fold(0.0, f64::max)
}

fn mean(curve: &[f64]) -> f64 {
    curve.iter().sum::<f64>() / curve.len().max(1) as f64
}

/// Area between two curves by the area under the first, in percent.
fn distance(program: &[f64], replay: &[f64]) -> f64 {
    let apart: f64 = program.iter().zip(replay).map(|(a, b)| (a - b).abs()).sum();
    apart / program.iter().sum::<f64>().max(1.0) * 100.0
}

fn row(allocator: &Allocator, pairs: &[Pair]) -> Row {
    let figure = |of: &dyn Fn(&Pair) -> f64| Figure::of(pairs.iter().map(of));
    let above =
        |replay: Figure, program: Figure| (replay.median / program.median.max(1.0) - 1.0) * 100.0;
    let program = (figure(&|p| peak(&p.program)), figure(&|p| mean(&p.program)));
    let replay = (figure(&|p| peak(&p.replay)), figure(&|p| mean(&p.replay)));
    let from_itself = pairs
        .windows(2)
        .map(|two| distance(&two[0].program, &two[1].program));
    let bytes = |curve: &[f64]| curve.iter().map(|bytes| *bytes as u64).collect();
    Row {
        allocator: allocator.name.clone(),
        program_peak_bytes: program.0,
        program_mean_bytes: program.1,
        replay_peak_bytes: replay.0,
        replay_mean_bytes: replay.1,
        peak_percent: above(replay.0, program.0),
        mean_percent: above(replay.1, program.1),
        distance_percent: figure(&|p| distance(&p.program, &p.replay)),
        program_distance_percent: (pairs.len() > 1).then(|| Figure::of(from_itself)),
        other_bytes: figure(&|p| p.other as f64),
        program: pairs.last().map(|p| bytes(&p.program)).unwrap_or_default(),
        replay: pairs.last().map(|p| bytes(&p.replay)).unwrap_or_default(),
    }
}

fn print(document: &Document) {
    println!(
        "{}: {} operations, recorded under {}; memory of the allocator in MiB, medians of {} runs; \
         beside it the program has {:.1} MiB of its own",
        document.command.first().map_or("?", String::as_str),
        document.operations,
        document.recorded_under,
        document.runs,
        mib(document
            .rows
            .first()
            .map_or(0.0, |row| row.other_bytes.median)),
    );
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "allocator",
        "peak",
        "replayed",
        "%",
        "mean",
        "replayed",
        "%",
        "between curves %",
        "of two programs %",
    ]);
    for row in &document.rows {
        let memory = |figure: Figure| format!("{:.2}", mib(figure.median));
        table.add_row([
            row.allocator.clone(),
            memory(row.program_peak_bytes),
            memory(row.replay_peak_bytes),
            format!("{:+.1}", row.peak_percent),
            memory(row.program_mean_bytes),
            memory(row.replay_mean_bytes),
            format!("{:+.1}", row.mean_percent),
            format!("{:.1}", row.distance_percent.median),
            row.program_distance_percent
                .map_or_else(String::new, |figure| format!("{:.1}", figure.median)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{}", unpadded(&table));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_between_curves_is_a_share_of_the_first() {
        assert!((distance(&[10.0, 20.0], &[10.0, 20.0])).abs() < 1e-9);
        assert!((distance(&[10.0, 10.0], &[12.0, 8.0]) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn operations_between_known_times_are_in_proportion() {
        let progress = [(100, 10), (200, 30)];
        for (ns, ops) in [(0, 0.0), (50, 5.0), (100, 10.0), (150, 20.0), (999, 30.0)] {
            assert!((between(&progress, ns) - ops).abs() < 1e-9, "{ns}");
        }
    }
}
