//! `flagstone host`

use crate::exit::{Failure, Outcome};

/// Show what the running kernel's caches cost, and what another setting would change.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: &Args) -> Outcome {
    Err(Failure::Usage("host: not built yet".into()))
}
