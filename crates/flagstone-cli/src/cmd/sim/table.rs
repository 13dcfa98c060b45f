//! Rows as a table for people and as one JSON document.

use super::compared::Compared;
use super::run::{Request, Results};
use crate::terminal::{size, unpadded};
use comfy_table::{CellAlignment, Table, presets};
use flagstone_lab::{MODEL_VERSION, Record, Row};
use flagstone_sim::Vm;
use flagstone_sim::workload::Kind;
use serde::Serialize;
use std::time::Duration;

/// The document of `--json`.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: &'static str,
    workload: &'a str,
    unit: &'a str,
    machine: &'a str,
    seed: u64,
    seeds: usize,
    window: String,
    method: &'static str,
    version: &'static str,
    model_version: u32,
    /// Of the host, that each run reserves while it lasts.
    address_space_bytes: usize,
    rows: &'a [Row],
    /// One for each run: all figures, and all that is needed to run it again.
    records: &'a [Record],
    failures: &'a [String],
    /// Of `sim replay`: the trace's kernel beside the replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<Compared>,
}

pub(super) fn document<'a>(
    request: &'a Request,
    results: &'a Results,
    capture: Option<Compared>,
) -> Document<'a> {
    let first = request.first();
    Document {
        schema: "flagstone.sim/1",
        workload: &first.workload.name,
        unit: request.workload().unit,
        machine: &first.machine.name,
        seed: first.seed,
        seeds: request.seeds(),
        window: first.window.name(),
        method: "simulated",
        version: env!("CARGO_PKG_VERSION"),
        model_version: MODEL_VERSION,
        address_space_bytes: Vm::address_bytes(&first.machine),
        rows: &results.rows,
        records: &results.records,
        failures: &results.failures,
        capture,
    }
}

pub(super) fn print(request: &Request, results: &Results, took: Duration) {
    let (first, rows) = (request.first(), &results.rows);
    println!(
        "{} on {} (simulated, model version {MODEL_VERSION}): {}; seed {}{}",
        first.workload.name,
        first.machine.name,
        request.workload().unit,
        first.seed,
        match request.seeds() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        }
    );
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let spread = request.seeds() > 1;
    // Heads in two lines: a row of figures then fits eighty columns.
    let mut head = vec!["tasks", "policy", "ops/\ntask/s"];
    if spread {
        head.push("± %");
    }
    head.extend([
        "lock\n%",
        "list\n%",
        "zone\n%",
        "alloc\nns",
        "free\nns",
        "mean\nMiB",
        "peak\nMiB",
        "page\n/1000",
        "settled\nms",
    ]);
    table.set_header(&head);
    for row in rows {
        let mut cells = vec![
            row.tasks.to_string(),
            row.policy.clone(),
            format!("{:.0}", row.ops_per_task_per_s),
        ];
        if spread {
            cells.push(format!("{:.1}", row.ops_spread));
        }
        cells.extend([
            format!("{:.1}", row.lock_share),
            format!("{:.1}", row.list_lock_share),
            format!("{:.1}", row.zone_lock_share),
            format!("{:.1}", row.alloc_ns),
            format!("{:.1}", row.free_ns),
            mib(row.mean_bytes),
            mib(row.peak_bytes),
            format!("{:.2}", row.page_allocs_per_1000_ops),
            settled(row, request.workload().kind),
        ]);
        table.add_row(cells);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if index != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{}", unpadded(&table));
    println!("page/1000: fresh slabs (calls of the page allocator) per thousand operations");
    extras(rows);
    costs(request, results, took);
    unsettled(rows);
}

