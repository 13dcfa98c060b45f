//! What to try where the heap keeps much that is free: cached objects, or pages.
//!
//! ```text
//!   free at its peak?  ─► a smaller peak
//!   free at its end, and for a good part of the run before?  ─► less while it runs
//!   free in its last moments alone?  ─► nothing: a program that frees all it has and ends gives everything back
//! ```

use super::advice::Try;
use super::answer::{Shares, bytes, end_of, worth};
use super::reports::{LedgerLine, Report, Sure};
use super::trial::Apply;
use crate::terminal::size;
use flagstone_core::stats::Line;

/// Free objects at hand, and what they pin.
fn objects_of(lines: &[LedgerLine]) -> u64 {
    bytes(lines, Line::Sheaves) + bytes(lines, Line::Barns) + bytes(lines, Line::Pinned)
}

/// Free pages.
fn pages_of(lines: &[LedgerLine]) -> u64 {
    bytes(lines, Line::Pagesets) + bytes(lines, Line::FreePages)
}

/// Proposes a change for the larger of both.
pub fn cached(main: &Report) -> Option<Try> {
    let objects = Kept::of(main, objects_of);
    let pages = Kept::of(main, pages_of);
    match (objects, pages) {
        (Some(objects), pages)
            if pages
                .as_ref()
                .is_none_or(|pages| objects.bytes >= pages.bytes) =>
        {
            smaller_sheaves(main, objects)
        }
        (_, Some(pages)) => Some(fewer_free_pages(pages)),
        (_, None) => None,
    }
}

/// A part of the heap that is free, and worth a word.
struct Kept {
    bytes: u64,
    /// The moment that they are of.
    when: &'static str,
    gain: String,
}

impl Kept {
    fn of(main: &Report, of: impl Fn(&[LedgerLine]) -> u64) -> Option<Self> {
        let is_worth = |lines: &[LedgerLine]| worth(of(lines), Shares::of(lines).total());
        let (end, peak) = (of(&main.ledger), of(&main.peak.ledger));
        let apart = main.ledger != main.peak.ledger;
        if is_worth(&main.ledger) && (!main.at_exit || main.lasted(Sure::Certainly, is_worth)) {
            let when = end_of(main);
            let beside = match apart {
                true => format!(" ({} at its peak)", size(peak)),
                false => String::new(),
            };
            let gain = format!("at most {} less {when}{beside}", size(end));
            return Some(Self {
                bytes: end,
                when,
                gain,
            });
        }
        (apart && is_worth(&main.peak.ledger)).then(|| Self {
            bytes: peak,
            when: "at its peak",
            gain: format!("at most {} less at its peak", size(peak)),
        })
    }
}

fn smaller_sheaves(main: &Report, kept: Kept) -> Option<Try> {
    let cache = main.caches.iter().max_by_key(|cache| cache.pinned_bytes)?;
    let at_end = kept.when == end_of(main);
    let lines = if at_end {
        &main.ledger
    } else {
        &main.peak.ledger
    };
    let pinned = bytes(lines, Line::Pinned);
    // Caches are known of the end alone.
    let most = match at_end {
        true => format!(
            ", most in {} ({} of {} slabs)",
            cache.name, cache.pinned_slabs, cache.slabs
        ),
        false => String::new(),
    };
    let where_ = match pinned {
        0 => String::new(),
        _ => format!(
            "; the cached objects pin {} of free ones in their slabs{most}",
            size(pinned)
        ),
    };
    Some(Try {
        rule: "smaller-sheaves",
        change: "--set sheaf_capacity=16".to_owned(),
        because: format!(
            "{} of free objects are cached in sheaves and barns {}{where_}",
            size(kept.bytes - pinned),
            kept.when
        ),
        gain: kept.gain,
        gain_bytes: Some(kept.bytes),
        cost: "more refills, each with a lock of the node".to_owned(),
        apply: Apply {
            set: &["sheaf_capacity=16"],
            ..Apply::default()
        },
        measured: None,
    })
}

