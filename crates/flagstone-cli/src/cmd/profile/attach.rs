//! A profile of a process that runs: asked for from outside, its tables read where they are.
//!
//! ```text
//!   watch::target ─► the process ─► watch::tell: a mean and an end ─► its next slow path answers: where the tables are
//!     ─► read, wait, read ─► told: none any more
//! ```
//!
//! Nobody is stopped. What is written is a request; all else is read. An interrupt ends the wait, and what there is
//! is written. If the command is killed, the process itself goes back at the end that the request names.

use super::raw::{self, Raw, Source};
use crate::exit::Failure;
use crate::watch::target::{Refusal, Target, refused};
use crate::watch::tell::{Told, tell};
use flagstone_linux::beacon::{Done, Request, Verb};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long after its time a profile ends by itself.
const GRACE: Duration = Duration::from_secs(5);
/// Between two looks whether the command was interrupted.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the process is given to hear that no profile is wanted any more: it ends by itself.
const PATIENCE_AT_END: Duration = Duration::from_millis(50);
/// How often a process is asked of which another thread is turning at that moment.
const ASKS: u32 = 20;

/// Whether the command was interrupted.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A process's memory from an address on.
struct From<'a> {
    memory: &'a File,
    base: u64,
}

impl Source for From<'_> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let address = self
            .base
            .checked_add(at)
            .ok_or(io::ErrorKind::InvalidData)?;
        self.memory.read_exact_at(buffer, address)
    }
}

/// What the process answered.
#[derive(Clone, Copy)]
struct Answer {
    mean: u64,
    area: u64,
    before: u64,
}

struct Attached {
    target: Target,
}

impl Attached {
    fn open(pid: u32) -> Result<Self, String> {
        let target = Target::find(pid).map_err(Refusal::line)?;
        Ok(Self { target })
    }

    /// Wants a profile with this mean, up to a moment of the monotonic clock; 0 and 0 for none. `None` of an idle process.
    fn want(&self, mean: u64, until_ns: u64, patience: Duration) -> Result<Option<Answer>, String> {
        let pid = self.target.pid;
        let until = until_ns.to_ne_bytes();
        let request = Request::new(Verb::Profile, &until, mean).ok_or("no request")?;
        match tell(&self.target, &request, patience).map_err(Refusal::line)? {
            Told::Answered(Done::Well, [mean, area, before]) => {
                Ok(Some(Answer { mean, area, before }))
            }
            Told::Answered(Done::NoMemory, _) => {
                Err(format!("process {pid} has no memory for a profile"))
            }
            Told::Answered(..) => Err(format!(
                "process {pid}: the request was changed on its way, by another command or the program; try again"
            )),
            Told::Idle => Ok(None),
        }
    }

    fn tables(&self, area: u64) -> Result<Raw, String> {
        let pid = self.target.pid;
        let source = From {
            memory: &self.target.memory,
            base: area,
        };
        let tables = raw::of_process(&source);
        let mut tables = tables.map_err(|why| match self.is_there() {
            true => format!("process {pid}: its profile cannot be read: {why}"),
            false => ended(pid),
        })?;
        tables.ended_ns = now_ns();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        tables.maps = maps.map_err(|error| refused(pid, &error))?;
        match tables.maps.is_empty() {
            true => Err(ended(pid)),
            false => Ok(tables),
        }
    }

    /// Whether the process that was opened still runs its program.
    fn is_there(&self) -> bool {
        let mut byte = [0];
        self.target
            .memory
            .read_exact_at(&mut byte, self.target.beacon.heap)
            .is_ok()
    }
}

fn ended(pid: u32) -> String {
    format!(
        "process {pid} ended before the profile was read; `flagstone run --profile` leaves one at the end"
    )
}

/// The monotonic clock of the samples.
fn now_ns() -> u64 {
    crate::cmd::run::timeline::coarse_ns()
}

/// What a profile of a process is.
pub struct Window {
    /// The tables, from the window's begin on.
    pub raw: Raw,
    /// What is worth knowing, a line each.
    pub notes: Vec<String>,
}

/// Takes a profile of process `pid` for so long.
///
/// # Errors
/// One line: the process is gone, another user's, idle, or none of ours.
pub fn take(pid: u32, mean: u64, time: Duration) -> Result<Window, Failure> {
    let failed = |why| Failure::Usage(format!("profile: {why}"));
    let attached = Attached::open(pid).map_err(failed)?;
    catch_interrupts();
    let window = window(&attached, mean, time);
    if !matches!(window, Ok((_, true))) {
        // A process that is gone, or hears it too late, goes back without.
        let _ = attached.want(0, 0, PATIENCE_AT_END);
    }
    window.map(|(window, _)| window).map_err(failed)
}

/// The profile, and whether one was taken before, which goes on.
fn window(attached: &Attached, mean: u64, time: Duration) -> Result<(Window, bool), String> {
    let pid = attached.target.pid;
    let began = Instant::now();
    let until = now_ns() + (time + GRACE).as_nanos() as u64;
    let idle = || {
        format!(
            "process {pid} made no call that takes a slow path for {:.0} s: it is idle, and nobody can wake it; \
             give it work or a longer --for",
            began.elapsed().as_secs_f64()
        )
    };
    let left = || time.saturating_sub(began.elapsed());
    let is_stopped = || INTERRUPTED.load(Ordering::Relaxed);
    let mut answer = None;
    for _ in 0..ASKS {
        answer = attached
            .want(mean, until, left())
            .map_err(|why| match attached.is_there() {
                true => why,
                false => ended(pid),
            })?;
        if answer.is_none_or(|answer| answer.mean != 0 && answer.area != 0) {
            break;
        }
    }
    let answer = answer.filter(|answer| answer.area != 0).ok_or_else(idle)?;
    // What is in the tables already was taken before.
    let first = attached.tables(answer.area)?;
    while !left().is_zero() && !is_stopped() {
        std::thread::sleep(left().min(PAUSE));
    }
    let last = attached.tables(answer.area)?;
    let was_on = answer.before != 0;
    let note = "a profile was on already: its interval stays".to_owned();
    let window = Window {
        raw: last.since(&first),
        notes: was_on.then_some(note).into_iter().collect(),
    };
    Ok((window, was_on))
}

extern "C" fn note_interrupt(_signal: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// An interrupt ends the window, not the command: the switch goes back, and what there is is written.
fn catch_interrupts() {
    crate::exit::note_interrupts(note_interrupt);
}
