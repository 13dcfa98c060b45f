//! S0: max slab order 4 on big systems (2023). mmap1 and hackbench on 224 CPUs, simulated.
//!
//! Throughput of mmap1 is the harness's per-process operations a second. hackbench prints a score
//! of its own; its base cell is the scale. Shares of `native_queued_spin_lock_slowpath` are the
//! time tasks wait for locks; those of slab functions are their own time, waiting and what they
//! call apart, as a profile counts it. The sheaf engine has none of these functions.

use super::ask::{Ask, Effort, Figures, Look, Runs, Stat};
use super::sheet::{Accuracy, Extra, Fill, Method, Setting, Sheet, Target, Versus, tried};

const SEED: &str = "S0";
const BASE: &str = "linux-6.5";
const PATCHED: &str = "linux-6.5+order4";
const OWN: &str = "flagstone";
const POLICIES: [&str; 3] = [BASE, PATCHED, OWN];
const MACHINE: &str = "spr-2s-224";
const ROWS: [(&str, u32); 3] = [("25%", 56), ("50%", 112), ("100%", 224)];
const MMAP: &str = "will-it-scale/mmap1";
const SPIN: &str = "native_queued_spin_lock_slowpath";
const FUNCTIONS: [&str; 3] = ["___slab_alloc", "__unfreeze_partials", "get_any_partial"];
/// Think times of hackbench that were tried, as the workload lists them, and settings of a form with
/// run queues that is not used (docs/design/simulator.md).
const HACKBENCH_TRIED: u32 = 11 + 28 + 3;
/// The larger machine, of the same parts.
const LARGE: (&str, u32) = ("spr-2s-224@1024", 1024);

fn mmap1(tasks: u32, effort: Effort) -> Ask {
    // Slabs fragment for tens of milliseconds: a quick look is too short, and says so.
    let look = effort.pick(Look::ms(32, 32), Look::ms(64, 256));
    Ask::new("mmap1", MACHINE, tasks, look)
}

fn large() -> Ask {
    Ask::new("mmap1", LARGE.0, LARGE.1, Look::ms(16, 16))
}

fn hackbench(effort: Effort) -> Ask {
    let look = effort.pick(Look::ms(8, 8), Look::ms(64, 128));
    Ask::new("hackbench", MACHINE, 224, look)
}

/// Runs to make.
pub(super) fn asks(effort: Effort) -> Vec<Ask> {
    let mut kinds: Vec<Ask> = ROWS.map(|(_, tasks)| mmap1(tasks, effort)).to_vec();
    kinds.push(hackbench(effort));
    let mut asks = Vec::new();
    for policy in POLICIES {
        for kind in &kinds {
            asks.extend(kind.under(policy).seeds(effort.seeds()));
        }
        if effort == Effort::Full {
            asks.push(large().under(policy));
        }
    }
    asks
}

type Found = Result<[Stat; 3], String>;

/// Fills the sheet.
pub(super) fn fill(sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    for (row, tasks) in ROWS {
        throughput(sheet, runs, MMAP, row, &mmap1(tasks, effort), None);
    }
    let scale = sheet.published("hackbench", "throughput", "base");
    let ask = hackbench(effort);
    throughput(sheet, runs, "hackbench", "throughput", &ask, Some(scale));
    let half = mmap1(112, effort);
    shares(sheet, runs, "mmap1 50% perf-profile", &half, &FUNCTIONS);
    shares(sheet, runs, "hackbench perf-profile", &ask, &FUNCTIONS[..2]);
    targets(sheet, runs, effort);
    extras(sheet, runs, effort);
    sheet.settings.push(Setting {
        seed: SEED,
        what: format!("machine {MACHINE}: line transfers, hand-off, siblings, grace period"),
        source:
            "an earlier feasibility study, whose settings had the published rows in sight; since \
                 then mmap1's base rows"
                .into(),
        tried: tried(MACHINE),
    });
    sheet.settings.push(Setting {
        seed: SEED,
        what: "mmap1: time outside the allocator (noted in the workload)".into(),
        source: "fitted to the base rows (docs/fits.md)".into(),
        tried: 4,
    });
    sheet.settings.push(Setting {
        seed: SEED,
        what:
            "hackbench: time outside the allocator (noted in the workload); score of the base is \
               the scale; how long a socket's lock is held is an estimate, not varied; 28 of the values \
               are of a form with more tasks than CPUs that is not used"
                .into(),
        source: "fitted to the base's share of waiting (docs/fits.md)".into(),
        tried: HACKBENCH_TRIED,
    });
}

