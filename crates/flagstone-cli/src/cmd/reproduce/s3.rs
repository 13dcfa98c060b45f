//! S3: auto-tuned pagesets (2023). kbuild, SCTP_STREAM_MANY and AF_UNIX, base and five states of
//! the series, simulated; the size of the pageset, computed.
//!
//! ```text
//!   score        operations, percent of base            build time    its inverse
//!   lock         waiting for zone locks                 free_high     drains by high-order frees
//!   alloc_zone   pages fetched from zones               cache misses  of data that passes through
//! ```
//!
//! The series counts over a whole test, and tests differ in what they keep the same:
//!
//! ```text
//!   kbuild    the work: one build                                  counters for each page
//!   SCTP      the time: netperf stops after so many seconds        times the score (106.3 beside 106.4)
//!   AF_UNIX   what lmbench found one pair to do in two seconds     times the score of a pair alone
//! ```
//!
//! The last is of lmbench's harness (benchmp in its lib_timing.c): told to run several jobs, it measures
//! one alone first, and gives each job of the run proper as many iterations as that one needed.

mod memory;

use super::ask::{Ask, Effort, Figures, Look, Runs, Stat};
use super::sheet::{Accuracy, Extra, Fill, Method, Setting, Sheet, Stated, Target, Versus, tried};
use flagstone_sim::window::Settled;

const SEED: &str = "S3";
const BASE: &str = "linux-6.6";
const OWN: &str = "flagstone";
const STATES: [(&str, &str); 6] = [
    ("base", BASE),
    ("patch1", "linux-6.6+pcp1"),
    ("patch3", "linux-6.6+pcp3"),
    ("patch5", "linux-6.6+pcp5"),
    ("patch7", "linux-6.6+pcp7"),
    ("patch9", "linux-6.6+pcp9"),
];
const LAST: &str = "linux-6.6+pcp9";

/// One table of the series.
#[derive(Clone, Copy)]
struct Table {
    name: &'static str,
    workload: &'static str,
    machine: &'static str,
    tasks: u32,
    keeps: Keeps,
    /// The first column: throughput, or time.
    first: &'static str,
}

/// What a test keeps the same whatever the kernel does: its counters are of so much work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    /// As many operations, however long they take.
    Work,
    /// As long a time: counters go with the speed.
    Time,
    /// As many operations for each job as this many tasks alone do in a given time.
    WorkOfAlone(u32),
}

/// Whether the counters of this table go with its own speed.
pub(super) fn is_by_time(table: &str) -> bool {
    TABLES
        .iter()
        .any(|known| known.name == table && known.keeps == Keeps::Time)
}

const TABLES: [Table; 3] = [
    Table {
        name: "kbuild",
        workload: "kbuild",
        machine: "intel-2s-224",
        tasks: 224,
        keeps: Keeps::Work,
        first: "build time",
    },
    Table {
        name: "netperf SCTP_STREAM_MANY",
        workload: "sctp-stream-many",
        machine: "intel-2s-128",
        tasks: 128,
        keeps: Keeps::Time,
        first: "score",
    },
    Table {
        name: "lmbench3 UNIX (AF_UNIX)",
        workload: "af-unix",
        machine: "intel-2s-128",
        tasks: 32,
        keeps: Keeps::WorkOfAlone(2),
        first: "score",
    },
];

/// Workloads that are also run with 1024 tasks, in full runs: one seed, a short look.
const LARGE: [(&str, &str, &str); 2] = [
    ("kbuild", "kbuild", "intel-2s-224@1024"),
    ("lmbench3 UNIX (AF_UNIX)", "af-unix", "intel-2s-128@1024"),
];

fn large((_, workload, machine): (&str, &'static str, &'static str), policy: &str) -> Ask {
    // Processes of a build live 45 ms.
    let look = if workload == "kbuild" {
        Look::ms(64, 64)
    } else {
        Look::ms(8, 8)
    };
    Ask::new(workload, machine, 1024, look).under(policy)
}

