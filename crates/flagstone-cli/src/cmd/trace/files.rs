//! `flagstone trace cut` and `merge`: files made from others.

use super::{Input, failed, open};
use crate::exit::{Failure, Outcome};
use core::ops::RangeInclusive;
use flagstone_trace::index::StreamId;
use flagstone_trace::write::Writer;
use flagstone_trace::{Error, Event, Header, Trace};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A part of a trace as a file of its own.
///
/// Blocks allocated before the part begins are unknown in it: their frees are counted, not lost.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone trace cut --from 2 --to 5.5 -o part.fst app.fst
  flagstone trace cut --process 4711 -o one.fst app.fst")]
pub struct CutArgs {
    #[command(flatten)]
    input: Input,
    /// The new file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// First second, counted from the first event
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    from: f64,
    /// Up to this second, which belongs to the next part
    #[arg(long, value_name = "SECONDS", default_value_t = f64::INFINITY)]
    to: f64,
    /// Only this process
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
}

/// Several traces as one; each keeps its own time from zero.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  flagstone trace merge -o both.fst one.fst other.fst")]
pub struct MergeArgs {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The new file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// The writer's and the reader's errors.
enum Stop {
    Trace(PathBuf, Error),
    Output(io::Error),
}

fn told(command: &str, output: &Path, stop: Stop) -> Failure {
    match stop {
        Stop::Trace(file, error) => failed(command, &file, &error),
        Stop::Output(error) => Failure::Usage(format!("{command}: {}: {error}", output.display())),
    }
}

/// Writes the part.
///
/// # Errors
/// A usage failure for a file that cannot be read or written, or an empty span.
pub fn cut(args: &CutArgs) -> Outcome {
    let command = "trace cut";
    if args.from >= args.to {
        return Err(Failure::Usage(format!(
            "{command}: --from {} is not before --to {}",
            args.from, args.to
        )));
    }
    let trace = args.input.open(command)?;
    apart(command, &args.input.file, &args.output)?;
    let first = start(&trace);
    let span = |time: u64| trace.ns(time - first) / 1e9;
    // A second's unit, one less and one more for the rounding.
    let unit = |seconds: f64| (seconds * 1e9 / trace.header().tick_ns) as u64;
    let least = first.saturating_add(unit(args.from).saturating_sub(1));
    let most = first.saturating_add(unit(args.to)).saturating_add(1);
    let part = Part {
        process: args.process,
        times: least..=most,
        is_in: |time| (args.from..args.to).contains(&span(time)),
    };
    write_part(&trace, &args.input.file, &args.output, &part)
        .map_err(|stop| told(command, &args.output, stop))?;
    Ok(ExitCode::SUCCESS)
}

fn start(trace: &Trace) -> u64 {
    let firsts = trace.streams().iter().map(|stream| stream.times.0);
    firsts.min().unwrap_or(0)
}

/// What of a trace is wanted.
struct Part<F> {
    process: Option<u32>,
    /// No event beyond these times is.
    times: RangeInclusive<u64>,
    is_in: F,
}

fn write_part(
    trace: &Trace,
    input: &Path,
    output: &Path,
    part: &Part<impl Fn(u64) -> bool>,
) -> Result<(), Stop> {
    let wanted = |number: u32| part.process.is_none_or(|process| process == number);
    let mut writer = create(output, trace.header())?;
    for described in trace.processes() {
        if wanted(described.process) {
            writer.process(described).map_err(Stop::Output)?;
        }
    }
    for stream in trace.streams().iter().filter(|s| wanted(s.id.process)) {
        trace
            .each_about(stream, part.times.clone(), |time, event| {
                if (part.is_in)(time) {
                    writer
                        .event(stream.id, stream.thread, time, &event)
                        .map_err(Error::Io)?;
                }
                Ok(())
            })
            .map_err(|error: Error| Stop::Trace(input.to_owned(), error))?;
        writer.end(stream.id).map_err(Stop::Output)?;
    }
    writer.finish().map_err(Stop::Output).map(drop)
}

fn create(output: &Path, header: &Header) -> Result<Writer<BufWriter<File>>, Stop> {
    let file = File::create(output).map_err(Stop::Output)?;
    Writer::new(BufWriter::new(file), header).map_err(Stop::Output)
}

/// Refuses to write over what is read.
///
/// # Errors
/// A usage failure that names the file.
pub(super) fn apart(command: &str, input: &Path, output: &Path) -> Result<(), Failure> {
    let file = |path: &Path| std::fs::metadata(path).map(|about| (about.dev(), about.ino()));
    match (file(input), file(output)) {
        (Ok(read), Ok(written)) if read == written => Err(Failure::Usage(format!(
            "{command}: {} is read: write to another file",
            output.display()
        ))),
        _ => Ok(()),
    }
}

/// Writes the files as one.
///
/// # Errors
/// As for [`cut`]; files of different clocks or page sizes are refused.
pub fn merge(args: &MergeArgs) -> Outcome {
    let command = "trace merge";
    let mut traces = Vec::new();
    for file in &args.files {
        traces.push((file, open(command, file)?));
        apart(command, file, &args.output)?;
    }
    let (name, first) = &traces[0];
    for (file, trace) in &traces[1..] {
        if trace.header().page_size != first.header().page_size {
            return Err(Failure::Usage(format!(
                "{command}: {} and {} have pages of different sizes",
                name.display(),
                file.display()
            )));
        }
    }
    together(&traces, &args.output).map_err(|stop| told(command, &args.output, stop))?;
    Ok(ExitCode::SUCCESS)
}

/// The header of all files, and for each the number that each of its sites has there: a name is there once. What /proc
/// said of one kernel is not said of several.
fn common(traces: &[(&PathBuf, Trace)]) -> (Header, Vec<Vec<u32>>) {
    let mut header = traces[0].1.header().clone();
    if traces.len() > 1 {
        header.caches.clear();
        header.zones.clear();
    }
    header.sites.clear();
    let mut known = HashMap::new();
    let mut number = |site: &String| {
        let next = known.len() as u32 + 1;
        *known.entry(site.clone()).or_insert_with(|| {
            header.sites.push(site.clone());
            next
        })
    };
    let sites = |trace: &Trace| trace.header().sites.iter().map(&mut number).collect();
    let numbers = traces.iter().map(|(_, trace)| trace).map(sites).collect();
    (header, numbers)
}

/// An event whose site has its new number.
fn renumbered(mut event: Event, numbers: &[u32]) -> Event {
    if let Event::Alloc { request, .. } = &mut event
        && let Some(at) = (request.site as usize).checked_sub(1)
    {
        request.site = numbers.get(at).copied().unwrap_or(0);
    }
    event
}

fn together(traces: &[(&PathBuf, Trace)], output: &Path) -> Result<(), Stop> {
    let (header, numbers) = common(traces);
    let mut writer = create(output, &header)?;
    let unit = header.tick_ns;
    for (number, (file, trace)) in traces.iter().enumerate() {
        // Processes of different files may have one number; their programs then differ.
        let image = |image: u32| image.wrapping_add(number as u32);
        for process in trace.processes() {
            let mut process = process.clone();
            process.image = image(process.image);
            writer.process(&process).map_err(Stop::Output)?;
        }
        let zero = start(trace);
        for stream in trace.streams() {
            let id = StreamId {
                image: image(stream.id.image),
                ..stream.id
            };
            trace
                .each(stream, |time, event| {
                    let time = (trace.ns(time - zero) / unit) as u64;
                    let event = renumbered(event, &numbers[number]);
                    writer
                        .event(id, stream.thread, time, &event)
                        .map_err(Error::Io)
                })
                .map_err(|error: Error| Stop::Trace((*file).clone(), error))?;
            writer.end(id).map_err(Stop::Output)?;
        }
    }
    writer.finish().map_err(Stop::Output).map(drop)
}
