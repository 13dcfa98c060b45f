//! Rows as a table for people and as one JSON document.

use super::Request;
use crate::terminal::unpadded;
use comfy_table::{CellAlignment, Table, presets};
use flagstone_core::policy::{BASES, MODIFIERS};
use flagstone_sim::machine::{self, Machine};
use flagstone_sim::report::Row;
use flagstone_sim::workload::{Kind, WORKLOADS, Workload};
use serde::Serialize;
use std::time::Duration;

/// The document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    workload: &'a str,
    unit: &'a str,
    machine: &'a str,
    seed: u64,
    seeds: usize,
    method: &'static str,
    rows: &'a [Row],
}

pub(super) fn json(request: &Request, rows: &[Row]) -> String {
    let document = Document {
        schema: "flagstone.sim/1",
        workload: request.workload.name,
        unit: request.workload.unit,
        machine: &request.machine.name,
        seed: request.seeds[0],
        seeds: request.seeds.len(),
        method: "simulated",
        rows,
    };
    serde_json::to_string_pretty(&document).expect("rows are plain data")
}

pub(super) fn print(request: &Request, rows: &[Row], took: Duration) {
    println!(
        "{} on {} (simulated): {}; seed {}{}",
        request.workload.name,
        request.machine.name,
        request.workload.unit,
        request.seeds[0],
        match request.seeds.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        }
    );
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let spread = request.seeds.len() > 1;
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
            settled(row, request.workload.kind),
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
    let simulated: u64 = rows.iter().map(|row| row.simulated_ops).sum();
    let speed = simulated as f64 / took.as_secs_f64().max(1e-9) / 1e6;
    println!(
        "{:.1} million allocator operations simulated in {:.1} s ({speed:.1} million a second)",
        simulated as f64 / 1e6,
        took.as_secs_f64()
    );
    for row in rows.iter().filter(|row| !row.converged) {
        let (what, figures) = match (row.settled.ops, row.settled.bytes) {
            (true, false) => ("its bytes did not settle", "them"),
            (false, true) => ("its throughput did not settle", "it"),
            _ => ("it did not settle", "its figures"),
        };
        eprintln!(
            "flagstone: sim: {} with {} tasks: {what} (drift between the halves of its last \
             window: throughput {:+.1} %, bytes {:+.1} %{}); do not quote {figures} as steady",
            row.policy,
            row.tasks,
            row.ops_drift,
            row.bytes_drift,
            if row.backlog_grows {
                ", and deferred frees pile up"
            } else {
                ""
            }
        );
    }
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

/// A name and what it stands for.
#[derive(Serialize)]
struct Known<'a> {
    name: &'a str,
    about: String,
}

/// The document of `--list --json`.
#[derive(Serialize)]
struct Names<'a> {
    schema: &'static str,
    workloads: Vec<Known<'a>>,
    /// Names that stand in a workload's place.
    instead: Vec<Known<'a>>,
    machines: Vec<Known<'a>>,
    policies: Vec<Known<'a>>,
    /// What may follow a policy's name, each with a `+` before it.
    modifiers: Vec<Known<'a>>,
}

impl Names<'static> {
    fn all() -> Self {
        let known = |&(name, about): &(&'static str, &str)| Known {
            name,
            about: about.to_owned(),
        };
        let workload = |workload: &'static Workload| known(&(workload.name, workload.about));
        let machine = |name| Known {
            name,
            about: Machine::named(name).map_or_else(|line| line, |found| found.about),
        };
        Self {
            schema: "flagstone.sim-names/1",
            workloads: WORKLOADS.iter().map(workload).collect(),
            instead: super::INSTEAD.iter().map(known).collect(),
            machines: machine::names().map(machine).collect(),
            policies: BASES.iter().map(known).collect(),
            modifiers: MODIFIERS.iter().map(known).collect(),
        }
    }
}

pub(super) fn list(json: bool) {
    let names = Names::all();
    if json {
        let text = serde_json::to_string_pretty(&names);
        return println!("{}", text.expect("plain data"));
    }
    let parts = [
        ("workloads", &names.workloads, ""),
        ("in a workload's place", &names.instead, ""),
        ("machines", &names.machines, ""),
        ("policies", &names.policies, ""),
        ("and after a policy", &names.modifiers, "+"),
    ];
    for (title, known, before) in parts {
        println!("{title}");
        for Known { name, about } in known {
            println!("  {:<24} {about}", format!("{before}{name}"));
        }
    }
}