fn three(runs: &Runs, ask: &Ask, figure: impl Fn(&Figures) -> f64) -> Found {
    let [base, patched, own] = POLICIES.map(|policy| runs.stat(&ask.under(policy), &figure));
    Ok([base?, patched?, own?])
}

/// Base, patched and gain of one row; `scale` is the published base where the unit is a score.
fn throughput(
    sheet: &mut Sheet,
    runs: &Runs,
    table: &str,
    row: &str,
    ask: &Ask,
    scale: Option<f64>,
) {
    let found = three(runs, ask, |f| f.ops).map(|stats| {
        let factor = scale.map_or(1.0, |scale| scale / stats[0].mean);
        stats.map(|stat| stat.times(factor))
    });
    let gain = |to: f64, from: f64| (to / from - 1.0) * 100.0;
    let versus = Versus::Cell([table.into(), row.into(), "base".into()], 0);
    let asks = POLICIES.map(|p| ask.under(p));
    let note = runs.note(&asks.each_ref(), "throughput", |s| s.ops);
    for (column, index) in [("base", 0), ("patched", 1)] {
        let fill = Fill {
            got: Some(found.clone().map(|stats| stats[index].pair())),
            own: found.as_ref().ok().map(|stats| stats[2].mean),
            // The base rows of mmap1 share one fitted think time, hackbench's base is the scale.
            fitted: index == 0,
            accuracy: Some(Accuracy::Percent(25.0).seen("2026-11-20")),
            versus: (index == 1).then(|| versus.clone()),
            profile: Some(ask.machine.into()),
            note: note.clone(),
        };
        sheet.fill(Method::Simulated, [table, row, column], 0, fill);
    }
    let points = if table == MMAP { 10.0 } else { 8.0 };
    let fill = Fill {
        got: Some(found.clone().map(|s| (gain(s[1].mean, s[0].mean), None))),
        own: found.ok().map(|s| gain(s[2].mean, s[0].mean)),
        accuracy: Some(Accuracy::Points(points).seen("2026-11-23")),
        versus: Some(Versus::Zero),
        profile: Some(ask.machine.into()),
        note,
        ..Fill::default()
    };
    sheet.fill(Method::Simulated, [table, row, "gain"], 0, fill);
}

fn shares(sheet: &mut Sheet, runs: &Runs, table: &str, ask: &Ask, functions: &[&str]) {
    let found = three(runs, ask, |f| f.lock_share);
    for (column, index) in [("base", 0), ("patched", 1)] {
        let base = [table, SPIN, "base"].map(String::from);
        let fill = Fill {
            got: Some(found.clone().map(|stats| stats[index].pair())),
            own: found.as_ref().ok().map(|stats| stats[2].mean),
            accuracy: Some(Accuracy::Points(8.0).blind("2026-11-20")),
            // hackbench's think time follows its base's share; mmap1's machine says what it was fitted to.
            fitted: index == 0 && ask.workload == "hackbench",
            versus: (index == 1).then_some(Versus::Cell(base, 0)),
            profile: Some(ask.machine.into()),
            note: runs.note(
                &POLICIES.map(|p| ask.under(p)).each_ref(),
                "the share of waits",
                |s| s.ops && s.waits,
            ),
        };
        sheet.fill(Method::Simulated, [table, SPIN, column], 0, fill);
        for function in functions {
            own_time(sheet, runs, [table, function, column], ask);
        }
    }
}

/// What one function of the engine takes by itself.
fn own_time(sheet: &mut Sheet, runs: &Runs, at: [&str; 3], ask: &Ask) {
    let [table, function, column] = at;
    let policy = if column == "base" { BASE } else { PATCHED };
    let share = |f: &Figures| f.functions.get(function).copied().unwrap_or(0.0);
    let got = runs.stat(&ask.under(policy), share);
    let fill = Fill {
        got: Some(got.map(|stat| stat.pair())),
        accuracy: Some(Accuracy::Factor(2.0).seen("2026-11-20")),
        versus: (column == "patched")
            .then(|| Versus::Cell([table, function, "base"].map(String::from), 0)),
        profile: Some(ask.machine.into()),
        note: Some("flagstone's engine has no such function".into()),
        ..Fill::default()
    };
    sheet.fill(Method::Simulated, at, 0, fill);
}

const MIB: f64 = 1048576.0;

/// What tasks hold, or gave to RCU: it grows with throughput, and no allocator has a say in it.
fn live_mib(f: &Figures) -> f64 {
    f.details.get("MiB live").copied().unwrap_or(f64::NAN)
}

