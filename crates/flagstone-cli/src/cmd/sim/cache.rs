//! `flagstone sim cache`: runs that are kept.

use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::terminal::size;
use flagstone_lab::{Cache, MODEL_VERSION};
use serde::Serialize;
use std::process::ExitCode;

/// Look at the runs that are kept, or forget them.
///
/// A run is kept under the digest of its spec. The model version is part of a spec: after a change of
/// simulated behaviour nothing old is found.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone sim cache list
  flagstone sim cache clear --old           forget runs of other model versions
  flagstone sim cache clear")]
pub struct CacheArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Where it is and what it holds
    List(CacheListArgs),
    /// Forget all runs
    Clear(CacheClearArgs),
}

#[derive(clap::Args)]
struct CacheListArgs {
    #[command(flatten)]
    json: Json,
}

#[derive(clap::Args)]
struct CacheClearArgs {
    /// Only runs of other model versions than this program's
    #[arg(long)]
    old: bool,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    folder: String,
    model_version: u32,
    holdings: Vec<Held>,
}

#[derive(Serialize)]
struct Held {
    model_version: String,
    runs: u64,
    bytes: u64,
}

pub(super) fn run(args: &CacheArgs) -> Outcome {
    let cache = Cache::of_user().ok_or_else(|| {
        super::usage("no cache: set XDG_CACHE_HOME or HOME to an absolute path".into())
    })?;
    match &args.what {
        What::List(args) => list(&cache, &args.json),
        What::Clear(args) => {
            let keep = args.old.then_some(MODEL_VERSION);
            let cleared = cache.clear(keep);
            cleared.map_err(|error| {
                Failure::Usage(format!("sim cache: {}: {error}", cache.folder().display()))
            })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(cache: &Cache, json: &Json) -> Outcome {
    let holdings = cache.list();
    if json.path().is_some() {
        let held = holdings.into_iter().map(|held| Held {
            model_version: held.version,
            runs: held.runs,
            bytes: held.bytes,
        });
        let document = Document {
            schema: "flagstone.sim-cache/1",
            folder: cache.folder().display().to_string(),
            model_version: MODEL_VERSION,
            holdings: held.collect(),
        };
        return super::write_json(json, &document);
    }
    println!("{}", cache.folder().display());
    if holdings.is_empty() {
        println!("  nothing is kept");
    }
    for held in holdings {
        let mine = match held.version == MODEL_VERSION.to_string() {
            true => " (this program's)",
            false => "",
        };
        println!(
            "  model version {}{mine}: {} runs, {}",
            held.version,
            held.runs,
            size(held.bytes)
        );
    }
    Ok(ExitCode::SUCCESS)
}
