//! Starting a player and reading what it left.

use super::compile::{self, Compiled};
use super::feed::{self, Feed, Plan};
use super::file::{HEAD_WORDS, head_words, write_head};
use super::program::{Head, Sample};
use super::{PLAYER, Pace};
use crate::cmd::bench::{Allocator, command_on, finish_command};
use flagstone_trace::Trace;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What one run came to.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Nanoseconds from the first operation to the last thread's end.
    pub ns: u64,
    /// Nanoseconds of processor time.
    pub cpu_ns: u64,
    /// Page faults.
    pub faults: u64,
    /// Requests the allocator refused.
    pub refused: u64,
    /// Resident bytes of the allocator over the trace's time.
    pub curve: Vec<(u64, u64)>,
    /// Bytes resident after the last operation.
    pub end: u64,
}

impl Run {
    /// Most bytes resident.
    pub fn peak(&self) -> u64 {
        self.curve.iter().map(|point| point.1).max().unwrap_or(0)
    }

    /// Mean of the bytes resident at the samples, which are equally many operations apart.
    pub fn mean(&self) -> f64 {
        let sum: u64 = self.curve.iter().map(|point| point.1).sum();
        sum as f64 / self.curve.len().max(1) as f64
    }
}

/// Plays a program once on an allocator.
///
/// # Errors
/// A line that says why the run failed.
pub fn play(
    trace: &Trace,
    compiled: &Compiled,
    allocator: &Allocator,
    pace: Pace,
) -> Result<Run, String> {
    play_with(trace, compiled, allocator, pace, "")
}

/// The same with settings of the library (`FLAGSTONE_CONF`), none if empty.
///
/// # Errors
/// As [`play`].
pub fn play_with(
    trace: &Trace,
    compiled: &Compiled,
    allocator: &Allocator,
    pace: Pace,
    conf: &str,
) -> Result<Run, String> {
    let file = &compiled.file;
    let io = |error: std::io::Error| error.to_string();
    write_head(file, &compiled.head).map_err(io)?;
    let program = std::env::current_exe().map_err(io)?;
    let mut command = command_on(program, allocator);
    command.args(["replay", PLAYER]).arg(compiled.path());
    command.arg(pace.name());
    if !conf.is_empty() {
        command.env("FLAGSTONE_CONF", conf);
    }
    match &compiled.plan {
        None => finish_command(command).map(drop)?,
        Some(plan) => fed(trace, compiled, plan, command)?,
    }
    let head = read_head(compiled).map_err(io)?;
    let samples = read_samples(compiled, &head).map_err(io)?;
    let end = samples.last().map_or(0, |sample| sample.bytes);
    let mut curve: Vec<(u64, u64)> = samples
        .iter()
        .filter(|sample| sample.trace_ns != u64::MAX)
        .map(|sample| (sample.trace_ns, sample.bytes))
        .collect();
    curve.sort_unstable();
    if curve.is_empty() {
        curve.push((0, end));
    }
    Ok(Run {
        ns: head.run_ns,
        cpu_ns: head.cpu_ns,
        faults: head.faults,
        refused: head.refused,
        curve,
        end,
    })
}

/// Runs a player and makes the program's windows for it meanwhile.
fn fed(trace: &Trace, compiled: &Compiled, plan: &Plan, command: Command) -> Result<(), String> {
    let ended = Arc::new(AtomicBool::new(false));
    let file = compiled.file.try_clone();
    let feed = file.and_then(|file| Feed::new(file, compiled.head, plan.clone(), ended.clone()));
    let feed = feed.map_err(|error| error.to_string())?;
    std::thread::scope(|scope| {
        let player = scope.spawn(|| {
            let played = finish_command(command);
            ended.store(true, Ordering::Release);
            played
        });
        let fed = compile::feed(trace, compiled, feed, plan.window_bytes);
        let stopped = ended.load(Ordering::Acquire);
        if fed.is_err() && !stopped {
            feed::give_up(&compiled.file).map_err(|error| error.to_string())?;
        }
        let played = player.join().map_err(|_| "the player's thread")?;
        match fed {
            Err(why) if !stopped => Err(why.to_string()),
            _ => played.map(drop),
        }
    })
}

fn read_head(compiled: &Compiled) -> std::io::Result<Head> {
    let mut bytes = [0; HEAD_WORDS * 8];
    compiled.file.read_exact_at(&mut bytes, 0)?;
    let mut words = head_words(&Head::default());
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    Ok(Head {
        samples: words[12],
        run_ns: words[13],
        base_bytes: words[14],
        faults: words[15],
        cpu_ns: words[16],
        refused: words[17],
        ..compiled.head
    })
}

fn read_samples(compiled: &Compiled, head: &Head) -> std::io::Result<Vec<Sample>> {
    let mut bytes = vec![0; head.samples as usize * size_of::<Sample>()];
    compiled.file.read_exact_at(&mut bytes, head.samples_at)?;
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let sample = |bytes: &[u8]| Sample {
        trace_ns: word(&bytes[..8]),
        run_ns: word(&bytes[8..16]),
        bytes: word(&bytes[16..24]),
    };
    Ok(bytes
        .chunks_exact(size_of::<Sample>())
        .map(sample)
        .collect())
}
