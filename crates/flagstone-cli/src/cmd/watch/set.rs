//! `flagstone set PID KNOB=VALUE`: changes a running process's heap.

use super::get::unknown;
use super::{Patience, document, idle, pid, refuse};
use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::suggest;
use crate::watch::reading;
use crate::watch::target::Target;
use crate::watch::tell::{Told, tell};
use flagstone_linux::beacon::{Done, Request, Verb};
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
  flagstone set 4711 trim=64M")]
pub struct Args {
    /// A running process
    #[arg(value_name = "PID", value_parser = pid())]
    pid: u32,
    /// A knob and its value; a size may end in K, M or G
    #[arg(value_name = "KNOB=VALUE")]
    knob: String,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    json: Json,
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
    let value: u64 = suggest::plain_size(text).parse().map_err(|_| {
        usage(format!(
            "{knob}={text}: the value must be a number, which may end in K, M or G"
        ))
    })?;
    let target = Target::find(args.pid).map_err(|refusal| refuse("set", refusal))?;
    let known = reading::read(args.pid, false)
        .map_err(|refusal| refuse("set", refusal))?
        .knobs;
    let before = known.get(knob).copied();
    let writes = knob == "trim"
        || knob
            .strip_suffix(".shrink")
            .is_some_and(|cache| known.contains_key(&format!("{cache}.object_size")));
    if before.is_none() && !writes {
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
        let was = before.map_or(String::new(), |before| format!(" (was {before})"));
        match applied {
            true => println!("{knob}={value}{was}"),
            false => println!("{}", idle(args.pid, "it takes the setting")),
        }
    }
    Ok(ExitCode::from(u8::from(!applied)))
}

fn refused(done: Done, knob: &str, text: &str) -> String {
    match done {
        Done::ReadOnly => format!("{knob} can only be read"),
        Done::Value => {
            format!("{knob}={text}: out of its range (min_partial: 0 to 65536; shrink: 1)")
        }
        Done::Torn => {
            "the request was changed on its way, by another command or the program; try again"
                .to_owned()
        }
        Done::Unknown | Done::Well => format!("{knob}: the process does not know it"),
    }
}
