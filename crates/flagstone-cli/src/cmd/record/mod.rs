//! `flagstone record`: what a command asks of its allocator, as a trace file.
//!
//! ```text
//!   header ──► FILE     the recorder (a preloaded library of its own) appends chunks to it,
//!   CMD starts           from every thread and every process, whichever allocator is below
//!   CMD ends  ──► a line: events, processes, bytes
//! ```

mod kernel;

use super::run::{child, last::Last, program};
use crate::exit::{Failure, Outcome};
use crate::{preload, suggest};
use flagstone_trace::frame::Kind;
use flagstone_trace::header::SCHEMA;
use flagstone_trace::{Header, Trace, clock, write};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Record what a command asks of its allocator.
///
/// Every allocation and free of all its threads and processes goes to one file, in the format of
/// docs/trace-format.md. The allocator below stays as it is: Flagstone, the C library's, or any
/// library to preload. `flagstone trace` reads the file, `flagstone replay` runs it again.
///
/// A full disk or a full file ends the recording with one line, not the command.
///
/// Exit status: that of the command; 127 if it is not found, 126 if it cannot be executed, 2 for a
/// wrong call or a program no library can be put into.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone record -o python.fst -- python3 app.py
  flagstone record --under glibc --max-size 2G -o redis.fst -- redis-server --port 7777
  sudo flagstone record --kernel 5s -o kernel.fst")]
pub struct Args {
    /// The trace file; an existing one is replaced
    #[arg(short, long, value_name = "FILE", default_value = "flagstone.fst")]
    output: PathBuf,
    /// The allocator below: `flagstone`, `glibc` (the C library's own), or a library to preload
    #[arg(long, value_name = "NAME|FILE.so", default_value = "flagstone")]
    under: OsString,
    /// Record one block in N, chosen by address
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// Most bytes of the file; a size may end in K, M, G or T
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// Record this kernel's own allocation events for so long instead (root and tracefs)
    #[arg(long, value_name = "TIME", value_parser = kernel::span, conflicts_with_all = ["command", "under", "sample", "max_size"])]
    kernel: Option<std::time::Duration>,
    /// Print nothing afterwards
    #[arg(long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(
        required_unless_present = "kernel",
        trailing_var_arg = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

/// A size in bytes; K, M, G and T are powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    suggest::bytes(text).ok_or_else(|| format!("{text} is no size: 64M, 64K, 2G and 1T are"))
}

/// Records the command.
///
/// # Errors
/// A usage failure for a file that cannot be written, or a program no library can be put into.
pub fn run(args: &Args) -> Outcome {
    if let Some(span) = args.kernel {
        kernel::record(span, &args.output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let program = match program::find(&args.command[0]) {
        Ok(program) => program,
        Err(program::Refusal::Code(code, line)) => {
            eprintln!("flagstone: record: {line}");
            return Ok(ExitCode::from(code));
        }
        Err(program::Refusal::Usage(line)) => {
            return Err(Failure::Usage(format!("record: {line}")));
        }
    };
    let under = under(&args.under)?;
    let file = begin(args)?;
    let mut libraries = vec![preload::library_path(&preload::RECORDER)?];
    libraries.extend(under);
    let started = child::run(&child::Start {
        program: &program,
        command: &args.command,
        preload: &libraries,
        variables: &variables(args, &file),
        output: child::Output::Own,
        documents: None,
    });
    let ended = match started {
        Ok(ended) => ended,
        Err(child::NotStarted { code, line }) => {
            eprintln!("flagstone: record: {line}");
            return Ok(ExitCode::from(code));
        }
    };
    if !args.quiet {
        tell(&file, &ended, &libraries[0])?;
    }
    Ok(ExitCode::from(ended.code()))
}

/// The library below the recorder, if it is not the C library.
fn under(name: &OsString) -> Result<Option<PathBuf>, Failure> {
    match name.to_str() {
        Some("flagstone") => preload::library_path(&preload::PRODUCT).map(Some),
        Some("glibc" | "libc" | "system") => Ok(c_library()),
        _ => {
            let path = Path::new(name);
            path.canonicalize().map(Some).map_err(|error| {
                let meant = suggest::question(&name.to_string_lossy(), ["flagstone", "glibc"]);
                Failure::Usage(format!(
                    "record: --under {}: {error}; {meant}give flagstone, glibc or the path of a library",
                    path.display()
                ))
            })
        }
    }
}

/// The C library's file: preloaded, it comes before an allocator that the program itself is linked to.
fn c_library() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let mut found = paths.filter(|path| path.ends_with("/libc.so.6"));
    found.next().map(PathBuf::from)
}

/// Writes the header; the file's whole path.
fn begin(args: &Args) -> Result<PathBuf, Failure> {
    let refused = |error: &dyn std::fmt::Display| {
        Failure::Usage(format!(
            "record: {}: {error}; give -o the name of a file",
            args.output.display()
        ))
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&args.output)
        .map_err(|error| refused(&error))?;
    let header = serde_json::to_vec(&header(args)).map_err(|error| refused(&error))?;
    write::write_text(&mut file, Kind::Header, 0, &header).map_err(|error| refused(&error))?;
    args.output.canonicalize().map_err(|error| refused(&error))
}

/// The machine: system, release, architecture.
fn system() -> String {
    let told = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.unwrap_or_default().trim().to_owned()
    };
    let arch = std::env::consts::ARCH;
    format!("{} {} {arch}", told("ostype"), told("osrelease"))
}

