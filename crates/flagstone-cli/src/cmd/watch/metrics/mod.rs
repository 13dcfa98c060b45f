//! `flagstone metrics`: figures of running processes as OpenMetrics.
//!
//! ```text
//!   --textfile F   once, into a file that appears whole         families   names, types, labels
//!   --listen A     at every scrape                              server     GET /metrics
//!   neither        once, on standard output
//! ```

mod families;
mod server;

use super::{pid, refuse};
use crate::exit::{Failure, Outcome};
use crate::outfile;
use crate::watch::reading::{self, Reading};
use crate::watch::target::{Refusal, Target, processes};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write figures of running processes as OpenMetrics, for Prometheus and its relatives.
///
/// Of the given processes, else of all that run on Flagstone and may be looked at. Names are
/// stable: docs/metrics.md lists them. Without an option the text goes to standard output.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone metrics 4711
  flagstone metrics --listen 127.0.0.1:9464
  flagstone metrics --textfile /var/lib/node_exporter/flagstone.prom")]
pub struct Args {
    /// Running processes; all that run on Flagstone if none is given
    #[arg(value_name = "PID", value_parser = pid())]
    pids: Vec<u32>,
    /// Serve GET /metrics at this address until interrupted; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "textfile", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Write the text once into F, which appears whole
    #[arg(long, value_name = "F")]
    textfile: Option<PathBuf>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| "an address and a port, such as 127.0.0.1:9464".to_owned();
    text.parse().map_err(wrong)
}

/// Figures at one moment, and how many processes with a heap could not be read.
struct Gathered {
    readings: Vec<Reading>,
    unreadable: u64,
}

impl Gathered {
    fn of(pids: &[u32]) -> Self {
        let all = pids.is_empty();
        let own = std::process::id();
        let pids = if all { processes() } else { pids.to_vec() };
        let mut gathered = Self {
            readings: Vec::new(),
            unreadable: 0,
        };
        for pid in pids.into_iter().filter(|&pid| pid != own) {
            // To look is cheap, and most processes have no heap of ours.
            match Target::find(pid).and_then(|_| reading::read(pid, false)) {
                Ok(reading) => gathered.readings.push(reading),
                Err(Refusal::NoHeap(_) | Refusal::Hidden(_)) if all => {}
                Err(_) => gathered.unreadable += 1,
            }
        }
        gathered
    }

    fn text(&self) -> Result<String, Failure> {
        families::text(&self.readings, self.unreadable)
            .map_err(|_| Failure::Usage("metrics: the text could not be made".into()))
    }
}

/// Serves, or writes once.
///
/// # Errors
/// One line: a process that cannot be read, an address that is taken, a file that cannot be written.
pub fn run(args: &Args) -> Outcome {
    for &pid in &args.pids {
        reading::read(pid, false).map_err(|refusal| refuse("metrics", refusal))?;
    }
    if let Some(address) = args.listen {
        let listener = server::bind(address)?;
        crate::exit::on_interrupt("");
        return server::serve(&listener, || Gathered::of(&args.pids).text());
    }
    let file = args.textfile.as_deref().unwrap_or(Path::new("-"));
    outfile::writable("metrics: --textfile", file)?;
    let text = Gathered::of(&args.pids).text()?;
    outfile::write("metrics: --textfile", file, &text)?;
    Ok(ExitCode::SUCCESS)
}
