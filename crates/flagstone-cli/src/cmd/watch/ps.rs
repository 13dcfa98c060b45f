//! `flagstone ps`: the processes that run on Flagstone.

use super::document;
use crate::args::Json;
use crate::cmd::run::view::{number, push_table, table};
use crate::exit::{Failure, Outcome};
use crate::terminal::{Screen, percent, size};
use crate::watch::reading::{self, Reading};
use crate::watch::target::{Refusal, Target, needed, processes};
use comfy_table::Cell;
use serde::Serialize;
use std::process::ExitCode;

/// List the processes that run on Flagstone: resident size, heap, what is live in it.
///
/// Reading stops no process. Those of other users are counted, not shown, unless root asks; exit
/// status: 0, and 1 if there is none.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone ps
  sudo flagstone ps --json | jq '.processes[].pid'")]
pub struct Args {
    #[command(flatten)]
    json: Json,
}

/// One process.
#[derive(Clone, Debug, Serialize)]
struct Row {
    pid: u32,
    program: String,
    /// Of Flagstone in it.
    version: String,
    rss_bytes: u64,
    heap_bytes: u64,
    live_bytes: u64,
    caches: usize,
    restartable_sequences: bool,
}

impl Row {
    fn of(reading: &Reading) -> Self {
        Self {
            pid: reading.pid,
            program: reading.program.clone(),
            version: reading.version.clone(),
            rss_bytes: reading.rss_bytes.unwrap_or(reading.sum_bytes),
            heap_bytes: reading.heap_bytes(),
            live_bytes: reading.live_bytes(),
            caches: reading.caches.len(),
            restartable_sequences: reading.restartable_sequences,
        }
    }
}

/// All of them.
#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    processes: Vec<Row>,
    /// A line for each that has a heap and cannot be read.
    unreadable: Vec<String>,
    /// Processes that may not be looked at.
    hidden: usize,
}

fn gather() -> Document {
    let mut found = Document {
        schema: "flagstone.ps/1",
        processes: Vec::new(),
        unreadable: Vec::new(),
        hidden: 0,
    };
    let own = std::process::id();
    for pid in processes().into_iter().filter(|&pid| pid != own) {
        match Target::find(pid).and_then(|_| reading::read(pid, false)) {
            Ok(reading) => found.processes.push(Row::of(&reading)),
            Err(Refusal::NoHeap(_)) => {}
            Err(Refusal::Hidden(line)) => found.hidden += usize::from(line.contains("not yours")),
            Err(Refusal::Line(line)) => found.unreadable.push(line),
        }
    }
    found
        .processes
        .sort_by_key(|row| std::cmp::Reverse(row.rss_bytes));
    found
}

/// Lists them.
///
/// # Errors
/// A usage failure for a file that cannot be written.
pub fn run(args: &Args) -> Outcome {
    let found = gather();
    if document("ps", args.json.path(), &found)? {
        print!("{}", text(&found, Screen::of(&std::io::stdout(), 80)));
    }
    match found.processes.is_empty() {
        false => Ok(ExitCode::SUCCESS),
        true => Err(Failure::Finding(format!(
            "ps: no process runs on Flagstone here{}; start one with `flagstone run`",
            match found.hidden {
                0 => String::new(),
                hidden => format!(", of those you may look at ({hidden} others: {})", needed()),
            }
        ))),
    }
}

fn text(found: &Document, screen: Screen) -> String {
    let mut out = String::new();
    if !found.processes.is_empty() {
        let header = [
            "pid", "program", "rss", "heap", "live", "of heap", "caches", "version",
        ];
        let mut table = table(&header, screen);
        for row in &found.processes {
            table.add_row([
                Cell::new(row.pid),
                Cell::new(&row.program),
                number(size(row.rss_bytes)),
                number(size(row.heap_bytes)),
                number(size(row.live_bytes)),
                number(percent(row.live_bytes, row.heap_bytes)),
                number(row.caches),
                number(&row.version),
            ]);
        }
        push_table(&mut out, &mut table);
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    for line in &found.unreadable {
        out.push_str(&format!("note: {line}\n"));
    }
    if found.hidden > 0 && !found.processes.is_empty() {
        let processes = match found.hidden {
            1 => "one process is".to_owned(),
            hidden => format!("{hidden} processes are"),
        };
        out.push_str(&format!(
            "note: {processes} not yours to look at; {}\n",
            needed()
        ));
    }
    out
}
