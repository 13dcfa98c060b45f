//! `flagstone trace info`.

use super::census::Census;
use super::{Input, failed};
use crate::exit::{Failure, Outcome, one_line};
use flagstone_trace::index::Stream;
use flagstone_trace::{Header, Trace};
use serde::Serialize;
use std::process::ExitCode;

/// What a trace file holds.
///
/// Sizes are those that the program asked for; what an allocator needed for them is what
/// `flagstone replay` shows.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  flagstone trace info app.fst")]
pub struct Args {
    #[command(flatten)]
    input: Input,
    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    file_bytes: u64,
    unread_bytes: u64,
    events: u64,
    seconds: f64,
    header: &'a Header,
    /// Programs by their events, most first; `exec` begins another.
    programs: Vec<Program>,
    counts: Census,
}

/// Programs printed.
const SHOWN: usize = 8;

/// A program that was recorded.
#[derive(Serialize)]
struct Program {
    process: u32,
    parent: u32,
    image: u32,
    name: String,
    events: u64,
    threads: usize,
}

/// The file's programs, those with most events first.
fn programs(trace: &Trace) -> Vec<Program> {
    let mut programs: Vec<Program> = trace
        .processes()
        .iter()
        .map(|described| {
            let of = |stream: &&Stream| {
                (stream.id.process, stream.id.image) == (described.process, described.image)
            };
            let streams = trace.streams().iter().filter(of);
            Program {
                process: described.process,
                parent: described.parent,
                image: described.image,
                name: described.name.clone(),
                events: streams.clone().map(|stream| stream.events).sum(),
                threads: streams.count(),
            }
        })
        .collect();
    programs.sort_by_key(|program| std::cmp::Reverse(program.events));
    programs
}

fn threads(count: usize) -> String {
    match count {
        1 => "1 thread".to_owned(),
        count => format!("{count} threads"),
    }
}

/// Prints what is in a file.
///
/// # Errors
/// A usage failure for a file that is no trace or is damaged.
pub fn run(args: &Args) -> Outcome {
    let trace = args.input.open("trace info")?;
    let mut census = Census::of(trace.processes());
    let mut merged = trace.merged(|_| true);
    loop {
        match merged.next() {
            Ok(Some((_, stream, event))) => census.add(stream, &event),
            Ok(None) => break,
            Err(error) => return Err(failed("trace info", &args.input.file, &error)),
        }
    }
    let document = Document {
        schema: "flagstone.trace-info/1",
        file_bytes: trace.bytes(),
        unread_bytes: trace.unread(),
        events: trace.events(),
        seconds: seconds(&trace),
        header: trace.header(),
        programs: programs(&trace),
        counts: census,
    };
    if args.json {
        let text = serde_json::to_string_pretty(&document);
        println!(
            "{}",
            text.map_err(|error| Failure::Usage(error.to_string()))?
        );
    } else {
        print(&document);
    }
    Ok(ExitCode::SUCCESS)
}

/// Seconds between the first and the last event.
pub(super) fn seconds(trace: &Trace) -> f64 {
    let times = trace.streams().iter().map(|stream| stream.times);
    let first = times.clone().map(|times| times.0).min().unwrap_or(0);
    let last = times.map(|times| times.1).max().unwrap_or(0);
    trace.ns(last - first) / 1e9
}

/// What recorded, on what machine, and the allocator, as far as the file says.
fn origin(header: &Header) -> String {
    let mut text = header.recorder.clone();
    if !header.machine.is_empty() {
        text += &format!(" on {}", header.machine);
    }
    if header.cpus > 0 {
        text += &format!(", {} CPUs", header.cpus);
    }
    if !header.allocator.is_empty() {
        text += &format!("; allocator: {}", header.allocator);
    }
    text
}

/// A text with line ends in its words, as one line; what is long is cut.
fn short(command: &str) -> String {
    /// Letters shown: two lines of a terminal.
    const SHOWN: usize = 160;
    let words: Vec<&str> = command.split_whitespace().collect();
    let text = one_line(&words.join(" "));
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn print(document: &Document<'_>) {
    let (header, counts) = (document.header, &document.counts);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    if !header.command.is_empty() {
        println!("command      {}", short(&header.command.join(" ")));
    }
    println!("recorded by  {}", short(&origin(header)));
    if header.sample > 1 {
        println!("sample       one block in {}", header.sample);
    }
    for note in &header.notes {
        println!("note         {}", one_line(note));
    }
    println!(
        "size         {} events in {:.1} MiB, {:.2} bytes each; {:.2} s",
        document.events,
        mib(document.file_bytes),
        document.file_bytes as f64 / document.events.max(1) as f64,
        document.seconds
    );
    for program in document.programs.iter().take(SHOWN) {
        println!(
            "program      {} (process {}, child of {}): {} events in {}",
            short(&program.name),
            program.process,
            program.parent,
            program.events,
            threads(program.threads)
        );
    }
    if document.programs.len() > SHOWN {
        println!(
            "             and {} more with fewer",
            document.programs.len() - SHOWN
        );
    }
    println!(
        "calls        {} allocations, {} frees ({} by another thread), {} resizes, {} failed",
        counts.allocations,
        counts.frees,
        counts.frees_across_threads,
        counts.reallocations,
        counts.failed
    );
    if counts.page_allocations + counts.page_frees > 0 {
        println!(
            "pages        {} blocks allocated, {} given back",
            counts.page_allocations, counts.page_frees
        );
    }
    println!(
        "live         at most {:.1} MiB in {} blocks; at the end {:.1} MiB in {}",
        mib(counts.peak_live_bytes),
        counts.peak_live_blocks,
        mib(counts.end_live_bytes),
        counts.end_live_blocks
    );
    if counts.inherited_frees > 0 {
        println!(
            "forks        {} frees by children of blocks from before they were forked",
            counts.inherited_frees
        );
    }
    println!(
        "gaps         {} events lost, {} frees of unknown blocks, {} frees missing",
        counts.lost, counts.unknown_frees, counts.missing_frees
    );
}
