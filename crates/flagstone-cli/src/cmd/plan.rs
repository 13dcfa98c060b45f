//! `flagstone plan`

use crate::exit::{Failure, Outcome};

/// Ask what slab orders, list limits and pageset marks a policy chooses.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: &Args) -> Outcome {
    Err(Failure::Usage("plan: not built yet".into()))
}
