//! `flagstone sim replay`: a recorded trace on virtual CPUs.

use super::run::{Request, RunOptions, finish};
use super::usage;
use crate::exit::Outcome;
use crate::terminal::spaced;
use comfy_table::{Table, presets};
use flagstone_core::policy::Policy;
use flagstone_lab::pagesets::{Held, Score, held};
use flagstone_lab::tape::{About, Recorded, tape};
use flagstone_lab::{Row, Rules, Spec};
use flagstone_trace::header::Level;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Run a recorded trace on virtual CPUs under policies.
///
/// Each stream of the trace is a task on a CPU of its own; --copies scales out: all streams, so many times
/// at once, each copy with blocks of its own. With fewer CPUs than streams several streams share a task.
/// Where a block crosses from one stream to another, the second waits for the first. Pauses are those of
/// the recording, cut at 20 us (--think says another bound). A program's blocks lie in the policy's size
/// classes; a kernel's objects in caches of their names, with one line for each at the end, as
/// /proc/slabinfo has them. A trace of `flagstone record --kernel` begins with caches as full as they were,
/// and its end is compared with the kernel's. The run ends with the trace. A trace is read while it is played;
/// its length takes no memory.
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
        for line in &about.left_out {
            println!("left out: {line}");
        }
        if about.kernel {
            slabinfo(rows, &about);
        }
        pagesets(&sets);
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

/// Each pageset that was used, beside the kernel's, and the refills and drains that came where the kernel had them.
fn pagesets(sets: &Sets) {
    for (policy, held) in sets {
        println!("\npagesets under the rules of {policy}, page by page, at the end of the trace");
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "zone", "CPU", "before", "pages", "kernel's", "off", "high", "kernel's",
        ]);
        let (mut all, mut within) = (0, 0);
        for (zone, cpu, before, after, (count, high)) in &held.sets {
            let off = |ours: u32, theirs: u32| {
                (f64::from(ours) - f64::from(theirs)) / f64::from(theirs.max(1)) * 100.0
            };
            let counts = off(*count, after.count);
            all += 1;
            within += u32::from(counts.abs() <= 5.0 && off(*high, after.high).abs() <= 5.0);
            table.add_row([
                zone.clone(),
                cpu.to_string(),
                before.count.to_string(),
                count.to_string(),
                after.count.to_string(),
                format!("{counts:+.1} %"),
                high.to_string(),
                after.high.to_string(),
            ]);
        }
        println!("{}", spaced(table, |column| column > 0));
        let score = |score: Score| format!("{} / {}", score.matched, score.all);
        println!(
            "within 5 % of the kernel's pages and high mark: {within} of {all} pagesets; as the kernel's, \
             matched / all: refills {}, drains {}",
            score(held.report.refills),
            score(held.report.drains)
        );
    }
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

/// Caches when the trace has ended, in the kernel's columns, beside what the kernel had.
fn slabinfo(rows: &[Row], about: &About) {
    let recorded: BTreeMap<&str, Level> = about
        .caches
        .iter()
        .filter_map(|cache| Some((cache.name.as_str(), cache.after?)))
        .collect();
    for row in rows {
        println!(
            "\ncaches under {}, {} tasks, at the end of the trace",
            row.policy, row.tasks
        );
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut head = vec!["name", "active objs", "num objs", "num slabs"];
        if !recorded.is_empty() {
            head.extend(["kernel's objs", "its slabs", "off"]);
        }
        table.set_header(head);
        let mut near = Near::default();
        for (name, slabs) in &row.details {
            let Some(cache) = name.strip_prefix("slabs ") else {
                continue;
            };
            let figure = |what: &str| row.details.get(&format!("{what} {cache}"));
            let shown = |what| figure(what).map_or("-".to_owned(), |value| format!("{value:.0}"));
            let mut cells = vec![
                cache.to_owned(),
                shown("active"),
                shown("objects"),
                format!("{slabs:.0}"),
            ];
            if let Some(level) = recorded.get(cache) {
                let objects = figure("objects").copied().unwrap_or(0.0);
                let off = near.add(level, objects, *slabs, row.tasks);
                cells.extend([level.objects.to_string(), level.slabs.to_string(), off]);
            }
            table.add_row(cells);
        }
        println!("{}", spaced(table, |column| column > 0));
        if near.caches > 0 {
            println!("{}", near.line());
        }
    }
}

/// How near caches came to the kernel's.
#[derive(Default)]
struct Near {
    caches: u32,
    within: u32,
    /// Those, and those that are off by no more than a slab for each CPU.
    nearly: u32,
    objects: [f64; 2],
    slabs: [f64; 2],
}

impl Near {
    /// Adds a cache; by how much its objects or slabs are off, whichever is more.
    fn add(&mut self, level: &Level, objects: f64, slabs: f64, cpus: u32) -> String {
        let (theirs, their_slabs) = (level.objects as f64, level.slabs as f64);
        let off = |ours: f64, theirs: f64| (ours - theirs) / theirs.max(1.0) * 100.0;
        let both = [off(objects, theirs), off(slabs, their_slabs)];
        let most = if both[0].abs() > both[1].abs() {
            both[0]
        } else {
            both[1]
        };
        self.caches += 1;
        let within = most.abs() <= 5.0;
        self.within += u32::from(within);
        self.nearly += u32::from(within || (slabs - their_slabs).abs() <= f64::from(cpus));
        self.objects = [self.objects[0] + objects, self.objects[1] + theirs];
        self.slabs = [self.slabs[0] + slabs, self.slabs[1] + their_slabs];
        format!("{most:+.1} %")
    }

    fn line(&self) -> String {
        format!(
            "within 5 % of the kernel's objects and slabs: {} of {} caches; those and others within a slab for \
             each CPU: {}; all objects {:.0} for {:.0}, all slabs {:.0} for {:.0}",
            self.within,
            self.caches,
            self.nearly,
            self.objects[0],
            self.objects[1],
            self.slabs[0],
            self.slabs[1]
        )
    }
}
