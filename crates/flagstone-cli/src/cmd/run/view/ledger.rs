//! The ledger: at the peak and now, largest line first.

use super::{number, push_table, table};
use crate::cmd::run::document::{Entry, NotResident, Outcome};
use crate::cmd::run::reports::Kind;
use crate::terminal::{Screen, size};
use comfy_table::{Cell, ColumnConstraint};
use flagstone_core::stats::Line;
use std::cmp::Reverse;
use std::fmt::Write as _;

/// A line of the table: name, bytes at the peak and now, sentence.
struct Row {
    name: String,
    peak: u64,
    now: u64,
    sentence: String,
}

pub(super) fn table_of(out: &mut String, outcome: &Outcome, screen: Screen) {
    let now = if outcome.at_exit {
        "at exit"
    } else {
        "last sample"
    };
    let _ = writeln!(out, "{}", screen.heading("Where its memory was"));
    let mut table = table(&["line", "at peak", now, "what it is"], screen);
    for row in rows(outcome) {
        table.add_row([
            Cell::new(row.name),
            number(size(row.peak)),
            number(size(row.now)),
            Cell::new(row.sentence),
        ]);
    }
    let sum = |entries: &[Entry]| entries.iter().map(|entry| entry.bytes).sum::<u64>();
    let (exit, peak) = (sum(&outcome.ledger), sum(&outcome.ledger_at_peak));
    table.add_row([
        Cell::new("sum"),
        number(size(peak)),
        number(size(exit)),
        Cell::new(closing(exit, outcome.rss_bytes)),
    ]);
    for column in 1..3 {
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    push_table(out, &mut table);
    if outcome.resident_pages_told == Some(false) {
        out.push_str(NOT_COMPARABLE);
    }
    memo(
        out,
        &outcome.not_resident,
        outcome.ledger.iter().any(|e| e.sampled),
    );
}

/// The lines with a byte in them, largest at the peak first; below "outside the heap" its kinds.
fn rows(outcome: &Outcome) -> Vec<Row> {
    let peak = |at: usize| {
        let entry = outcome.ledger_at_peak.get(at);
        entry.map_or(0, |entry| entry.bytes)
    };
    let mut rows: Vec<Row> = Vec::new();
    for (at, entry) in outcome.ledger.iter().enumerate() {
        let mark = if entry.sampled { " ~" } else { "" };
        rows.push(Row {
            name: format!("{}{mark}", Line::ALL[at].title()),
            peak: peak(at),
            now: entry.bytes,
            sentence: entry.sentence.to_owned(),
        });
    }
    rows.retain(|row| row.peak > 0 || row.now > 0);
    rows.sort_by_key(|row| Reverse((row.peak, row.now)));
    fold(&mut rows);
    let outside = Line::NonHeap.title();
    if let Some(at) = rows.iter().position(|row| row.name == outside) {
        rows.splice(at + 1..at + 1, kinds(outcome));
    }
    rows
}

/// Lines below this part of the sum are shown as one.
const FOLDED_BELOW: u64 = 500;

/// Puts the lines too small to matter into one.
fn fold(rows: &mut Vec<Row>) {
    let sum = |of: fn(&Row) -> u64, rows: &[Row]| rows.iter().map(of).sum::<u64>();
    let (peak, now) = (sum(|row| row.peak, rows), sum(|row| row.now, rows));
    let small = |row: &Row| row.peak < peak / FOLDED_BELOW && row.now < now / FOLDED_BELOW;
    let (folded, kept): (Vec<Row>, Vec<Row>) = rows.drain(..).partition(small);
    *rows = kept;
    match folded.len() {
        0 | 1 => rows.extend(folded),
        lines => rows.push(Row {
            name: format!("{lines} smaller lines"),
            peak: sum(|row| row.peak, &folded),
            now: sum(|row| row.now, &folded),
            sentence: "--json has each.".to_owned(),
        }),
    }
}

fn kinds(outcome: &Outcome) -> Vec<Row> {
    let kinds = outcome.outside_at_peak.iter();
    let mut rows: Vec<Row> = kinds
        .map(|kind| {
            let (name, sentence) = kind.words();
            Row {
                name: format!("  {name}"),
                peak: kind.bytes,
                now: Kind::bytes_of(&outcome.outside, &kind.kind),
                sentence: sentence.to_owned(),
            }
        })
        .filter(|row| row.peak > 0 || row.now > 0)
        .collect();
    rows.sort_by_key(|row| Reverse((row.peak, row.now)));
    rows
}

/// Said where the sum cannot meet the kernel's figure.
const NOT_COMPARABLE: &str = "\
This kernel does not tell which pages are resident (gVisor does not), so the
lines count all that is mapped; the sum cannot be compared with its figure.
";

/// How the sum compares with what the kernel counts.
pub(crate) fn closing(sum: u64, resident: Option<u64>) -> String {
    match resident {
        Some(resident) if resident > 0 => {
            let off = (sum as f64 - resident as f64) * 100.0 / resident as f64;
            format!("Kernel: {} ({off:+.2} %).", size(resident))
        }
        _ => "The kernel did not tell its count.".to_owned(),
    }
}

fn memo(out: &mut String, beside: &NotResident, sampled: bool) {
    if sampled {
        out.push_str("~ divided by the sizes of sampled requests.\n");
    }
    let _ = writeln!(
        out,
        "Not resident, so in no line: {} of free blocks given back or never used,\n{} of blocks in \
         use that were never touched or given back.\n",
        size(beside.released_bytes),
        size(beside.untouched_bytes)
    );
}
