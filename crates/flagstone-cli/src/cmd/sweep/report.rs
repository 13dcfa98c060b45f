//! `flagstone sweep report`: a folder of records as points, each with its spread over seeds.

use super::{html, usage};
use crate::exit::Outcome;
use crate::outfile;
use flagstone_lab::{Record, Row, sweep};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// A folder's records as one page: throughput over tasks with spread, heat maps over two knobs, and
/// throughput against memory.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  flagstone sweep report runs --html runs.html")]
pub struct ReportArgs {
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The page
    #[arg(long, value_name = "F")]
    html: PathBuf,
}

/// Figures over the seeds of one point.
pub(super) struct Point {
    /// The policy without its knobs.
    pub(super) policy: String,
    /// Its knobs.
    pub(super) knobs: BTreeMap<String, f64>,
    /// What figures come from.
    pub(super) row: Row,
    /// Standard deviation of mean bytes.
    pub(super) bytes_spread: f64,
}

/// Points that belong into one picture: one workload with its parameters on one machine.
pub(super) struct Group {
    /// In words.
    pub(super) title: String,
    pub(super) points: Vec<Point>,
}

pub(super) fn run(args: &ReportArgs) -> Outcome {
    outfile::all_writable("sweep report", None, &[Some(&args.html)])?;
    let records = sweep::collect(&args.folder).map_err(usage)?;
    if records.is_empty() {
        return Err(usage(format!(
            "report: {}: no records in it",
            args.folder.display()
        )));
    }
    let groups = groups(&records);
    outfile::write("sweep report", &args.html, &html::page(&groups, &records))?;
    println!("{} records in {}", records.len(), args.html.display());
    Ok(ExitCode::SUCCESS)
}

/// What a picture is about.
fn title(record: &Record) -> String {
    let mut title = record.workload.clone();
    if let Some(size) = record.size {
        title += &format!(", {size} B");
    }
    if let Some(think) = record.think_ns {
        title += &format!(", think time {think} ns");
    }
    if let Some(placement) = record.placement {
        title += &format!(", {placement:?}").to_lowercase();
    }
    format!("{title} on {}, window {}", record.machine, record.window)
}

/// Policy, knobs, tasks.
type Key = (String, String, u32);

pub(super) fn groups(records: &[Record]) -> Vec<Group> {
    let mut all: BTreeMap<(String, String), BTreeMap<Key, Vec<&Record>>> = BTreeMap::new();
    for record in records {
        let group = all
            .entry((title(record), record.machine_digest.clone()))
            .or_default();
        let key = (record.policy.clone(), record.knobs.clone(), record.tasks);
        group.entry(key).or_default().push(record);
    }
    let group = |((title, _), points): ((String, String), BTreeMap<_, Vec<&Record>>)| Group {
        title,
        points: points.into_values().map(|seeds| point(&seeds)).collect(),
    };
    all.into_iter().map(group).collect()
}

fn point(seeds: &[&Record]) -> Point {
    let bytes: Vec<f64> = seeds.iter().map(|seed| seed.mean_bytes as f64).collect();
    let knobs = seeds[0].knobs.split_whitespace().filter_map(|knob| {
        let (key, value) = knob.split_once('=')?;
        Some((key.to_owned(), value.parse().ok()?))
    });
    Point {
        policy: seeds[0].policy.clone(),
        knobs: knobs.collect(),
        row: Row::new(seeds, &Vec::new()),
        bytes_spread: flagstone_lab::deviation(&bytes),
    }
}

/// Of these points, which no other beats in both throughput and memory.
pub(super) fn front(points: &[&Point]) -> Vec<bool> {
    let beats = |a: &Row, b: &Row| {
        a.ops_per_task_per_s >= b.ops_per_task_per_s
            && a.mean_bytes <= b.mean_bytes
            && (a.ops_per_task_per_s > b.ops_per_task_per_s || a.mean_bytes < b.mean_bytes)
    };
    let free = |point: &&Point| !points.iter().any(|other| beats(&other.row, &point.row));
    points.iter().map(free).collect()
}
