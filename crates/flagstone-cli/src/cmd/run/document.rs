//! The document `flagstone.run/1`.

use super::advice::{self, Try};
use super::answer::{self, Shares};
use super::child::Ended;
use super::reports::{Bounds, Cache, Found, Kind, LedgerLine, Pages, Report};
use super::settings::Settings;
use super::timeline::Timeline;
use crate::terminal::size;
use flagstone_core::stats::Line;
use serde::Serialize;
use std::ffi::OsString;

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

/// Where memory was, in words and in few figures.
#[derive(Debug, Serialize)]
pub struct Answer {
    pub text: String,
    pub at_peak: Shares,
    pub at_exit: Shares,
}

/// The process with the largest peak.
#[derive(Debug, Serialize)]
pub struct PeakProcess {
    /// Absent where it left no report.
    pub pid: Option<i32>,
    pub program: Option<String>,
}

/// How a process is when the command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its figures are of its end.
    Ended,
    /// It ended without a word; its figures are of its last sample.
    Killed,
    /// It runs on; its figures are of its last sample.
    Alive,
}

/// One process with all its figures, for `--all`.
#[derive(Debug, Serialize)]
pub struct Process {
    pub pid: i32,
    pub ppid: i32,
    pub program: String,
    pub state: State,
    pub answer: Answer,
    pub samples: u64,
    pub rss_bytes: Option<u64>,
    pub peak_rss_kib: u64,
    pub ledger: Vec<Entry>,
    pub outside: Vec<Kind>,
    pub peak_sample_rss_bytes: u64,
    pub ledger_at_peak: Vec<Entry>,
    pub outside_at_peak: Vec<Kind>,
    pub caches: Vec<Cache>,
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
    /// Largest resident size of any process of the run.
    pub peak_rss_kib: u64,
    /// Of the command's own process, and of the others.
    pub own_peak_rss_kib: Option<u64>,
    pub children_peak_rss_kib: Option<u64>,
    pub peak_process: Option<PeakProcess>,
    pub answer: Option<Answer>,
    /// Why the figures are not of the command's last program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unserved: Option<String>,
    #[serde(rename = "try")]
    pub tries: Vec<Try>,
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
    pub outside: Vec<Kind>,
    pub not_resident: NotResident,
    pub peak_sample_rss_bytes: Option<u64>,
    pub ledger_at_peak: Vec<Entry>,
    pub outside_at_peak: Vec<Kind>,
    pub not_resident_at_peak: NotResident,
    pub pages: Pages,
    pub bounds: Bounds,
    pub other_processes: Vec<Other>,
    /// Every process with its ledger, the command's own first; only with `--all`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    pub timeline: Timeline,
}

impl Outcome {
    /// Brings everything together.
    pub fn of(
        command: &[OsString],
        settings: &Settings,
        (ended, found): (&Ended, &Found),
        detail: Detail,
    ) -> Self {
        let main = found.main.as_ref();
        let mut caches: Vec<Cache> = main.map(|m| m.caches.clone()).unwrap_or_default();
        caches.sort_by_key(|cache| std::cmp::Reverse(cache.resident_bytes));
        let words = command.iter();
        let peaks = Peaks::of(ended, found);
        let mut outcome = Self {
            schema: "flagstone.run/1",
            command: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            exit: ended.code(),
            signal: ended.signal(),
            wall_s: ended.wall_s,
            user_s: ended.cpu_s.0,
            system_s: ended.cpu_s.1,
            peak_rss_kib: peaks.all,
            own_peak_rss_kib: peaks.own,
            children_peak_rss_kib: peaks.children,
            peak_process: peaks.process(found),
            answer: None,
            unserved: None,
            tries: Vec::new(),
            policy: settings.title(),
            at_exit: main.is_some_and(|m| m.at_exit),
            samples: main.map_or(0, |m| m.samples),
            restartable_sequences: main.map(|m| m.restartable_sequences),
            resident_pages_told: main.and_then(|m| m.resident_pages_told),
            caches,
            rss_bytes: main.and_then(|m| m.rss_bytes),
            ledger: main.map(|m| entries(&m.ledger)).unwrap_or_default(),
            outside: main.map(|m| m.outside.clone()).unwrap_or_default(),
            not_resident: main.map(not_resident).unwrap_or_default(),
            peak_sample_rss_bytes: main.map(|m| m.peak.rss_bytes),
            ledger_at_peak: main.map(|m| entries(&m.peak.ledger)).unwrap_or_default(),
            outside_at_peak: main.map(|m| m.peak.outside.clone()).unwrap_or_default(),
            not_resident_at_peak: main.map(not_resident_at_peak).unwrap_or_default(),
            pages: main.map(|m| m.pages.clone()).unwrap_or_default(),
            bounds: main.map(|m| m.bounds).unwrap_or_default(),
            other_processes: found.others.iter().map(other).collect(),
            processes: match detail {
                Detail::EveryProcess => found
                    .main
                    .iter()
                    .chain(&found.others)
                    .map(process)
                    .collect(),
                Detail::Command => Vec::new(),
            },
            timeline: Timeline::of(ended, found),
        };
        if let Some(main) = main {
            outcome.say(main, found, &peaks, detail);
        }
        outcome
    }