/// A table's test with `tasks` tasks.
fn run_with(table: Table, tasks: u32, effort: Effort) -> Ask {
    let look = match table.workload {
        // Processes live 45 ms: a window must hold several.
        "kbuild" => effort.pick(Look::ms(64, 64), Look::ms(256, 512)),
        _ => effort.pick(Look::ms(16, 16), Look::ms(64, 256)),
    };
    Ask::new(table.workload, table.machine, tasks, look)
}

fn run_of(table: Table, effort: Effort) -> Ask {
    run_with(table, table.tasks, effort)
}

/// The run whose speed says how many operations the whole test has; `None` where they are always as many.
fn speed_that_counts(table: Table, effort: Effort) -> Option<Ask> {
    match table.keeps {
        Keeps::Work => None,
        Keeps::Time => Some(run_of(table, effort)),
        Keeps::WorkOfAlone(tasks) => Some(run_with(table, tasks, effort)),
    }
}

/// Runs to make.
pub(super) fn asks(effort: Effort) -> Vec<Ask> {
    let mut asks = Vec::new();
    for table in TABLES {
        for policy in STATES.map(|(_, policy)| policy).into_iter().chain([OWN]) {
            let test = run_of(table, effort);
            let counts = speed_that_counts(table, effort).filter(|counts| *counts != test);
            for ask in [Some(test), counts].into_iter().flatten() {
                asks.extend(ask.under(policy).seeds(effort.seeds()));
            }
        }
    }
    if effort == Effort::Full {
        for place in LARGE {
            asks.extend([BASE, LAST, OWN].map(|policy| large(place, policy)));
        }
    }
    asks
}

/// Fills the sheet.
pub(super) fn fill(sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    for table in TABLES {
        for (row, policy) in STATES {
            cells(sheet, runs, table, row, policy, effort);
        }
        targets(sheet, runs, table, effort);
    }
    memory::overhead(sheet, runs, effort);
    memory::layout(sheet);
    for place in LARGE {
        crowd(sheet, runs, place);
    }
    sheet.settings.push(Setting {
        seed: SEED,
        what:
            "outside the allocator: kbuild 5600 ns a page, AF_UNIX 1400 ns a buffer, SCTP 9000 ns a message"
                .into(),
        source: "fitted to the base's lock share (docs/fits.md)".into(),
        tried: 22 + 16,
    });
    sheet.settings.push(Setting {
        seed: SEED,
        what: "misses of data that is not the allocator's, of AF_UNIX and SCTP".into(),
        source: "fitted to the base's cache miss rate".into(),
        tried: 2,
    });
    sheet.settings.push(Setting {
        seed: SEED,
        what: "SCTP's message without single pages; machines intel-2s-224 and intel-2s-128".into(),
        source: "from the kernel's path, after patch 1 had been seen; the machines' figures are those of \
                 spr-2s-224 or estimates"
            .into(),
        tried: 1 + tried("intel-2s-224") + tried("intel-2s-128"),
    });
}

/// A figure of a policy over the base's, in percent.
fn relative(
    runs: &Runs,
    ask: &Ask,
    policy: &str,
    figure: impl Fn(&Figures) -> f64,
) -> Result<Stat, String> {
    let base = runs.stat(&ask.under(BASE), &figure)?;
    let stat = runs.stat(&ask.under(policy), &figure)?;
    if base.mean == 0.0 {
        return Err("the base has none of these in the simulation".into());
    }
    Ok(stat.times(100.0 / base.mean))
}

