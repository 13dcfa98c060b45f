//! `flagstone sim interleave`: random programs at every interleaving, until something breaks.

use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::outfile;
use flagstone_sim::Plant;
use flagstone_sim::interleave::check;
use rayon::prelude::*;
use serde::Serialize;
use std::process::ExitCode;

/// The document of `--json`.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    first_seed: u64,
    seeds: u64,
    operations: u64,
    failures: Vec<String>,
}

/// Run random programs with every access interleaved, and check all invariants.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  flagstone sim interleave --seeds 10k")]
pub struct InterleaveArgs {
    /// First seed
    #[arg(long, default_value = "1", value_name = "S")]
    seed: String,
    /// Number of seeds
    #[arg(long, default_value = "1", value_name = "K")]
    seeds: String,
    #[command(flatten)]
    json: Json,
}

/// Runs the seeds; prints one line for each that fails, with the call that shows it again.
pub(super) fn run(args: &InterleaveArgs) -> Outcome {
    let seeds = super::seeds(&args.seed, &args.seeds).map_err(super::usage)?;
    outfile::all_writable("sim interleave", args.json.path(), &[])?;
    let bar = super::progress(seeds.len() as u64);
    let outcomes: Vec<_> = seeds
        .par_iter()
        .map(|&seed| {
            let outcome = check(seed, Plant::Nothing);
            bar.inc(1);
            outcome
        })
        .collect();
    bar.finish_and_clear();
    let operations = outcomes
        .iter()
        .flatten()
        .map(|summary| summary.operations)
        .sum();
    let failures: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| outcome.as_ref().err())
        .map(|f| format!("{f}; replay: flagstone sim interleave --seed {}", f.seed))
        .collect();
    let failed = failures.len();
    if args.json.path().is_some() {
        let document = Document {
            schema: "flagstone.interleave/1",
            first_seed: seeds[0],
            seeds: seeds.len() as u64,
            operations,
            failures,
        };
        super::write_json(&args.json, &document)?;
    } else {
        failures.iter().for_each(|line| println!("{line}"));
        println!(
            "{} seeds, {operations} operations, {failed} failures",
            seeds.len()
        );
    }
    if failed > 0 {
        return Err(Failure::Finding(format!(
            "sim: {failed} of {} seeds failed",
            seeds.len()
        )));
    }
    Ok(ExitCode::SUCCESS)
}
