//! `flagstone trace cut` and `merge`: files made from others.

use super::{Input, failed, open};
use crate::exit::{Failure, Outcome};
use flagstone_trace::index::StreamId;
use flagstone_trace::write::Writer;
use flagstone_trace::{Error, Trace};
use std::fs::File;
use std::io::{self, BufWriter};
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
    let first = start(&trace);
    let span = |time: u64| trace.ns(time - first) / 1e9;
    let input = &args.input.file;
    part(&trace, input, &args.output, args.process, |time| {
        (args.from..args.to).contains(&span(time))
    })
    .map_err(|stop| told(command, &args.output, stop))?;
    Ok(ExitCode::SUCCESS)
}

fn start(trace: &Trace) -> u64 {
    let firsts = trace.streams().iter().map(|stream| stream.times.0);
    firsts.min().unwrap_or(0)
}

fn part(
    trace: &Trace,
    input: &Path,
    output: &Path,
    process: Option<u32>,
    is_in: impl Fn(u64) -> bool,
) -> Result<(), Stop> {
    let wanted = |number: u32| process.is_none_or(|process| process == number);
    let mut writer = create(output, trace)?;
    for described in trace.processes() {
        if wanted(described.process) {
            writer.process(described).map_err(Stop::Output)?;
        }
    }
    for stream in trace.streams().iter().filter(|s| wanted(s.id.process)) {
        trace
            .each(stream, |time, event| {
                if is_in(time) {
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

fn create(output: &Path, like: &Trace) -> Result<Writer<BufWriter<File>>, Stop> {
    let file = File::create(output).map_err(Stop::Output)?;
    Writer::new(BufWriter::new(file), like.header()).map_err(Stop::Output)
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

fn together(traces: &[(&PathBuf, Trace)], output: &Path) -> Result<(), Stop> {
    let mut writer = create(output, &traces[0].1)?;
    let unit = traces[0].1.header().tick_ns;
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
