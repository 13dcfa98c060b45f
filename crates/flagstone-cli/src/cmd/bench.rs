//! `flagstone bench`

use crate::exit::{Failure, Outcome};

/// Compare Flagstone with the allocators installed here.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: &Args) -> Outcome {
    Err(Failure::Usage("bench: not built yet".into()))
}
