//! The tables and the JSON rows.

use super::child::Sample;
use super::figures::Standing;
use super::means::{self, Place};
use super::runner::{Measured, Outcome};
use super::targets::Target;
use crate::terminal::unpadded;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::collections::BTreeMap;

/// One document: `flagstone.bench/1`.
#[derive(Serialize)]
pub struct Document {
    schema: &'static str,
    rows: Vec<Row>,
    /// Geometric means of time ÷ best and peak RSS ÷ glibc, over all rows and over each group.
    means: Vec<Place>,
    targets: Vec<Target>,
}

/// What one allocator did in one workload.
#[derive(Serialize)]
pub struct Row {
    workload: String,
    threads: usize,
    allocator: String,
    version: String,
    /// Nanoseconds for each operation, where the workload has operations.
    pub ns_per_op: Option<f64>,
    ratio_to_best: Option<f64>,
    /// Largest resident size, median.
    pub peak_rss_kib: Option<f64>,
    /// Runs behind it.
    pub runs: usize,
    /// The figure the ratio is about.
    value: Option<f64>,
    unit: &'static str,
    min: Option<f64>,
    max: Option<f64>,
    /// Distance between the quartiles.
    pub spread: Option<f64>,
    standing: &'static str,
    page_faults: Option<f64>,
    parts: BTreeMap<String, f64>,
    failure: Option<String>,
}

/// Everything a run found, ready to be written.
pub fn document(results: &[Measured], targets: Vec<Target>) -> Document {
    let rows = results.iter().flat_map(|result| {
        result
            .outcomes
            .iter()
            .map(move |outcome| row(result, outcome))
    });
    Document {
        schema: "flagstone.bench/1",
        rows: rows.collect(),
        means: means::places(results),
        targets,
    }
}

fn median(outcome: &Outcome, figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    outcome.of(figure).map(|summary| summary.median)
}

impl Row {
    /// The median of the workload's own figure.
    pub fn value(&self) -> Option<f64> {
        self.value
    }
}

/// The row of one allocator.
pub fn row(result: &Measured, outcome: &Outcome) -> Row {
    let own = outcome.summary();
    let best = result.best(|_| true).map(|(_, summary)| summary.median);
    let names = outcome
        .samples
        .first()
        .map(|sample| sample.parts.keys().cloned().collect());
    let names: Vec<String> = names.unwrap_or_default();
    let part = |name: String| Some((name.clone(), outcome.part(&name)?.median));
    Row {
        workload: result.workload.name.clone(),
        threads: result.threads,
        allocator: outcome.allocator.name.clone(),
        version: outcome.allocator.version.clone(),
        ns_per_op: median(outcome, |sample| sample.ns_per_op),
        ratio_to_best: own.zip(best).map(|(own, best)| own.median / best),
        peak_rss_kib: median(outcome, |sample| Some(sample.peak_rss_kib as f64)),
        runs: outcome.samples.len(),
        value: own.map(|own| own.median),
        unit: result.workload.unit,
        min: own.map(|own| own.min),
        max: own.map(|own| own.max),
        spread: own.map(|own| own.spread),
        standing: word(result.standing(outcome)),
        page_faults: median(outcome, |sample| Some(sample.page_faults as f64)),
        parts: names.into_iter().filter_map(part).collect(),
        failure: outcome.failure.clone(),
    }
}

/// A standing in a table.
pub fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Best => "best",
        Standing::Tie => "tie",
        Standing::Behind => "",
        Standing::Failed => "failed",
    }
}

/// A workload with its threads, where they are several.
pub fn title(result: &Measured) -> String {
    let threads = match result.threads {
        1 => String::new(),
        count => format!(", {count} threads"),
    };
    format!("{}{threads}", result.workload.name)
}

/// The heads of a workload's columns.
pub fn heads(unit: &str) -> [&str; 9] {
    [
        "allocator",
        "version",
        unit,
        "min..max",
        "ratio",
        "",
        "peak RSS KiB",
        "page faults",
        "also",
    ]
}

/// A figure, or that there is none.
pub fn shown(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), figure)
}

/// What stands below the [`heads`].
pub fn cells(one: &Row) -> [String; 9] {
    let range = match (one.min, one.max) {
        (Some(min), Some(max)) => format!("{}..{}", figure(min), figure(max)),
        _ => "-".to_owned(),
    };
    [
        one.allocator.clone(),
        one.version.clone(),
        shown(one.value),
        range,
        one.ratio_to_best
            .map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        one.standing.to_owned(),
        shown(one.peak_rss_kib),
        shown(one.page_faults),
        also(&one.parts),
    ]
}

/// A line for each allocator that failed.
pub fn notes(result: &Measured) -> Vec<String> {
    let line = |outcome: &Outcome| {
        let failure = outcome.failure.as_ref()?;
        Some(format!("{}: {failure}", outcome.allocator.name))
    };
    result.outcomes.iter().filter_map(line).collect()
}

/// The table of one workload, with its notes below.
pub fn table(result: &Measured) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let indented = |mut cells: Vec<String>| {
        cells[0].insert_str(0, "  ");
        cells
    };
    let heads = heads(result.workload.unit).map(str::to_owned);
    table.set_header(indented(heads.to_vec()));
    for column in [2, 3, 4, 6, 7] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for outcome in &result.outcomes {
        table.add_row(indented(cells(&row(result, outcome)).to_vec()));
    }
    let heading = format!("{}: {}", title(result), result.workload.what);
    let notes = notes(result).into_iter();
    let notes: String = notes.map(|note| format!("  {note}\n")).collect();
    format!("{heading}\n{}\n{notes}", unpadded(&table))
}

/// The parts that fit a line: sizes in order, other names with their value.
fn also(parts: &BTreeMap<String, f64>) -> String {
    let mut list: Vec<(&String, &f64)> = parts.iter().collect();
    list.sort_by_key(|(name, _)| name.parse::<u64>().unwrap_or(0));
    let shown: Vec<String> = list
        .into_iter()
        .map(|(name, value)| format!("{name}={}", figure(*value)))
        .collect();
    shown.join(" ")
}

/// A ratio near one: two decimals, below ten.
pub fn ratio(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        _ => figure(value),
    }
}

/// Three digits that matter, whole numbers from 100 on.
pub fn figure(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits_that_matter() {
        assert_eq!(figure(1.23456), "1.23");
        assert_eq!(figure(12.3456), "12.3");
        assert_eq!(figure(1234.56), "1235");
    }

    #[test]
    fn sizes_are_listed_in_order() {
        let parts = [("4096", 9.0), ("8", 1.0), ("64", 2.0)];
        let parts = parts
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect();
        assert_eq!(also(&parts), "8=1.00 64=2.00 4096=9.00");
    }
}
