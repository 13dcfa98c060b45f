//! `flagstone sim`

use crate::exit::{Failure, Outcome};

/// Run the core on virtual CPUs in virtual time.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: &Args) -> Outcome {
    Err(Failure::Usage("sim: not built yet".into()))
}
