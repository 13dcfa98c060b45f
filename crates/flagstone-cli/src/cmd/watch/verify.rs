//! `flagstone verify PID`: whether a running process's heap keeps its own rules.

use super::{document, pid, refuse};
use crate::args::JsonBeside;
use crate::exit::Outcome;
use crate::watch::reading;
use serde::Serialize;
use std::process::ExitCode;

/// Copies looked at. A rule that a running program is just between keeping and keeping again is not broken
/// the same way in each: of copies of a loaded redis a quarter catch it so, on a slow machine most.
const COPIES: usize = 16;

/// Check the invariants of a running process's heap, from outside.
///
/// The program goes on meanwhile, so a copy may catch it between two steps: what is broken in one
/// copy and not in another is motion, what is broken in each alike is a finding. Exit status: 0
/// every rule holds, 1 one is broken.
#[derive(clap::Args)]
#[command(after_help = "Example:
  flagstone verify 4711")]
pub struct Args {
    /// A running process
    #[arg(value_name = "PID", value_parser = pid())]
    pid: u32,
    #[command(flatten)]
    json: JsonBeside,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    pid: u32,
    copies: usize,
    /// Rules broken alike in each copy, with where.
    broken: Vec<String>,
    /// What was found in some copies only.
    in_motion: usize,
}

/// Looks at copies until one is clean or all say the same.
///
/// # Errors
/// One line: the process.
pub fn run(args: &Args) -> Outcome {
    let mut found = Document {
        schema: "flagstone.verify/1",
        pid: args.pid,
        copies: 0,
        broken: Vec::new(),
        in_motion: 0,
    };
    while found.copies < COPIES {
        let broken = reading::verify(args.pid).map_err(|refusal| refuse("verify", refusal))?;
        let before = std::mem::take(&mut found.broken);
        let seen = before.len().max(broken.len());
        found.broken = match found.copies {
            0 => broken,
            _ => before
                .into_iter()
                .filter(|rule| broken.contains(rule))
                .collect(),
        };
        found.in_motion += seen - found.broken.len();
        found.copies += 1;
        if found.broken.is_empty() {
            break;
        }
    }
    if document("verify", args.json.path(), &found)? {
        let copies = match found.copies {
            1 => "one copy".to_owned(),
            copies => format!("{copies} copies"),
        };
        match found.broken.is_empty() {
            true => println!(
                "process {}: every rule holds ({copies} looked at)",
                args.pid
            ),
            false => println!("process {}: broken in each of {copies}:", args.pid),
        }
        found.broken.iter().for_each(|rule| println!("  {rule}"));
    }
    Ok(ExitCode::from(u8::from(!found.broken.is_empty())))
}
