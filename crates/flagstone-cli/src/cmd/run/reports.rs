//! What the command's processes left: one document each.

use crate::exit::Failure;
use crate::terminal::size;
use flagstone_core::stats::Line;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A cache in the kernel's columns, and where its free objects are.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Cache {
    pub name: String,
    #[serde(default)]
    pub internal: bool,
    pub object_size: u64,
    pub size: u64,
    pub order: u32,
    pub pages: u64,
    pub objects_per_slab: u64,
    pub slabs: u64,
    pub objects: u64,
    pub active: u64,
    pub in_sheaves: u64,
    pub in_barns: u64,
    pub free_in_slabs: u64,
    pub empty_slabs: u64,
    /// Slabs whose objects outside are all cached, and the free bytes in them.
    #[serde(default)]
    pub pinned_slabs: u64,
    #[serde(default)]
    pub pinned_bytes: u64,
    pub sheaf_capacity: u64,
    pub tail_bytes: u64,
    pub mean_requested: Option<u64>,
    pub resident_bytes: u64,
    pub waste_bytes: u64,
}

/// One line of a ledger.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct LedgerLine {
    pub line: String,
    pub bytes: u64,
}

/// Resident bytes of one kind of mapping outside the heap.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Kind {
    pub kind: String,
    pub bytes: u64,
}

impl Kind {
    /// The kind of what a program or its runtime maps itself.
    pub const ANONYMOUS: &'static str = "anonymous";
    /// The kind of threads' stacks.
    pub const STACKS: &'static str = "stacks";

    /// Bytes of one kind.
    pub fn bytes_of(kinds: &[Self], kind: &str) -> u64 {
        let named = kinds.iter().filter(|found| found.kind == kind);
        named.map(|found| found.bytes).sum()
    }

    /// Its name for readers, and what it holds.
    pub fn words(&self) -> (&'static str, &'static str) {
        match self.kind.as_str() {
            "program" => ("program and libraries", "Files with code, and their data."),
            "files" => ("other mapped files", "Data files and shared memory."),
            Self::STACKS => ("stacks", "Of threads, told by their guards."),
            Self::ANONYMOUS => ("anonymous mappings", "What a runtime mapped itself."),
            _ => ("other", "Pages of the kernel."),
        }
    }
}

/// A zone's figures.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Zone {
    pub node: u32,
    pub span_pages: u64,
    pub frontier_pages: u64,
    pub committed_pages: u64,
    pub managed_pages: u64,
    pub in_use_pages: u64,
    pub free_pages: u64,
    pub free_resident_pages: u64,
    pub keep_pages: u64,
    pub pageset_pages: u64,
    pub pageset_resident_pages: u64,
    pub resident_blocks: Vec<u64>,
    pub released_blocks: Vec<u64>,
    pub watermarks: Watermarks,
    pub lock_takes: u64,
    pub lock_waits: u64,
    pub alloc_pages: u64,
    pub freed_pages: u64,
    pub fresh_pages: u64,
    pub released_pages: u64,
    pub release_calls: u64,
    pub commit_calls: u64,
    pub pageset_bypassed: u64,
}

/// A zone's watermarks, in pages.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Watermarks {
    pub min: u64,
    pub low: u64,
    pub high: u64,
}

/// A CPU's pageset of one zone.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Pageset {
    pub node: u32,
    pub cpu: u32,
    pub count: u64,
    pub resident: u64,
    pub high: u64,
    pub high_min: u64,
    pub high_max: u64,
    pub batch: u64,
    pub allocs: u64,
    pub frees: u64,
    pub refills: u64,
    pub drains: u64,
    pub free_high: u64,
}

/// The page layer.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Pages {
    #[serde(default)]
    pub page_bytes: u64,
    #[serde(default)]
    pub descriptor_bytes: u64,
    #[serde(default)]
    pub own_bytes: u64,
    #[serde(default)]
    pub hole_bytes_total: u64,
    pub zones: Vec<Zone>,
    pub pagesets: Vec<Pageset>,
}

/// The sample with the largest resident size.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Peak {
    pub rss_bytes: u64,
    pub ledger: Vec<LedgerLine>,
    #[serde(default)]
    pub outside: Vec<Kind>,
    pub released_bytes: u64,
    pub untouched_bytes: u64,
}

/// One process's document, `flagstone.report/1`.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    pub schema: String,
    pub pid: i32,
    #[serde(default)]
    pub ppid: i32,
    pub program: String,
    /// Whether it is of the process's end, not of a sample before.
    #[serde(rename = "final")]
    pub at_exit: bool,
    pub samples: u64,
    pub restartable_sequences: bool,
    #[serde(default)]
    pub resident_pages_told: Option<bool>,
    pub rss_bytes: Option<u64>,
    pub peak_rss_bytes: Option<u64>,
    pub caches: Vec<Cache>,
    pub ledger: Vec<LedgerLine>,
    #[serde(default)]
    pub outside: Vec<Kind>,
    pub released_bytes: u64,
    pub untouched_bytes: u64,
    pub peak: Peak,
    pub pages: Pages,
    #[serde(default)]
    pub bounds: Bounds,
    /// Its samples, in order: a file of its own.
    #[serde(skip)]
    pub samples_taken: Vec<Sample>,
}

