//! The answer: where the memory was in one sentence, and what to try, each with its gain and cost.
//!
//! ```text
//!   ledger lines ─► Shares: held · rounding · fragmented · cached · allocator · outside
//!   Shares       ─► sentence          Shares, caches, mappings ─► Try, largest gain first
//! ```
//!
//! Gains are computed from this run's ledger and are upper bounds; `run --try` measures them (`trial`).

use super::document::Outcome;
use super::reports::{Cache, Kind, LedgerLine, Report};
use super::runtimes::runtime_of;
use super::trial::{Apply, Measured};
use crate::terminal::{percent, size};
use flagstone_core::stats::Line;
use serde::Serialize;

/// Parts smaller than this share of the whole are not worth a word.
const WORDS_SHARE: u64 = 100;
/// A change is worth trying if it may gain this share of the resident size ...
const WORTH_SHARE: u64 = 10;
/// ... and this many bytes.
const WORTH_BYTES: u64 = 4 << 20;

/// Resident bytes of one moment by what a reader can do about them. The sum is the resident size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shares {
    /// Asked for and not freed.
    pub held_bytes: u64,
    /// Size classes, slab tails, ends of pages.
    pub rounding_bytes: u64,
    /// Free objects between objects in use.
    pub fragmented_bytes: u64,
    /// Free and at hand: sheaves, barns, what those pin, empty slabs, free pages.
    pub cached_bytes: u64,
    /// The allocator's own data.
    pub allocator_bytes: u64,
    /// Not the heap's.
    pub outside_bytes: u64,
}

impl Shares {
    /// Sorts ledger lines.
    pub fn of(lines: &[LedgerLine]) -> Self {
        Self::of_lines(Line::ALL.map(|line| (line, bytes(lines, line))))
    }

    /// Sums up lines.
    pub fn of_lines(lines: impl IntoIterator<Item = (Line, u64)>) -> Self {
        let mut shares = Self::default();
        for (line, bytes) in lines {
            *match line {
                Line::Live | Line::Runs | Line::Huge => &mut shares.held_bytes,
                Line::Rounding | Line::SlabTail | Line::RunRounding | Line::HugeRounding => {
                    &mut shares.rounding_bytes
                }
                Line::PartialSlabs => &mut shares.fragmented_bytes,
                Line::Sheaves
                | Line::Barns
                | Line::Pinned
                | Line::EmptySlabs
                | Line::Pagesets
                | Line::FreePages => &mut shares.cached_bytes,
                Line::Memmap | Line::SheafMemory | Line::Own | Line::Unplaced => {
                    &mut shares.allocator_bytes
                }
                Line::NonHeap => &mut shares.outside_bytes,
            } += bytes;
        }
        shares
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.held_bytes + self.cost() + self.outside_bytes
    }

    /// What the allocator needs beside what the program holds.
    pub fn cost(&self) -> u64 {
        self.rounding_bytes + self.fragmented_bytes + self.cached_bytes + self.allocator_bytes
    }

    /// `the program held A; rounding cost B, caching and free pages C; D lay outside the heap`.
    fn words(&self) -> String {
        let least = self.total() / WORDS_SHARE;
        let mut parts = [
            ("rounding", self.rounding_bytes),
            ("free objects between used ones", self.fragmented_bytes),
            ("caching and free pages", self.cached_bytes),
            ("the allocator's own data", self.allocator_bytes),
        ];
        parts.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        let mut told: Vec<String> = Vec::new();
        for (name, bytes) in parts.into_iter().filter(|&(_, b)| b > 0 && b >= least) {
            let verb = if told.is_empty() { " cost" } else { "" };
            told.push(format!("{name}{verb} {}", size(bytes)));
        }
        let costs = if told.is_empty() {
            format!("the allocator cost {}", size(self.cost()))
        } else {
            told.join(", ")
        };
        format!(
            "the program held {}; {costs}; {} lay outside the heap",
            size(self.held_bytes),
            size(self.outside_bytes)
        )
    }
}

/// The sentence about a process: its peak, and its end where most of that is not the program's.
pub fn sentence(report: &Report) -> String {
    let peak = Shares::of(&report.peak.ledger);
    let seen = report.peak_bytes();
    let missed = missed(seen, &peak);
    let when = match missed {
        true => "In its largest sample",
        false => "At its peak",
    };
    let mut text = format!("{when} ({}) {}.", size(peak.total()), peak.words());
    if missed {
        text.push_str(&format!(
            " Its peak, {}, lay between two samples.",
            size(seen)
        ));
    }
    let end = Shares::of(&report.ledger);
    let idle = end.fragmented_bytes + end.cached_bytes;
    if end != peak && idle >= WORTH_BYTES && idle >= end.total() / 4 {
        let when = if report.at_exit {
            "At its end"
        } else {
            "At its last sample"
        };
        text.push_str(&format!(" {when} ({}) {}.", size(end.total()), end.words()));
    }
    text.push_str(&fragmentation(report, &peak, &end));
    if let Some(bounds) = report.bounds.sentence() {
        text.push_str(&format!(" {bounds}"));
    }
    text
}

