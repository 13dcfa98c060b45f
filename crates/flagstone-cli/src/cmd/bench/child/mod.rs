//! What runs inside a measured process: one workload, on whatever `malloc` is preloaded.
//!
//! The loops call the C functions directly (not Rust's global allocator), hide every pointer from
//! the optimiser, and write a word into each object that is checked before it is freed, so an
//! allocator that hands out the same bytes twice fails the run instead of winning it. Arrays of
//! workloads that behave like programs are Rust's, whose allocator is the same `malloc`.

pub mod block;
pub mod churn;
pub mod clock;
pub mod deferred;
pub mod fixed;
pub mod footprint;
pub mod growth;
pub mod heap;
pub mod larson;
pub mod leavers;
pub mod phases;
pub mod probe;
pub mod process;
pub mod queue;
pub mod remote;
pub mod script;
pub mod sharing;
pub mod sized;
pub mod spawn;
pub mod tables;
pub mod team;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How much work a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// The published size: at least 0.3 s per run of a small loop.
    Full,
    /// A third or less of it, for a first look.
    Quick,
    /// A few milliseconds: proves in the tests that the workload runs and checks its memory.
    Smoke,
}

impl Scale {
    /// Its name, as the parent hands it to a measured process.
    pub fn name(self) -> &'static str {
        self.pick("full", "quick", "smoke")
    }

    /// The scale of this name.
    pub fn named(name: &str) -> Option<Scale> {
        [Scale::Full, Scale::Quick, Scale::Smoke]
            .into_iter()
            .find(|scale| scale.name() == name)
    }

    /// The value for this scale.
    pub fn pick<T>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Scale::Full => full,
            Scale::Quick => quick,
            Scale::Smoke => smoke,
        }
    }
}

/// What a workload is told.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Threads that run the loop at once.
    pub threads: usize,
    /// How much work.
    pub scale: Scale,
}

#[cfg(test)]
impl Job {
    /// What tests run.
    const SMOKE: Self = Self {
        threads: 1,
        scale: Scale::Smoke,
    };
}

/// What one run measured; printed as one line of JSON by the child.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// The workload's own figure, in the workload's unit; less is better.
    pub value: f64,
    /// Nanoseconds per operation, where the workload has operations.
    pub ns_per_op: Option<f64>,
    /// Largest resident size of the process, KiB.
    pub peak_rss_kib: u64,
    /// Minor and major page faults of the whole process; filled in by the parent.
    #[serde(default)]
    pub page_faults: u64,
    /// Further figures by name (`rss_after_kib`, `4096` ...).
    #[serde(default)]
    pub parts: BTreeMap<String, f64>,
}

impl Sample {
    /// A sample whose figure is nanoseconds per operation.
    pub fn of_ns(ns_per_op: f64) -> Sample {
        Sample {
            value: ns_per_op,
            ns_per_op: Some(ns_per_op),
            ..Sample::default()
        }
    }

    /// The same sample with one more named figure.
    pub fn with(mut self, name: &str, value: f64) -> Sample {
        self.parts.insert(name.to_owned(), value);
        self
    }
}

/// What went wrong inside a run: memory handed out twice, or refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Damage(pub String);

/// Runs one workload in this process and prints its sample.
pub fn run(work: impl FnOnce(Job) -> Result<Sample, Damage>, job: Job) -> Result<(), Damage> {
    let mut sample = work(job)?;
    sample.peak_rss_kib = process::peak_rss_kib();
    let line = serde_json::to_string(&sample).map_err(|error| Damage(error.to_string()))?;
    println!("{line}");
    Ok(())
}