    /// What to try, and the answer: of the largest process where that is a child and is shown whole, then of the command's own.
    fn say(&mut self, main: &Report, found: &Found, peaks: &Peaks, detail: Detail) {
        let is_of_child = peaks.is_of_child();
        let child = peaks.largest_child(found).filter(|_| is_of_child);
        let shown = child.filter(|_| detail == Detail::EveryProcess);
        let asked = shown.unwrap_or(main);
        let set = |name: &str| std::env::var_os(name).is_some();
        self.tries = advice::tries(asked, self, found.is_go && shown.is_none(), set);
        let mut said = answer::sentence(asked);
        if self.tries.is_empty() {
            let why = Shares::of(&asked.peak.ledger).nothing(&asked.peak.outside);
            said.push_str(&format!(" {why}"));
        }
        let own = "The command's own process:";
        let bytes = size(peaks.children.unwrap_or(0) * 1024);
        let text = match (shown, detail) {
            _ if !is_of_child => said,
            (Some(child), _) => format!(
                "The largest process was a child, {} ({}). {said} {own} {}",
                child.program,
                child.pid,
                answer::sentence(main)
            ),
            (None, Detail::EveryProcess) => {
                format!(
                    "The largest process was a child ({bytes}) that left no report. {own} {said}"
                )
            }
            (None, Detail::Command) => format!(
                "The largest process was a child ({}{bytes}); --all shows where its memory was. {own} {said}",
                child.map_or(String::new(), |child| format!("{}, ", child.program)),
            ),
        };
        self.answer = Some(answer_in(text, main));
    }
}

/// Which processes are shown whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The command's own.
    Command,
    /// All.
    EveryProcess,
}

/// Largest resident sizes, in KiB.
struct Peaks {
    all: u64,
    own: Option<u64>,
    children: Option<u64>,
}

impl Peaks {
    /// The kernel counts from before the command was loaded, when its process was still a copy of
    /// this one; a figure no larger than that tells nothing, and the processes' own serve. It also
    /// keeps its counters per CPU and looks at them approximately (since Linux 6.2 up to 32 pages a
    /// CPU may be missing), so a sample, which counts pages, may have seen more.
    fn of(ended: &Ended, found: &Found) -> Self {
        let kib = |report: &Report| report.peak_bytes().div_ceil(1024);
        let own = found.main.as_ref().map(kib);
        let children = found.others.iter().map(kib).max();
        let sampled = found.main.iter().chain(&found.others);
        let sampled = sampled.map(|r| r.peak.rss_bytes.div_ceil(1024)).max();
        let counted = ended.max_rss_kib > ended.own_rss_kib;
        let all = match own.max(children) {
            Some(reported) if !counted => reported,
            _ => ended.max_rss_kib.max(sampled.unwrap_or(0)),
        };
        // What no report explains is a child's that could not report.
        let unseen = own
            .max(children)
            .is_some_and(|seen| counted && all > seen + seen / 50 + 2048);
        Self {
            all,
            own,
            children: if unseen { Some(all) } else { children },
        }
    }

    /// Whether a child's peak is so much above the command's own that the question is about the child.
    fn is_of_child(&self) -> bool {
        let both = self.own.zip(self.children);
        both.is_some_and(|(own, children)| answer::is_larger(children * 1024, own * 1024))
    }

    /// The child whose peak is the children's, if it reported.
    fn largest_child<'a>(&self, found: &'a Found) -> Option<&'a Report> {
        let first = found.others.first();
        first.filter(|one| Some(one.peak_bytes().div_ceil(1024)) == self.children)
    }

    fn process(&self, found: &Found) -> Option<PeakProcess> {
        let (own, children) = (self.own.unwrap_or(0), self.children.unwrap_or(0));
        let report = if own >= children {
            found.main.as_ref()
        } else {
            self.largest_child(found)
        };
        (own.max(children) > 0).then(|| PeakProcess {
            pid: report.map(|report| report.pid),
            program: report.map(|report| report.program.clone()),
        })
    }
}

fn answer_in(text: String, report: &Report) -> Answer {
    Answer {
        text,
        at_peak: Shares::of(&report.peak.ledger),
        at_exit: Shares::of(&report.ledger),
    }
}

fn process(report: &Report) -> Process {
    let mut caches = report.caches.clone();
    caches.sort_by_key(|cache| std::cmp::Reverse(cache.resident_bytes));
    Process {
        pid: report.pid,
        ppid: report.ppid,
        program: report.program.clone(),
        state: state(report),
        answer: answer_in(answer::sentence(report), report),
        samples: report.samples,
        rss_bytes: report.rss_bytes,
        peak_rss_kib: report.peak_bytes().div_ceil(1024),
        ledger: entries(&report.ledger),
        outside: report.outside.clone(),
        peak_sample_rss_bytes: report.peak.rss_bytes,
        ledger_at_peak: entries(&report.peak.ledger),
        outside_at_peak: report.peak.outside.clone(),
        caches,
    }
}

fn state(report: &Report) -> State {
    let alive = || std::path::Path::new(&format!("/proc/{}/stat", report.pid)).exists();
    match report.at_exit {
        true => State::Ended,
        false if alive() => State::Alive,
        false => State::Killed,
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
