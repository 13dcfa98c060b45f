//! `flagstone trim PID`: a running process gives back what it does not use.

use super::{Patience, document, idle, pid, refuse};
use crate::args::JsonBeside;
use crate::exit::{Failure, Outcome};
use crate::suggest;
use crate::terminal::size;
use crate::watch::reading;
use crate::watch::target::{Target, resident_bytes};
use crate::watch::tell::{Told, tell};
use flagstone_linux::beacon::{Done, Request, Verb};
use serde::Serialize;
use std::process::ExitCode;

/// Have a running process give back to the system what its heap holds free.
///
/// First says what that would be, from its ledger; the program's own next slow path of malloc does
/// it. Exit status: 0 done, 1 not yet (the process is idle), 2 for what cannot be.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone trim 4711
  flagstone trim 4711 --keep 64M
  flagstone trim 4711 --dry-run")]
pub struct Args {
    /// A running process
    #[arg(value_name = "PID", value_parser = pid())]
    pid: u32,
    /// Bytes of free pages to leave; may end in K, M, G or T
    #[arg(long, value_name = "BYTES", default_value = "0")]
    keep: String,
    /// Say only what it would give back
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    json: JsonBeside,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    pid: u32,
    /// What the ledger said it would give back, all but nothing kept.
    foretold_bytes: Option<u64>,
    /// By how much its resident size fell while it did.
    given_back_bytes: Option<u64>,
    /// The process's resident size before and after, as the kernel counts.
    rss_before_bytes: Option<u64>,
    rss_after_bytes: Option<u64>,
    done: bool,
}

/// Foretells, tells, and compares.
///
/// # Errors
/// One line: the process, or a number that is none.
pub fn run(args: &Args) -> Outcome {
    let keep = suggest::bytes(&args.keep).ok_or_else(|| {
        Failure::Usage(format!(
            "trim: --keep {}: a number of bytes, which may end in K, M, G or T",
            args.keep
        ))
    })?;
    let fail = |refusal| refuse("trim", refusal);
    let target = Target::find(args.pid).map_err(fail)?;
    let reading = reading::read(args.pid, true).map_err(fail)?;
    let mut found = Document {
        schema: "flagstone.trim/1",
        pid: args.pid,
        foretold_bytes: reading.trim_bytes,
        given_back_bytes: None,
        rss_before_bytes: resident_bytes(args.pid),
        rss_after_bytes: None,
        done: false,
    };
    let request = Request::new(Verb::Trim, b"", keep);
    if let Some(request) = request.filter(|_| !args.dry_run) {
        match tell(&target, &request, args.patience.time()).map_err(fail)? {
            Told::Answered(Done::Well, [fell, ..]) => {
                found.given_back_bytes = Some(fell);
                found.rss_after_bytes = resident_bytes(args.pid);
                found.done = true;
            }
            Told::Idle => {}
            Told::Answered(..) => {
                let why = "the request was changed on its way, by another command or the program; try again";
                return Err(Failure::Usage(format!("trim: process {}: {why}", args.pid)));
            }
        }
    }
    if document("trim", args.json.path(), &found)? {
        print!("{}", text(args, &found));
    }
    Ok(ExitCode::from(u8::from(!found.done && !args.dry_run)))
}

fn text(args: &Args, found: &Document) -> String {
    let bytes = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), size);
    let mut out = format!("foretold    {}\n", bytes(found.foretold_bytes));
    if args.dry_run {
        return out;
    }
    if !found.done {
        return out + &idle(args.pid, "it gives back") + "\n";
    }
    out += &format!("given back  {}\n", bytes(found.given_back_bytes));
    out += &format!(
        "resident    {} before, {} after\n",
        bytes(found.rss_before_bytes),
        bytes(found.rss_after_bytes)
    );
    out
}
