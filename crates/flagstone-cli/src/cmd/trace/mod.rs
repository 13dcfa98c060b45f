//! `flagstone trace`: what is in a trace file, and files made from others.
//!
//! ```text
//!   info   what was recorded, streams, losses, live bytes      head, to-csv   events as text
//!   cut    a part of a file        merge   files as one        import         other tools' files
//! ```

mod census;
mod files;
pub(super) mod import;
mod info;
mod text;

use crate::exit::{Failure, Outcome};
use flagstone_trace::{Error, Trace};
use std::path::{Path, PathBuf};

/// Look into trace files, cut, merge and import them.
#[derive(clap::Subcommand)]
#[command(after_help = "Examples:
  flagstone trace info app.fst
  flagstone trace head -n 20 app.fst
  flagstone trace to-csv app.fst | gzip > app.csv.gz
  flagstone trace import -o kernel.fst perf.data")]
pub enum Command {
    /// What was recorded: program, processes, threads, sizes, the most bytes live at once
    Info(info::Args),
    /// The first events as text
    Head(text::HeadArgs),
    /// All events as CSV on standard output
    #[command(name = "to-csv")]
    ToCsv(text::CsvArgs),
    /// A part of a file: a span of time, or one process
    Cut(files::CutArgs),
    /// Several files as one, their processes side by side
    Merge(files::MergeArgs),
    /// Another tool's recording as a trace: perf.data, trace.dat, text of kernel events, heaptrack
    Import(import::Args),
}

/// Runs a subcommand.
///
/// # Errors
/// A usage failure for a file that is no trace, or one that cannot be written.
pub fn run(command: &Command) -> Outcome {
    match command {
        Command::Info(args) => info::run(args),
        Command::Head(args) => text::head(args),
        Command::ToCsv(args) => text::csv(args),
        Command::Cut(args) => files::cut(args),
        Command::Merge(args) => files::merge(args),
        Command::Import(args) => import::run(args),
    }
}

/// A file to read.
#[derive(clap::Args)]
pub struct Input {
    /// The trace file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Input {
    /// Opens it; says on stderr if its end is missing.
    fn open(&self, command: &str) -> Result<Trace, Failure> {
        open(command, &self.file)
    }
}

/// Opens a trace; says on stderr if its end is missing.
///
/// # Errors
/// A usage failure that names the file.
pub fn open(command: &str, file: &Path) -> Result<Trace, Failure> {
    let trace = Trace::open(file).map_err(|error| failed(command, file, &error))?;
    if trace.unread() > 0 {
        eprintln!(
            "flagstone: {command}: {}: the last {} bytes are no whole frame (the recording was cut off); the rest is read",
            file.display(),
            trace.unread()
        );
    }
    Ok(trace)
}

/// A trace's error as the command's.
pub fn failed(command: &str, file: &Path, error: &Error) -> Failure {
    Failure::Usage(format!("{command}: {}: {error}", file.display()))
}
