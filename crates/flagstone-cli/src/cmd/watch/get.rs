//! `flagstone get PID [KNOB]`: what a running process's heap is set to.

use super::{document, pid, refuse};
use crate::args::JsonBeside;
use crate::exit::{Failure, Outcome};
use crate::suggest;
use crate::watch::reading;
use flagstone_linux::knobs::{Knob, OF_CACHE, OF_HEAP};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Show the knobs of a running process's heap, or one of them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone get 4711
  flagstone get 4711 cache.malloc-64.min_partial
  flagstone get 4711 cache.malloc-64")]
pub struct Args {
    /// A running process
    #[arg(value_name = "PID", value_parser = pid())]
    pid: u32,
    /// A knob, or what its name begins with
    #[arg(value_name = "KNOB")]
    knob: Option<String>,
    #[command(flatten)]
    json: JsonBeside,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    pid: u32,
    knobs: BTreeMap<&'a str, u64>,
}

/// Reads and prints.
///
/// # Errors
/// One line: the process, or a knob that is not there, with those that are.
pub fn run(args: &Args) -> Outcome {
    let reading = reading::read(args.pid, false).map_err(|refusal| refuse("get", refusal))?;
    let wanted = args.knob.as_deref().unwrap_or("");
    let exact = reading.knobs.get_key_value(wanted);
    let below = format!("{}.", wanted.trim_end_matches('.'));
    let under = reading
        .knobs
        .iter()
        .filter(|(name, _)| wanted.is_empty() || name.starts_with(&below));
    let knobs: BTreeMap<&str, u64> = match exact {
        Some((name, value)) => BTreeMap::from([(name.as_str(), *value)]),
        None => under.map(|(name, value)| (name.as_str(), *value)).collect(),
    };
    if knobs.is_empty() {
        return Err(unknown("get", wanted, &reading.knobs));
    }
    let found = Document {
        schema: "flagstone.get/1",
        pid: args.pid,
        knobs,
    };
    if document("get", args.json.path(), &found)? {
        match exact {
            Some((_, value)) => println!("{value}"),
            None => found
                .knobs
                .iter()
                .for_each(|(name, value)| println!("{name}={value}")),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A knob that is not there: the nearest, and the known ones without each cache's.
pub fn unknown(command: &str, given: &str, knobs: &BTreeMap<String, u64>) -> Failure {
    let writes = OF_HEAP.iter().map(|knob| knob.name);
    let names = knobs.keys().map(String::as_str).chain(writes);
    let question = suggest::question(given, names);
    Failure::Usage(format!(
        "{command}: there is no knob '{given}'; {question}known are {}, and of each cache cache.NAME.{{{}}}",
        list(&OF_HEAP),
        list(&OF_CACHE)
    ))
}

/// Names of knobs, with what those are set to that can be.
fn list(knobs: &[Knob]) -> String {
    let name = |knob: &Knob| match knob.set_to {
        Some(to) => format!("{} (set: {to})", knob.name),
        None => knob.name.to_owned(),
    };
    knobs.iter().map(name).collect::<Vec<_>>().join(", ")
}
