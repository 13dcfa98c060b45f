//! `flagstone trace import`: other tools' recordings as traces. The reading is `flagstone-import`'s.

use crate::exit::{Failure, Outcome};
use crate::outfile;
use flagstone_import::{Error, Options};
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Another tool's recording as a trace.
///
/// Reads perf.data (`perf record -e 'kmem:*'`), trace.dat of trace-cmd, the text that `perf script`,
/// `trace-cmd report` and tracefs print, and heaptrack's files. A kernel's trace has a stream for each
/// CPU; sites are the names of caches. Which format a file has is found out.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  perf record -e 'kmem:*' -a -- sleep 5; flagstone trace import -o k.fst perf.data
  trace-cmd record -e kmem sleep 5; flagstone trace import -o k.fst trace.dat
  heaptrack --raw -o h app; flagstone trace import -o app.fst h.raw.zst")]
pub struct Args {
    /// The recording; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The trace file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The machine, for a text that does not say which: as `uname -srm` prints it
    #[arg(long, value_name = "M", default_value = "")]
    machine: String,
    /// A kernel's /proc/slabinfo before and after the recording, as two files
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    slabinfo: Vec<PathBuf>,
    /// Its /proc/zoneinfo before and after
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    zoneinfo: Vec<PathBuf>,
}

/// Imports a recording.
///
/// # Errors
/// A usage failure for a file that cannot be read or written, or has no event.
pub fn run(args: &Args) -> Outcome {
    let told = |file: &Path| {
        std::fs::read_to_string(file)
            .map_err(|error| Failure::Usage(format!("trace import: {}: {error}", file.display())))
    };
    let both = |files: &[PathBuf]| match files {
        [before, after] => Ok(Some((told(before)?, told(after)?))),
        _ => Ok(None),
    };
    let options = Options {
        machine: args.machine.clone(),
        slabs: both(&args.slabinfo)?,
        zones: both(&args.zoneinfo)?,
    };
    import(&args.file, &args.output, &options, "trace import")?;
    Ok(ExitCode::SUCCESS)
}

/// Imports `file` into `output` for a command.
///
/// # Errors
/// As for [`run`].
pub fn import(file: &Path, output: &Path, options: &Options, command: &str) -> Result<(), Failure> {
    let refused = |file: &Path, error: &dyn std::fmt::Display| {
        Failure::Usage(format!("{command}: {}: {error}", file.display()))
    };
    super::files::apart(command, file, output)?;
    let mut source = input(file).map_err(|error| refused(file, &error))?;
    let read = flagstone_import::import(&mut source, options, || File::create(output));
    let summary = read.map_err(|error| match &error {
        Error::Output(_) => refused(output, &error),
        _ => refused(file, &error),
    })?;
    eprintln!("flagstone: {}:", summary.format.name());
    for note in &summary.notes {
        eprintln!("  {note}");
    }
    Ok(())
}

/// The recording as a file that can be read twice.
fn input(file: &Path) -> io::Result<File> {
    if file.as_os_str() != "-" {
        return File::open(file);
    }
    let mut spool = outfile::spool()?;
    io::copy(&mut io::stdin().lock(), &mut spool)?;
    spool.rewind()?;
    Ok(spool)
}