fn column(
    runs: &Runs,
    table: Table,
    effort: Effort,
    policy: &str,
    column: &str,
) -> Result<Stat, String> {
    let ask = run_of(table, effort);
    let counter = |figure: fn(&Figures) -> f64| {
        let for_an_operation = relative(runs, &ask, policy, figure)?;
        let Some(of) = speed_that_counts(table, effort) else {
            return Ok(for_an_operation);
        };
        let operations = relative(runs, &of, policy, |f| f.ops)?;
        Ok(for_an_operation.times(operations.mean / 100.0))
    };
    match column {
        "score" => relative(runs, &ask, policy, |f| f.ops),
        "build time" => relative(runs, &ask, policy, |f| 1.0 / f.ops),
        "lock contend%" => runs.stat(&ask.under(policy), |f| f.zone_share),
        "free_high" => counter(|f| f.free_high),
        "alloc_zone" => counter(|f| f.zone_pages),
        _ => {
            let misses = |f: &Figures| f.cache_misses.unwrap_or(f64::NAN);
            let stat = runs.stat(&ask.under(policy), misses)?;
            if stat.mean.is_nan() {
                return Err("this workload passes no data through the simulated cache".into());
            }
            Ok(stat)
        }
    }
}

/// What a column promises: scores of AF_UNIX and build times as in the feasibility study, the rest chosen
/// here.
fn accuracy(table: Table, column: &str, row: &str) -> Stated {
    const FIRST: &str = "2026-11-20";
    match (column, table.workload, row) {
        ("build time", ..) => Accuracy::Points(3.0).blind(FIRST),
        ("lock contend%", "kbuild", "patch7" | "patch9") => Accuracy::Points(2.0).blind(FIRST),
        ("lock contend%", ..) => Accuracy::Points(8.0).seen(FIRST),
        ("score", "af-unix", _) => Accuracy::Percent(10.0).blind(FIRST),
        ("score", ..) => Accuracy::Percent(5.0).seen(FIRST),
        ("cache miss rate%", ..) => Accuracy::Points(1.0).seen(FIRST),
        _ => Accuracy::Points(15.0).seen(FIRST),
    }
}

fn cells(sheet: &mut Sheet, runs: &Runs, table: Table, row: &str, policy: &str, effort: Effort) {
    let ask = run_of(table, effort);
    let names = [table.first, "lock contend%", "free_high", "alloc_zone"];
    let misses = (table.workload != "kbuild").then_some("cache miss rate%");
    for name in names.into_iter().chain(misses) {
        let base_cell = [table.name, "base", name].map(String::from);
        let by_definition = row == "base" && name != "lock contend%" && name != "cache miss rate%";
        let share = row == "base" && name == "lock contend%";
        let misses_of_base = row == "base" && name == "cache miss rate%";
        let note = if share {
            Some("think time fitted to this share".into())
        } else if misses_of_base {
            Some("misses of other data fitted to this rate".into())
        } else {
            let settled = |s: Settled| match name {
                "lock contend%" => s.ops && s.waits,
                "free_high" | "alloc_zone" => s.ops && s.pages,
                // A page that was long in a pageset is no longer in a data cache.
                "cache miss rate%" => s.ops && s.pages,
                _ => s.ops,
            };
            let asks = [&ask.under(BASE), &ask.under(policy)];
            runs.note(&asks, name, settled)
        };
        let fill = Fill {
            got: Some(column(runs, table, effort, policy, name).map(|stat| stat.pair())),
            own: column(runs, table, effort, OWN, name)
                .ok()
                .map(|stat| stat.mean),
            fitted: by_definition || share || misses_of_base,
            accuracy: Some(accuracy(table, name, row)),
            versus: (row != "base").then_some(Versus::Cell(base_cell, 0)),
            profile: Some(table.machine.into()),
            note,
        };
        sheet.fill(Method::Simulated, [table.name, row, name], 0, fill);
    }
}

