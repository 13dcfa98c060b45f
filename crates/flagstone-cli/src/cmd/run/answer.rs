//! The answer: where the memory was, in a few sentences.
//!
//! ```text
//!   ledger lines ─► Shares: held · rounding · fragmented · cached · allocator · outside
//!   Shares, kinds of mappings ─► sentence; `advice` says what to try, or else `nothing` why there is nothing
//! ```

use super::reports::{Kind, LedgerLine, Report, Sure};
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

    /// `the program held A; rounding cost B, caching and free pages C; D lay outside the heap: its largest kinds`.
    fn words(&self, outside: &[Kind]) -> String {
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
            "the program held {}; {costs}; {} lay outside the heap{}",
            size(self.held_bytes),
            size(self.outside_bytes),
            self.kinds(outside)
        )
    }
}

/// A kind of mapping is named from this part of all that lies outside on.
const KIND_SHARE: u64 = 5;

impl Shares {
    /// `: A of program and libraries, B of anonymous mappings`, or `, nearly all program and libraries`, where what lies outside is
    /// worth it.
    pub fn kinds(&self, outside: &[Kind]) -> String {
        if self.outside_bytes < self.total() / WORTH_SHARE {
            return String::new();
        }
        let mut large: Vec<&Kind> = outside.iter().collect();
        large.retain(|kind| kind.bytes > 0 && kind.bytes >= self.outside_bytes / KIND_SHARE);
        large.sort_by_key(|kind| std::cmp::Reverse(kind.bytes));
        if let [most] = large[..]
            && most.bytes >= self.outside_bytes / 10 * 9
        {
            return format!(", nearly all {}", most.words().0);
        }
        let named = large
            .iter()
            .map(|kind| format!("{} of {}", size(kind.bytes), kind.words().0));
        let named = named.collect::<Vec<_>>().join(", ");
        if named.is_empty() {
            named
        } else {
            format!(": {named}")
        }
    }