fn header(args: &Args) -> Header {
    let words = args.command.iter();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Header {
        schema: SCHEMA.into(),
        recorder: concat!("flagstone record ", env!("CARGO_PKG_VERSION")).into(),
        command: words.map(|word| word.to_string_lossy().into()).collect(),
        allocator: args.under.to_string_lossy().into(),
        machine: system(),
        cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
        page_size: page_size(),
        tick_ns: clock::tick_ns(),
        began: since.map_or(0, |since| since.as_secs()),
        sample: args.sample,
        sites: Vec::new(),
        notes: Vec::new(),
        caches: Vec::new(),
        zones: Vec::new(),
    }
}

fn page_size() -> u64 {
    procfs_page_size().unwrap_or(4096)
}

/// Bytes of a page, as the kernel tells this process at its start.
fn procfs_page_size() -> Option<u64> {
    const AT_PAGESZ: u64 = 6;
    let pairs = std::fs::read("/proc/self/auxv").ok()?;
    let word = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
    pairs
        .chunks_exact(16)
        .find_map(|pair| (word(&pair[..8])? == AT_PAGESZ).then(|| word(&pair[8..]))?)
}

fn variables(args: &Args, file: &Path) -> Vec<(OsString, Option<OsString>)> {
    let most = args.max_size.unwrap_or(u64::MAX).to_string();
    vec![
        ("FLAGSTONE_RECORD_FILE".into(), Some(file.into())),
        ("FLAGSTONE_RECORD_BYTES".into(), Some(most.into())),
        (
            "FLAGSTONE_RECORD_SAMPLE".into(),
            Some(args.sample.to_string().into()),
        ),
    ]
}

/// One line about the file, and one about what is not in it.
fn tell(file: &Path, ended: &child::Ended, recorder: &Path) -> Result<(), Failure> {
    let trace = Trace::open(file)
        .map_err(|error| Failure::Finding(format!("record: {}: {error}", file.display())))?;
    let events = trace.events();
    eprintln!(
        "flagstone: {events} events of {} in {}: {:.1} MiB, {:.2} bytes each; look: flagstone trace info {}",
        match trace.processes().len() {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        },
        file.display(),
        trace.bytes() as f64 / f64::from(1 << 20),
        trace.bytes() as f64 / events.max(1) as f64,
        file.display(),
    );
    if let Some(line) = missing(&trace, ended, recorder) {
        eprintln!("flagstone: record: {line}");
    } else if events == 0 {
        eprintln!("flagstone: record: no event: the command is static, or a shell's built-in");
    }
    Ok(())
}

/// Why the last program of the command's process has no event, where it is certain that it has none: a program may
/// change its own name.
fn missing(trace: &Trace, ended: &child::Ended, recorder: &Path) -> Option<String> {
    let last: &Last = ended.last.as_ref()?;
    let own = |process: &&flagstone_trace::header::Process| process.process as i32 == ended.process;
    let mut names = trace.processes().iter().filter(own).map(|one| &one.name);
    // As the recorder writes names.
    let plain = |c: char| {
        if c.is_ascii_graphic() && c != '"' && c != '\\' {
            c
        } else {
            '_'
        }
    };
    let shown: String = last.name.chars().map(plain).collect();
    let is_there = names.any(|name| *name == shown);
    let is_program = || program::find(last.name.as_ref()).is_ok();
    let is_certain = last.closed(recorder).is_some() || is_program();
    (!is_there && is_certain).then(|| {
        format!(
            "nothing of {} is in the file: {}",
            last.name,
            last.why(recorder)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_suffixes() {
        assert_eq!(size("64K"), Ok(64 << 10));
        assert_eq!(size("2G"), Ok(2 << 30));
        assert_eq!(size("7"), Ok(7));
        assert_eq!(size("1T"), Ok(1 << 40));
        assert!(size("7P").unwrap_err().contains("64M"));
        assert!(size("99999999999999999999G").is_err());
        assert!(size("").is_err());
    }

    #[test]
    fn the_kernel_tells_a_page_size() {
        assert!(page_size().is_power_of_two() && page_size() >= 4096);
    }
}