/// One line for all rows that are not steady, and what not to quote of them.
fn unsettled(rows: &[Row]) {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.converged).collect();
    if rows.is_empty() {
        return;
    }
    let both = |row: &Row| !row.settled.ops && !row.settled.bytes;
    let kind = |row: &Row| match (row.settled.ops, row.settled.bytes) {
        (true, false) => "bytes",
        (false, true) => "throughput",
        _ => "figures",
    };
    let name = |row: &Row| {
        let grows = match row.backlog_grows {
            true => ", deferred frees pile up",
            false => "",
        };
        let drift = match (row.settled.ops, row.settled.bytes) {
            (true, false) => format!("bytes {:+.1} %", row.bytes_drift),
            (false, true) => format!("throughput {:+.1} %", row.ops_drift),
            _ => format!(
                "throughput {:+.1} %, bytes {:+.1} %",
                row.ops_drift, row.bytes_drift
            ),
        };
        format!("{} with {} tasks ({drift}{grows})", row.policy, row.tasks)
    };
    let all_bytes = rows.iter().all(|row| kind(row) == "bytes");
    let all_ops = rows.iter().all(|row| kind(row) == "throughput");
    let what = match (all_bytes, all_ops) {
        (true, _) => "the bytes",
        (_, true) => "the throughput",
        _ if rows.iter().all(|row| both(row)) => "throughput and bytes",
        _ => "some figures",
    };
    // The worst first: of many, three say enough.
    let mut worst = rows.clone();
    worst.sort_by(|one, other| other.drift.abs().total_cmp(&one.drift.abs()));
    let named: Vec<String> = worst.iter().take(3).map(|row| name(row)).collect();
    let more = match rows.len().saturating_sub(3) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    eprintln!(
        "flagstone: sim: {what} of {} did not settle (drift between the halves of the last window): \
         {}{more}; do not quote them as steady",
        match rows.len() {
            1 => "1 row".to_owned(),
            count => format!("{count} rows"),
        },
        named.join("; ")
    );
}

/// What the runs cost this host.
fn costs(request: &Request, results: &Results, took: Duration) {
    let simulated = results.simulated as f64 / 1e6;
    let speed = simulated / took.as_secs_f64().max(1e-9);
    println!(
        "{simulated:.1} million allocator operations simulated in {:.1} s ({speed:.1} million a second)",
        took.as_secs_f64()
    );
    if results.kept > 0 {
        println!(
            "{} of {} runs were made before and kept (--no-cache makes them again)",
            results.kept,
            request.specs.len()
        );
    }
    if results.kept < request.specs.len() {
        let space = Vm::address_bytes(&request.first().machine);
        let memory = peak_bytes().map_or(String::new(), |bytes| {
            format!("; this process used {} of memory at most", size(bytes))
        });
        println!(
            "address space: {} for each run at a time{memory}",
            size(space as u64)
        );
    }
}

/// The most memory this process has had.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn settled(row: &Row, kind: Kind) -> String {
    match kind {
        Kind::Finite => "whole run".into(),
        Kind::Steady if row.converged => {
            format!("{:.0}..{:.0}", row.window_ms[0], row.window_ms[1])
        }
        Kind::Steady if row.settled.ops => format!("bytes NO {:+.0}%", row.bytes_drift),
        Kind::Steady => format!("NO {:+.0}%", row.drift),
    }
}

/// Figures of caches have a table of their own.
const CACHES: [&str; 3] = ["slabs ", "objects ", "active "];

/// What only some workloads report, one line for each row that has it.
fn extras(rows: &[Row]) {
    for row in rows {
        let mut parts = Vec::new();
        if row.zone_pages_per_1000_ops > 0.0 {
            parts.push(format!(
                "zone pages/1000 {:.1}",
                row.zone_pages_per_1000_ops
            ));
        }
        if row.free_high_per_1000_ops > 0.0 {
            parts.push(format!("free_high/1000 {:.2}", row.free_high_per_1000_ops));
        }
        if let Some(rate) = row.cache_miss_rate {
            parts.push(format!("cache misses {rate:.2} %"));
        }
        for (name, value) in &row.details {
            if CACHES.iter().any(|head| name.starts_with(head)) {
                continue;
            }
            parts.push(format!("{name} {value:.0}"));
        }
        if !parts.is_empty() {
            println!("{} {}: {}", row.tasks, row.policy, parts.join(", "));
        }
    }
}

fn mib(bytes: f64) -> String {
    let mib = bytes / f64::from(1 << 20);
    let places = usize::from(mib < 99.95);
    format!("{mib:.places$}")
}
