//! Sweeps: many specs from one file, made by as many processes and machines as there are.
//!
//! ```text
//!   SPEC.toml ─► plan.rs: grids and lists ─► specs, in order of their digests
//!                                               │ shard i of n (shard.rs)
//!   DIR/<digest>.json  ◄── what is missing ◄────┘
//! ```
//!
//! Invariants:
//!
//! - `sweep.whole`: a record's file is there whole or not at all: written beside, then renamed. A process
//!   that is killed at any instant leaves at most one file `.flagstone-*`, which nobody reads.
//! - `sweep.once`: a file is named by its spec's digest, so a row is there once however often and wherever
//!   it was made. Shards of one sweep share no spec; processes that share one write the same bytes.
//!
//! No lock, no server: any scheduler that starts processes and any folder they share will do.

pub(crate) mod plan;
mod shard;

pub use plan::{Plan, parse};
pub use shard::Shard;

use crate::cache::whole;
use crate::record::Record;
use crate::runs::{Answer, Options, sim};
use crate::spec::Spec;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What a call of [`sweep`] did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Specs of this shard.
    pub asked: usize,
    /// Of these, records that were there before.
    pub there: usize,
    /// Records made now.
    pub made: usize,
    /// Runs that failed, in a line each; they are made again next time.
    pub failures: Vec<String>,
}

/// Makes those records of `specs` that `folder` lacks. `done` hears of each as it is there.
///
/// # Errors
/// One line, if the folder or a file in it cannot be written; records made before stay.
pub fn sweep(
    specs: &[Spec],
    folder: &Path,
    options: &Options,
    done: impl Fn(&Answer) + Sync,
) -> Result<Done, String> {
    let told = |path: &Path, error: &std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(folder).map_err(|error| told(folder, &error))?;
    let there = there(folder)?;
    let missing: Vec<(String, Spec)> = specs
        .iter()
        .map(|spec| (spec.digest(), spec))
        .filter(|(digest, _)| !there.contains(digest))
        .map(|(digest, spec)| (digest, spec.clone()))
        .collect();
    let (digests, missing): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
    let refused = Mutex::new(None);
    let answers = sim(&missing, options, |answer| {
        if let Ok(run) = &answer.run {
            let file = folder.join(format!("{}.json", digests[answer.index]));
            let text = run.record.to_json() + "\n";
            if let Err(error) = whole(&file, text.as_bytes()) {
                *refused.lock().expect("nobody panics with it") = Some(told(&file, &error));
            }
        }
        done(answer);
    });
    if let Some(line) = refused.into_inner().expect("nobody panics with it") {
        return Err(line);
    }
    let failure = |answer: &Answer| {
        let spec = &missing[answer.index];
        let why = answer.run.as_ref().err()?;
        Some(format!(
            "{}, {} tasks, seed {}: {why}",
            spec.workload.name, spec.tasks, spec.seed
        ))
    };
    let failures: Vec<String> = answers.iter().filter_map(failure).collect();
    Ok(Done {
        asked: specs.len(),
        there: specs.len() - missing.len(),
        made: missing.len() - failures.len(),
        failures,
    })
}

/// How many of `specs` the folder lacks.
///
/// # Errors
/// One line, if the folder cannot be read.
pub fn missing(specs: &[Spec], folder: &Path) -> Result<usize, String> {
    if !folder.exists() {
        return Ok(specs.len());
    }
    let there = there(folder)?;
    Ok(specs
        .iter()
        .filter(|spec| !there.contains(&spec.digest()))
        .count())
}

/// Names of records' files in a folder, without their ending.
fn there(folder: &Path) -> Result<HashSet<String>, String> {
    Ok(files(folder)?
        .iter()
        .filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()))
        .collect())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        let hidden = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_none_or(|name| name.starts_with('.'));
        if !hidden && path.extension().is_some_and(|ending| ending == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// All records of a folder, in the order of workload, machine, policy, tasks and seed.
///
/// # Errors
/// One line with the file that is no record.
pub fn collect(folder: &Path) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    for file in files(folder)? {
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
        let record = Record::from_json(&text).map_err(|why| {
            format!(
                "{}: {why}; remove the file, the sweep makes it again",
                file.display()
            )
        })?;
        records.push(record);
    }
    let key = |r: &Record| {
        (
            r.workload.clone(),
            r.machine.clone(),
            r.policy.clone(),
            r.knobs.clone(),
            r.tasks,
            (r.seed, r.spec_digest.clone()),
        )
    };
    records.sort_by_cached_key(key);
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = "workload = \"random-mix\"\nmachine = \"x86-16\"\npolicy = [\"flagstone\", \
                        \"linux-7.0\"]\ntasks = [1, 2]\nseeds = 2\nwindow = \"1ms\"\n";

    #[test]
    fn what_is_there_is_not_made_again_and_half_a_file_is_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let specs = parse("s.toml", TOML, Path::new(".")).unwrap().specs;
        assert_eq!(specs.len(), 8);
        let options = Options::default();
        let first = sweep(&specs[..3], folder.path(), &options, |_| ()).unwrap();
        assert_eq!((first.asked, first.there, first.made), (3, 0, 3));
        std::fs::write(folder.path().join(".flagstone-killed"), "{\"schema\":").unwrap();
        let all = sweep(&specs, folder.path(), &options, |_| ()).unwrap();
        assert_eq!((all.asked, all.there, all.made), (8, 3, 5));
        let records = collect(folder.path()).unwrap();
        assert_eq!(records.len(), 8);
        let again = sweep(&specs, folder.path(), &options, |_| {
            panic!("nothing is missing")
        });
        assert_eq!(again.unwrap().there, 8);
    }

    #[test]
    fn two_shards_are_one_run() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let specs = parse("s.toml", TOML, Path::new(".")).unwrap().specs;
        let options = Options::default();
        sweep(&specs, folders[0].path(), &options, |_| ()).unwrap();
        for index in 1..=2 {
            let part = Shard { index, count: 2 }.of(&specs);
            assert_eq!(part.len(), 4);
            sweep(&part, folders[1].path(), &options, |_| ()).unwrap();
        }
        let read = |folder: &tempfile::TempDir| {
            let files = files(folder.path()).unwrap();
            let text = |file: &PathBuf| {
                let name = file.file_name().unwrap().to_owned();
                (name, std::fs::read(file).unwrap())
            };
            files.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(
            read(&folders[0]),
            read(&folders[1]),
            "the same files, byte for byte"
        );
    }

    #[test]
    fn a_file_that_is_no_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.json"), "{}").unwrap();
        let line = collect(folder.path()).unwrap_err();
        assert!(
            line.contains("a.json") && line.contains("remove the file"),
            "{line}"
        );
    }
}
