//! S3's memory: what parked pages add while a build runs, what is left after it, and how large a
//! pageset is.

use super::{BASE, LAST, OWN, SEED, STATES, TABLES, relative, run_of, seeds};
use crate::cmd::reproduce::ask::{Ask, Effort, Figures, Runs};
use crate::cmd::reproduce::sheet::{Accuracy, Extra, Fill, Method, Sheet, Target, Versus};

/// Memory of patch 9 over the base's while kbuild runs.
pub(super) fn overhead(sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    let [table, ..] = TABLES;
    let (ask, seeds) = (run_of(table, effort), seeds(table, effort));
    let of = |policy: &str| {
        relative(runs, &ask, policy, seeds, |f| f.mean_bytes)
            .map(|stat| (stat.mean - 100.0, stat.sd))
    };
    let own = of(OWN).ok().map(|(mean, _)| mean);
    let asks = [&ask.under(BASE), &ask.under(LAST)];
    let unsettled = runs.note(&asks, seeds, "memory", |s| s.bytes);
    let fill = Fill {
        got: Some(of(LAST)),
        own,
        accuracy: Some(Accuracy::Points(6.0)),
        versus: Some(Versus::Zero),
        profile: Some(table.machine.into()),
        note: unsettled.or_else(|| {
            Some("mean of pages in use and in pagesets; the series says \"up to\"".into())
        }),
        ..Fill::default()
    };
    let at = ["memory overhead", "patch9", "during the test"];
    sheet.fill(Method::Simulated, at, 0, fill);
    sheet.targets.push(Target {
        seed: SEED,
        wanted: "kbuild: memory overhead at most 6 %".into(),
        found: own.map_or("not simulated".into(), |own| format!("{own:+.1} %")),
        reached: own.map(|own| own <= 6.0),
    });
    afterwards(sheet, runs, &ask, seeds);
}

/// What is left when everybody has gone home and pagesets had time to decay.
fn afterwards(sheet: &mut Sheet, runs: &Runs, ask: &Ask, seeds: u64) {
    let of = |policy: &str, name: &str| {
        let figure = |f: &Figures| f.details.get(name).copied().unwrap_or(f64::NAN);
        let found = runs.stat(&ask.under(policy), seeds, figure).ok()?;
        (!found.mean.is_nan()).then_some(found.mean)
    };
    for (row, policy) in STATES.into_iter().chain([(OWN, OWN)]) {
        for (name, unit) in [
            ("MiB during", "MiB"),
            ("MiB at the end", "MiB"),
            ("seconds to the end", "s"),
        ] {
            if let Some(got) = of(policy, name) {
                sheet.extras.push(Extra {
                    seed: SEED,
                    table: "kbuild: memory during the test and afterwards".into(),
                    row: row.into(),
                    column: name.into(),
                    got,
                    method: Method::Simulated,
                    unit,
                });
            }
        }
    }
    let end = [BASE, LAST, OWN].map(|policy| of(policy, "MiB at the end"));
    let (found, reached) = match end {
        [Some(base), Some(last), Some(own)] => (
            format!("{own:.0} MiB, base {base:.0}, patch 9 {last:.0}"),
            Some(own <= base.max(last)),
        ),
        _ => ("not simulated".into(), None),
    };
    sheet.targets.push(Target {
        seed: SEED,
        wanted: "kbuild: memory back to the floor after the test (no more left than under base or \
                 patch 9)"
            .into(),
        found,
        reached,
    });
}

/// The claim that the tuning fits the struct as it was: one pageset of ours serves all rules.
pub(super) fn layout(sheet: &mut Sheet) {
    let bytes = flagstone_core::page::PAGESET_BYTES as f64;
    for row in ["base", "patched"] {
        let fill = Fill {
            got: Some(Ok((bytes, None))),
            own: Some(bytes),
            accuracy: Some(Accuracy::Exact),
            profile: Some("our own pageset, asserted at compile time".into()),
            ..Fill::default()
        };
        sheet.fill(
            Method::Computed,
            ["struct per_cpu_pages", row, "size"],
            0,
            fill,
        );
    }
}
