//! The document `flagstone.replay/1`.

use super::Pace;
use super::compile::Compiled;
use super::measure::Run;
use crate::cmd::bench::{Allocator, Summary};
use crate::exit::Failure;
use crate::outfile;
use flagstone_trace::Trace;
use serde::Serialize;
use std::path::Path;

/// Points of a curve in the document.
const POINTS: usize = 400;

/// A figure of several runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figure {
    /// Median.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Figure {
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        Summary::of(values).map_or(
            Self {
                median: 0.0,
                min: 0.0,
                max: 0.0,
            },
            |summary| Self {
                median: summary.median,
                min: summary.min,
                max: summary.max,
            },
        )
    }
}

/// One allocator.
#[derive(Debug, Serialize)]
pub struct Row {
    pub allocator: String,
    pub version: String,
    pub runs: usize,
    /// Nanoseconds of wall time for each operation.
    pub ns_per_op: Figure,
    /// Nanoseconds of processor time for each operation.
    pub cpu_ns_per_op: Figure,
    /// Most bytes resident, the replayer's own subtracted.
    pub peak_rss_bytes: Figure,
    /// Mean over equally spaced operations.
    pub mean_rss_bytes: Figure,
    /// Resident after the last operation.
    pub end_rss_bytes: Figure,
    /// Mean resident bytes by the mean of what was live at the same times.
    pub mean_rss_by_live: Figure,
    pub page_faults: Figure,
    /// Requests refused, in all runs.
    pub refused: u64,
    /// Nanoseconds of the trace, bytes resident; of the median run by peak.
    pub curve: Vec<(u64, u64)>,
}

/// What a replay came to.
#[derive(Debug, Serialize)]
pub struct Document {
    pub schema: &'static str,
    pub command: Vec<String>,
    pub recorded_on: String,
    pub process: u32,
    pub pace: &'static str,
    pub operations: u64,
    pub threads: u64,
    pub trace_s: f64,
    /// Most bytes the program held, as it asked for them.
    pub peak_live_bytes: u64,
    /// Operations left out: frees and resizes of blocks from before the trace.
    pub unknown_frees: u64,
    pub missing_frees: u64,
    /// One block in so many is in the trace.
    pub sample: u32,
    /// Nanoseconds of the trace, bytes live as asked for.
    pub live: Vec<(u64, u64)>,
    pub rows: Vec<Row>,
}

impl Document {
    /// Of all runs, named by allocator.
    pub fn of(
        trace: &Trace,
        compiled: &Compiled,
        allocators: &[Allocator],
        runs: &[(String, Run)],
        pace: Pace,
    ) -> Self {
        let rows = allocators.iter().map(|allocator| {
            let own = runs.iter().filter(|(name, _)| *name == allocator.name);
            row(allocator, own.map(|(_, run)| run).collect(), compiled)
        });
        Self {
            schema: "flagstone.replay/1",
            command: trace.header().command.clone(),
            recorded_on: trace.header().machine.clone(),
            process: compiled.process,
            pace: pace.name(),
            operations: compiled.head.ops,
            threads: compiled.head.streams,
            trace_s: compiled.live.last().map_or(0, |last| last.0) as f64 / 1e9,
            peak_live_bytes: compiled.peak_live,
            unknown_frees: compiled.unknown,
            missing_frees: compiled.missing,
            sample: trace.header().sample,
            live: thinned(&compiled.live),
            rows: rows.collect(),
        }
    }
}

/// Bytes live at a time.
pub fn live_at(live: &[(u64, u64)], ns: u64) -> u64 {
    let at = live.partition_point(|point| point.0 <= ns);
    at.checked_sub(1).map_or(0, |at| live[at].1)
}

fn row(allocator: &Allocator, mut runs: Vec<&Run>, compiled: &Compiled) -> Row {
    let ops = compiled.head.ops;
    let by_live = |run: &Run| {
        let live = run.curve.iter().map(|&(ns, _)| live_at(&compiled.live, ns));
        run.mean() * run.curve.len() as f64 / live.sum::<u64>().max(1) as f64
    };
    let figure = |value: &dyn Fn(&Run) -> f64| Figure::of(runs.iter().map(|run| value(run)));
    let mut row = Row {
        allocator: allocator.name.clone(),
        version: allocator.version.clone(),
        runs: runs.len(),
        ns_per_op: figure(&|run| run.ns as f64 / ops as f64),
        cpu_ns_per_op: figure(&|run| run.cpu_ns as f64 / ops as f64),
        peak_rss_bytes: figure(&|run| run.peak() as f64),
        mean_rss_bytes: figure(&|run| run.mean()),
        end_rss_bytes: figure(&|run| run.end as f64),
        mean_rss_by_live: figure(&by_live),
        page_faults: figure(&|run| run.faults as f64),
        refused: runs.iter().map(|run| run.refused).sum(),
        curve: Vec::new(),
    };
    runs.sort_by_key(|run| run.peak());
    if let Some(middle) = runs.get(runs.len() / 2) {
        row.curve = thinned(&middle.curve);
    }
    row
}

/// So many points at most; of neighbours that become one the highest is kept.
fn thinned(curve: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let step = curve.len().div_ceil(POINTS).max(1);
    curve
        .chunks(step)
        .filter_map(|part| part.iter().copied().max_by_key(|point| point.1))
        .collect()
}

/// Writes the document to a file, or to standard output.
///
/// # Errors
/// A usage failure that names the file.
pub fn write(document: &Document, file: &Path) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::Usage(format!("replay: {error}")))?;
    if file == Path::new("-") {
        println!("{text}");
        return Ok(());
    }
    outfile::write("replay", file, &(text + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_live_stays_until_the_next_point() {
        let live = [(10, 100), (20, 300)];
        for (ns, bytes) in [(9, 0), (10, 100), (19, 100), (20, 300), (99, 300)] {
            assert_eq!(live_at(&live, ns), bytes, "{ns}");
        }
    }

    #[test]
    fn a_thinned_curve_keeps_its_peak_and_its_order() {
        let curve: Vec<(u64, u64)> = (0..10_000).map(|at| (at, (at * 7919) % 10_007)).collect();
        let thin = thinned(&curve);
        assert!(thin.len() <= POINTS && thin.is_sorted());
        let peak = |curve: &[(u64, u64)]| curve.iter().map(|point| point.1).max();
        assert_eq!(peak(&thin), peak(&curve));
    }
}
