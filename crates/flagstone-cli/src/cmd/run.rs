//! `flagstone run`

use crate::exit::{Failure, Outcome};

/// Run a command on Flagstone and show where its memory went.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: &Args) -> Outcome {
    Err(Failure::Usage("run: not built yet".into()))
}
