//! Commands about running processes: `ps`, `stat`, `top`, `get`, `set`, `trim`, `verify`, `metrics`.
//!
//! ```text
//!   ps · stat · top · get · metrics     read only (crate::watch::reading)
//!   verify                              reads several copies
//!   set · trim                          tell, and wait for the answer (crate::watch::tell)
//! ```

pub mod get;
mod maps;
pub mod metrics;
pub mod ps;
pub mod set;
pub mod stat;
pub mod top;
pub mod trim;
pub mod verify;

use crate::exit::Failure;
use crate::watch::target::Refusal;
use std::path::Path;
use std::time::Duration;

/// One line of a refusal, as the command `name` says it.
fn refuse(name: &str, refusal: Refusal) -> Failure {
    Failure::Usage(format!("{name}: {}", refusal.line()))
}

/// A process's number.
fn pid() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// How long an answer is waited for.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Patience {
    /// Seconds to wait for the process's next slow path
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u16).range(0..=3600))]
    wait: u16,
}

impl Patience {
    fn time(self) -> Duration {
        Duration::from_secs(self.wait.into())
    }
}

/// What is said of a process that takes no slow path.
fn idle(pid: u32, what: &str) -> String {
    format!(
        "process {pid} is idle: it took no slow path of malloc meanwhile; {what} at its next one"
    )
}

/// Writes a document where it is asked for; whether text is to be printed as well.
fn document<T: serde::Serialize>(
    name: &str,
    file: Option<&Path>,
    document: &T,
) -> Result<bool, Failure> {
    if let Some(file) = file {
        crate::outfile::write_json(&format!("{name}: --json"), file, document)?;
    }
    Ok(file != Some(Path::new("-")))
}
