//! S2: the order of least waste (2023). Wastage and total slab memory, computed; hackbench's time,
//! simulated; the one example, exact.
//!
//! The author's populations are not known. Ours are two captured 64 KiB-page kernels of the
//! architecture that has 160 CPUs and both page sizes; every cache is given the same factor more
//! objects, found so that the *base's* total memory is the published one. The base's total is
//! therefore fitted; its wastage and both patched columns are not. Objects are spread evenly over
//! the CPUs, each CPU with slabs of its own, before and after hackbench alike: no population after
//! hackbench was available. Formulas: `Populations::population_spread`, as in ADR 0011.
//!
//! hackbench: G groups take K·G / throughput seconds; K is fitted to the base's 48 groups. Groups
//! of 40 tasks keep at most all CPUs busy, so one group runs on 40 of 160.

use super::ask::{Ask, Effort, Figures, Look, Runs, Stat};
use super::sheet::{Accuracy, Extra, Fill, Method, Setting, Sheet, Target, Versus};
use flagstone_core::base::PageSize;
use flagstone_core::policy::{Cpus, Policy};
use flagstone_kernels::Named;
use flagstone_kernels::policy::{Population, Populations, estimated_live};
use serde::Deserialize;

const SEED: &str = "S2";
const BASE: &str = "linux-6.5";
const PATCHED: &str = "linux-6.5+least-waste-repaired";
const OWN: &str = "flagstone";
const POPULATIONS: &str = include_str!("../../../data/populations.csv");

/// One machine of the mails.
#[derive(Clone, Copy)]
struct Place {
    cpus: u32,
    page: usize,
    words: &'static str,
    machine: &'static str,
    groups: &'static [u32],
}

const PLACES: [Place; 4] = [
    Place {
        cpus: 160,
        page: 4096,
        words: "160 CPUs 4K",
        machine: "power-160",
        groups: &MANY,
    },
    Place {
        cpus: 160,
        page: 65536,
        words: "160 CPUs 64K",
        machine: "power-160",
        groups: &MANY,
    },
    Place {
        cpus: 16,
        page: 4096,
        words: "16 CPUs 4K",
        machine: "power-160@16",
        groups: &FEW,
    },
    Place {
        cpus: 16,
        page: 65536,
        words: "16 CPUs 64K",
        machine: "power-160@16",
        groups: &FEW,
    },
];
const MANY: [u32; 15] = [
    1, 4, 7, 12, 21, 30, 48, 79, 110, 141, 172, 203, 234, 265, 296,
];
const FEW: [u32; 8] = [1, 4, 7, 12, 21, 30, 48, 64];
/// The base row that K is fitted to.
const FITTED_GROUPS: u32 = 48;

/// One cache of a captured population.
#[derive(Clone, Debug, Deserialize)]
struct Cache {
    cpus: u32,
    size: usize,
    objects_per_slab: u64,
    active: u64,
    slabs: u64,
}

fn population(cpus: u32) -> Vec<Cache> {
    let mut reader = csv::Reader::from_reader(POPULATIONS.as_bytes());
    let rows = reader.deserialize::<Cache>();
    rows.map(|row| row.expect("the populations in the program are well formed"))
        .filter(|cache| cache.cpus == cpus)
        .collect()
}

/// What the caches cost with `factor` times the objects.
fn cost(policy: &Policy, caches: &[Cache], place: Place, factor: f64) -> Population {
    let page = PageSize::new(place.page).expect("4096 and 65536 are page sizes");
    caches.iter().fold(Population::default(), |sum, cache| {
        // One CPU was running when the capture was taken.
        let live = estimated_live(cache.active, cache.slabs, cache.objects_per_slab, 1);
        let live = ((live as f64 * factor).round() as u64).max(1);
        let cost = policy.population_spread(cache.size, page, Cpus::new(place.cpus), live);
        sum.plus(cost.expect("captured strides have a slab under every policy here"))
    })
}