fn fewer_free_pages(kept: Kept) -> Try {
    Try {
        rule: "fewer-free-pages",
        change: "--set retain_bytes_min=1M --set retain_share=0 --set pcp_bytes_max=256K"
            .to_owned(),
        because: format!(
            "{} of free pages are kept for the next request {}",
            size(kept.bytes),
            kept.when
        ),
        gain: kept.gain,
        gain_bytes: Some(kept.bytes),
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::run::reports::Sample;

    /// A report of a program that ran on for the milliseconds between samples of (live, free pages) in MiB.
    fn report(at_exit: bool, samples: &[(u64, u64, u64)]) -> Report {
        let lines = |(_, live, free): (u64, u64, u64)| serde_json::json!([{"line": "live", "bytes": live << 20}, {"line": Line::FreePages.name(), "bytes": free << 20}]);
        let size = |(_, live, free): (u64, u64, u64)| (live + free) << 20;
        let peak = samples
            .iter()
            .copied()
            .max_by_key(|&one| size(one))
            .unwrap();
        let end = *samples.last().unwrap();
        let document = serde_json::json!({
            "schema": "flagstone.report/1", "pid": 7, "program": "prog", "final": at_exit, "samples": 1,
            "restartable_sequences": true, "rss_bytes": size(end), "peak_rss_bytes": size(peak), "caches": [],
            "ledger": lines(end), "released_bytes": 0, "untouched_bytes": 0, "pages": {"zones": [], "pagesets": []},
            "peak": {"rss_bytes": size(peak), "ledger": lines(peak), "released_bytes": 0, "untouched_bytes": 0}
        });
        let mut report: Report = serde_json::from_value(document).unwrap();
        let one = |&one: &(u64, u64, u64)| Sample {
            at_ns: one.0 * 1_000_000,
            rss_bytes: Some(size(one)),
            ledger: Line::ALL
                .map(|line| match line {
                    Line::Live => one.1 << 20,
                    Line::FreePages => one.2 << 20,
                    _ => 0,
                })
                .to_vec(),
        };
        report.samples_taken = samples.iter().map(one).collect();
        report
    }

    /// Of which moment something is proposed.
    fn proposed(at_exit: bool, samples: &[(u64, u64, u64)]) -> Option<String> {
        cached(&report(at_exit, samples)).map(|one| one.gain)
    }

    #[test]
    fn what_a_program_frees_in_its_last_moments_is_not_worth_a_change() {
        assert_eq!(
            proposed(true, &[(0, 1, 0), (5000, 100, 0), (5010, 1, 30)]),
            None
        );
        // Nor what it keeps for a short time of a long run, or all its life of half a second.
        let short = [
            (0, 1, 0),
            (20_000, 100, 0),
            (60_000, 20, 30),
            (61_500, 20, 30),
        ];
        assert_eq!(proposed(true, &short), None);
        assert_eq!(proposed(true, &[(0, 9, 30), (500, 9, 30)]), None);
    }

    #[test]
    fn what_a_program_keeps_while_it_runs_is() {
        let kept = [(0, 1, 0), (5000, 100, 2), (6000, 20, 30), (8000, 20, 30)];
        let gain = "at most 30.0 MiB less at its end (2.0 MiB at its peak)";
        assert_eq!(proposed(true, &kept).as_deref(), Some(gain));
        // One that is killed is a service mostly, and what it kept was there until then.
        let gain = "at most 30.0 MiB less at its last sample (0 B at its peak)";
        let killed = [(0, 1, 0), (500, 100, 0), (510, 1, 30)];
        assert_eq!(proposed(false, &killed).as_deref(), Some(gain));
    }

    #[test]
    fn free_pages_at_the_peak_make_it_larger() {
        let gain = "at most 20.0 MiB less at its peak";
        let peak = [(0, 1, 0), (300, 80, 20), (310, 0, 9)];
        assert_eq!(proposed(true, &peak).as_deref(), Some(gain));
        // A last sample that is the largest too is of the end.
        assert_eq!(proposed(true, &[(0, 1, 0), (300, 80, 20)]), None);
    }
}
