//! A setting beside the default on real threads: what `flagstone tune --confirm` asks for.

use super::figures::Figure;
use super::{Pace, compile, measure};
use crate::cmd::bench::{FLAGSTONE, choose_allocators};
use serde::Serialize;
use std::path::Path;

/// Figures of the default and of the setting, from runs that took turns.
#[derive(Debug, Serialize)]
pub struct Confirmed {
    /// Runs of each.
    pub runs: u32,
    /// Processor time of an operation in nanoseconds.
    pub default_cpu_ns_per_op: Figure,
    /// With the setting.
    pub tuned_cpu_ns_per_op: Figure,
    /// Resident bytes of the allocator, the mean over the operations.
    pub default_mean_bytes: Figure,
    /// With the setting.
    pub tuned_mean_bytes: Figure,
}

/// Replays a trace on the library as it is and with a setting (`KEY:VALUE,..`).
///
/// # Errors
/// One line.
pub fn confirm(file: &Path, conf: &str, runs: u32) -> Result<Confirmed, String> {
    let trace = flagstone_trace::Trace::open(file).map_err(|error| error.to_string())?;
    let compiled = compile::compile(&trace, None, None).map_err(|why| why.to_string())?;
    let chosen = choose_allocators(&[FLAGSTONE.to_owned()])?;
    let allocator = chosen.first().ok_or("no library")?;
    let (mut plain, mut tuned) = (Vec::new(), Vec::new());
    for round in 0..runs {
        // Who goes first changes, so that neither always meets the colder machine.
        for turn in 0..2 {
            let with = (round + turn) % 2 == 1;
            let conf = if with { conf } else { "" };
            let run = measure::play_with(&trace, &compiled, allocator, Pace::Fast, conf)?;
            if with { &mut tuned } else { &mut plain }.push(run);
        }
    }
    let ops = compiled.head.ops.max(1) as f64;
    let cpu = |runs: &[measure::Run]| Figure::of(runs.iter().map(|run| run.cpu_ns as f64 / ops));
    let mean = |runs: &[measure::Run]| Figure::of(runs.iter().map(measure::Run::mean));
    Ok(Confirmed {
        runs,
        default_cpu_ns_per_op: cpu(&plain),
        tuned_cpu_ns_per_op: cpu(&tuned),
        default_mean_bytes: mean(&plain),
        tuned_mean_bytes: mean(&tuned),
    })
}
