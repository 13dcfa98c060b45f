//! A kernel's capture beside its replay: caches and pagesets, as tables and in the document of `--json`.

use crate::terminal::spaced;
use comfy_table::{Table, presets};
use flagstone_lab::Row;
use flagstone_lab::pagesets::{Held, Score};
use flagstone_lab::tape::About;
use flagstone_trace::header::Level;
use serde::Serialize;
use std::collections::BTreeMap;

/// Within so many percent of the kernel's a figure counts as the kernel's.
const NEAR_PERCENT: f64 = 5.0;

/// All comparisons.
#[derive(Default, Serialize)]
pub struct Compared {
    /// What was left out, in words.
    left_out: Vec<String>,
    /// One for each row, where the trace is a kernel's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    caches: Vec<Caches>,
    /// One for each policy, where /proc/zoneinfo is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pagesets: Vec<Pagesets>,
}

/// Caches of one run at the trace's end.
#[derive(Serialize)]
struct Caches {
    policy: String,
    tasks: u32,
    /// Of those whose figures of the kernel are known: how many, how many are within 5 % of its objects and
    /// slabs, and how many are that or within a slab for each CPU.
    known: u32,
    within: u32,
    within_a_slab_each: u32,
    caches: Vec<Cache>,
}

#[derive(Serialize)]
struct Cache {
    name: String,
    active: Option<f64>,
    objects: Option<f64>,
    slabs: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<Level>,
    /// Objects or slabs above the kernel's, whichever is further off.
    #[serde(skip_serializing_if = "Option::is_none")]
    off_percent: Option<f64>,
    /// Objects in use above the kernel's, where that is more than a twentieth: frees that the capture does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    frees_missing: Option<u64>,
}

/// Pagesets under one policy's rules.
#[derive(Serialize)]
struct Pagesets {
    policy: String,
    within: u32,
    refills: Score,
    drains: Score,
    sets: Vec<Set>,
}

#[derive(Serialize)]
struct Set {
    zone: String,
    cpu: usize,
    pages_before: u32,
    pages: u32,
    kernel_pages: u32,
    off_percent: f64,
    high: u32,
    kernel_high: u32,
}

/// By how much a figure is above the kernel's.
fn off(ours: f64, theirs: f64) -> f64 {
    (ours - theirs) / theirs.max(1.0) * 100.0
}

impl Compared {
    /// Of the rows of a replay, and of the pagesets by policy.
    pub fn of(rows: &[Row], about: &About, sets: &[(String, Held)]) -> Self {
        Self {
            left_out: about.left_out.clone(),
            caches: match about.kernel {
                true => rows.iter().map(|row| Caches::of(row, about)).collect(),
                false => Vec::new(),
            },
            pagesets: sets
                .iter()
                .map(|(policy, held)| Pagesets::of(policy, held))
                .collect(),
        }
    }

    /// Prints all of it.
    pub fn print(&self) {
        for line in &self.left_out {
            println!("left out: {line}");
        }
        for caches in &self.caches {
            caches.print();
        }
        for pagesets in &self.pagesets {
            pagesets.print();
        }
    }
}

impl Caches {
    fn of(row: &Row, about: &About) -> Self {
        let recorded: BTreeMap<&str, Level> = about
            .caches
            .iter()
            .filter_map(|cache| Some((cache.name.as_str(), cache.after?)))
            .collect();
        let mut all = Self {
            policy: row.policy.clone(),
            tasks: row.tasks,
            known: 0,
            within: 0,
            within_a_slab_each: 0,
            caches: Vec::new(),
        };
        for (name, slabs) in &row.details {
            if let Some(name) = name.strip_prefix("slabs ") {
                let level = recorded.get(name).copied();
                all.add(row, name, *slabs, level);
            }
        }
        all
    }

    fn add(&mut self, row: &Row, name: &str, slabs: f64, kernel: Option<Level>) {
        let figure = |what: &str| row.details.get(&format!("{what} {name}")).copied();
        let (active, objects) = (figure("active"), figure("objects"));
        let off_percent = kernel.map(|level| {
            let objects = off(objects.unwrap_or(0.0), level.objects as f64);
            let slabs = off(slabs, level.slabs as f64);
            if objects.abs() > slabs.abs() {
                objects
            } else {
                slabs
            }
        });
        let frees_missing = kernel.zip(active).and_then(|(level, active)| {
            let (most, theirs) = (level.objects as f64 / 20.0, level.active as f64);
            (active - theirs > most).then_some((active - theirs) as u64)
        });
        if let Some((level, percent)) = kernel.zip(off_percent) {
            let within = percent.abs() <= NEAR_PERCENT;
            let near = (slabs - level.slabs as f64).abs() <= f64::from(self.tasks);
            self.known += 1;
            self.within += u32::from(within);
            self.within_a_slab_each += u32::from(within || near);
        }
        self.caches.push(Cache {
            name: name.to_owned(),
            active,
            objects,
            slabs,
            kernel,
            off_percent,
            frees_missing,
        });
    }

