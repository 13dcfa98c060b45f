//! `flagstone stat PID`: where a running process's memory is.

use super::{document, maps, pid, refuse};
use crate::args::JsonBeside;
use crate::cmd::run::answer::{Shares, fragmented_now, worth};
use crate::cmd::run::program;
use crate::cmd::run::reports::Kind;
use crate::cmd::run::runtimes::{Keeps, runtime_of};
use crate::cmd::run::view::{caches, closing, number, push_table, table};
use crate::exit::Outcome;
use crate::terminal::{Screen, percent, size, wrap};
use crate::watch::reading::{self, Reading};
use comfy_table::Cell;
use flagstone_core::stats::Line;
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Show where a running process's memory is: ledger, caches, what a trim would give back.
///
/// The process is not stopped and notices nothing. It needs the rights of a debugger of the same
/// user; a process in a container is read from its host.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone stat 4711
  flagstone stat 4711 --maps
  flagstone stat 4711 --json | jq '.ledger'")]
pub struct Args {
    /// A running process
    #[arg(value_name = "PID", value_parser = pid())]
    pid: u32,
    /// List every mapping instead, and what it is: heap, huge blocks, files, stacks
    #[arg(long)]
    maps: bool,
    #[command(flatten)]
    json: JsonBeside,
}

/// Reads and prints.
///
/// # Errors
/// One line: the process is gone, not yours, or not ours.
pub fn run(args: &Args) -> Outcome {
    if args.maps {
        return maps::run(args.pid, args.json.path());
    }
    let reading = reading::read(args.pid, true).map_err(|refusal| refuse("stat", refusal))?;
    if document("stat", args.json.path(), &reading)? {
        print!("{}", text(&reading, Screen::of(&std::io::stdout(), 80)));
    }
    Ok(ExitCode::SUCCESS)
}

/// The figures as text; 80 columns are enough.
fn text(reading: &Reading, screen: Screen) -> String {
    let mut out = String::new();
    let head = format!(
        "{} (process {}): {} resident, {} of it in the heap, {} of that live ({})",
        reading.program,
        reading.pid,
        size(reading.rss_bytes.unwrap_or(reading.sum_bytes)),
        size(reading.heap_bytes()),
        size(reading.live_bytes()),
        percent(reading.live_bytes(), reading.heap_bytes()),
    );
    out.push_str(&screen.heading(wrap(&head, screen.width, 2).trim_end()));
    out.push('\n');
    let mut answer = fragmented_now(&Shares::of(&reading.ledger));
    if let Some(own) = own_heap(reading) {
        let _ = write!(answer, " {own}");
    }
    out.push_str(&wrap(&answer, screen.width, 2));
    let trim = reading.trim_bytes.map_or(String::new(), |bytes| {
        format!(
            "`flagstone trim {}` would give back {}. ",
            reading.pid,
            size(bytes)
        )
    });
    let line = format!(
        "{trim}Not resident, so in no line: {} of free blocks, {} of blocks in use.",
        size(reading.released_bytes),
        size(reading.untouched_bytes)
    );
    out.push_str(&wrap(&line, screen.width, 2));
    if let Some(bounds) = reading.bounds.sentence() {
        out.push_str(&wrap(&bounds, screen.width, 2));
    }
    out.push('\n');
    ledger(&mut out, reading, screen);
    caches::table_of(&mut out, &reading.caches, screen);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// A sentence about what the program keeps beside malloc or in pools, where that is a large part of the process.
fn own_heap(reading: &Reading) -> Option<String> {
    let executable = format!("/proc/{}/exe", reading.pid);
    let is_go = program::is_go(executable.as_ref());
    let Some(runtime) = runtime_of(&reading.program, is_go) else {
        let bytes = Kind::bytes_of(&reading.outside, Kind::ANONYMOUS);
        return worth(bytes, reading.sum_bytes).then(|| {
            let bytes = size(bytes);
            format!("The program or a library of it maps {bytes} itself, beside malloc.")
        });
    };
    let (bytes, where_) = runtime.bytes(&reading.outside, &reading.caches);
    let change = match runtime.keeps {
        Keeps::Mappings => format!("; try {} at its start", runtime.change),
        Keeps::Blocks(_) => String::new(),
    };
    worth(bytes, reading.sum_bytes).then(|| {
        capital(&format!(
            "{}: {} {where_}{change}.",
            runtime.what,
            size(bytes)
        ))
    })
}

/// A sentence with a capital at its start.
fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters.clone()).collect()
}

/// Every line with a byte in it, largest first; below "outside the heap" its kinds.
fn ledger(out: &mut String, reading: &Reading, screen: Screen) {
    let _ = writeln!(out, "{}", screen.heading("Where its memory is"));
    let mut rows = rows(reading);
    rows.retain(|(_, bytes, _)| *bytes > 0);
    let mut table = table(&["line", "bytes", "share", "what it is"], screen);
    for (name, bytes, sentence) in rows {
        table.add_row([
            Cell::new(name),
            number(size(bytes)),
            number(percent(bytes, reading.sum_bytes)),
            Cell::new(sentence),
        ]);
    }
    table.add_row([
        Cell::new("sum"),
        number(size(reading.sum_bytes)),
        number(""),
        Cell::new(closing(reading.sum_bytes, reading.rss_bytes)),
    ]);
    push_table(out, &mut table);
}

/// The lines of the ledger in the words of readers.
pub fn rows(reading: &Reading) -> Vec<(String, u64, &'static str)> {
    let mut rows: Vec<(String, u64, &str)> = Vec::new();
    for line in Line::ALL {
        let mark = if line.sampled() { " ~" } else { "" };
        let name = format!("{}{mark}", line.title());
        rows.push((name, reading.line(line.name()), line.sentence()));
    }
    rows.sort_by_key(|(_, bytes, _)| Reverse(*bytes));
    let outside = rows
        .iter()
        .position(|(name, ..)| name == Line::NonHeap.title());
    let mut kinds: Vec<&Kind> = reading.outside.iter().collect();
    kinds.sort_by_key(|kind| Reverse(kind.bytes));
    let kinds = kinds.into_iter().map(|kind| {
        let (name, sentence) = kind.words();
        (format!("  {name}"), kind.bytes, sentence)
    });
    if let Some(at) = outside {
        rows.splice(at + 1..at + 1, kinds.collect::<Vec<_>>());
    }
    rows
}
