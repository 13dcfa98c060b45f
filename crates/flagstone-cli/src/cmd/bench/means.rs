//! Time and memory over many workloads: for each allocator the geometric mean of its time ÷ the best of
//! the row, and of its peak resident size ÷ glibc's.
//!
//! Rows whose figure is no time (giveback, scatter) count in neither. The range is that of the passes:
//! the runs are interleaved, so the first runs of all are one pass, and its mean is taken by itself.

use super::allocators::{Allocator, FLAGSTONE, GLIBC};
use super::catalog::{Kind, Workload};
use super::figures::geometric_mean;
use super::report::ratio;
use super::runner::{Measured, Outcome};
use crate::terminal::unpadded;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// A geometric mean of medians, and the smallest and the largest mean of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// Of the medians.
    pub mean: f64,
    /// Of the best pass.
    pub min: f64,
    /// Of the worst pass.
    pub max: f64,
}

/// One allocator over the rows of a group.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// Which rows: all, or those of one group.
    pub group: &'static str,
    /// Its name.
    pub allocator: String,
    /// Its version.
    pub version: String,
    /// Rows in which it has a figure.
    pub rows: usize,
    /// Rows of the group.
    pub of_rows: usize,
    /// Time ÷ the best of the row.
    pub time_to_best: Option<Mean>,
    /// Peak resident size ÷ glibc's.
    pub peak_rss_to_glibc: Option<Mean>,
    /// No other allocator with a figure in all rows has both less time and less memory.
    pub on_front: bool,
}

impl Place {
    /// Whether it is the allocator under test.
    pub fn own(&self) -> bool {
        self.allocator == FLAGSTONE
    }

    /// Name and version.
    pub fn name(&self) -> String {
        format!("{} {}", self.allocator, self.version)
            .trim_end()
            .to_owned()
    }
}

/// The group of all rows.
pub const ALL: &str = "all";

/// To which group a workload belongs.
fn group(workload: &Workload) -> &'static str {
    match workload.kind {
        Kind::Real(_) => "real programs",
        _ if !workload.like.is_empty() => "work like programs",
        _ => "loops",
    }
}