fn targets(sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    for (row, tasks) in ROWS {
        let ask = mmap1(tasks, effort);
        if let Ok([_, patched, own]) = three(runs, &ask, |f| f.ops) {
            let wanted =
                format!("mmap1 {row} ({tasks} tasks): throughput at least the patched side's");
            let found = format!("{:+.1} %", (own.mean / patched.mean - 1.0) * 100.0);
            sheet
                .targets
                .push(Target::at_most(SEED, wanted, found, &[(patched, own)]));
        }
        let used = three(runs, &ask, |f| f.mean_bytes / MIB);
        let live = three(runs, &ask, live_mib);
        let parked = three(runs, &ask, |f| f.mean_bytes / MIB - live_mib(f));
        if let (
            Ok([base, _, own]),
            Ok([base_live, _, own_live]),
            Ok([base_parked, _, own_parked]),
        ) = (used, live, parked)
        {
            let wanted = format!("mmap1 {row} ({tasks} tasks): less memory parked than base");
            let found = format!(
                "{:.0} against {:.0} MiB; in use {:.0} against {:.0}, as {:.0} against {:.0} wait for RCU or \
                 are held",
                own_parked.mean,
                base_parked.mean,
                own.mean,
                base.mean,
                own_live.mean,
                base_live.mean
            );
            let pair = (own_parked, base_parked);
            sheet
                .targets
                .push(Target::at_most(SEED, wanted, found, &[pair]));
        }
    }
    if let Ok([_, patched, own]) = three(runs, &hackbench(effort), |f| f.ops) {
        sheet.targets.push(Target::at_most(
            SEED,
            "hackbench: throughput at least the patched side's".into(),
            format!("{:+.1} %", (own.mean / patched.mean - 1.0) * 100.0),
            &[(patched, own)],
        ));
    }
    if let Ok([_, _, own]) = three(runs, &mmap1(224, effort), |f| f.list_share) {
        sheet.targets.push(Target::at_most(
            SEED,
            "mmap1 at 224 tasks: list-lock share at most 2 %".into(),
            format!("{:.1} %", own.mean),
            &[(own, Stat::exact(2.0))],
        ));
    }
    let [_, patched, own] = POLICIES.map(|policy| runs.get(&large().under(policy)).cloned());
    if let (Ok(patched), Ok(own)) = (patched, own) {
        sheet.targets.push(Target::at_most(
            SEED,
            "mmap1 at 1024 tasks: throughput at least the patched side's (one seed)".into(),
            format!(
                "{:+.1} %, lock share {:.1} % (patched {:.1} %)",
                (own.ops / patched.ops - 1.0) * 100.0,
                own.lock_share,
                patched.lock_share
            ),
            &[(Stat::exact(patched.ops), Stat::exact(own.ops))],
        ));
    }
}

/// The larger machine, one seed each.
fn large_extras(sheet: &mut Sheet, runs: &Runs) {
    for policy in POLICIES {
        let Ok(figures) = runs.get(&large().under(policy)) else {
            continue;
        };
        for (what, unit, got) in [
            ("memory in use", "MiB", figures.mean_bytes / MIB),
            (
                "memory held by tasks or waiting for RCU",
                "MiB",
                live_mib(figures),
            ),
            ("list-lock share", "%", figures.list_share),
            ("lock share", "%", figures.lock_share),
            ("operations per task and second", "1/s", figures.ops),
        ] {
            sheet.extras.push(Extra {
                seed: SEED,
                table: what.into(),
                row: "mmap1 1024 tasks".into(),
                column: policy.into(),
                got,
                method: Method::Simulated,
                unit,
            });
        }
    }
}

fn extras(sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    let mut kinds: Vec<(String, Ask)> = ROWS
        .map(|(row, tasks)| (format!("mmap1 {row}"), mmap1(tasks, effort)))
        .to_vec();
    kinds.push(("hackbench".into(), hackbench(effort)));
    large_extras(sheet, runs);
    for (row, ask) in kinds {
        for (what, unit, figure) in [
            (
                "memory in use",
                "MiB",
                (|f| f.mean_bytes / MIB) as fn(&Figures) -> f64,
            ),
            ("memory held by tasks or waiting for RCU", "MiB", live_mib),
            ("list-lock share", "%", |f| f.list_share),
            ("lock share", "%", |f| f.lock_share),
            ("operations per task and second", "1/s", |f| f.ops),
        ] {
            let Ok(stats) = three(runs, &ask, figure) else {
                continue;
            };
            for (policy, stat) in POLICIES.into_iter().zip(stats) {
                sheet.extras.push(Extra {
                    seed: SEED,
                    table: what.into(),
                    row: row.clone(),
                    column: policy.into(),
                    got: stat.mean,
                    method: Method::Simulated,
                    unit,
                });
            }
        }
    }
}
