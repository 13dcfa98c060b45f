//! Runs on virtual CPUs: specs and records as JSON, one run or many.

use crate::apart;
use flagstone_cli::exit::Failure;
use flagstone_lab::sweep::{Shard, collect as collected, parse, sweep as made};
use flagstone_lab::{Cache, Options, Spec};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// A record, or why there is none.
type Answer = (Option<String>, Option<String>);

fn spec(text: &str) -> Result<Spec, Failure> {
    Spec::from_json(text).map_err(Failure::Usage)
}

fn all(specs: &[String]) -> Result<Vec<Spec>, Failure> {
    specs.iter().map(|text| spec(text)).collect()
}

/// The specs of a sweep's file, or of a part of it, in the order of their digests.
#[pyfunction]
pub fn specs(
    py: Python<'_>,
    name: &str,
    text: &str,
    folder: PathBuf,
    shard: &str,
) -> PyResult<Vec<String>> {
    apart(py, || {
        let plan = parse(name, text, &folder).map_err(Failure::Usage)?;
        let shard = Shard::parse(shard, |name| std::env::var(name).ok());
        let part = shard.map_err(Failure::Usage)?.of(&plan.specs);
        Ok(part.iter().map(Spec::to_json).collect())
    })
}

/// The identity of a spec: equal digests, equal figures.
#[pyfunction]
pub fn digest(py: Python<'_>, text: &str) -> PyResult<String> {
    apart(py, || Ok(spec(text)?.digest()))
}

/// One run, on the calling thread: its record.
#[pyfunction]
pub fn run(py: Python<'_>, text: &str) -> PyResult<String> {
    apart(py, || {
        let run = spec(text)?.run().map_err(Failure::Finding)?;
        Ok(run.record.to_json())
    })
}

fn options(jobs: Option<usize>, cache: bool) -> Options {
    Options {
        cache: cache.then(Cache::of_user).flatten(),
        jobs,
    }
}

/// Many runs, answered from the user's cache where it has them; a failed one loses only itself.
#[pyfunction]
pub fn sim(
    py: Python<'_>,
    specs: Vec<String>,
    jobs: Option<usize>,
    cache: bool,
) -> PyResult<Vec<Answer>> {
    apart(py, || {
        let answers = flagstone_lab::sim(&all(&specs)?, &options(jobs, cache), |_| ());
        let answer = |answer: flagstone_lab::Answer| match answer.run {
            Ok(run) => (Some(run.record.to_json()), None),
            Err(why) => (None, Some(why)),
        };
        Ok(answers.into_iter().map(answer).collect())
    })
}

/// Those of the runs that a folder lacks; the failures, in a line each.
#[pyfunction]
pub fn sweep(
    py: Python<'_>,
    specs: Vec<String>,
    folder: PathBuf,
    jobs: Option<usize>,
) -> PyResult<Vec<String>> {
    apart(py, || {
        let done = made(&all(&specs)?, &folder, &options(jobs, false), |_| ());
        Ok(done.map_err(Failure::Usage)?.failures)
    })
}

/// The records of a folder.
#[pyfunction]
pub fn collect(py: Python<'_>, folder: PathBuf) -> PyResult<Vec<String>> {
    apart(py, || {
        let records = collected(Path::new(&folder)).map_err(Failure::Usage)?;
        Ok(records.iter().map(flagstone_lab::Record::to_json).collect())
    })
}
