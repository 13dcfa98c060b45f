//! Figures of a running process, by a reader process that may be started more than once.

use super::image::{CHANGED, CONFLICT};
use super::maps::Maps;
use super::reader::{REFUSED, WORD};
use super::target::Refusal;
use crate::cmd::run::reports::{Bounds, Cache, Kind, LedgerLine, Pages};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// How often a reader that met a torn copy, or a taken place, is started again.
const TRIES: u32 = 12;
/// The same for a glance, which is taken again later anyway.
const GLANCE_TRIES: u32 = 3;
/// How many readers may be ended by the kernel: a walk without an end costs each its processor time.
const ENDED_MAX: u32 = 1;
/// How often figures are taken again that do not close, or lack the forecast that was asked for.
const CLOSING_TRIES: u32 = 6;
/// Figures close if their sum is off by less than this part of the resident size.
const CLOSES_WITHIN: u64 = 100;

/// What a running process's heap says, and the kernel about the process: `flagstone.stat/1`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Reading {
    pub schema: String,
    pub pid: u32,
    pub program: String,
    /// Of Flagstone in the process.
    pub version: String,
    pub cpus: u32,
    pub restartable_sequences: bool,
    /// As the kernel counts.
    pub rss_bytes: Option<u64>,
    /// Of all lines of the ledger.
    pub sum_bytes: u64,
    /// What `flagstone trim` would give back now.
    pub trim_bytes: Option<u64>,
    pub caches: Vec<Cache>,
    pub ledger: Vec<LedgerLine>,
    pub outside: Vec<Kind>,
    pub released_bytes: u64,
    pub untouched_bytes: u64,
    pub pages: Pages,
    #[serde(default)]
    pub bounds: Bounds,
    pub knobs: BTreeMap<String, u64>,
}

impl Reading {
    /// Its schema.
    pub const SCHEMA: &'static str = "flagstone.stat/1";

    /// Bytes on the line of that name.
    pub fn line(&self, name: &str) -> u64 {
        let lines = self.ledger.iter().filter(|line| line.line == name);
        lines.map(|line| line.bytes).sum()
    }

    /// Resident bytes of the heap.
    pub fn heap_bytes(&self) -> u64 {
        self.sum_bytes - self.line("non_heap")
    }

    /// Resident bytes that the program asked for and holds.
    pub fn live_bytes(&self) -> u64 {
        ["live", "large_runs", "huge_blocks"]
            .iter()
            .map(|line| self.line(line))
            .sum()
    }

    /// By how much the sum misses the kernel's count.
    fn off(&self) -> u64 {
        self.rss_bytes.map_or(0, |rss| rss.abs_diff(self.sum_bytes))
    }

    fn closes(&self) -> bool {
        self.off() * CLOSES_WITHIN <= self.rss_bytes.unwrap_or(0)
    }
}

/// What a reader is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A [`Reading`].
    Figures,
    /// The same, and what a trim would give back.
    Trim,
    /// The rules that do not hold.
    Verify,
    /// Its [`Maps`].
    Maps,
}

impl Task {
    const ALL: [(&'static str, Self); 4] = [
        ("figures", Self::Figures),
        ("trim", Self::Trim),
        ("verify", Self::Verify),
        ("maps", Self::Maps),
    ];

    /// By its word.
    pub fn of(word: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(name, _)| *name == word);
        found.map(|(_, task)| *task)
    }

    fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, task)| *task == self)
            .map_or("", |(name, _)| name)
    }
}

/// What follows a reading on a line of its own: it changes the copy.
#[derive(Deserialize, Serialize)]
pub struct Second {
    pub trim_bytes: u64,
}

/// Reads process `pid`; with `trim` also what a trim would give back.
///
/// # Errors
/// One line.
pub fn read(pid: u32, trim: bool) -> Result<Reading, Refusal> {
    let task = if trim { Task::Trim } else { Task::Figures };
    let mut best: Option<Reading> = None;
    for _ in 0..CLOSING_TRIES {
        let text = run(task, pid, TRIES)?;
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let mut reading: Reading = serde_json::from_str(first).map_err(|_| torn(pid))?;
        let second = lines
            .next()
            .and_then(|line| serde_json::from_str(line).ok());
        // The forecast is of the copy that did not tear, which may be another one's.
        let before = best.as_ref().and_then(|best| best.trim_bytes);
        reading.trim_bytes = second.map(|second: Second| second.trim_bytes).or(before);
        match &mut best {
            Some(best) if best.off() <= reading.off() => best.trim_bytes = reading.trim_bytes,
            _ => best = Some(reading),
        }
        let whole = |best: &Reading| best.closes() && (!trim || best.trim_bytes.is_some());
        if best.as_ref().is_some_and(whole) {
            break;
        }
    }
    best.ok_or_else(|| torn(pid))
}

/// The figures of a process as they are found at once, if they close.
pub fn glance(pid: u32) -> Option<Reading> {
    let text = run(Task::Figures, pid, GLANCE_TRIES).ok()?;
    let reading: Reading = serde_json::from_str(text.lines().next()?).ok()?;
    reading.closes().then_some(reading)
}

/// The rules that do not hold in one copy of the heap.
///
/// # Errors
/// One line.
pub fn verify(pid: u32) -> Result<Vec<String>, Refusal> {
    let text = run(Task::Verify, pid, TRIES)?;
    serde_json::from_str(text.trim()).map_err(|_| torn(pid))
}

/// Every mapping of a process, and what it is.
///
/// # Errors
/// One line.
pub fn maps(pid: u32) -> Result<Maps, Refusal> {
    let text = run(Task::Maps, pid, TRIES)?;
    serde_json::from_str(text.trim()).map_err(|_| torn(pid))
}

/// Starts readers until one has an answer.
fn run(task: Task, pid: u32, tries: u32) -> Result<String, Refusal> {
    let failed =
        |error: std::io::Error| Refusal::Line(format!("no reader can be started: {error}"));
    let mut ended = 0;
    for _ in 0..tries {
        let mut reader = Command::new("/proc/self/exe");
        reader.args(["stat", WORD, task.word(), &pid.to_string()]);
        reader
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let output = reader.output().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(0) => return Ok(text),
            Some(CHANGED) | None if has_figures(task, &text) => return Ok(text),
            Some(code) if code == i32::from(REFUSED) => return Err(again(pid, text)),
            Some(CONFLICT | CHANGED) => {}
            None if ended < ENDED_MAX => ended += 1,
            None => break,
            Some(_) => return Err(torn(pid)),
        }
    }
    // It may have ended meanwhile.
    super::target::Target::find(pid)?;
    Err(torn(pid))
}

/// Whether the figures were said before a reader ended, and only the forecast is missing.
fn has_figures(task: Task, text: &str) -> bool {
    task == Task::Trim && text.ends_with('\n')
}

/// The refusal of a reader, with its kind.
fn again(pid: u32, line: String) -> Refusal {
    match super::target::Target::find(pid) {
        Err(refusal) => refusal,
        Ok(_) => Refusal::Line(line),
    }
}

fn torn(pid: u32) -> Refusal {
    Refusal::Line(format!(
        "process {pid}: what lies in its heap's own pages does not hold together: the program wrote over them, or they change too fast; nothing is shown"
    ))
}