/// Whether a peak is so much above the shares of the largest sample that these are not the peak's.
pub fn missed(peak_bytes: u64, shares: &Shares) -> bool {
    peak_bytes > shares.total() + shares.total() / 20 + WORTH_BYTES
}

/// The moment that a report's tables are of.
fn end_of(report: &Report) -> &'static str {
    match report.at_exit {
        true => "at its end",
        false => "at its last sample",
    }
}

/// Whether a moment's memory went into fragmentation.
pub fn fragmented_now(shares: &Shares) -> String {
    let (lost, whole) = (shares.fragmented_bytes, shares.total());
    let part = percent(lost, whole);
    match worth(lost, whole) {
        true => format!("Fragmentation takes {} of it, {part}.", size(lost)),
        false => format!("Little is fragmentation ({}, {part}).", size(lost)),
    }
}

/// Whether it is fragmentation, which is what people ask first: where it was the larger part, at the peak, at the end
/// or between.
fn fragmentation(report: &Report, peak: &Shares, end: &Shares) -> String {
    let part = |shares: &Shares| shares.fragmented_bytes as f64 / shares.total().max(1) as f64;
    let (shares, when) = match part(end) > part(peak) {
        true => (*end, end_of(report)),
        false => (*peak, "at its peak"),
    };
    let (lost, whole) = (shares.fragmented_bytes, shares.total());
    if worth(lost, whole) {
        let part = percent(lost, whole);
        return format!(" Fragmentation took {} of it {when}, {part}.", size(lost));
    }
    let samples = report.samples_taken.iter().map(|sample| {
        let lines = Line::ALL.into_iter().zip(sample.ledger.iter().copied());
        (sample.at_ns, Shares::of_lines(lines))
    });
    let worst = samples.max_by_key(|(_, shares)| shares.fragmented_bytes);
    let worst = worst.filter(|(_, shares)| worth(shares.fragmented_bytes, shares.total()));
    if let Some((at, shares)) = worst {
        let first = report.samples_taken.first().map_or(at, |first| first.at_ns);
        return format!(
            " Fragmentation took {} of {} {:.1} s after its start, {}; later less.",
            size(shares.fragmented_bytes),
            size(shares.total()),
            (at - first.min(at)) as f64 / 1e9,
            percent(shares.fragmented_bytes, shares.total())
        );
    }
    let part = percent(lost, whole);
    format!(" Little is fragmentation ({}, {part} {when}).", size(lost))
}

/// A change worth trying.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Try {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// What to type.
    pub change: String,
    /// What in this run calls for it.
    pub because: String,
    /// What it should bring.
    pub gain: String,
    /// Its upper bound in bytes, where it is memory.
    pub gain_bytes: Option<u64>,
    /// What it costs.
    pub cost: String,
    /// How it is made from outside.
    #[serde(skip)]
    pub apply: Apply,
    /// What it brought, where it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// What to try for this run, largest gain first; `all` says that every process is shown already.
pub fn tries(main: &Report, outcome: &Outcome, set: impl Fn(&str) -> bool) -> Vec<Try> {
    let mut found = Vec::new();
    found.extend(runtime(main, set));
    found.extend(cached(main));
    found.extend(fragmented(main, &outcome.policy));
    found.extend(rounded(main));
    found.retain(|one| !one.apply.is_in(&outcome.policy));
    found.sort_by_key(|one: &Try| std::cmp::Reverse(one.gain_bytes));
    found.extend(every_process(main, outcome));
    found
}

/// Whether a part is large enough to be worth a word.
pub fn worth(bytes: u64, of: u64) -> bool {
    bytes >= WORTH_BYTES && bytes >= of / WORTH_SHARE
}

fn runtime(main: &Report, set: impl Fn(&str) -> bool) -> Option<Try> {
    let runtime = runtime_of(&main.program)?;
    let anonymous = Kind::bytes_of(&main.peak.outside, Kind::ANONYMOUS);
    if set(runtime.variable) || !worth(anonymous, Shares::of(&main.peak.ledger).total()) {
        return None;
    }
    Some(Try {
        rule: runtime.rule,
        change: runtime.change.to_owned(),
        because: format!(
            "{}: {} of anonymous mappings",
            runtime.what,
            size(anonymous)
        ),
        gain: format!("up to {} {}", size(anonymous), runtime.gain),
        gain_bytes: Some(anonymous),
        cost: runtime.cost.to_owned(),
        apply: Apply {
            variable: runtime.value.map(|value| (runtime.variable, value)),
            ..Apply::default()
        },
        measured: None,
    })
}

