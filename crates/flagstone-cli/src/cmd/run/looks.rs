//! Looks at the run's processes from outside, where their own samples fall behind.
//!
//! ```text
//!   DIR/<pid>.json, .timeline    its own samples: taken on slow paths of its heap
//!   /proc/<pid>/status           resident now, and at most: outgrew its samples? ─► one reading, as `stat` takes
//! ```
//!
//! A runtime that maps memory itself grows without a call of ours, so its own samples miss that peak. A process
//! that is killed does not tell its peak at all.

use super::reports::{Found, Peak, Report};
use crate::watch::reading::{self, Reading};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A reading is taken beyond this share above what is known ...
const GROWTH: u64 = 16;
/// ... and this many bytes: smaller programs are told well enough by their own samples.
const GROWTH_BYTES_MIN: u64 = 4 << 20;
/// Readings rest this many times as long as the last one took.
const REST: u32 = 20;
/// How often the directory is looked through for new processes.
const LIST_EVERY: Duration = Duration::from_millis(100);

/// What is known of one process from outside.
#[derive(Debug, Default)]
struct Seen {
    /// Its name: a process that becomes another program begins anew.
    name: String,
    /// Largest resident size, as the kernel tells it.
    peak_bytes: u64,
    /// The reading with the largest resident size.
    reading: Option<Reading>,
}

/// All looks of a run.
#[derive(Debug)]
pub struct Looks {
    directory: PathBuf,
    /// Those that have left a document, and have not ended.
    alive: BTreeSet<u32>,
    known: BTreeMap<u32, Seen>,
    listed: Option<Instant>,
    rest_until: Option<Instant>,
}

impl Looks {
    /// At processes that leave their documents in `directory`.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            alive: BTreeSet::new(),
            known: BTreeMap::new(),
            listed: None,
            rest_until: None,
        }
    }

    /// Looks at each process once; takes at most one reading.
    pub fn look(&mut self) {
        let now = Instant::now();
        if self.listed.is_none_or(|at| now >= at + LIST_EVERY) {
            self.list();
            self.listed = Some(now);
        }
        let mut outgrown = None;
        for pid in self.alive.clone() {
            let Some(status) = Status::of(pid) else {
                self.alive.remove(&pid);
                // Not to be listed again.
                self.known.entry(pid).or_default();
                continue;
            };
            let seen = self.known.entry(pid).or_default();
            if seen.name != status.name {
                *seen = Seen {
                    name: status.name,
                    ..Seen::default()
                };
            }
            seen.peak_bytes = seen.peak_bytes.max(status.peak_bytes);
            let read = seen.reading.as_ref().and_then(|reading| reading.rss_bytes);
            let before = read.unwrap_or(0);
            if outgrows(status.resident_bytes, before)
                && outgrows(status.resident_bytes, self.sampled(pid))
            {
                outgrown.get_or_insert(pid);
            }
        }
        if self.rest_until.is_none_or(|until| now >= until)
            && let Some(pid) = outgrown
        {
            self.read(pid);
            self.rest_until = Some(Instant::now() + now.elapsed() * REST);
        }
    }

    fn read(&mut self, pid: u32) {
        let Some(reading) = reading::glance(pid) else {
            return;
        };
        let seen = self.known.entry(pid).or_default();
        let before = seen.reading.as_ref().and_then(|before| before.rss_bytes);
        if reading.rss_bytes > before {
            seen.reading = Some(reading);
        }
    }

    fn list(&mut self) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        for path in entries.flatten().map(|entry| entry.path()) {
            let document = path.extension().is_some_and(|ending| ending == "json");
            let pid = path
                .file_stem()
                .and_then(|name| name.to_str()?.parse().ok());
            if let Some(pid) = pid.filter(|pid| document && !self.known.contains_key(pid)) {
                self.alive.insert(pid);
            }
        }
    }

    /// The largest resident size among a process's own samples.
    fn sampled(&self, pid: u32) -> u64 {
        let samples = super::reports::samples(&self.directory.join(format!("{pid}.timeline")));
        let sizes = samples.into_iter().filter_map(|sample| sample.rss_bytes);
        sizes.max().unwrap_or(0)
    }

    /// Adds to the processes' documents what they do not know.
    pub fn complete(mut self, found: &mut Found) {
        for report in found.main.iter_mut().chain(&mut found.others) {
            let seen = u32::try_from(report.pid)
                .ok()
                .and_then(|pid| self.known.remove(&pid));
            if let Some(seen) = seen {
                complete(report, seen);
            }
        }
        found.sort();
    }
}