/// The places of all allocators over all rows; then, where rows are of several groups, over each group.
pub fn places(results: &[Measured]) -> Vec<Place> {
    let timed = |result: &&Measured| {
        let time = !matches!(result.workload.unit, "MiB" | "x live");
        time && result.best(|_| true).is_some()
    };
    let rows: Vec<&Measured> = results.iter().filter(timed).collect();
    let mut list = of_group(ALL, &rows);
    let mut groups: Vec<&'static str> = Vec::new();
    for row in &rows {
        let group = group(&row.workload);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for name in groups.iter().filter(|_| groups.len() > 1) {
        let of_it = |row: &&Measured| group(&row.workload) == *name;
        let rows: Vec<&Measured> = rows.iter().copied().filter(of_it).collect();
        list.extend(of_group(name, &rows));
    }
    list
}

/// The places of all allocators in one row.
pub fn of_row(result: &Measured) -> Vec<Place> {
    of_group("this row", &[result])
}

fn of_group(name: &'static str, rows: &[&Measured]) -> Vec<Place> {
    let mut known: Vec<&Allocator> = Vec::new();
    for outcome in rows.iter().flat_map(|row| &row.outcomes) {
        if !known.iter().any(|one| **one == outcome.allocator) {
            known.push(&outcome.allocator);
        }
    }
    let mut list: Vec<Place> = known.iter().map(|one| place(name, rows, one)).collect();
    let ends: Vec<Option<[f64; 2]>> = list.iter().map(end).collect();
    for (at, place) in list.iter_mut().enumerate() {
        let Some(own) = ends[at] else { continue };
        let beats = |other: &[f64; 2]| {
            other[0] <= own[0] && other[1] <= own[1] && (other[0] < own[0] || other[1] < own[1])
        };
        place.on_front = !ends.iter().flatten().any(beats);
    }
    list
}

/// Time and memory of a place with a figure in all rows.
fn end(place: &Place) -> Option<[f64; 2]> {
    let whole = place.rows == place.of_rows;
    let both = place.time_to_best.zip(place.peak_rss_to_glibc);
    both.filter(|_| whole)
        .map(|(time, rss)| [time.mean, rss.mean])
}

/// What an allocator's runs are divided by in a row: the best time, and glibc's memory.
fn place(name: &'static str, rows: &[&Measured], allocator: &Allocator) -> Place {
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for row in rows {
        let own = |outcome: &&Outcome| outcome.allocator == *allocator;
        let outcome = row.outcomes.iter().find(own);
        let outcome = outcome.filter(|outcome| outcome.summary().is_some());
        let (Some(best), Some(outcome)) = (row.best(|_| true), outcome) else {
            continue;
        };
        times.push(over(outcome, best.1.median, |sample| sample.value));
        let glibc = row.of(GLIBC).and_then(resident).filter(|kib| *kib > 0.0);
        if let Some(glibc) = glibc {
            sizes.push(over(outcome, glibc, |sample| sample.peak_rss_kib as f64));
        }
    }
    Place {
        group: name,
        allocator: allocator.name.clone(),
        version: allocator.version.clone(),
        rows: times.len(),
        of_rows: rows.len(),
        time_to_best: mean(&times),
        peak_rss_to_glibc: mean(&sizes).filter(|_| sizes.len() == times.len()),
        on_front: false,
    }
}

fn resident(outcome: &Outcome) -> Option<f64> {
    let summary = outcome.of(|sample| Some(sample.peak_rss_kib as f64))?;
    Some(summary.median)
}

/// The median, then every run, each divided by `base`.
fn over(outcome: &Outcome, base: f64, figure: impl Fn(&super::child::Sample) -> f64) -> Vec<f64> {
    let median = outcome.of(|sample| Some(figure(sample)));
    let median = median.map(|summary| summary.median);
    let runs = outcome.samples.iter().map(&figure);
    median
        .into_iter()
        .chain(runs)
        .map(|value| value / base)
        .collect()
}

/// Over rows, each a median and its runs.
fn mean(rows: &[Vec<f64>]) -> Option<Mean> {
    let passes = rows.iter().map(Vec::len).min()?;
    let of_pass = |pass: usize| {
        let values: Vec<f64> = rows.iter().map(|row| row[pass]).collect();
        geometric_mean(&values)
    };
    let mean = of_pass(0).filter(|mean| mean.is_finite() && *mean > 0.0)?;
    let each = (1..passes).filter_map(of_pass);
    let (min, max) = each.fold((mean, mean), |(min, max), one| (min.min(one), max.max(one)));
    Some(Mean { mean, min, max })
}

/// The heads of a table of places.
pub const HEADS: [&str; 8] = [
    "allocator",
    "version",
    "time ÷ best",
    "min..max",
    "peak RSS ÷ glibc",
    "min..max",
    "rows",
    "",
];

/// What stands below the [`HEADS`].
pub fn cells(place: &Place) -> [String; 8] {
    let shown = |mean: Option<Mean>| mean.map_or("-".to_owned(), |mean| ratio(mean.mean));
    let range = |mean: Option<Mean>| match mean {
        Some(Mean { min, max, .. }) => format!("{}..{}", ratio(min), ratio(max)),
        None => "-".to_owned(),
    };
    [
        place.allocator.clone(),
        place.version.clone(),
        shown(place.time_to_best),
        range(place.time_to_best),
        shown(place.peak_rss_to_glibc),
        range(place.peak_rss_to_glibc),
        match place.rows == place.of_rows {
            true => place.rows.to_string(),
            false => format!("{} of {}", place.rows, place.of_rows),
        },
        if place.on_front { "front" } else { "" }.to_owned(),
    ]
}

/// The groups of a list, in its order.
pub fn groups(list: &[Place]) -> Vec<(&'static str, Vec<&Place>)> {
    let mut groups: Vec<(&'static str, Vec<&Place>)> = Vec::new();
    for place in list {
        match groups.last_mut() {
            Some((name, places)) if *name == place.group => places.push(place),
            _ => groups.push((place.group, vec![place])),
        }
    }
    groups
}

/// A heading over the places of a group.
pub fn heading(name: &str, places: &[&Place]) -> String {
    let rows = places.first().map_or(0, |place| place.of_rows);
    let what = if name == ALL {
        String::new()
    } else {
        format!(", {name}")
    };
    format!("Geometric means of {rows} rows{what}")
}

/// The tables in the terminal; nothing for fewer than two rows.
pub fn tables(list: &[Place]) -> String {
    let mut text = String::new();
    for (name, places) in groups(list) {
        if places[0].of_rows < 2 {
            continue;
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let indented = |mut cells: Vec<String>| {
            cells[0].insert_str(0, "  ");
            cells
        };
        table.set_header(indented(HEADS.map(str::to_owned).to_vec()));
        for column in 2..7 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for place in &places {
            table.add_row(indented(cells(place).to_vec()));
        }
        text += &format!("{}\n{}\n\n", heading(name, &places), unpadded(&table));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::catalog;
    use super::super::child::Sample;
    use super::*;

    fn measured(name: &str, rows: &[(&str, &[(f64, u64)])]) -> Measured {
        let outcome = |&(name, runs): &(&str, &[(f64, u64)])| Outcome {
            allocator: Allocator {
                name: name.into(),
                version: "1".into(),
                library: None,
                unusable: None,
            },
            samples: runs
                .iter()
                .map(|&(value, kib)| Sample {
                    peak_rss_kib: kib,
                    ..Sample::of_ns(value)
                })
                .collect(),
            failure: runs.is_empty().then(|| "killed by signal 11".into()),
        };
        Measured {
            workload: catalog::select(&[name.to_owned()]).unwrap().remove(0),
            threads: 1,
            outcomes: rows.iter().map(outcome).collect(),
        }
    }

    #[test]
    fn means_are_of_ratios_in_each_row_and_ranges_of_passes() {
        let results = [
            measured(
                "pair-16",
                &[
                    (FLAGSTONE, &[(2.0, 100), (2.0, 100), (2.0, 100)]),
                    (GLIBC, &[(4.0, 200), (4.0, 200), (4.0, 200)]),
                ],
            ),
            measured(
                "algebra",
                &[
                    (FLAGSTONE, &[(8.0, 300), (8.0, 300), (8.0, 1200)]),
                    (GLIBC, &[(4.0, 300), (8.0, 300), (2.0, 300)]),
                ],
            ),
            measured(
                "giveback",
                &[(FLAGSTONE, &[(9.0, 1)]), (GLIBC, &[(1.0, 9)])],
            ),
        ];
        let list = places(&results);
        let (own, glibc) = (&list[0], &list[1]);
        assert_eq!((own.group, own.rows, own.of_rows), (ALL, 2, 2));
        let near = |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-9, "{got} {wanted}");
        near(own.time_to_best.unwrap().mean, 2f64.sqrt());
        near(own.peak_rss_to_glibc.unwrap().mean, 0.5f64.sqrt());
        near(own.peak_rss_to_glibc.unwrap().max, 2f64.sqrt());
        let time = glibc.time_to_best.unwrap();
        near(time.min, 1.0);
        near(time.max, 2.0);
        assert!(own.on_front && !glibc.on_front);
        let named: Vec<&str> = groups(&list).iter().map(|group| group.0).collect();
        assert_eq!(named, [ALL, "loops", "work like programs"]);
        let text = tables(&list);
        assert!(text.contains("Geometric means of 2 rows\n"), "{text}");
        assert!(!text.contains("loops"), "one row is no mean: {text}");
    }

    #[test]
    fn an_allocator_without_a_figure_in_some_row_is_not_on_the_front() {
        let results = [
            measured(
                "pair-16",
                &[(GLIBC, &[(4.0, 200)]), ("quick", &[(1.0, 100)])],
            ),
            measured("pair-64", &[(GLIBC, &[(4.0, 200)]), ("quick", &[])]),
        ];
        let list = places(&results);
        assert!(list[0].on_front && !list[1].on_front);
        assert_eq!(cells(&list[1])[6], "1 of 2");
        let without = [measured("pair-16", &[("quick", &[(1.0, 100)])])];
        assert_eq!(
            cells(&places(&without)[0])[4],
            "-",
            "no glibc to compare with"
        );
    }
}
