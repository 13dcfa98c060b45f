//! The table of a replay.

use super::figures::{Document, Figure};
use crate::terminal::unpadded;
use comfy_table::{CellAlignment, Table, presets};

/// Bytes as MiB.
pub fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// What was replayed, in one sentence.
pub fn sentence(document: &Document) -> String {
    let threads = match document.threads {
        1 => "1 thread".to_owned(),
        count => format!("{count} threads"),
    };
    let mut text = format!(
        "{} operations of {} ({threads}, {:.2} s recorded); at most {:.1} MiB live as asked for.",
        document.operations,
        document.command.first().map_or("?", String::as_str),
        document.trace_s,
        mib(document.peak_live_bytes as f64)
    );
    if document.unknown_frees + document.missing_frees > 0 {
        text.push_str(&format!(
            " Left out: {} frees of unknown blocks; {} blocks are never freed because their frees are missing.",
            document.unknown_frees, document.missing_frees
        ));
    }
    if document.sample > 1 {
        text.push_str(&format!(
            " The trace holds one block in {}: memory is that of the sample.",
            document.sample
        ));
    }
    text
}

/// Columns of the table.
pub const HEADS: [&str; 8] = [
    "allocator",
    "ns/op",
    "(min..max)",
    "peak MiB",
    "mean MiB",
    "end MiB",
    "mean/live",
    "faults",
];

/// The rows of the table as text.
pub fn rows(document: &Document) -> Vec<[String; 8]> {
    let memory = |figure: Figure| format!("{:.1}", mib(figure.median));
    document
        .rows
        .iter()
        .map(|row| {
            let ns = row.ns_per_op;
            [
                row.allocator.clone(),
                format!("{:.1}", ns.median),
                format!("({:.1}..{:.1})", ns.min, ns.max),
                memory(row.peak_rss_bytes),
                memory(row.mean_rss_bytes),
                memory(row.end_rss_bytes),
                format!("{:.2}", row.mean_rss_by_live.median),
                format!("{:.0}", row.page_faults.median),
            ]
        })
        .collect()
}

/// Prints the table on standard output.
pub fn print(document: &Document) {
    println!("{}", sentence(document));
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(HEADS);
    for row in rows(document) {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{}", unpadded(&table));
    for row in document.rows.iter().filter(|row| row.refused > 0) {
        println!("{}: {} requests were refused", row.allocator, row.refused);
    }
}