    /// The table in the kernel's columns.
    fn print(&self) {
        println!(
            "\ncaches under {}, {} tasks, at the end of the trace",
            self.policy, self.tasks
        );
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut head = vec!["name", "active objs", "num objs", "num slabs"];
        if self.known > 0 {
            head.extend(["kernel's objs", "its slabs", "off"]);
        }
        table.set_header(head);
        let whole =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
        for cache in &self.caches {
            let mut cells = vec![
                cache.name.clone(),
                whole(cache.active),
                whole(cache.objects),
                whole(Some(cache.slabs)),
            ];
            if let Some((level, off)) = cache.kernel.zip(cache.off_percent) {
                let mark = if cache.frees_missing.is_some() {
                    " *"
                } else {
                    ""
                };
                cells.extend([
                    level.objects.to_string(),
                    level.slabs.to_string(),
                    format!("{off:+.1} %{mark}"),
                ]);
            }
            table.add_row(cells);
        }
        println!("{}", spaced(table, |column| column > 0));
        if self.known > 0 {
            println!("{}", self.line());
        }
        if let Some(line) = self.missing() {
            println!("{line}");
        }
    }

    fn line(&self) -> String {
        let known = self.caches.iter().filter_map(|cache| {
            let level = cache.kernel?;
            let objects = [cache.objects.unwrap_or(0.0), level.objects as f64];
            Some((objects, [cache.slabs, level.slabs as f64]))
        });
        let sum = |a: [f64; 2], b: [f64; 2]| [a[0] + b[0], a[1] + b[1]];
        let (objects, slabs) = known.fold(([0.0; 2], [0.0; 2]), |all, one| {
            (sum(all.0, one.0), sum(all.1, one.1))
        });
        format!(
            "within 5 % of the kernel's objects and slabs: {} of {} caches; those and others within a slab for \
             each CPU: {}; all objects {:.0} for {:.0}, all slabs {:.0} for {:.0}",
            self.within,
            self.known,
            self.within_a_slab_each,
            objects[0],
            objects[1],
            slabs[0],
            slabs[1]
        )
    }

    /// Which caches are not to be trusted, and why.
    fn missing(&self) -> Option<String> {
        let missing = self.caches.iter().filter_map(|cache| {
            let count = cache.frees_missing?;
            Some(format!("{} ({count})", cache.name))
        });
        let missing: Vec<String> = missing.collect();
        (!missing.is_empty()).then(|| {
            format!(
                "* slabs not to be trusted: by the trace more objects are in use than the kernel had, since \
                 frees in bulk and after a grace period have no event: {}",
                missing.join(", ")
            )
        })
    }
}

impl Pagesets {
    fn of(policy: &str, held: &Held) -> Self {
        let mut all = Self {
            policy: policy.to_owned(),
            within: 0,
            refills: held.report.refills,
            drains: held.report.drains,
            sets: Vec::new(),
        };
        for set in &held.sets {
            let (after, (pages, high)) = (&set.after, set.replayed);
            let counts = off(f64::from(pages), f64::from(after.count));
            let highs = off(f64::from(high), f64::from(after.high));
            all.within += u32::from(counts.abs().max(highs.abs()) <= NEAR_PERCENT);
            all.sets.push(Set {
                zone: set.zone.clone(),
                cpu: set.cpu,
                pages_before: set.before.count,
                pages,
                kernel_pages: after.count,
                off_percent: counts,
                high,
                kernel_high: after.high,
            });
        }
        all
    }

    /// Each pageset that was used, beside the kernel's, and the refills and drains that came where the kernel had
    /// them.
    fn print(&self) {
        println!(
            "\npagesets under the rules of {}, page by page, at the end of the trace",
            self.policy
        );
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "zone", "CPU", "before", "pages", "kernel's", "off", "high", "kernel's",
        ]);
        for set in &self.sets {
            table.add_row([
                set.zone.clone(),
                set.cpu.to_string(),
                set.pages_before.to_string(),
                set.pages.to_string(),
                set.kernel_pages.to_string(),
                format!("{:+.1} %", set.off_percent),
                set.high.to_string(),
                set.kernel_high.to_string(),
            ]);
        }
        println!("{}", spaced(table, |column| column > 0));
        let score = |score: Score| format!("{} / {}", score.matched, score.all);
        println!(
            "within 5 % of the kernel's pages and high mark: {} of {} pagesets; as the kernel's, \
             matched / all: refills {}, drains {}",
            self.within,
            self.sets.len(),
            score(self.refills),
            score(self.drains)
        );
    }
}