fn complete(report: &mut Report, seen: Seen) {
    if !report.at_exit {
        // It could not tell by itself.
        report.peak_rss_bytes = report.peak_rss_bytes.max(Some(seen.peak_bytes));
    }
    let larger = |reading: &Reading| reading.rss_bytes > Some(report.peak.rss_bytes);
    if let Some(reading) = seen.reading.filter(larger) {
        report.peak = Peak {
            rss_bytes: reading.rss_bytes.unwrap_or(reading.sum_bytes),
            ledger: reading.ledger,
            outside: reading.outside,
            released_bytes: reading.released_bytes,
            untouched_bytes: reading.untouched_bytes,
        };
    }
}

fn outgrows(resident: u64, known: u64) -> bool {
    resident > known + (known / GROWTH).max(GROWTH_BYTES_MIN)
}

/// What the kernel tells of a process in a few lines.
struct Status {
    name: String,
    resident_bytes: u64,
    peak_bytes: u64,
}

impl Status {
    /// `None` for one that is gone, or has ended and waits for its parent.
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let line = |name: &str| {
            let mut lines = text.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let bytes = |name| {
            let kib: u64 = line(name)?.strip_suffix(" kB")?.parse().ok()?;
            Some(kib << 10)
        };
        Some(Self {
            name: line("Name:")?.to_owned(),
            resident_bytes: bytes("VmRSS:")?,
            peak_bytes: bytes("VmHWM:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(at_exit: bool) -> Report {
        let document = serde_json::json!({
            "schema": "flagstone.report/1", "pid": 7, "program": "worker", "final": at_exit, "samples": 1,
            "restartable_sequences": true, "rss_bytes": 10, "peak_rss_bytes": 12, "caches": [], "ledger": [],
            "released_bytes": 0, "untouched_bytes": 0, "pages": {"zones": [], "pagesets": []},
            "peak": {"rss_bytes": 10, "ledger": [], "released_bytes": 0, "untouched_bytes": 0}
        });
        serde_json::from_value(document).unwrap()
    }

    fn looks(peak_bytes: u64, rss_bytes: u64) -> Looks {
        let mut looks = Looks::new(Path::new("/"));
        let reading = serde_json::json!({
            "schema": Reading::SCHEMA, "pid": 7, "program": "worker", "version": "0.1.0", "cpus": 1,
            "restartable_sequences": true, "rss_bytes": rss_bytes, "sum_bytes": rss_bytes, "trim_bytes": null,
            "caches": [], "ledger": [{"line": "non_heap", "bytes": rss_bytes}],
            "outside": [{"kind": "anonymous", "bytes": rss_bytes}], "released_bytes": 0, "untouched_bytes": 0,
            "pages": {"zones": [], "pagesets": []}, "knobs": {}
        });
        let seen = Seen {
            name: "worker".to_owned(),
            peak_bytes,
            reading: serde_json::from_value(reading).ok(),
        };
        looks.known.insert(7, seen);
        looks
    }

    #[test]
    fn a_killed_process_has_the_peak_and_the_ledger_that_were_seen_from_outside() {
        let mut found = Found {
            others: vec![report(false)],
            ..Found::default()
        };
        looks(100, 90).complete(&mut found);
        let worker = &found.others[0];
        assert_eq!((worker.peak_bytes(), worker.peak.rss_bytes), (100, 90));
        assert_eq!(worker.peak.ledger[0].bytes, 90);
        assert_eq!(worker.peak.outside[0].bytes, 90);
    }

    #[test]
    fn what_a_process_told_at_its_end_stays_and_larger_samples_too() {
        let mut found = Found {
            main: Some(report(true)),
            ..Found::default()
        };
        looks(100, 9).complete(&mut found);
        let main = found.main.unwrap();
        assert_eq!((main.peak_bytes(), main.peak.rss_bytes), (12, 10));
        assert!(main.peak.ledger.is_empty());
    }

    #[test]
    fn the_status_of_a_process_is_read_and_one_without_memory_is_none() {
        let text = "Name:\tphp 8\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let status = Status::parse(text).unwrap();
        assert_eq!(
            (status.name.as_str(), status.peak_bytes),
            ("php 8", 2 << 20)
        );
        assert_eq!(status.resident_bytes, 1 << 20);
        assert!(Status::parse("Name:\tended\nState:\tZ\n").is_none());
        assert!(Status::of(std::process::id()).is_some());
    }

    #[test]
    fn a_small_step_is_not_worth_a_reading() {
        assert!(!outgrows(12 << 20, 8 << 20) && outgrows((12 << 20) + 1, 8 << 20));
        assert!(!outgrows(1060 << 20, 1000 << 20) && outgrows(1063 << 20, 1000 << 20));
    }
}
