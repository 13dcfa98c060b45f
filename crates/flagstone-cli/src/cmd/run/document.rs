//! The document `flagstone.run/1`.

use super::child::Ended;
use super::reports::{Cache, Found, LedgerLine, Pages, Report};
use super::settings::Settings;
use crate::exit::Failure;
use flagstone_core::stats::Line;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A ledger line as the document shows it.
#[derive(Debug, Serialize)]
pub struct Entry {
    pub line: &'static str,
    pub bytes: u64,
    /// Whether the figure rests on sampled request sizes.
    pub sampled: bool,
    pub sentence: &'static str,
}

/// What is held but not resident: beside the ledger, in no line of it.
#[derive(Debug, Default, Serialize)]
pub struct NotResident {
    /// Free blocks given back, or never used.
    pub released_bytes: u64,
    /// Parts of blocks in use that were never touched, or given back.
    pub untouched_bytes: u64,
}

/// One further process, shortly.
#[derive(Debug, Serialize)]
pub struct Other {
    pub pid: i32,
    pub program: String,
    pub rss_bytes: Option<u64>,
    pub peak_rss_kib: u64,
}

/// What the run came to. Field order is the document's.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub schema: &'static str,
    pub command: Vec<String>,
    pub exit: u8,
    pub signal: Option<i32>,
    pub wall_s: f64,
    pub user_s: f64,
    pub system_s: f64,
    pub peak_rss_kib: u64,
    pub policy: String,
    /// Whether the figures are of the command's end; else of its last sample, or there are none.
    pub at_exit: bool,
    pub samples: u64,
    pub restartable_sequences: Option<bool>,
    /// Whether the kernel told which pages are resident.
    pub resident_pages_told: Option<bool>,
    pub caches: Vec<Cache>,
    pub rss_bytes: Option<u64>,
    pub ledger: Vec<Entry>,
    pub not_resident: NotResident,
    pub peak_sample_rss_bytes: Option<u64>,
    pub ledger_at_peak: Vec<Entry>,
    pub not_resident_at_peak: NotResident,
    pub pages: Pages,
    pub other_processes: Vec<Other>,
}

impl Outcome {
    /// Brings everything together.
    pub fn of(command: &[OsString], settings: &Settings, ended: &Ended, found: &Found) -> Self {
        let main = found.main.as_ref();
        let mut caches: Vec<Cache> = main.map(|m| m.caches.clone()).unwrap_or_default();
        caches.sort_by_key(|cache| std::cmp::Reverse(cache.resident_bytes));
        let words = command.iter();
        Self {
            schema: "flagstone.run/1",
            command: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            exit: ended.code(),
            signal: ended.signal(),
            wall_s: ended.wall_s,
            user_s: ended.cpu_s.0,
            system_s: ended.cpu_s.1,
            peak_rss_kib: peak_rss_kib(ended, found),
            policy: settings.title(),
            at_exit: main.is_some_and(|m| m.at_exit),
            samples: main.map_or(0, |m| m.samples),
            restartable_sequences: main.map(|m| m.restartable_sequences),
            resident_pages_told: main.and_then(|m| m.resident_pages_told),
            caches,
            rss_bytes: main.and_then(|m| m.rss_bytes),
            ledger: main.map(|m| entries(&m.ledger)).unwrap_or_default(),
            not_resident: main.map(not_resident).unwrap_or_default(),
            peak_sample_rss_bytes: main.map(|m| m.peak.rss_bytes),
            ledger_at_peak: main.map(|m| entries(&m.peak.ledger)).unwrap_or_default(),
            not_resident_at_peak: main.map(not_resident_at_peak).unwrap_or_default(),
            pages: main.map(|m| m.pages.clone()).unwrap_or_default(),
            other_processes: found.others.iter().map(other).collect(),
        }
    }
}

/// The largest resident size of any of the run's processes.
///
/// The kernel counts from before the command was loaded, when its process was still a copy of
/// this one; a figure no larger than that tells nothing, and the processes' own serve. It also
/// keeps its counters per CPU and looks at them approximately (since Linux 6.2 up to 32 pages a
/// CPU may be missing), so a sample, which counts pages, may have seen more.
fn peak_rss_kib(ended: &Ended, found: &Found) -> u64 {
    let own = found.main.iter().chain(&found.others);
    let reported = own.clone().map(|r| r.peak_bytes().div_ceil(1024)).max();
    let sampled = own.map(|r| r.peak.rss_bytes.div_ceil(1024)).max();
    match reported {
        Some(reported) if ended.max_rss_kib <= ended.own_rss_kib => reported,
        _ => ended.max_rss_kib.max(sampled.unwrap_or(0)),
    }
}

fn entries(lines: &[LedgerLine]) -> Vec<Entry> {
    Line::ALL
        .into_iter()
        .map(|line| Entry {
            line: line.name(),
            bytes: lines
                .iter()
                .filter(|found| found.line == line.name())
                .map(|found| found.bytes)
                .sum(),
            sampled: line.sampled(),
            sentence: line.sentence(),
        })
        .collect()
}

fn not_resident(report: &Report) -> NotResident {
    NotResident {
        released_bytes: report.released_bytes,
        untouched_bytes: report.untouched_bytes,
    }
}

fn not_resident_at_peak(report: &Report) -> NotResident {
    NotResident {
        released_bytes: report.peak.released_bytes,
        untouched_bytes: report.peak.untouched_bytes,
    }
}

fn other(report: &Report) -> Other {
    Other {
        pid: report.pid,
        program: report.program.clone(),
        rss_bytes: report.rss_bytes,
        peak_rss_kib: report.peak_bytes().div_ceil(1024),
    }
}

/// The file that `--json` names, opened before the command starts.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    file: File,
}

impl Target {
    /// Opens the file.
    ///
    /// # Errors
    /// A usage failure if it cannot be written.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path)
            .map_err(|error| Failure::Usage(format!("run: --json {}: {error}", path.display())))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Writes the document.
    ///
    /// # Errors
    /// A usage failure if the file system refuses.
    pub fn write(mut self, outcome: &Outcome) -> Result<(), Failure> {
        let mut text = serde_json::to_vec_pretty(outcome).unwrap_or_default();
        text.push(b'\n');
        self.file.write_all(&text).map_err(|error| {
            Failure::Usage(format!("run: --json {}: {error}", self.path.display()))
        })
    }
}