    /// Why no change is proposed, of a process with this outside its heap.
    pub fn nothing(&self, outside: &[Kind]) -> String {
        let kinds = outside.iter().map(|kind| {
            let what = match kind.kind.as_str() {
                "program" => "is its code and libraries, which processes share",
                "files" => "are files it maps, which the system takes back where memory is short",
                "stacks" => "are the stacks of its threads",
                Kind::ANONYMOUS => "is mapped by the program itself",
                _ => "is the kernel's",
            };
            (kind.bytes, what)
        });
        let held = (self.held_bytes, "is what it asked for and held");
        let most = kinds.chain([held]).max_by_key(|&(bytes, _)| bytes);
        let most = most.filter(|&(bytes, _)| bytes >= self.total() / 2);
        match most {
            Some((bytes, what)) => {
                let part = percent(bytes, self.total());
                format!("No setting would change much: {part} of it {what}.")
            }
            None => {
                let (part, least) = (100 / WORTH_SHARE, size(WORTH_BYTES));
                format!("No setting would gain {least} and {part} % of it.")
            }
        }
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
    let mut text = format!(
        "{when} ({}) {}.",
        size(peak.total()),
        peak.words(&report.peak.outside)
    );
    if missed {
        text.push_str(&format!(
            " Its peak, {}, lay between two samples.",
            size(seen)
        ));
    }
    let end = Shares::of(&report.ledger);
    if peak.held_bytes == 0 && end.held_bytes == 0 {
        text.push_str(
            " It asked this heap for nothing: it has an allocator of its own, or needs none.",
        );
    }
    if end != peak && is_idle(&end) && stays(report, is_idle) {
        let when = if report.at_exit {
            "At its end"
        } else {
            "At its last sample"
        };
        let words = end.words(&report.outside);
        text.push_str(&format!(" {when} ({}) {words}.", size(end.total())));
    }
    text.push_str(&fragmentation(report, &peak, &end));
    if let Some(bounds) = report.bounds.sentence() {
        text.push_str(&format!(" {bounds}"));
    }
    text
}

/// Whether much of a moment's memory is free.
fn is_idle(shares: &Shares) -> bool {
    let idle = shares.fragmented_bytes + shares.cached_bytes;
    idle >= WORTH_BYTES && idle >= shares.total() / 4
}

/// Whether what holds at the end of a report did so before its program's last moments. One that was killed was in the
/// middle of its work.
fn stays(report: &Report, holds: impl Fn(&Shares) -> bool) -> bool {
    !report.at_exit || report.lasted(Sure::Certainly, |lines| holds(&Shares::of(lines)))
}

/// Whether a peak is so much above the shares of the largest sample that these are not the peak's.
pub fn missed(peak_bytes: u64, shares: &Shares) -> bool {
    peak_bytes > shares.total() + shares.total() / 20 + WORTH_BYTES
}

/// Whether a child's peak is so much above its parent's that the question is about the child.
pub fn is_larger(child_bytes: u64, own_bytes: u64) -> bool {
    child_bytes > own_bytes + own_bytes / 20 + (1 << 20)
}

/// The moment that a report's tables are of.
pub(super) fn end_of(report: &Report) -> &'static str {
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
    let is_worth = |shares: &Shares| worth(shares.fragmented_bytes, shares.total());
    let worst = worst.filter(|(_, shares)| is_worth(shares));
    let worst =
        worst.filter(|_| report.lasted(Sure::Perhaps, |lines| is_worth(&Shares::of(lines))));
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

/// Whether a part is large enough to be worth a word.
pub fn worth(bytes: u64, of: u64) -> bool {
    bytes >= WORTH_BYTES && bytes >= of / WORTH_SHARE
}

/// The bytes of a line.
pub(super) fn bytes(lines: &[LedgerLine], line: Line) -> u64 {
    let named = lines.iter().filter(|found| found.line == line.name());
    named.map(|found| found.bytes).sum()
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

    #[test]
    fn what_a_program_frees_in_its_last_moments_is_not_told() {
        let mut report = report(&[(80, 1), (20, 30), (10, 20)]);
        let text = sentence(&report);
        assert!(
            text.contains(" At its end (30.0 MiB) the program held"),
            "{text}"
        );
        // The same within a tenth of a second.
        for (sample, ms) in report.samples_taken.iter_mut().zip([0, 9900, 9950]) {
            sample.at_ns = ms * 1_000_000;
        }
        let text = sentence(&report);
        assert!(!text.contains(" At its end ("), "{text}");
        report.ledger = Vec::new();
        let text = sentence(&report);
        assert!(text.contains(" Little is fragmentation (1.0 MiB"), "{text}");
    }

    #[test]
    fn a_program_with_an_allocator_of_its_own_is_told() {
        let text = sentence(&report(&[(0, 0), (0, 0)]));
        assert!(text.contains("an allocator of its own"), "{text}");
    }

    fn kinds(of: &[(&str, u64)]) -> Vec<Kind> {
        let kind = |&(kind, mib): &(&str, u64)| Kind {
            kind: kind.to_owned(),
            bytes: mib << 20,
        };
        of.iter().map(kind).collect()
    }

    #[test]
    fn what_lies_outside_is_named_by_its_largest_kinds_where_it_is_much() {
        let shares = |held: u64, outside: u64| Shares {
            held_bytes: held << 20,
            outside_bytes: outside << 20,
            ..Shares::default()
        };
        let outside = kinds(&[("program", 30), ("stacks", 1), ("anonymous", 69)]);
        let said = shares(100, 100).kinds(&outside);
        let named = ": 69.0 MiB of anonymous mappings, 30.0 MiB of program and libraries";
        assert_eq!(said, named);
        assert_eq!(shares(10_000, 100).kinds(&outside), "");
        let code = shares(10, 100).kinds(&kinds(&[("program", 95), ("stacks", 5)]));
        assert_eq!(code, ", nearly all program and libraries");
        let most = shares(10, 100).nothing(&outside);
        assert_eq!(
            most,
            "No setting would change much: 62.7 % of it is mapped by the program itself."
        );
        let held = shares(300, 100).nothing(&outside);
        assert!(held.contains("75.0 % of it is what it asked for"), "{held}");
        let none = shares(80, 100).nothing(&kinds(&[("program", 50), ("files", 50)]));
        assert_eq!(none, "No setting would gain 4.0 MiB and 10 % of it.");
    }
}
