//! Memory over time: the command's resident size, looked at from outside, and its own samples.
//!
//! The look from outside reads `/proc/PID/statm` and touches nothing of the command's. Points grow
//! apart as a run grows long, so that there are never more than [`POINTS_MAX`].

use super::child::Ended;
use super::looks::Looks;
use super::reports::Found;
use flagstone_core::stats::Line;
use serde::Serialize;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// First distance of two points. A short program gets some points, a long one is thinned out.
const FIRST_MS: u64 = 10;
/// Most points kept: as many as a chart has pixels to show. One more, and every second one goes.
const POINTS_MAX: usize = 600;

/// A resident size at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Seconds from the start.
    pub at_s: f64,
    /// Bytes.
    pub rss_bytes: u64,
}

/// A sample of the command's own process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sampled {
    /// Seconds from the start.
    pub at_s: f64,
    /// Resident bytes, if the kernel told.
    pub rss_bytes: Option<u64>,
    /// Bytes of each ledger line, in the order of `lines`.
    pub ledger: Vec<u64>,
}

/// Both.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Timeline {
    /// Names of the ledger's lines.
    pub lines: Vec<&'static str>,
    /// Resident size, seen from outside.
    pub resident: Vec<Point>,
    /// Ledgers, taken on the program's own slow paths when its size had changed by a sixteenth.
    pub samples: Vec<Sampled>,
}

impl Timeline {
    /// Of the command's own process.
    pub fn of(ended: &Ended, found: &Found) -> Self {
        let main = found.main.iter();
        let samples = main.flat_map(|main| &main.samples_taken);
        let seconds = |at: u64| at.saturating_sub(ended.began_ns) as f64 / 1e9;
        Self {
            lines: Line::ALL.map(Line::name).to_vec(),
            resident: ended.resident.clone(),
            samples: samples
                .map(|sample| Sampled {
                    at_s: seconds(sample.at_ns),
                    rss_bytes: sample.rss_bytes,
                    ledger: sample.ledger.clone(),
                })
                .collect(),
        }
    }
}

/// Nanoseconds of the clock that samples are stamped with.
pub fn coarse_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a structure to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Resident bytes by time, and what was read of processes that leave documents.
type Seen = (Vec<(u64, u64)>, Option<Looks>);

/// A thread that looks at a process until it is told to stop.
pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

/// Longest time between two looks at processes whose documents are completed: points may be farther apart.
const LOOK_MS: u64 = 200;

impl Watch {
    /// Begins to look at `process`, and with `looks` at all that leave documents.
    pub fn start(process: i32, mut looks: Option<Looks>) -> Self {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut points = Points::default();
            let mut next = Instant::now();
            loop {
                if Instant::now() >= next {
                    points.push(coarse_ns(), resident(process));
                    next = Instant::now() + Duration::from_millis(points.every_ms);
                }
                if let Some(looks) = &mut looks {
                    looks.look();
                }
                let most = if looks.is_some() { LOOK_MS } else { u64::MAX };
                let rest = next.saturating_duration_since(Instant::now());
                let wait = stopped.recv_timeout(rest.min(Duration::from_millis(most)));
                if wait != Err(RecvTimeoutError::Timeout) {
                    return (points.kept, looks);
                }
            }
        });
        Self { stop, thread }
    }

    /// Ends it; the points, in seconds from `began_ns`, and the looks.
    pub fn stop(self, began_ns: u64) -> (Vec<Point>, Option<Looks>) {
        // It may have ended by itself; then there is nobody to tell.
        let _ = self.stop.send(());
        let (points, looks) = self.thread.join().unwrap_or_default();
        let points = points.into_iter().map(|(at, rss_bytes)| Point {
            at_s: at.saturating_sub(began_ns) as f64 / 1e9,
            rss_bytes,
        });
        (points.collect(), looks)
    }
}

/// Points that are thinned out when there are too many.
struct Points {
    kept: Vec<(u64, u64)>,
    every_ms: u64,
}

impl Default for Points {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            every_ms: FIRST_MS,
        }
    }
}

impl Points {
    fn push(&mut self, at: u64, resident: Option<u64>) {
        let Some(resident) = resident.filter(|&bytes| bytes > 0) else {
            return;
        };
        self.kept.push((at, resident));
        if self.kept.len() > POINTS_MAX {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every_ms *= 2;
        }
    }
}

/// Resident bytes of a process; `None` if it is gone.
fn resident(process: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_thinned_out_from_its_first_point_to_its_last() {
        let mut points = Points::default();
        for at in 0..10_000 {
            points.push(at, Some(at + 1));
        }
        points.push(10_000, None);
        let kept = &points.kept;
        assert!(kept.len() <= POINTS_MAX && kept.len() > POINTS_MAX / 3);
        assert_eq!(kept[0], (0, 1));
        assert!(kept.is_sorted() && kept[kept.len() - 1].0 > 9_900);
        assert!(points.every_ms > FIRST_MS);
    }

    #[test]
    fn the_resident_size_of_this_process_is_seen() {
        let own = resident(std::process::id() as i32).expect("it runs");
        assert!(own > 1 << 20);
        assert_eq!(resident(-1), None);
    }
}