/// What bounds a heap from outside, and what came of it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Bounds {
    /// What the heap may hold; 0 for no limit.
    pub limit_bytes: u64,
    /// Requests that met it after the heap had given back all it kept.
    pub limit_reached: u64,
    /// Those of them that were answered with NULL.
    pub limit_refused: u64,
    /// Times the program's callback was asked.
    pub limit_asked: u64,
    /// Whether memory pressure is answered.
    pub pressure: u64,
    /// Looks at it.
    pub pressure_looks: u64,
    /// Times memory was given back for it.
    pub relieved: u64,
    /// How much that was.
    pub relieved_bytes: u64,
}

impl Bounds {
    /// A sentence, where there is something to say.
    pub fn sentence(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.limit_bytes != 0 {
            parts.push(format!(
                "Limit {}: {} requests met it, {} of them got NULL.",
                size(self.limit_bytes),
                self.limit_reached,
                self.limit_refused
            ));
        }
        if self.pressure != 0 {
            parts.push(format!(
                "Memory pressure: {} looks, {} times given back, {}.",
                self.pressure_looks,
                self.relieved,
                size(self.relieved_bytes)
            ));
        }
        (!parts.is_empty()).then(|| parts.join(" "))
    }
}

/// One sample of a process, shortly.
#[derive(Clone, Debug, Deserialize)]
pub struct Sample {
    /// On the coarse monotonic clock.
    pub at_ns: u64,
    pub rss_bytes: Option<u64>,
    /// Bytes of each ledger line, in their order.
    pub ledger: Vec<u64>,
}

impl Sample {
    /// Its ledger by names.
    pub fn lines(&self) -> Vec<LedgerLine> {
        let lines = Line::ALL.into_iter().zip(&self.ledger);
        let named = lines.map(|(line, &bytes)| LedgerLine {
            line: line.name().to_owned(),
            bytes,
        });
        named.collect()
    }
}

/// What held for this part of a run ...
const LONG_PART: u64 = 10;
/// ... and this many nanoseconds is worth a word. What a program frees in its last moments is no state that it was in.
const LONG_NS: u64 = 1_000_000_000;

/// How sure it must be that something held between two samples: one is taken whenever the resident size has changed by a
/// sixteenth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sure {
    /// It does in both.
    Certainly,
    /// It does in the first.
    Perhaps,
}

impl Report {
    /// Whether something held for a good part of the run, by its samples.
    pub fn lasted(&self, sure: Sure, holds: impl Fn(&[LedgerLine]) -> bool) -> bool {
        let samples = &self.samples_taken;
        let held: Vec<bool> = samples
            .iter()
            .map(|sample| holds(&sample.lines()))
            .collect();
        let span = |pair: &[Sample]| pair[1].at_ns.saturating_sub(pair[0].at_ns);
        let pairs = samples.windows(2).zip(held.windows(2));
        let whole: u64 = samples.windows(2).map(span).sum();
        let long: u64 = pairs
            .filter(|(_, held)| held[0] && (held[1] || sure == Sure::Perhaps))
            .map(|(pair, _)| span(pair))
            .sum();
        long >= LONG_NS && long >= whole / LONG_PART
    }

    /// The largest resident size known of the process, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let kernel = self.peak_rss_bytes.unwrap_or(0);
        kernel.max(self.peak.rss_bytes)
    }
}

/// All processes' documents.
#[derive(Debug, Default)]
pub struct Found {
    /// Of the command itself.
    pub main: Option<Report>,
    /// Of processes it started, largest peak first.
    pub others: Vec<Report>,
    /// Documents that could not be read, with the reason.
    pub damaged: Vec<String>,
    /// Whether the command is a program of Go.
    pub is_go: bool,
}

impl Found {
    /// Largest peak first.
    pub fn sort(&mut self) {
        let key = |report: &Report| (std::cmp::Reverse(report.peak_bytes()), report.pid);
        self.others.sort_by_key(key);
    }
}

/// Where documents are collected.
#[derive(Debug)]
pub struct Directory(TempDir);

impl Directory {
    /// A fresh one, only for this user.
    ///
    /// # Errors
    /// A usage failure if it cannot be made.
    pub fn new() -> Result<Self, Failure> {
        let made = tempfile::Builder::new().prefix("flagstone-run-").tempdir();
        made.map(Self).map_err(|error| {
            Failure::Usage(format!(
                "run: no directory for reports in {}: {error}; set TMPDIR",
                std::env::temp_dir().display()
            ))
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Reads what is there; `main` is the command's process.
    pub fn read(&self, main: i32) -> Found {
        let mut found = Found::default();
        let Ok(entries) = fs::read_dir(self.path()) else {
            return found;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|ending| ending != "json") {
                continue;
            }
            match read(&path) {
                Ok(report) if report.pid == main => found.main = Some(report),
                Ok(report) => found.others.push(report),
                Err(why) => found.damaged.push(why),
            }
        }
        found.sort();
        found
    }
}

fn read(path: &Path) -> Result<Report, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut report: Report =
        serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    if report.schema == "flagstone.report/1" {
        report.samples_taken = samples(&path.with_extension("timeline"));
        Ok(report)
    } else {
        Err(format!("{}: schema {}", path.display(), report.schema))
    }
}

/// The lines of a timeline that can be read; the last may be cut off where a process was killed.
pub fn samples(path: &Path) -> Vec<Sample> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