/// The factor that gives the base `kib` in total: bisection between a thousandth and ten thousand.
fn fit(policy: &Policy, caches: &[Cache], place: Place, kib: f64) -> f64 {
    let (mut low, mut high) = (1e-3f64, 1e4f64);
    for _ in 0..40 {
        let middle = (low * high).sqrt();
        if (cost(policy, caches, place, middle).bytes as f64) / 1024.0 < kib {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Runs to make.
pub(super) fn asks(effort: Effort) -> Vec<Ask> {
    let mut asks = Vec::new();
    for place in PLACES {
        for tasks in task_counts(place) {
            for policy in [BASE, PATCHED, OWN] {
                asks.extend(
                    hackbench(place, tasks, effort)
                        .under(policy)
                        .seeds(effort.seeds()),
                );
            }
        }
    }
    asks
}

fn task_counts(place: Place) -> Vec<u32> {
    let mut counts: Vec<u32> = place
        .groups
        .iter()
        .map(|groups| tasks(place, *groups))
        .collect();
    counts.dedup();
    counts
}

/// CPUs that so many groups of 40 tasks keep busy.
fn tasks(place: Place, groups: u32) -> u32 {
    (40 * groups).min(place.cpus)
}

fn hackbench(place: Place, tasks: u32, effort: Effort) -> Ask {
    let look = effort.pick(Look::ms(8, 8), Look::ms(32, 64));
    Ask {
        page_size: Some(place.page),
        ..Ask::new("hackbench", place.machine, tasks, look)
    }
}

/// Fills the sheet.
pub(super) fn fill(sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    let policies = [BASE, PATCHED, OWN].map(|name| Policy::parse(name).expect("a preset"));
    for place in PLACES {
        for when in ["boot", "hackbench"] {
            memory(sheet, &policies, place, when);
        }
        times(sheet, runs, place, effort);
    }
    example(sheet, &policies);
    sheet.settings.push(Setting {
        seed: SEED,
        what:
            "population: captured ppc64el 6.12 (64K pages), 16 and 160 CPUs, objects spread over \
               CPUs; one factor on all object counts for each machine and moment"
                .into(),
        source: "factor fitted to the base's total memory; capture and spreading chosen by \
                 architecture and by the base's wastage, with the patched rows in view"
            .into(),
        tried: 12,
    });
    sheet.settings.push(Setting {
        seed: SEED,
        what: "hackbench: seconds of one group for each of the four machines".into(),
        source: "fitted to the base's time of 48 groups".into(),
        tried: 1,
    });
}

fn memory(sheet: &mut Sheet, policies: &[Policy; 3], place: Place, when: &str) {
    let row = format!("{} after {when}", place.words);
    let caches = population(place.cpus);
    let kib = sheet.published("total slub memory", &row, "base");
    let factor = fit(&policies[0], &caches, place, kib);
    let [base, patched, own] = [0, 1, 2].map(|i| cost(&policies[i], &caches, place, factor));
    let profile = format!("ppc64el 6.12 capture, objects x {factor:.2}");
    for (table, pick) in [
        ("wastage", (|p| p.tail_bytes) as fn(&Population) -> u64),
        ("total slub memory", |p| p.bytes),
    ] {
        let [base, patched, own] = [&base, &patched, &own].map(|p| pick(p) as f64 / 1024.0);
        let change = |to: f64| (to - base) / base * 100.0;
        let cells = [
            (
                "base",
                base,
                own,
                Accuracy::Percent(50.0).seen("2026-11-20"),
                None,
            ),
            (
                "patched",
                patched,
                own,
                Accuracy::Percent(50.0).seen("2026-11-20"),
                Some(Versus::Cell([table.into(), row.clone(), "base".into()], 0)),
            ),
            (
                "change",
                change(patched),
                change(own),
                Accuracy::Points(15.0).seen("2026-11-20"),
                Some(Versus::Zero),
            ),
        ];
        for (column, got, own, accuracy, versus) in cells {
            let fill = Fill {
                got: Some(Ok((got, None))),
                own: Some(own),
                fitted: column == "base" && table == "total slub memory",
                accuracy: Some(accuracy),
                versus,
                profile: Some(profile.clone()),
                note: None,
            };
            sheet.fill(Method::Computed, [table, &row, column], 0, fill);
        }
    }
    let pair = |pick: fn(&Population) -> u64| {
        let kib = |p: &Population| pick(p) as f64 / 1024.0;
        (
            Stat::exact(kib(&own)),
            Stat::exact(kib(&base).min(kib(&patched))),
        )
    };
    sheet.targets.push(Target::at_most(
        SEED,
        format!("{row}: less wastage and less total memory than base and patched"),
        format!(
            "wastage {:.0} KiB (base {:.0}, patched {:.0}), total {:.0} KiB (base {:.0}, patched {:.0})",
            own.tail_bytes as f64 / 1024.0,
            base.tail_bytes as f64 / 1024.0,
            patched.tail_bytes as f64 / 1024.0,
            own.bytes as f64 / 1024.0,
            base.bytes as f64 / 1024.0,
            patched.bytes as f64 / 1024.0
        ),
        &[pair(|p| p.tail_bytes), pair(|p| p.bytes)],
    ));
}

fn times(sheet: &mut Sheet, runs: &Runs, place: Place, effort: Effort) {
    let table = format!("hackbench-process-sockets {}", place.words);
    let rate = |policy: &str, groups: u32| {
        let tasks = tasks(place, groups);
        let ask = hackbench(place, tasks, effort).under(policy);
        let stat = runs.stat(&ask, |f: &Figures| f.ops * f64::from(tasks))?;
        Ok::<_, String>((ask, stat))
    };
    let fitted_row = format!("{FITTED_GROUPS} groups");
    let known = sheet.published(&table, &fitted_row, "base");
    let scale =
        rate(BASE, FITTED_GROUPS).map(|(_, stat)| known * stat.mean / f64::from(FITTED_GROUPS));
    let seconds = |policy: &str, groups: u32| {
        let scale = scale.clone()?;
        let (ask, stat) = rate(policy, groups)?;
        let seconds = scale * f64::from(groups) / stat.mean;
        let sd = stat.sd.map(|sd| sd / stat.mean * seconds);
        Ok::<_, String>((ask, seconds, sd))
    };
    for &groups in place.groups {
        let row = format!("{groups} groups");
        let own = seconds(OWN, groups).ok().map(|(_, seconds, _)| seconds);
        for (column, policy) in [("base", BASE), ("patched", PATCHED)] {
            let got = seconds(policy, groups);
            let note = got
                .as_ref()
                .ok()
                .and_then(|(ask, ..)| runs.note(&[ask], "throughput", |s| s.ops));
            let fill = Fill {
                got: Some(got.map(|(_, seconds, sd)| (seconds, sd))),
                own,
                fitted: column == "base" && groups == FITTED_GROUPS,
                accuracy: Some(Accuracy::Percent(10.0).seen("2026-11-20")),
                versus: None,
                profile: Some(format!("{}, {} KiB pages", place.machine, place.page >> 10)),
                note,
            };
            sheet.fill(Method::Simulated, [&table, &row, column], 0, fill);
        }
    }
    let all = tasks(place, FITTED_GROUPS);
    let rates = [BASE, PATCHED, OWN].map(|policy| rate(policy, FITTED_GROUPS));
    if let [Ok((_, base)), Ok((_, patched)), Ok((_, own))] = rates {
        let change = |to: f64| (to / base.mean - 1.0) * 100.0;
        sheet.extras.push(Extra {
            seed: SEED,
            table: "hackbench throughput, patched against base".into(),
            row: format!("{}, {all} CPUs busy", place.words),
            column: "change".into(),
            got: change(patched.mean),
            method: Method::Simulated,
            unit: "%",
        });
        sheet.targets.push(Target::at_most(
            SEED,
            format!(
                "{}: hackbench no slower than base (2 % allowed)",
                place.words
            ),
            format!("{:+.1} % throughput", change(own.mean)),
            &[(base.times(0.98), own)],
        ));
    }
}

fn example(sheet: &mut Sheet, policies: &[Policy; 3]) {
    let page = PageSize::new(65536).expect("a page size");
    let shape = |policy: &Policy| {
        let shape = policy.slab_shape(1536, page, Cpus::new(160));
        let shape = shape.ok_or("no slab holds this object");
        shape.map(|shape| (f64::from(shape.order.get()), shape.tail_bytes as f64))
    };
    let own = shape(&policies[2]).ok();
    for (name, policy) in [("base", &policies[0]), ("patched", &policies[1])] {
        let found = shape(policy).map_err(String::from);
        for (what, order) in [("order", true), ("waste", false)] {
            let pick = |(a, b): (f64, f64)| if order { a } else { b };
            let fill = Fill {
                got: Some(found.clone().map(|found| (pick(found), None))),
                own: own.map(pick),
                accuracy: Some(Accuracy::Exact.blind("2026-11-20")),
                profile: Some("160 CPUs".into()),
                ..Fill::default()
            };
            let column = format!("{name} {what}");
            let at = ["example mm_struct", "1536 B, 64K pages", column.as_str()];
            sheet.fill(Method::Computed, at, 0, fill);
        }
    }
}
