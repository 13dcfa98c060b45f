//! One run of one workload on one allocator, and the interleaving of all of them.

use super::allocators::{Allocator, FLAGSTONE, GLIBC};
use super::catalog::{Kind, Workload};
use super::child::probe::Identity;
use super::child::{Sample, Scale};
use super::process;
use super::real::Scene;
use std::path::PathBuf;
use std::time::Instant;

/// A workload with a thread count, and what every allocator did with it.
#[derive(Debug)]
pub struct Measured {
    /// The workload.
    pub workload: Workload,
    /// Threads it ran with.
    pub threads: usize,
    /// One entry per allocator, in the order of the run.
    pub outcomes: Vec<Outcome>,
}

/// What one allocator did.
#[derive(Debug)]
pub struct Outcome {
    /// Which one.
    pub allocator: Allocator,
    /// One sample per run.
    pub samples: Vec<Sample>,
    /// Why it stopped early, if it did.
    pub failure: Option<String>,
}

/// The fixed parts of a bench: scale, runs, programs.
pub struct Bench {
    /// How much work a run does.
    pub scale: Scale,
    /// Runs per allocator.
    pub runs: usize,
    /// This program, other programs, and where their inputs lie.
    pub scene: Scene,
}

impl Bench {
    /// Runs the workload A B C, A B C ... and calls `tick` after each run. An allocator that fails
    /// once is not asked again.
    pub fn measure(
        &self,
        workload: &Workload,
        threads: usize,
        allocators: &[Allocator],
        mut tick: impl FnMut(&str),
    ) -> Measured {
        let outcome = |allocator: &Allocator| Outcome {
            allocator: allocator.clone(),
            samples: Vec::new(),
            failure: allocator.unusable.clone(),
        };
        let mut outcomes: Vec<Outcome> = allocators.iter().map(outcome).collect();
        for _ in 0..self.runs {
            for outcome in &mut outcomes {
                tick(&outcome.allocator.name);
                if outcome.failure.is_some() {
                    continue;
                }
                match self.once(workload, threads, &outcome.allocator) {
                    Ok(sample) => outcome.samples.push(sample),
                    Err(line) => outcome.failure = Some(line),
                }
            }
        }
        Measured {
            workload: workload.clone(),
            threads,
            outcomes,
        }
    }

    fn once(&self, workload: &Workload, threads: usize, on: &Allocator) -> Result<Sample, String> {
        match workload.kind {
            Kind::Inner => self.inner(&workload.name, threads, on),
            Kind::Start => self.start(on),
            Kind::Python => self.python(on),
            Kind::Real(program) => program.run(&self.scene, self.scale, on),
        }
    }

    fn inner(&self, name: &str, threads: usize, on: &Allocator) -> Result<Sample, String> {
        let mut command = process::command(&self.scene.own, on);
        command.args([
            "bench",
            "--child",
            name,
            self.scale.name(),
            &threads.to_string(),
        ]);
        let used = process::finish(command)?;
        let mut sample: Sample = serde_json::from_str(&used.output)
            .map_err(|error| format!("unreadable result {:?}: {error}", used.output))?;
        sample.page_faults = used.page_faults;
        Ok(sample)
    }

    /// `/bin/true`: the memory once, exactly; then the mean time of many starts.
    fn start(&self, on: &Allocator) -> Result<Sample, String> {
        let memory = process::memory_at_exit(process::command("/bin/true", on))?;
        let faults = process::finish(process::command("/bin/true", on))?.page_faults;
        let count = self.scale.pick(200, 50, 3);
        let mut times: Vec<f64> = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            let status = process::command("/bin/true", on).status();
            times.push(start.elapsed().as_nanos() as f64 / 1e3);
            if !status.is_ok_and(|status| status.success()) {
                return Err("/bin/true failed".into());
            }
        }
        times.sort_by(f64::total_cmp);
        let sample = Sample {
            value: times[count / 2],
            peak_rss_kib: memory.rss_kib,
            page_faults: faults,
            ..Sample::default()
        };
        Ok(sample
            .with("rss_kib", memory.rss_kib as f64)
            .with("private_kib", memory.private_kib as f64))
    }

    fn python(&self, on: &Allocator) -> Result<Sample, String> {
        let python = self
            .scene
            .python
            .as_ref()
            .ok_or("skipped: no python3 on the PATH")?;
        let mut command = process::command(python, on);
        command
            .env("PYTHONMALLOC", "malloc")
            .env("PYTHONHASHSEED", "0");
        command
            .args(["-S", "-s"])
            .arg(&self.scene.script)
            .arg(self.scale.pick("30", "8", "1"));
        let used = process::finish(command)?;
        Ok(Sample {
            value: used.cpu_ns / 1e6,
            ns_per_op: None,
            peak_rss_kib: used.peak_rss_kib,
            page_faults: used.page_faults,
            ..Sample::default()
        })
    }

    /// Makes sure the preload takes effect and asks the library for its version.
    pub fn identify(&self, allocator: &mut Allocator) -> Result<(), String> {
        let mut command = process::command(&self.scene.own, allocator);
        command.args(["bench", "--child", super::PROBE, self.scale.name(), "1"]);
        let used = process::finish(command)?;
        let identity: Identity = serde_json::from_str(&used.output)
            .map_err(|error| format!("unreadable probe {:?}: {error}", used.output))?;
        let from = std::fs::canonicalize(&identity.malloc_from).unwrap_or_default();
        if let Some(library) = &allocator.library
            && from != *library
        {
            return Err(format!(
                "preloaded, but malloc comes from {}: not an allocator for this program",
                identity.malloc_from
            ));
        }
        if allocator.name == FLAGSTONE {
            allocator.version = env!("CARGO_PKG_VERSION").into();
        } else if let Some(version) = identity.version.filter(|_| allocator.name != GLIBC) {
            allocator.version = version;
        }
        Ok(())
    }
}

/// The interpreter behind `python3` on the PATH: a version manager's wrapper is a shell script
/// whose own start would be measured too.
pub fn find_python() -> Option<PathBuf> {
    let output = std::process::Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_file().then_some(path)
}
