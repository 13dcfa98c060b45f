//! `run --try`: the command again with each change that can be made from outside, in turns with the command as it was.
//!
//! ```text
//!   as it was │ change 1 │ change 2 │ as it was │ change 1 │ …      medians of each
//! ```
//!
//! The first run, whose ledger is shown, is not among them: it found no files in memory. The command's input is
//! empty and its output is dropped.

use super::advice::Try;
use super::child::{self, Output, Start};
use super::reports::Directory;
use super::settings::Settings;
use crate::exit::Failure;
use crate::terminal::size;
use crate::{preload, progress};
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;

/// Runs of the command as it was, and with each change.
const ROUNDS: usize = 3;

/// How a change is made from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apply {
    /// A policy instead of the one given.
    pub policy: Option<&'static str>,
    /// Settings beside those given.
    pub set: &'static [&'static str],
    /// A variable and its value.
    pub variable: Option<(&'static str, &'static str)>,
}

impl Apply {
    /// Whether there is anything to make.
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }

    /// Whether all of it is in force already, by the title of the settings.
    pub fn is_in(&self, title: &str) -> bool {
        let given: Vec<&str> = title.split(' ').skip(1).collect();
        let key = |item: &str| item.split('=').next().unwrap_or_default().to_owned();
        let is_given = |item: &&str| given.iter().any(|other| key(other) == key(item));
        !self.set.is_empty() && self.set.iter().all(is_given)
    }
}

/// What a change brought, medians of all runs; of the command's own process where it left a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Runs without and with it.
    pub runs: usize,
    /// Largest resident size.
    pub peak_bytes_before: u64,
    pub peak_bytes: u64,
    /// Resident size at its end.
    pub end_bytes_before: u64,
    pub end_bytes: u64,
    /// Processor time.
    pub cpu_s_before: f64,
    pub cpu_s: f64,
    /// Runs with another exit status than the first run's.
    pub failed_runs: usize,
}

impl Measured {
    /// The same in a line.
    pub fn words(&self) -> String {
        let change = |before: u64, after: u64| match after.cmp(&before) {
            std::cmp::Ordering::Less => format!("-{}", size(before - after)),
            _ => format!("+{}", size(after - before)),
        };
        let mut text = format!(
            "at its end {} instead of {} ({}), at its peak {} instead of {} ({}), {:.2} s of CPU instead of {:.2} (medians of {} runs)",
            size(self.end_bytes),
            size(self.end_bytes_before),
            change(self.end_bytes_before, self.end_bytes),
            size(self.peak_bytes),
            size(self.peak_bytes_before),
            change(self.peak_bytes_before, self.peak_bytes),
            self.cpu_s,
            self.cpu_s_before,
            self.runs
        );
        if self.failed_runs > 0 {
            text.push_str(&format!(
                "; {} runs ended with another exit status",
                self.failed_runs
            ));
        }
        text
    }
}

/// What is run again.
pub struct Subject<'a> {
    pub program: &'a Path,
    pub command: &'a [OsString],
    pub policy: Option<&'a str>,
    pub set: &'a [String],
    /// The first run's exit status.
    pub exit: u8,
}

/// One run's peak, end and processor time.
struct Run {
    peak: u64,
    end: u64,
    cpu_s: f64,
    failed: bool,
}

