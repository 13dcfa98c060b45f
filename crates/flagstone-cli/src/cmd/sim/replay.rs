//! `flagstone sim replay`: a recorded trace on virtual CPUs.

use super::compared::Compared;
use super::run::{Request, RunOptions, finish};
use super::usage;
use crate::exit::Outcome;
use flagstone_core::policy::Policy;
use flagstone_lab::names::kernel_of;
use flagstone_lab::pagesets::{Held, held};
use flagstone_lab::tape::{About, Recorded, tape};
use flagstone_lab::{Rules, Spec};
use std::path::{Path, PathBuf};

/// Run a recorded trace on virtual CPUs under policies.
///
/// Each stream of the trace is a task on a CPU of its own; --copies scales out: all streams, so many times
/// at once, each copy with blocks of its own. With fewer CPUs than streams several streams share a task.
/// Where a block crosses from one stream to another, the second waits for the first. Pauses are those of
/// the recording, cut at 20 us (--think says another bound). A program's blocks lie in the policy's size
/// classes; a kernel's objects in caches of their names, with one line for each at the end, as
/// /proc/slabinfo has them. A trace of `flagstone record --kernel` begins with caches as full as they were,
/// and its end is compared with the kernel's: objects and slabs of each cache, and, under each policy's rules, pages
/// and high mark of each CPU's pagesets (/proc/zoneinfo). --json has both under `capture`. The run ends with the trace. A trace is read while it is played;
/// its length takes no memory. Without --policy a kernel's capture runs under the rules of its own kernel.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone record -o app.fst -- python3 app.py
  flagstone sim replay app.fst --machine spr-2s-224 --copies 56 --policy flagstone,linux-7.0
  flagstone trace import -o kernel.fst trace.txt
  flagstone sim replay kernel.fst --machine x86-16 --policy linux-6.18 --copies 8")]
pub struct ReplayArgs {
    /// The trace, as `flagstone record` and `flagstone trace import` write it
    #[arg(value_name = "F")]
    file: PathBuf,
    /// How often it is played at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    copies: u32,
    /// Play a kernel's page events although the trace has objects, whose slabs are among them
    #[arg(long)]
    pages: bool,
    #[command(flatten)]
    options: RunOptions,
}

pub(super) fn run(args: &ReplayArgs) -> Outcome {
    let (request, about) = check(args).map_err(|line| usage(format!("replay: {line}")))?;
    // A trace that is too long for that is replayed all the same.
    let sets = capture(&args.file, &request.specs).unwrap_or_else(|line| {
        eprintln!("flagstone: sim replay: pagesets are not compared: {line}");
        Sets::new()
    });
    finish(&request, &args.options, args.options.json(), |rows| {
        Some(Compared::of(rows, &about, &sets))
    })
}

/// Pagesets of a capture under each kernel's policy.
type Sets = Vec<(String, Held)>;

fn capture(file: &Path, specs: &[Spec]) -> Result<Sets, String> {
    let mut all: Vec<&Rules> = specs.iter().map(|spec| &spec.policy).collect();
    all.dedup();
    let policies: Vec<Policy> = all
        .iter()
        .map(|rules| rules.policy())
        .collect::<Result<_, _>>()?;
    let names = all.iter().map(|rules| rules.name.clone());
    Ok(names.zip(held(file, &policies)?).collect())
}

fn check(args: &ReplayArgs) -> Result<(Request, About), String> {
    args.options
        .none_of(&["--tasks", "--size", "--quick", "--window"])?;
    let (recorded, about) = Recorded::of(&args.file, args.copies, args.pages)?;
    if about.streams == 0 {
        return Err(format!("{}: no events in it", args.file.display()));
    }
    let machine = args.options.machine()?;
    let each = (machine.cpus() / args.copies).min(about.streams);
    if each == 0 {
        return Err(format!(
            "{} copies do not fit machine `{}`, which has {} CPUs (one task each)",
            args.copies,
            machine.name,
            machine.cpus()
        ));
    }
    let own = match about.kernel {
        true => kernel_of(&about.machine),
        false => None,
    };
    let base = Spec {
        tasks: each * args.copies,
        ..Spec::played(
            machine,
            Rules::parse(own.unwrap_or("flagstone"), &[])?,
            recorded,
        )
    };
    let base = args.options.applied(base)?;
    // A trace that does not read is known before the first run.
    let (_, about) = tape(&base)?;
    let request = args.options.grid(&base, &[base.tasks])?;
    Ok((request, about))
}
