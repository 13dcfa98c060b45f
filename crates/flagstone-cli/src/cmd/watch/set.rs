//! `flagstone set PID KNOB=VALUE`: changes a running process's heap.

use super::get::unknown;
use super::{Patience, document, idle, pid, refuse};
use crate::args::JsonBeside;
use crate::exit::{Failure, Outcome};
use crate::suggest;
use crate::watch::reading;
use crate::watch::target::Target;
use crate::watch::tell::{Told, tell};
use flagstone_linux::beacon::{Done, Request, Verb};
use flagstone_linux::knobs;
use serde::Serialize;
use std::process::ExitCode;

/// Set a knob of a running process's heap; the program needs not cooperate.
///
/// The program's own next slow path of malloc applies it. Exit status: 0 applied, 1 not yet (the
/// process is idle, and applies it when it next takes a slow path), 2 for what cannot be.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone set 4711 cache.malloc-64.min_partial=0
  flagstone set 4711 cache.malloc-64.shrink=1
  flagstone set 4711 trim=64M
  flagstone set 4711 limit=512M
  flagstone set 4711 profile=512K; flagstone set 4711 profile=off")]
pub struct Args {
    /// A running process
    #[arg(value_name = "PID", value_parser = pid())]
    pid: u32,
    /// A knob and its value; a size may end in K, M, G or T
    #[arg(value_name = "KNOB=VALUE")]
    knob: String,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    json: JsonBeside,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    pid: u32,
    knob: &'a str,
    /// What was asked for, and what the knob was before.
    value: u64,
    before: Option<u64>,
    /// Whether the process has taken it.
    applied: bool,
}

/// Tells the process.
///
/// # Errors
/// One line: the process, the knob or the value.
pub fn run(args: &Args) -> Outcome {
    let usage = |line: String| Failure::Usage(format!("set: {line}"));
    let (knob, text) = args.knob.split_once('=').ok_or_else(|| {
        usage(format!(
            "{}: expected KNOB=VALUE, for example cache.malloc-64.min_partial=0",
            args.knob
        ))
    })?;
    let (knob, text) = (knob.trim(), text.trim());
    let value = value(knob, text).ok_or_else(|| {
        usage(format!(
            "{knob}={text}: the value must be {}",
            range(knob).unwrap_or("a number, which may end in K, M, G or T")
        ))
    })?;
    let target = Target::find(args.pid).map_err(|refusal| refuse("set", refusal))?;
    let known = reading::read(args.pid, false)
        .map_err(|refusal| refuse("set", refusal))?
        .knobs;
    let before = known.get(knob).copied();
    // What can only be set has no value; of a cache's the cache has.
    let is_known = knobs::known(knob.as_bytes()).is_some()
        && match knobs::cache_and_knob(knob.as_bytes()) {
            Some((cache, _)) => {
                let cache = String::from_utf8_lossy(cache);
                known.contains_key(&format!("cache.{cache}.object_size"))
            }
            None => true,
        };
    if !is_known {
        return Err(unknown("set", knob, &known));
    }
    let request = Request::new(Verb::Set, knob.as_bytes(), value)
        .ok_or_else(|| usage(format!("{knob}: the name is too long")))?;
    let told = tell(&target, &request, args.patience.time());
    let told = told.map_err(|refusal| refuse("set", refusal))?;
    let applied = match told {
        Told::Answered(Done::Well, _) => true,
        Told::Idle => false,
        Told::Answered(done, _) => return Err(usage(refused(done, knob, text))),
    };
    let found = Document {
        schema: "flagstone.set/1",
        pid: args.pid,
        knob,
        value,
        before,
        applied,
    };
    if document("set", args.json.path(), &found)? {
        let was = before.map_or(String::new(), |before| {
            format!(" (was {})", words(knob, before))
        });
        match applied {
            true => println!("{knob}={}{was}", words(knob, value)),
            false => println!("{}", idle(args.pid, "it takes the setting")),
        }
    }
    Ok(ExitCode::from(u8::from(!applied)))
}

/// The number that a value's text means; `None` for none.
fn value(knob: &str, text: &str) -> Option<u64> {
    match (knob, text) {
        ("profile" | "limit" | "pressure", "off") => Some(0),
        ("pressure", "on") => Some(1),
        _ => suggest::bytes(text),
    }
}

/// A value as a user gives it.
fn words(knob: &str, value: u64) -> String {
    match (knob, value) {
        ("profile" | "limit" | "pressure", 0) => "off".into(),
        ("pressure", 1) => "on".into(),
        _ => value.to_string(),
    }
}

/// What a knob may be set to, in words.
fn range(knob: &str) -> Option<&'static str> {
    knobs::known(knob.as_bytes())?.set_to
}

fn refused(done: Done, knob: &str, text: &str) -> String {
    match done {
        Done::ReadOnly => format!("{knob} can only be read"),
        Done::Value => format!(
            "{knob}={text}: out of its range ({})",
            range(knob).unwrap_or("none")
        ),
        Done::Torn => {
            "the request was changed on its way, by another command or the program; try again"
                .to_owned()
        }
        Done::NoMemory => format!("{knob}={text}: the process has no memory for it"),
        Done::Unknown | Done::Well => format!("{knob}: the process does not know it"),
    }
}