/// Measures every change that can be made from outside, and puts what brought most first.
///
/// # Errors
/// A usage failure where a run cannot be started.
pub fn measure(subject: &Subject<'_>, tries: &mut [Try]) -> Result<(), Failure> {
    let changes: Vec<usize> = (0..tries.len())
        .filter(|&at| tries[at].apply.is_any())
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    let bar = progress::bar(
        (ROUNDS * (changes.len() + 1)) as u64,
        "{elapsed_precise} {bar:30} {pos}/{len} runs, {left}",
    );
    let mut before = Vec::new();
    let mut after: Vec<Vec<Run>> = changes.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        before.extend(once(subject, &Apply::default())?);
        bar.inc(1);
        for (&at, runs) in changes.iter().zip(&mut after) {
            runs.extend(once(subject, &tries[at].apply)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for (&at, runs) in changes.iter().zip(&after) {
        if runs.is_empty() || before.is_empty() {
            continue;
        }
        tries[at].measured = Some(Measured {
            runs: runs.len(),
            peak_bytes_before: median(&before, |run| run.peak),
            peak_bytes: median(runs, |run| run.peak),
            end_bytes_before: median(&before, |run| run.end),
            end_bytes: median(runs, |run| run.end),
            cpu_s_before: median(&before, |run| (run.cpu_s * 1e6) as u64) as f64 / 1e6,
            cpu_s: median(runs, |run| (run.cpu_s * 1e6) as u64) as f64 / 1e6,
            failed_runs: runs.iter().filter(|run| run.failed).count(),
        });
    }
    // What was measured by what it brought, at the end and at the peak; then the rest as it was.
    tries.sort_by_key(|one| {
        one.measured.as_ref().map_or(i64::MAX, |seen| {
            let fell = |before: u64, after: u64| after as i64 - before as i64;
            fell(seen.end_bytes_before, seen.end_bytes)
                .min(fell(seen.peak_bytes_before, seen.peak_bytes))
        })
    });
    Ok(())
}

fn median(runs: &[Run], of: impl Fn(&Run) -> u64) -> u64 {
    let mut values: Vec<u64> = runs.iter().map(of).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// One run; `None` where a process left no report.
fn once(subject: &Subject<'_>, apply: &Apply) -> Result<Option<Run>, Failure> {
    let set: Vec<String> = subject
        .set
        .iter()
        .cloned()
        .chain(apply.set.iter().map(|&item| item.to_owned()))
        .collect();
    let settings = Settings::of(apply.policy.or(subject.policy), &set)?;
    let library = preload::library_path(preload::serving(settings.policy_name()))?;
    let reports = Directory::new()?;
    let (set, removed) = settings.variables();
    let set = set
        .into_iter()
        .map(|(name, value)| (name.into(), Some(value)));
    let removed = removed.into_iter().map(|name| (name.into(), None));
    let report = (
        "FLAGSTONE_RUN_REPORT".into(),
        Some(reports.path().as_os_str().to_owned()),
    );
    let given = apply
        .variable
        .map(|(name, value)| (name.into(), Some(value.into())));
    let variables: Vec<_> = set.chain(removed).chain([report]).chain(given).collect();
    let ended = child::run(&Start {
        program: subject.program,
        command: subject.command,
        preload: &[library],
        variables: &variables,
        output: Output::Nowhere,
        documents: None,
    })
    .map_err(|child::NotStarted { line, .. }| Failure::Usage(format!("run: --try: {line}")))?;
    if ended.was_interrupted() {
        return Err(Failure::Finding(
            "run: --try: interrupted; the first run is not shown".to_owned(),
        ));
    }
    let found = reports.read(ended.process);
    Ok(found.main.map(|main| Run {
        peak: main.peak_bytes(),
        end: main.rss_bytes.unwrap_or(0),
        cpu_s: ended.cpu_s.0 + ended.cpu_s.1,
        failed: ended.code() != subject.exit,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_is_in_force_is_known_and_one_in_part_is_not() {
        let pages = Apply {
            set: &["retain_bytes_min=1M", "retain_share=0"],
            ..Apply::default()
        };
        assert!(pages.is_any() && !Apply::default().is_any());
        assert!(pages.is_in("flagstone retain_share=0 retain_bytes_min=65536"));
        assert!(!pages.is_in("flagstone retain_share=0"));
        assert!(!Apply::default().is_in("flagstone"));
    }

    #[test]
    fn what_a_change_brought_is_told_with_its_sign() {
        let mut seen = Measured {
            runs: 3,
            peak_bytes_before: 8 << 20,
            peak_bytes: 9 << 20,
            end_bytes_before: 8 << 20,
            end_bytes: 6 << 20,
            cpu_s_before: 1.0,
            cpu_s: 1.25,
            failed_runs: 0,
        };
        let words = seen.words();
        assert!(words.starts_with("at its end 6.0 MiB instead of 8.0 MiB (-2.0 MiB)"));
        assert!(words.contains("(+1.0 MiB), 1.25 s of CPU instead of 1.00"));
        seen.failed_runs = 2;
        assert!(
            seen.words()
                .ends_with("2 runs ended with another exit status")
        );
    }
}
