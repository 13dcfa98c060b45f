//! S1: one CPU allocates, seven free (2007). SLAB and SLUB on eight CPUs, ten sizes, simulated.
//!
//! Cells are cycles as the harness prints them: a CPU's whole loop divided by 10,000. Three
//! regimes are looked for: SLUB ahead at 8 B, behind from 16 B to 1 KiB, ahead on CPU 0 from
//! 2 KiB. The 8-byte case has two states, and which one it takes depends on whether the freeing
//! CPUs keep up; the phase diagram shows sizes against a pause of the one side or the other.

use super::ask::{Ask, Effort, Figures, Look, Runs, Stat};
use super::sheet::{Accuracy, Extra, Fill, Method, Setting, Sheet, Target, Versus, tried};

const SEED: &str = "S1";
const SLAB: &str = "slab-2.6.24";
const SLUB: &str = "linux-2.6.24";
const OWN: &str = "flagstone";
const REMEDIES: [&str; 2] = ["defer-contended-free", "avoid-contended-slab"];
const MACHINE: &str = "xeon-2007-8";
const CPUS: u32 = 8;
const SIZES: [usize; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
/// The size whose row has two states.
const BISTABLE: usize = 8;
/// Pauses of the phase diagram in nanoseconds for each object: below zero the freeing CPUs
/// pause, above zero the allocating one.
pub(super) const PAUSES: [i64; 9] = [-8000, -4000, -2000, -1000, 0, 100, 200, 400, 800];
/// Freeing CPUs of the flatness check, on a machine that has so many.
const FREEING: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const WIDE: &str = "intel-2s-128";
/// How long it is looked at once it runs: 64 CPUs start for 16 ms, the latter half is the window.
const FLOW: Look = Look::ms(64, 64);
/// One allocates, all others free, on today's machine and its larger kin, in full runs.
const MANY: [(&str, u32); 4] = [
    ("spr-2s-224", 56),
    ("spr-2s-224", 112),
    ("spr-2s-224", 224),
    ("spr-2s-224@1024", 1024),
];
/// Objects of the whole test for each task, which the tasks share.
const OBJECTS: u32 = flagstone_sim::workload::one_alloc_n_free::COUNT as u32;
/// Bytes of an object there: 1024 tasks get ten million of them.
const MANY_SIZE: usize = 16;
/// The table of extras that the diagram is drawn from.
pub(super) const PHASES: &str = "phase diagram: cycles of a freeing CPU under SLUB";

/// Likewise of CPU 0.
const PHASES_PRODUCER: &str = "phase diagram: cycles of CPU 0 under SLUB";
/// Cycles of the machine in a nanosecond, to take pauses off.
const GHZ: f64 = 2.33;

fn test(size: usize) -> Ask {
    Ask {
        size: Some(size),
        ..Ask::new("one-alloc-n-free", MACHINE, CPUS, Look::ms(1, 1))
    }
}

fn paused(size: usize, pause: i64) -> Ask {
    Ask {
        think_ns: (pause != 0).then_some(pause),
        ..test(size).under(SLUB)
    }
}

fn wide(freeing: u32) -> Ask {
    Ask {
        size: Some(128),
        ..Ask::new("one-alloc-n-free", WIDE, freeing + 1, Look::ms(1, 1)).under(OWN)
    }
}

/// The same once it runs: every object is freed, figures are those of a window.
fn flow(freeing: u32) -> Ask {
    Ask {
        workload: "one-alloc-flow",
        look: FLOW,
        ..wide(freeing)
    }
}

fn many((machine, tasks): (&'static str, u32), policy: &str) -> Ask {
    Ask {
        size: Some(MANY_SIZE),
        ..Ask::new("one-alloc-n-free", machine, tasks, Look::ms(1, 1)).under(policy)
    }
}

fn remedy(name: &str) -> String {
    format!("{SLUB}+{name}")
}

/// Runs to make.
pub(super) fn asks(effort: Effort) -> Vec<Ask> {
    let mut asks = Vec::new();
    for size in SIZES {
        for policy in [SLAB, SLUB, OWN] {
            asks.extend(test(size).under(policy).seeds(effort.seeds()));
        }
        asks.extend(REMEDIES.map(|name| test(size).under(&remedy(name))));
        asks.extend(PAUSES.map(|pause| paused(size, pause)));
    }
    asks.extend(FREEING.map(wide));
    asks.extend(FREEING.map(flow));
    if effort == Effort::Full {
        for place in MANY {
            asks.extend([SLAB, SLUB, OWN].map(|policy| many(place, policy)));
        }
    }
    asks
}

/// Cycles of one CPU, as the harness prints them.
fn cpu(figures: &Figures, cpu: u32) -> f64 {
    let found = figures.details.get(&format!("cpu{cpu}_cycles"));
    found.copied().unwrap_or(f64::NAN)
}

/// The mean over CPUs `from` to 7.
fn mean(figures: &Figures, from: u32) -> f64 {
    (from..CPUS).map(|n| cpu(figures, n)).sum::<f64>() / f64::from(CPUS - from)
}

/// Fills the sheet.
pub(super) fn fill(sheet: &mut Sheet, runs: &Runs) {
    for size in SIZES {
        for (name, policy) in [("SLAB", SLAB), ("SLUB", SLUB)] {
            row(sheet, runs, name, policy, size);
        }
        target(sheet, runs, size);
        remedies(sheet, runs, size);
        phases(sheet, runs, size);
    }
    regimes(sheet, runs);
    flatness(sheet, runs);
    for place in MANY {
        crowd(sheet, runs, place);
    }
    sheet.settings.push(Setting {
        seed: SEED,
        what: format!("machine {MACHINE}: transfers, memory, atomics, waiters, fast path, slab pages"),
        source: "an earlier feasibility study (counted under S0), which saw these rows; since then SLAB's \
                 CPU 0, in the rows marked fitted, SLUB's rows in sight"
            .into(),
        tried: tried(MACHINE),
    });
}

fn row(sheet: &mut Sheet, runs: &Runs, name: &str, policy: &str, size: usize) {
    let table = format!("1 alloc N free {name}");
    let row = format!("{size} B");
    let ask = test(size).under(policy);
    let own = test(size).under(OWN);
    let percent = if policy == SLAB { 25.0 } else { 50.0 };
    let accuracy = Accuracy::Percent(percent).blind("2026-11-20");
    let mut put = |column: &str, figure: &dyn Fn(&Figures) -> f64| {
        let slab = ["1 alloc N free SLAB", &row, column].map(String::from);
        let fill = Fill {
            got: Some(runs.stat(&ask, figure).map(|stat| stat.pair())),
            own: runs.stat(&own, figure).ok().map(|stat| stat.mean),
            accuracy: Some(accuracy),
            versus: (policy == SLUB).then_some(Versus::Cell(slab, 0)),
            profile: Some(MACHINE.into()),
            note: (size == BISTABLE && policy == SLUB)
                .then(|| "two states; see the phase diagram".into()),
            ..Fill::default()
        };
        sheet.fill(Method::Simulated, [&table, &row, column], 0, fill);
    };
    for n in 0..CPUS {
        put(&format!("cpu {n}"), &|figures| cpu(figures, n));
    }
    put("average", &|figures| mean(figures, 0));
}

/// Cycles of CPU 0 without its own pause.
fn producing(figures: &Figures, pause: i64) -> f64 {
    cpu(figures, 0) - pause.max(0) as f64 * GHZ * f64::from(CPUS - 1)
}

/// Cycles of a freeing CPU without its own pause.
fn freeing(figures: &Figures, pause: i64) -> f64 {
    mean(figures, 1) - (-pause).max(0) as f64 * GHZ / f64::from(CPUS)
}

/// CPU 0 and the freeing CPUs under a policy.
fn sides(runs: &Runs, size: usize, policy: &str) -> Option<[Stat; 2]> {
    let ask = test(size).under(policy);
    let producer = runs.stat(&ask, |f| cpu(f, 0)).ok()?;
    let freeing = runs.stat(&ask, |f| mean(f, 1)).ok()?;
    Some([producer, freeing])
}

fn target(sheet: &mut Sheet, runs: &Runs, size: usize) {
    let found = [SLAB, SLUB, OWN].map(|policy| sides(runs, size, policy));
    let [Some(slab), Some(slub), Some(own)] = found else {
        return;
    };
    let better = |side: usize| {
        let slab_leads = slab[side].mean < slub[side].mean;
        if slab_leads { slab[side] } else { slub[side] }
    };
    let best = [better(0), better(1)];
    sheet.targets.push(Target::at_most(
        SEED,
        format!("{size} B: no slower than the better of SLAB and SLUB, CPU 0 and freeing CPUs"),
        format!(
            "CPU 0 {:.0} against {:.0}, freeing {:.0} against {:.0} cycles",
            own[0].mean, best[0].mean, own[1].mean, best[1].mean
        ),
        &[(own[0], best[0]), (own[1], best[1])],
    ));
}

fn remedies(sheet: &mut Sheet, runs: &Runs, size: usize) {
    for policy in [SLUB.to_owned()].into_iter().chain(REMEDIES.map(remedy)) {
        let Some([producer, freeing]) = sides(runs, size, &policy) else {
            continue;
        };
        for (side, got) in [("CPU 0", producer.mean), ("freeing CPUs", freeing.mean)] {
            sheet.extras.push(Extra {
                seed: SEED,
                table: format!("the two remedies, {side}"),
                row: format!("{size} B"),
                column: policy.clone(),
                got,
                method: Method::Simulated,
                unit: "cycles",
            });
        }
    }
}

fn phases(sheet: &mut Sheet, runs: &Runs, size: usize) {
    for pause in PAUSES {
        let Ok(figures) = runs.get(&paused(size, pause)) else {
            continue;
        };
        for (table, got) in [
            (PHASES, freeing(figures, pause)),
            (PHASES_PRODUCER, producing(figures, pause)),
        ] {
            sheet.extras.push(Extra {
                seed: SEED,
                table: table.into(),
                row: format!("{size} B"),
                column: format!("{pause} ns"),
                got,
                method: Method::Simulated,
                unit: "cycles",
            });
        }
    }
}

/// The three regimes, named: who is ahead where, published and got.
fn regimes(sheet: &mut Sheet, runs: &Runs) {
    for (index, size) in SIZES.into_iter().enumerate() {
        let name = match index {
            0 => "SLUB ahead at 8 B",
            1..=7 => "SLUB behind from 16 B to 1 KiB",
            _ => "SLUB catching up from 2 KiB",
        };
        let row = format!("{size} B");
        let sides = [SLUB, SLAB].map(|policy| sides(runs, size, policy));
        let [Some(slub), Some(slab)] = sides else {
            continue;
        };
        for (side, column) in [(0, "cpu 0"), (1, "cpu 1")] {
            let published = sheet.published("1 alloc N free SLUB", &row, column)
                / sheet.published("1 alloc N free SLAB", &row, column);
            for (word, got) in [
                ("published", published),
                ("got", slub[side].mean / slab[side].mean),
            ] {
                sheet.extras.push(Extra {
                    seed: SEED,
                    table: format!("regimes, SLUB over SLAB: {name}"),
                    row: row.clone(),
                    column: format!("{column}, {word}"),
                    got,
                    method: Method::Simulated,
                    unit: "ratio",
                });
            }
        }
    }
}

/// One allocates and everybody else frees: what an object costs either side.
fn crowd(sheet: &mut Sheet, runs: &Runs, place: (&'static str, u32)) {
    let found = [SLAB, SLUB, OWN].map(|policy| runs.get(&many(place, policy)).cloned());
    let [Ok(slab), Ok(slub), Ok(own)] = found else {
        return;
    };
    let tasks = place.1;
    for (policy, figures) in [(SLAB, &slab), (SLUB, &slub), (OWN, &own)] {
        for (column, got) in [("alloc", figures.alloc_ns), ("free", figures.free_ns)] {
            sheet.extras.push(Extra {
                seed: SEED,
                table: format!("cost of one object of {MANY_SIZE} B, {policy}"),
                row: format!("{tasks} tasks"),
                column: column.into(),
                got,
                method: Method::Simulated,
                unit: "ns",
            });
        }
    }
    let best = [
        slab.alloc_ns.min(slub.alloc_ns),
        slab.free_ns.min(slub.free_ns),
    ];
    sheet.targets.push(Target::at_most(
        SEED,
        format!(
            "{MANY_SIZE} B at {tasks} tasks, {} frees each: no slower than the better of SLAB and SLUB (one seed)",
            OBJECTS / tasks
        ),
        format!(
            "alloc {:.0} against {:.0}, free {:.0} against {:.0} ns",
            own.alloc_ns, best[0], own.free_ns, best[1]
        ),
        &[
            (Stat::exact(own.alloc_ns), Stat::exact(best[0])),
            (Stat::exact(own.free_ns), Stat::exact(best[1])),
        ],
    ));
}

/// One free from 1 to 64 freeing CPUs, in nanoseconds: once it runs, and in the published test.
///
/// Which of the two is "the cost of one object"? The published test shares 10,000 frees between
/// the CPUs: with 64 of them each frees 153 objects, the first of its life, so that it compares how
/// much of a CPU's beginning is in a free, 1 part in 5000 or 1 in 153. Each is a target of its own.
fn flatness(sheet: &mut Sheet, runs: &Runs) {
    flat(sheet, runs, "once it runs", "one-alloc-flow", flow);
    let when = "in the published test, CPUs' first frees included";
    flat(sheet, runs, when, "one-alloc-n-free", wide);
}

fn flat(sheet: &mut Sheet, runs: &Runs, when: &str, workload: &str, form: fn(u32) -> Ask) {
    let mut costs = Vec::new();
    for freeing in FREEING {
        let Ok(figures) = runs.get(&form(freeing)) else {
            return;
        };
        costs.push(figures.free_ns);
        for (column, got) in [("free", figures.free_ns), ("alloc", figures.alloc_ns)] {
            sheet.extras.push(Extra {
                seed: SEED,
                table: format!("cost of one object under flagstone on {WIDE}, 128 B, {workload}"),
                row: format!("{freeing} freeing CPUs"),
                column: column.into(),
                got,
                method: Method::Simulated,
                unit: "ns",
            });
        }
    }
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = costs.iter().copied().fold(0.0, f64::max);
    sheet.targets.push(Target::at_most(
        SEED,
        format!("cost of one free flat within 20 % from 1 to 64 freeing CPUs, {when} (one seed)"),
        format!("{least:.1} to {most:.1} ns"),
        &[(Stat::exact(most), Stat::exact(1.2 * least))],
    ));
}
