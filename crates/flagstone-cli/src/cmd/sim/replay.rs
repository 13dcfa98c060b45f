//! `flagstone sim replay`: a recorded trace on virtual CPUs.

use super::run::{Request, RunOptions, finish};
use super::usage;
use crate::exit::Outcome;
use crate::terminal::unpadded;
use comfy_table::{CellAlignment, Table, presets};
use flagstone_lab::tape::{About, Recorded, tape};
use flagstone_lab::{Row, Rules, Spec};
use std::path::PathBuf;

/// Run a recorded trace on virtual CPUs under policies.
///
/// Each stream of the trace is a task on a CPU of its own; --copies scales out: all streams, so many times
/// at once, each copy with blocks of its own. With fewer CPUs than streams several streams share a task.
/// Where a block crosses from one stream to another, the second waits for the first. Pauses are those of
/// the recording, cut at 20 us (--think says another bound). A program's blocks lie in the policy's size
/// classes; a kernel's objects in caches of their names, with one line for each at the end, as
/// /proc/slabinfo has them. The run ends with the trace.
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
    let kernel = about.kernel;
    finish(&request, &args.options, args.options.json(), |rows| {
        for line in &about.left_out {
            println!("left out: {line}");
        }
        if kernel {
            slabinfo(rows);
        }
    })
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
    let base = Spec {
        tasks: each * args.copies,
        ..Spec::played(machine, Rules::parse("flagstone", &[])?, recorded)
    };
    let base = args.options.applied(base)?;
    // A trace that does not read is known before the first run.
    let (_, about) = tape(&base)?;
    let request = args.options.grid(&base, &[base.tasks])?;
    Ok((request, about))
}

/// Caches when the trace has ended, in the kernel's columns.
fn slabinfo(rows: &[Row]) {
    for row in rows {
        println!(
            "\ncaches under {}, {} tasks, at the end of the trace",
            row.policy, row.tasks
        );
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["name", "active objs", "num objs", "num slabs"]);
        for (name, slabs) in &row.details {
            let Some(cache) = name.strip_prefix("slabs ") else {
                continue;
            };
            let figure = |what: &str| {
                let value = row.details.get(&format!("{what} {cache}"));
                value.map_or("-".to_owned(), |value| format!("{value:.0}"))
            };
            table.add_row([
                cache.to_owned(),
                figure("active"),
                figure("objects"),
                format!("{slabs:.0}"),
            ]);
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        println!("{}", unpadded(&table));
    }
}