/// The gain of a part at the end, and beside it what it was at the peak: a change that helps there need not help here.
fn at_both(main: &Report, of: impl Fn(&[LedgerLine]) -> u64) -> String {
    let (end, peak) = (of(&main.ledger), of(&main.peak.ledger));
    let when = end_of(main);
    let beside = match main.ledger == main.peak.ledger {
        true => String::new(),
        false => format!(" ({} at its peak)", size(peak)),
    };
    format!("at most {} less {when}{beside}", size(end))
}

/// The bytes of a line.
fn bytes(lines: &[LedgerLine], line: Line) -> u64 {
    let named = lines.iter().filter(|found| found.line == line.name());
    named.map(|found| found.bytes).sum()
}

fn cached(main: &Report) -> Option<Try> {
    let of = |line| bytes(&main.ledger, line);
    let objects_of = |lines: &[LedgerLine]| {
        bytes(lines, Line::Sheaves) + bytes(lines, Line::Barns) + bytes(lines, Line::Pinned)
    };
    let pages_of =
        |lines: &[LedgerLine]| bytes(lines, Line::Pagesets) + bytes(lines, Line::FreePages);
    let (objects, pages) = (objects_of(&main.ledger), pages_of(&main.ledger));
    let total = Shares::of(&main.ledger).total();
    if worth(objects, total) && objects >= pages {
        let cache = main.caches.iter().max_by_key(|cache| cache.pinned_bytes)?;
        let pinned = of(Line::Pinned);
        let where_ = if pinned > 0 {
            format!(
                "; the cached objects pin {} of free ones in their slabs, most in {} ({} of {} slabs)",
                size(pinned),
                cache.name,
                cache.pinned_slabs,
                cache.slabs
            )
        } else {
            String::new()
        };
        return Some(Try {
            rule: "smaller-sheaves",
            change: "--set sheaf_capacity=16".to_owned(),
            because: format!(
                "{} of free objects are cached in sheaves and barns {}{where_}",
                size(objects - pinned),
                end_of(main)
            ),
            gain: at_both(main, objects_of),
            gain_bytes: Some(objects),
            cost: "more refills, each with a lock of the node".to_owned(),
            apply: Apply {
                set: &["sheaf_capacity=16"],
                ..Apply::default()
            },
            measured: None,
        });
    }
    worth(pages, total).then(|| Try {
        rule: "fewer-free-pages",
        change: "--set retain_bytes_min=1M --set retain_share=0 --set pcp_bytes_max=256K"
            .to_owned(),
        because: format!(
            "{} of free pages are kept for the next request {}",
            size(pages),
            end_of(main)
        ),
        gain: at_both(main, pages_of),
        gain_bytes: Some(pages),
        cost: "memory that is needed again is asked of the system again: page faults".to_owned(),
        apply: Apply {
            set: &[
                "retain_bytes_min=1M",
                "retain_share=0",
                "pcp_bytes_max=256K",
            ],
            ..Apply::default()
        },
        measured: None,
    })
}

/// What is free between objects in use, at the end or else at the peak; caches are known of the end alone.
fn between(main: &Report) -> Option<(u64, &'static str, String)> {
    let lost = |lines| (bytes(lines, Line::PartialSlabs), Shares::of(lines).total());
    let ((end, whole), (peak, most)) = (lost(&main.ledger), lost(&main.peak.ledger));
    if worth(end, whole) {
        // Free objects that are neither cached nor in empty or pinned slabs.
        let free =
            |cache: &&Cache| (cache.free_in_slabs * cache.size).saturating_sub(cache.pinned_bytes);
        let cache = main.caches.iter().max_by_key(free)?;
        let where_ = format!(
            ", most in {}: {} in use in {} slabs, where {} would hold them",
            cache.name,
            cache.active,
            cache.slabs,
            cache.active.div_ceil(cache.objects_per_slab.max(1))
        );
        return Some((end, end_of(main), where_));
    }
    worth(peak, most).then(|| (peak, "at its peak", String::new()))
}