fn targets(sheet: &mut Sheet, runs: &Runs, table: Table, effort: Effort) {
    let waits = |policy| column(runs, table, effort, policy, "lock contend%");
    if let (Ok(last), Ok(own)) = (waits(LAST), waits(OWN)) {
        let of = |stat: &Stat| match stat.sd {
            Some(sd) => format!("{:.3} ± {sd:.3} %", stat.mean),
            None => format!("{:.3} %", stat.mean),
        };
        sheet.targets.push(Target::at_most(
            SEED,
            format!("{}: zone-lock share at most patch 9's", table.name),
            format!("{} against {}", of(&own), of(&last)),
            &[(own, last)],
        ));
    }
    for (row, policy) in STATES.into_iter().chain([(OWN, OWN)]) {
        if let Ok(figures) = runs.get(&run_of(table, effort).under(policy)) {
            sheet.extras.push(Extra {
                seed: SEED,
                table: format!("{}: memory in use", table.name),
                row: row.into(),
                column: "mean".into(),
                got: figures.mean_bytes / 1048576.0,
                method: Method::Simulated,
                unit: "MiB",
            });
            sheet.extras.push(Extra {
                seed: SEED,
                table: format!("{}: operations per task and second", table.name),
                row: row.into(),
                column: "mean".into(),
                got: figures.ops,
                method: Method::Simulated,
                unit: "1/s",
            });
        }
    }
}

/// The same with 1024 tasks.
fn crowd(sheet: &mut Sheet, runs: &Runs, place: (&'static str, &'static str, &'static str)) {
    let found = [BASE, LAST, OWN].map(|policy| runs.get(&large(place, policy)).cloned());
    let [Ok(base), Ok(last), Ok(own)] = found else {
        return;
    };
    for (row, figures) in [("base", &base), ("patch9", &last), (OWN, &own)] {
        for (column, got, unit) in [
            ("zone-lock share", figures.zone_share, "%"),
            ("operations per task and second", figures.ops, "1/s"),
            ("memory in use", figures.mean_bytes / 1048576.0, "MiB"),
        ] {
            sheet.extras.push(Extra {
                seed: SEED,
                table: format!("{} with 1024 tasks", place.0),
                row: row.into(),
                column: column.into(),
                got,
                method: Method::Simulated,
                unit,
            });
        }
    }
    sheet.targets.push(Target::at_most(
        SEED,
        format!(
            "{} at 1024 tasks: zone-lock share at most patch 9's (one seed)",
            place.0
        ),
        format!(
            "{:.1} % against {:.1} %, throughput {:+.1} %",
            own.zone_share,
            last.zone_share,
            (own.ops / last.ops - 1.0) * 100.0
        ),
        &[(Stat::exact(own.zone_share), Stat::exact(last.zone_share))],
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn figures(ops: f64) -> Figures {
        Figures {
            ops,
            lock_share: 0.0,
            list_share: 0.0,
            zone_share: 0.0,
            functions: BTreeMap::new(),
            mean_bytes: 0.0,
            peak_bytes: 0.0,
            alloc_ns: 0.0,
            free_ns: 0.0,
            allocator_ns: 0.0,
            page_allocs: 0.0,
            zone_pages: 15_000.0,
            free_high: 0.0,
            cache_misses: None,
            settled: Settled::ALL,
            ops_drift: 0.0,
            bytes_drift: 0.0,
            details: BTreeMap::new(),
            simulated_ops: 0,
        }
    }

    #[test]
    fn counters_are_of_as_much_work_as_the_whole_test_does() {
        let patched = "linux-6.6+pcp1";
        let mut runs = Runs::default();
        for ask in asks(Effort::Quick) {
            // An operation takes the same pages everywhere; all but the sixteen pairs are faster.
            let faster = ask.policy == patched && ask.tasks != 32;
            let ops = if faster { 105.0 } else { 100.0 };
            runs.0.insert(ask, Ok(figures(ops)));
        }
        let [build, netperf, lmbench] = TABLES.map(|table| {
            let of = |name| column(&runs, table, Effort::Quick, patched, name).unwrap();
            (of("alloc_zone").mean, of("score").mean)
        });
        assert_eq!(build, (100.0, 105.0), "one build, however fast");
        assert_eq!(netperf, (105.0, 105.0), "so many seconds");
        assert_eq!(
            lmbench,
            (105.0, 100.0),
            "what a pair alone does, however fast sixteen are"
        );
    }
}
