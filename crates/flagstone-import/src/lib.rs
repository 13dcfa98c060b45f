//! Other tools' recordings as `flagstone-trace/1`.
//!
//! ```text
//!   text      perf script, trace-cmd report, tracefs     text.rs
//!   binary    perf.data                                  perf.rs   ─┐ fields by the event formats
//!             trace.dat, versions 6 and 7                dat.rs    ─┘ in the file: formats.rs
//!   programs  heaptrack, raw and interpreted             heaptrack.rs
//!
//!   a reader ─ told.rs ─► gather.rs: streams on disk ─► infer.rs: merged by time, what has no event
//! ```
//!
//! Nothing here trusts what it reads: a size is compared with the file's length and a bound of its own
//! before memory is taken ([`input`]), and a file that lies ends in one line ([`Error`]).
#![forbid(unsafe_code)]

mod dat;
mod detect;
mod formats;
mod gather;
mod heaptrack;
mod infer;
pub mod input;
mod kmalloc;
mod packed;
mod perf;
mod perf_samples;
pub mod probe;
mod ring;
mod slabs;
mod text;
mod told;

pub use detect::Format;
pub use text::{BEGUN, ENDED};
pub use told::{About, Sink, What};

use input::Source;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};

/// Most blocks that may live at once, and most frees of objects older than a recording. Each takes some
/// thirty bytes; a file that needs more is refused, not served until memory ends.
pub const LIVE_MAX: usize = 1 << 26;

/// Why a file cannot be imported.
#[derive(Debug)]
pub enum Error {
    /// Reading or the temporary file failed.
    Io(io::Error),
    /// The new file could not be written.
    Output(io::Error),
    /// It is no recording, or one that cannot be served; the line says why.
    Foreign(String),
    /// It is damaged: where, and what is wrong.
    Damaged {
        /// Byte of the file.
        at: u64,
        /// What is wrong.
        what: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) | Self::Output(error) => error.fmt(out),
            Self::Foreign(why) => out.write_str(why),
            Self::Damaged { at, what } => write!(out, "damaged at byte {at}: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<flagstone_trace::Error> for Error {
    fn from(error: flagstone_trace::Error) -> Self {
        match error {
            flagstone_trace::Error::Io(error) => Self::Io(error),
            other => Self::Io(io::Error::other(other.to_string())),
        }
    }
}

/// What an import came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Which kind of file it was.
    pub format: Format,
    /// What is in the trace and what had to be inferred, with counts; a sentence each.
    pub notes: Vec<String>,
    /// Events that the recorder had no room for.
    pub lost: u64,
}

/// What the caller knows besides the file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// The machine, for files that do not say which: system, release, architecture.
    pub machine: String,
    /// A kernel's caches before and after, as /proc/slabinfo had them.
    pub slabs: Option<(String, String)>,
    /// Its zones before and after, as /proc/zoneinfo had them.
    pub zones: Option<(String, String)>,
}

/// Reads a recording and writes it as a trace.
///
/// # Errors
/// See [`Error`]; nothing that was written is complete then.
pub fn import(
    source: &mut dyn Source,
    options: &Options,
    out: impl FnOnce() -> io::Result<File>,
) -> Result<Summary, Error> {
    let format = Format::detect(source)?;
    let mut gather = gather::Gather::new(format)?;
    let about = read(format, source, &mut gather)?;
    let gathered = gather.finish(about)?;
    if gathered.events == 0 {
        return Err(Error::Foreign(format.empty().into()));
    }
    let file = out().map_err(Error::Output)?;
    let (notes, mut file) = infer::write(&gathered, options, file)?;
    file.flush().map_err(Error::Output)?;
    Ok(Summary {
        format,
        notes,
        lost: gathered.lost,
    })
}

/// Hands what a file of this format tells to `sink`, in the file's order.
///
/// # Errors
/// See [`Error`], and the sink's.
pub fn read(format: Format, source: &mut dyn Source, sink: &mut dyn Sink) -> Result<About, Error> {
    match format {
        Format::Text => text::read(source, sink),
        Format::Perf => perf::read(source, sink),
        Format::Dat => dat::read(source, sink),
        Format::Heaptrack => heaptrack::read(source, sink),
    }
}
