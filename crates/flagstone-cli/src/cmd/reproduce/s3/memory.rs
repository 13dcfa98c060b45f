//! S3's memory: what parked pages add while a build runs, what is left after it, and how large a
//! pageset is.

use super::{BASE, LAST, OWN, SEED, STATES, TABLES, relative, run_of};
use crate::cmd::reproduce::ask::{Ask, Effort, Figures, Runs, Stat};
use crate::cmd::reproduce::sheet::{Accuracy, Extra, Fill, Method, Sheet, Target, Versus};

/// Memory of patch 9 over the base's while kbuild runs.
pub(super) fn overhead(sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    let [table, ..] = TABLES;
    let ask = run_of(table, effort);
    let of = |policy: &str| {
        relative(runs, &ask, policy, |f| f.mean_bytes).map(|stat| (stat.mean - 100.0, stat.sd))
    };
    let own = of(OWN).ok().map(|(mean, _)| mean);
    let asks = [&ask.under(BASE), &ask.under(LAST)];
    let unsettled = runs.note(&asks, "memory", |s| s.bytes);
    let fill = Fill {
        got: Some(of(LAST)),
        own,
        accuracy: Some(Accuracy::Points(6.0).seen("2026-11-20")),
        versus: Some(Versus::Zero),
        profile: Some(table.machine.into()),
        note: unsettled.or_else(|| {
            Some("mean of pages in use and in pagesets; the series says \"up to\"".into())
        }),
        ..Fill::default()
    };
    let at = ["memory overhead", "patch9", "during the test"];
    sheet.fill(Method::Simulated, at, 0, fill);
    if let Ok(own) = relative(runs, &ask, OWN, |f| f.mean_bytes) {
        sheet.targets.push(Target::at_most(
            SEED,
            "kbuild: memory overhead at most 6 %".into(),
            format!("{:+.1} %", own.mean - 100.0),
            &[(own, Stat::exact(106.0))],
        ));
    }
    afterwards(sheet, runs, &ask);
}

/// What is left when everybody has gone home and pagesets had time to decay.
fn afterwards(sheet: &mut Sheet, runs: &Runs, ask: &Ask) {
    let of = |policy: &str, name: &str| {
        let figure = |f: &Figures| f.details.get(name).copied().unwrap_or(f64::NAN);
        let found = runs.stat(&ask.under(policy), figure).ok()?;
        (!found.mean.is_nan()).then_some(found)
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
                    got: got.mean,
                    method: Method::Simulated,
                    unit,
                });
            }
        }
    }
    let end = [BASE, LAST, OWN].map(|policy| of(policy, "MiB at the end"));
    if let [Some(base), Some(last), Some(own)] = end {
        let most = if base.mean > last.mean { base } else { last };
        sheet.targets.push(Target::at_most(
            SEED,
            "kbuild: memory back to the floor after the test (no more left than under base or patch 9)"
                .into(),
            format!("{:.0} MiB, base {:.0}, patch 9 {:.0}", own.mean, base.mean, last.mean),
            &[(own, most)],
        ));
    }
}

/// The claim that the tuning fits the struct as it was: one pageset of ours serves all rules.
pub(super) fn layout(sheet: &mut Sheet) {
    let bytes = flagstone_core::page::PAGESET_BYTES as f64;
    for row in ["base", "patched"] {
        let fill = Fill {
            got: Some(Ok((bytes, None))),
            own: Some(bytes),
            note: Some(
                "the size of our own pageset, which serves all rules: no prediction, not judged"
                    .into(),
            ),
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