/// Smaller slabs are no answer under our own policy: it gives back the free pages inside a slab already.
fn fragmented(main: &Report, policy: &str) -> Option<Try> {
    let (lost, when, where_) = between(main)?;
    let because = format!(
        "{} is free between objects in use {when}{where_}",
        size(lost)
    );
    let own = policy.split([' ', '+']).next() == Some("flagstone");
    Some(if own {
        Try {
            rule: "lifetimes-apart",
            change: "in the program: what stays and what goes in blocks of their own".to_owned(),
            because,
            gain: format!("at most {} less {when}, if what stays lies together", size(lost)),
            gain_bytes: Some(lost),
            cost: "a change of the program: an arena, a typed cache (flagstone.h), or a copy of what stays; \
                   `flagstone run --profile F` names the places"
                .to_owned(),
            apply: Apply::default(),
            measured: None,
        }
    } else {
        Try {
            rule: "own-policy",
            change: "--policy flagstone".to_owned(),
            because,
            gain: format!(
                "a part of {} {when}: pages inside slabs on which nothing lives go back",
                size(lost)
            ),
            gain_bytes: Some(lost),
            cost: "these are no longer the kernel's rules".to_owned(),
            apply: Apply {
                policy: Some("flagstone"),
                ..Apply::default()
            },
            measured: None,
        }
    })
}

fn rounded(main: &Report) -> Option<Try> {
    let lines = &main.peak.ledger;
    let lost = bytes(lines, Line::Rounding);
    let cache = main
        .caches
        .iter()
        .filter(|cache| !cache.internal)
        .max_by_key(|cache| {
            let asked = cache.mean_requested.unwrap_or(cache.object_size);
            cache.active * cache.object_size.saturating_sub(asked)
        })?;
    let asked = cache.mean_requested?;
    worth(lost, Shares::of(lines).total()).then(|| Try {
        rule: "fitting-sizes",
        change: "in the program: sizes closer below a size class".to_owned(),
        because: format!(
            "size classes cost {}; most in {}: objects of {} B for requests of {asked} B on average",
            size(lost),
            cache.name,
            cache.object_size
        ),
        gain: format!("at most {} less at its peak ({} of it)", size(lost), percent(lost, main.peak.rss_bytes)),
        gain_bytes: Some(lost),
        cost: "a change of the program".to_owned(),
        apply: Apply::default(),
        measured: None,
    })
}

fn every_process(main: &Report, outcome: &Outcome) -> Option<Try> {
    let children = outcome.children_peak_rss_kib? * 1024;
    let larger = children > main.peak_bytes();
    (larger && outcome.processes.is_empty()).then(|| Try {
        rule: "every-process",
        change: "flagstone run --all -- …".to_owned(),
        because: format!(
            "a child peaked at {}, this process at {}",
            size(children),
            size(main.peak_bytes())
        ),
        gain: "a ledger of every process".to_owned(),
        gain_bytes: None,
        cost: "about 2 ms for each fork".to_owned(),
        apply: Apply::default(),
        measured: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::run::reports::Sample;

    /// A report whose samples had these bytes live and between used objects, in MiB; the last is its end.
    fn report(samples: &[(u64, u64)]) -> Report {
        let lines = |(live, between): (u64, u64)| {
            serde_json::json!([{"line": "live", "bytes": live << 20},
                {"line": "free_in_partial_slabs", "bytes": between << 20}])
        };
        let size = |(live, between): (u64, u64)| (live + between) << 20;
        let peak = samples.iter().copied().max_by_key(|&one| size(one));
        let (peak, end) = (peak.unwrap(), *samples.last().unwrap());
        let document = serde_json::json!({
            "schema": "flagstone.report/1", "pid": 7, "program": "prog", "final": true, "samples": 1,
            "restartable_sequences": true, "rss_bytes": size(end), "peak_rss_bytes": size(peak), "caches": [],
            "ledger": lines(end), "released_bytes": 0, "untouched_bytes": 0, "pages": {"zones": [], "pagesets": []},
            "peak": {"rss_bytes": size(peak), "ledger": lines(peak), "released_bytes": 0, "untouched_bytes": 0}
        });
        let mut report: Report = serde_json::from_value(document).unwrap();
        report.samples_taken = (5u64..)
            .zip(samples)
            .map(|(second, &one)| Sample {
                at_ns: second * 1_000_000_000,
                rss_bytes: Some(size(one)),
                ledger: Line::ALL
                    .map(|line| match line {
                        Line::Live => one.0 << 20,
                        Line::PartialSlabs => one.1 << 20,
                        _ => 0,
                    })
                    .to_vec(),
            })
            .collect();
        report
    }

    #[test]
    fn fragmentation_between_peak_and_end_is_told_with_its_moment() {
        let text = sentence(&report(&[(80, 1), (20, 30), (10, 0)]));
        let told =
            "Fragmentation took 30.0 MiB of 50.0 MiB 1.0 s after its start, 60.0 %; later less.";
        assert!(text.ends_with(told), "{text}");
        let text = sentence(&report(&[(80, 20), (20, 30), (10, 0)]));
        assert!(
            text.ends_with("20.0 MiB of it at its peak, 20.0 %."),
            "{text}"
        );
        let text = sentence(&report(&[(80, 1), (20, 3), (10, 0)]));
        assert!(text.contains("Little is fragmentation"), "{text}");
    }
}
