//! Readings by a thread of their own, so that keys are answered while processes are read.

use crate::watch::reading::{self, Reading};
use crate::watch::target::{Refusal, Target, processes};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// One process, or all.
    pub pid: Option<u32>,
    /// Time between two samples.
    pub delay: Duration,
}

/// What was read at one moment.
#[derive(Debug)]
pub struct Sample {
    pub at: Instant,
    pub readings: Vec<Reading>,
    /// Why the one process could not be read.
    pub refused: Option<String>,
    /// Processes with a heap that could not be read.
    pub unreadable: usize,
}

/// Reads now.
pub fn sample(pid: Option<u32>) -> Sample {
    let mut sample = Sample {
        at: Instant::now(),
        readings: Vec::new(),
        refused: None,
        unreadable: 0,
    };
    if let Some(pid) = pid {
        match reading::read(pid, false) {
            Ok(reading) => sample.readings.push(reading),
            Err(refusal) => sample.refused = Some(refusal.line()),
        }
        return sample;
    }
    let own = std::process::id();
    for pid in processes().into_iter().filter(|&pid| pid != own) {
        match Target::find(pid).and_then(|_| reading::read(pid, false)) {
            Ok(reading) => sample.readings.push(reading),
            Err(Refusal::NoHeap(_) | Refusal::Hidden(_)) => {}
            Err(Refusal::Line(_)) => sample.unreadable += 1,
        }
    }
    sample
}

/// The thread.
pub struct Sampler {
    asks: Sender<Wanted>,
    samples: Receiver<Sample>,
}

impl Sampler {
    /// Begins with what is wanted first.
    pub fn start(mut wanted: Wanted) -> Self {
        let (asks, asked) = channel();
        let (gives, samples) = channel();
        thread::spawn(move || {
            while gives.send(sample(wanted.pid)).is_ok() {
                match asked.recv_timeout(wanted.delay) {
                    Ok(other) => wanted = other,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                // Of several keys the last counts.
                while let Ok(other) = asked.try_recv() {
                    wanted = other;
                }
            }
        });
        Self { asks, samples }
    }

    /// Reads at once, and from now on what is wanted.
    pub fn ask(&self, wanted: Wanted) {
        let _ended = self.asks.send(wanted);
    }

    /// The next sample, if there is one.
    pub fn latest(&self) -> Option<Sample> {
        self.samples.try_recv().ok()
    }
}
