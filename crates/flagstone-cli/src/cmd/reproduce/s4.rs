//! S4: min_partial by object size (2008). fio netio under SLAB, SLUB and dynamic SLUB, 50 seeds.
//!
//! The mail prints seconds of 50 runs. A simulated run lasts so many milliseconds, so seconds are
//! made of its speed: the time the published work would take, the work being what SLUB's mean
//! does in SLUB's mean real time (fitted: that cell). System time moves with the time spent in
//! the allocator and in TCP, from SLUB's mean (fitted). Spread is over seeds: each draws how much of
//! its run is in step (see the workload), with the price of a new slab fitted to SLUB's worst real
//! time. User time is an account, not a simulation: SLUB's mean less what a run's system time is above
//! SLUB's, times the ratio of SLUB's published deviations of the two (1.67 to 2.28). That the one falls
//! where the other rises is in SLUB's row as well: its least user time lies as far out (3.7 deviations)
//! as its greatest system time (3.5), and its greatest user time as near (0.6) as its least system
//! time (0.6). No other row has a part in it.
//!
//! What min_partial decides is page-allocator work: its calls and their spread stand beside.

use super::ask::{Ask, Effort, Figures, Look, Runs, Stat};
use super::sheet::{Accuracy, Extra, Fill, Method, Setting, Sheet, Stated, Target, Versus, tried};

const SEED: &str = "S4";
const BASE: &str = "linux-2.6.26";
const DYNAMIC: &str = "linux-2.6.26+dynamic-min-partial";
const OWN: &str = "flagstone";
const ROWS: [(&str, &str); 3] = [
    ("SLAB", "slab-2.6.24"),
    ("SLUB", BASE),
    ("SLUB (dynamic)", DYNAMIC),
];
const REAL: &str = "fio netio real time";
const SYS: &str = "fio netio sys time";
const USER: &str = "fio netio user time";
/// As many as the published runs: least and greatest are of so many.
const SEEDS: u64 = 50;

fn netio(effort: Effort) -> Ask {
    let look = effort.pick(Look::ms(32, 32), Look::ms(256, 256));
    Ask::new("netio", "x86-2way-2008", 2, look)
}

/// Runs to make.
pub(super) fn asks(effort: Effort) -> Vec<Ask> {
    let policies = ROWS.map(|(_, policy)| policy).into_iter().chain([OWN]);
    policies
        .flat_map(|policy| netio(effort).under(policy).seeds(SEEDS).collect::<Vec<_>>())
        .collect()
}

/// What turns a simulated run into the published units.
#[derive(Clone, Copy)]
struct Scale {
    /// Real seconds times operations a second: the published work.
    work: f64,
    /// Seconds of system time at the base's mean.
    sys: f64,
    /// Nanoseconds in the kernel for an operation, at the base's mean.
    kernel: f64,
    /// Seconds of user time at the base's mean.
    user: f64,
    /// Seconds of user time less for a second of system time more.
    booked: f64,
}

impl Scale {
    fn new(sheet: &Sheet, runs: &Runs, ask: &Ask) -> Result<Self, String> {
        let ask = ask.under(BASE);
        let seconds = runs.stat(&ask, |f| 1.0 / f.ops)?;
        let sd = |table| sheet.published(table, "SLUB", "sd");
        Ok(Self {
            work: sheet.published(REAL, "SLUB", "avg") / seconds.mean,
            sys: sheet.published(SYS, "SLUB", "avg"),
            kernel: runs.stat(&ask, kernel)?.mean,
            user: sheet.published(USER, "SLUB", "avg"),
            booked: sd(USER) / sd(SYS),
        })
    }

    fn real(self, figures: &Figures) -> f64 {
        self.work / figures.ops
    }

    fn user(self, figures: &Figures) -> f64 {
        self.user - self.booked * (self.system(figures) - self.sys)
    }

    fn system(self, figures: &Figures) -> f64 {
        // Two tasks work on every operation; `ops` counts each task's share of them.
        self.sys + 2.0 * self.work * (kernel(figures) - self.kernel) / 1e9
    }
}

/// Nanoseconds in the allocator and in TCP for one block, on both sides.
fn kernel(figures: &Figures) -> f64 {
    let tcp = figures.details.get("TCP ns per block");
    figures.allocator_ns + tcp.copied().unwrap_or(f64::NAN)
}

/// Fills the sheet.
pub(super) fn fill(sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    let ask = netio(effort);
    let scale = Scale::new(sheet, runs, &ask);
    for (row, policy) in ROWS {
        type Time = fn(Scale, &Figures) -> f64;
        let stat = |policy: &str, time: Time| {
            let scale = scale.clone()?;
            runs.stat(&ask.under(policy), |figures| time(scale, figures))
        };
        let times: [Time; 3] = [Scale::real, Scale::system, Scale::user];
        let [real, sys, user] = times.map(|time| (stat(policy, time), stat(OWN, time).ok()));
        // The table holds the columns in shifted pairs: real and sys, sys and user, user.
        let all = [
            (REAL, 0, &real),
            (REAL, 1, &sys),
            (SYS, 0, &sys),
            (SYS, 1, &user),
            (USER, 0, &user),
        ];
        for (table, nth, found) in all {
            cells(sheet, table, nth, row, &found.0, found.1);
        }
    }
    targets(sheet, runs, &ask);
    extras(sheet, runs, &ask);
    sheet.settings.push(Setting {
        seed: SEED,
        what:
            "netio: work of a run, constant part of system time, price of a slab's page; user time \
               for a second of system time"
                .into(),
        source: "fitted to SLUB's mean real and sys time and its worst real time; TCP's noise \
                 to SLAB's of system time; windows and what an earlier life left are choices; user \
                 time by SLUB's deviations, chosen after its signs had been seen wrong"
            .into(),
        // Two ratios for user time, three forms of who frees.
        tried: 1 + 5 + tried("x86-2way-2008"),
    });
}

