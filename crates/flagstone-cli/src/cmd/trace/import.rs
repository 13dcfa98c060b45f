//! `flagstone trace import`: kernel events as a trace, a stream for each CPU.
//!
//! Kernels free objects without an event (in bulk, after a grace period). An allocation at an address
//! that is in use shows that; the importer puts the missing free before it and counts it. The text is
//! read twice: the header, which comes first, names all caches.

use super::kernel::{Line, What, parse};
use crate::exit::{Failure, Outcome};
use flagstone_trace::header::SCHEMA;
use flagstone_trace::index::StreamId;
use flagstone_trace::write::Writer;
use flagstone_trace::{Event, Header, Process, Request};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Most bytes of a line; longer ones are no events.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Kernel events in tracefs's text form as a trace.
///
/// Reads what `perf script`, `trace-cmd report` and tracefs print of the events kmem_cache_alloc,
/// kmem_cache_free, kmalloc, kfree, mm_page_alloc and mm_page_free. The trace has a stream for each
/// CPU; sites are the names of caches.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  perf record -e 'kmem:*' -a -- sleep 5; perf script | flagstone trace import -o k.fst -
  flagstone trace import -o k.fst trace.txt")]
pub struct Args {
    /// The text; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The trace file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// What reading the text came to.
#[derive(Default)]
struct Found {
    caches: Vec<String>,
    numbers: HashMap<String, u32>,
    live: HashSet<u64>,
    lines: u64,
    events: u64,
    others: u64,
    internal: u64,
    inferred: u64,
    unknown: u64,
    backwards: u64,
    last: u64,
    cpus: u32,
}

/// Imports a text.
///
/// # Errors
/// A usage failure for a file that cannot be read or written, or has no such event.
pub fn run(args: &Args) -> Outcome {
    import(&args.file, &args.output, "trace import")?;
    Ok(ExitCode::SUCCESS)
}

/// Imports `file` into `output` for a command.
///
/// # Errors
/// As for [`run`].
pub fn import(file: &Path, output: &Path, command: &str) -> Result<(), Failure> {
    let refused = |file: &Path, error: &dyn std::fmt::Display| {
        Failure::Usage(format!("{command}: {}: {error}", file.display()))
    };
    let mut text = input(file).map_err(|error| refused(file, &error))?;
    let mut found = Found::default();
    let read = found.read(&mut text, |_, _, _| Ok(()));
    read.map_err(|error| refused(file, &error))?;
    if found.events == 0 {
        let why = "no kmem event in it; `perf script` and `trace-cmd report` print such lines";
        return Err(refused(file, &why));
    }
    text.rewind().map_err(|error| refused(file, &error))?;
    let trace = File::create(output).map_err(|error| refused(output, &error))?;
    write(&found, &mut text, trace).map_err(|error| refused(output, &error))?;
    eprintln!("flagstone: {}", found.summary());
    Ok(())
}

/// The text as a file that can be read twice.
fn input(file: &Path) -> io::Result<File> {
    if file.as_os_str() != "-" {
        return File::open(file);
    }
    let mut spool = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut spool)?;
    spool.rewind()?;
    Ok(spool)
}

fn write(found: &Found, text: &mut File, file: File) -> io::Result<()> {
    let header = Header {
        schema: SCHEMA.into(),
        recorder: concat!("flagstone trace import ", env!("CARGO_PKG_VERSION")).into(),
        command: Vec::new(),
        allocator: "kernel".into(),
        machine: String::new(),
        cpus: found.cpus,
        page_size: 4096,
        tick_ns: 1.0,
        began: 0,
        sample: 1,
        sites: found.caches.clone(),
        notes: vec![found.summary()],
    };
    let mut writer = Writer::new(BufWriter::new(file), &header)?;
    writer.process(&Process {
        name: "kernel".into(),
        ..Process::default()
    })?;
    Found::default().read(text, |cpu, ns, event| {
        let id = StreamId {
            process: 0,
            image: 0,
            stream: cpu + 1,
        };
        writer.event(id, cpu, ns, event)
    })?;
    writer.finish().map(drop)
}

impl Found {
    fn summary(&self) -> String {
        format!(
            "{} kernel events of {} caches on {} CPUs; {} frees without an event, inferred where their \
             address was allocated again; {} frees of objects older than the trace; {} lines of the \
             allocator's own moves, {} other lines; {} lines with a clock that went backwards",
            self.events,
            self.caches.len(),
            self.cpus,
            self.inferred,
            self.unknown,
            self.internal,
            self.others,
            self.backwards
        )
    }

    /// Reads all lines and hands on what they tell: CPU, time, event.
    fn read(
        &mut self,
        text: &mut File,
        mut hand_on: impl FnMut(u32, u64, &Event) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut reader = BufReader::new(text);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let mut line = (&mut reader).take(LINE_BYTES_MAX);
            if line.read_until(b'\n', &mut bytes)? == 0 {
                return Ok(());
            }
            self.lines += 1;
            match std::str::from_utf8(&bytes).ok().and_then(parse) {
                Some(line) => self.line(&line, &mut hand_on)?,
                None => self.others += 1,
            }
        }
    }

    fn line(
        &mut self,
        line: &Line<'_>,
        hand_on: &mut impl FnMut(u32, u64, &Event) -> io::Result<()>,
    ) -> io::Result<()> {
        if line.ns < self.last {
            self.backwards += 1;
        }
        let ns = line.ns.max(self.last);
        self.last = ns;
        self.cpus = self.cpus.max(line.cpu.saturating_add(1));
        self.events += 1;
        let event = match line.what {
            What::Alloc {
                pointer,
                cache,
                requested,
                given,
            } => {
                if !self.live.insert(pointer) {
                    self.inferred += 1;
                    hand_on(line.cpu, ns, &Event::Free { address: pointer })?;
                }
                let request = Request {
                    size: requested,
                    site: self.cache(cache, given),
                    ..Request::default()
                };
                Event::Alloc {
                    address: pointer,
                    request,
                }
            }
            What::Free { pointer } => {
                if !self.live.remove(&pointer) {
                    self.unknown += 1;
                }
                Event::Free { address: pointer }
            }
            What::PageAlloc {
                pfn,
                order,
                migratetype,
            } => Event::PageAlloc {
                pfn,
                order,
                migratetype,
            },
            What::PageFree { pfn, order } => Event::PageFree { pfn, order },
            What::Internal => {
                self.internal += 1;
                self.events -= 1;
                return Ok(());
            }
        };
        hand_on(line.cpu, ns, &event)
    }

    /// The number of a cache, from 1; one of `kmalloc` is named by its object size.
    fn cache(&mut self, name: Option<&str>, given: u64) -> u32 {
        let name = name.map_or_else(|| format!("kmalloc-{given}"), str::to_owned);
        if let Some(&number) = self.numbers.get(&name) {
            return number;
        }
        self.caches.push(name.clone());
        let number = self.caches.len() as u32;
        self.numbers.insert(name, number);
        number
    }
}