/// SLUB's means; its least and greatest times, between which the part of runs in step was placed; its user
/// time, which is scaled by its published deviation; SLAB's deviation of system time.
fn is_fitted(table: &str, nth: usize, row: &str, column: &str) -> bool {
    match (row, column) {
        ("SLUB", "min" | "max" | "avg") => true,
        ("SLUB", _) => table == USER || (table, nth) == (SYS, 1),
        ("SLAB", "sd") => [(REAL, 1), (SYS, 0)].contains(&(table, nth)),
        _ => false,
    }
}

fn cells(
    sheet: &mut Sheet,
    table: &str,
    nth: usize,
    row: &str,
    found: &Result<Stat, String>,
    own: Option<Stat>,
) {
    type Pick = fn(Stat) -> f64;
    const FIRST: &str = "2026-11-20";
    let columns: [(&str, Pick, Stated); 4] = [
        ("min", |s| s.min, Accuracy::Percent(10.0).seen(FIRST)),
        ("max", |s| s.max, Accuracy::Percent(10.0).seen(FIRST)),
        ("avg", |s| s.mean, Accuracy::Percent(5.0).seen(FIRST)),
        (
            "sd",
            |s| s.sd.unwrap_or(0.0),
            Accuracy::Factor(2.0).seen(FIRST),
        ),
    ];
    for (column, pick, accuracy) in columns {
        let slub = [table, "SLUB", column].map(String::from);
        let shifted = match (table, nth) {
            (REAL, 1) => Some("transcribed under real time; these are sys times"),
            (SYS, 1) => Some("transcribed under sys time; these are user times"),
            _ => None,
        };
        let fill = Fill {
            got: Some(found.clone().map(|stat| (pick(stat), None))),
            own: own.map(pick),
            fitted: is_fitted(table, nth, row, column) && found.is_ok(),
            accuracy: Some(accuracy),
            versus: (row != "SLUB").then_some(Versus::Cell(slub, nth)),
            profile: Some("x86-2way-2008, 50 seeds".into()),
            note: shifted.map(String::from),
        };
        sheet.fill(Method::Simulated, [table, row, column], nth, fill);
    }
}

fn targets(sheet: &mut Sheet, runs: &Runs, ask: &Ask) {
    let of = |policy: &str, figure: fn(&Figures) -> f64| runs.stat(&ask.under(policy), figure);
    let calls = [BASE, DYNAMIC, OWN].map(|policy| of(policy, |f| f.page_allocs));
    let [Ok(base), Ok(dynamic), Ok(own)] = calls else {
        return;
    };
    let words = |stat: Stat| format!("{:.3} ± {:.3}", stat.mean, stat.sd.unwrap_or(0.0));
    sheet.targets.push(Target::at_most(
        SEED,
        "dynamic against SLUB: fewer page-allocator calls, spread at most half".into(),
        format!("{} against {} for 1000 blocks", words(dynamic), words(base)),
        &[
            (dynamic, base),
            (dynamic.deviation(), base.deviation().times(0.5)),
        ],
    ));
    sheet.targets.push(Target::at_most(
        SEED,
        "flagstone: page-allocator calls and their spread at most dynamic's".into(),
        format!("{} for 1000 blocks", words(own)),
        &[(own, dynamic), (own.deviation(), dynamic.deviation())],
    ));
    let memory = [DYNAMIC, OWN].map(|policy| of(policy, |f| f.mean_bytes / 1024.0));
    if let [Ok(dynamic), Ok(own)] = memory {
        sheet.targets.push(Target::at_most(
            SEED,
            "flagstone: less memory kept than dynamic (empty slabs are most of it)".into(),
            format!("{:.0} against {:.0} KiB", own.mean, dynamic.mean),
            &[(own, dynamic)],
        ));
    }
}

fn extras(sheet: &mut Sheet, runs: &Runs, ask: &Ask) {
    for (row, policy) in ROWS.into_iter().chain([(OWN, OWN)]) {
        for (table, unit, figure) in [
            (
                "page-allocator calls for 1000 blocks",
                "calls",
                (|f| f.page_allocs) as fn(&Figures) -> f64,
            ),
            ("memory in use", "KiB", |f| f.mean_bytes / 1024.0),
            ("blocks per task and second", "1/s", |f| f.ops),
        ] {
            let Ok(stat) = runs.stat(&ask.under(policy), figure) else {
                continue;
            };
            for (column, got) in [
                ("min", stat.min),
                ("max", stat.max),
                ("avg", stat.mean),
                ("sd", stat.sd.unwrap_or(0.0)),
            ] {
                sheet.extras.push(Extra {
                    seed: SEED,
                    table: table.into(),
                    row: row.into(),
                    column: column.into(),
                    got,
                    method: Method::Simulated,
                    unit,
                });
            }
        }
    }
}
