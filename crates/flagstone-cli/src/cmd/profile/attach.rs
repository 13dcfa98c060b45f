//! A profile of a process that runs: its switch turned from outside, its tables read where they are.
//!
//! ```text
//!   magic in the library's file ─► the switch (flagstone-process/src/profile/switch.rs)
//!     wanted := mean ─► the next slow path of any thread follows ─► tables ─► read, wait, read ─► wanted := 0
//! ```
//!
//! Nobody is stopped. What is written is the switch's two words; all else is read. An interrupt ends the wait, and what there is
//! is written. If the command is killed, the process itself goes back at the end that the switch names.

use super::raw::{self, Raw, Source};
use crate::exit::Failure;
use crate::live::{Process, refusal};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the switch begins with.
const MAGIC: [u8; 16] = *b"\x7fflagstone-prof\x01";
/// Bytes of the switch up to what is read of it.
const SWITCH_BYTES: usize = 48;
/// How long after its time a profile ends by itself.
const GRACE: Duration = Duration::from_secs(5);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

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

/// The switch as it was read.
#[derive(Clone, Copy)]
struct Switch {
    now: u64,
    area: u64,
    refused: bool,
}

struct Attached {
    process: Process,
    memory: File,
    at: u64,
}

impl Attached {
    fn open(pid: u32) -> Result<Self, String> {
        let process = Process::open(pid)?;
        let places = process.places_of(&MAGIC);
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map_err(|error| refusal(pid, &error))?;
        let is_switch = |&at: &u64| {
            let mut magic = [0; 16];
            memory.read_exact_at(&mut magic, at).is_ok() && magic == MAGIC
        };
        let at = places.into_iter().find(is_switch).ok_or_else(|| {
            format!(
                "process {pid} does not run on this version of Flagstone; `flagstone check {pid}` says more"
            )
        })?;
        Ok(Self {
            process,
            memory,
            at,
        })
    }

    fn switch(&self) -> Result<Switch, String> {
        let mut bytes = [0; SWITCH_BYTES];
        let pid = self.process.pid;
        let read = self.memory.read_exact_at(&mut bytes, self.at);
        read.map_err(|error| refusal(pid, &error))?;
        let word = |at: usize| {
            let bytes = bytes[at..at + 8].try_into();
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        Ok(Switch {
            now: word(24),
            area: word(32),
            refused: bytes[44] != 0,
        })
    }

    /// Wants a profile with this mean, up to a moment of the monotonic clock; 0 and 0 for none.
    fn want(&self, mean: u64, until_ns: u64) -> Result<(), String> {
        let write =
            |at: u64, word: u64| self.memory.write_all_at(&word.to_ne_bytes(), self.at + at);
        let written = write(48, until_ns).and_then(|()| write(16, mean));
        written.map_err(|error| refusal(self.process.pid, &error))
    }

    fn tables(&self, area: u64) -> Result<Raw, String> {
        let pid = self.process.pid;
        let source = From {
            memory: &self.memory,
            base: area,
        };
        let tables = raw::of_process(&source);
        let mut tables =
            tables.map_err(|why| format!("process {pid}: its profile cannot be read: {why}"))?;
        tables.ended_ns = now_ns();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        tables.maps = maps.map_err(|error| refusal(pid, &error))?;
        Ok(tables)
    }
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
/// One line: the process is gone, another user's, or none of ours.
pub fn take(pid: u32, mean: u64, time: Duration) -> Result<Window, Failure> {
    let failed = |why| Failure::Usage(format!("profile: {why}"));
    let attached = Attached::open(pid).map_err(failed)?;
    let before = attached.switch().map_err(failed)?;
    if before.refused {
        return Err(failed(format!("process {pid} has no memory for a profile")));
    }
    catch_interrupts();
    let was_on = before.now != 0;
    if !was_on {
        let until = now_ns() + (time + GRACE).as_nanos() as u64;
        attached.want(mean, until).map_err(failed)?;
    }
    let window = window(&attached, before, time);
    if !was_on {
        // A process that is gone needs no switch.
        let _ = attached.want(0, 0);
    }
    window.map_err(failed)
}

fn window(attached: &Attached, before: Switch, time: Duration) -> Result<Window, String> {
    let pid = attached.process.pid;
    let began = Instant::now();
    let mut notes = Vec::new();
    let mut first = None;
    let mut last = None;
    loop {
        let is_over = began.elapsed() >= time || INTERRUPTED.load(Ordering::Relaxed);
        match attached.switch() {
            Ok(switch) if switch.refused => {
                return Err(format!("process {pid} has no memory for a profile"));
            }
            Ok(switch) if switch.now != 0 && switch.area != 0 => {
                let tables = || attached.tables(switch.area);
                if first.is_none() {
                    first = Some(match before.now != 0 || before.area != 0 {
                        true => tables()?,
                        false => Raw::default(),
                    });
                }
                if is_over {
                    last = Some(tables()?);
                }
            }
            Ok(_) => {}
            Err(why) if first.is_none() => return Err(why),
            Err(_) => {
                return Err(format!(
                    "process {pid} ended before the profile was read; `flagstone run --profile` leaves one at the end"
                ));
            }
        }
        if is_over {
            break;
        }
        let left = time.saturating_sub(began.elapsed());
        std::thread::sleep(left.min(if first.is_some() { PAUSE * 5 } else { PAUSE }));
    }
    let (Some(first), Some(last)) = (first, last) else {
        return Err(format!(
            "process {pid} made no call that takes a slow path for {:.0} s: it is idle, and nobody can wake it; \
             give it work or a longer --for",
            began.elapsed().as_secs_f64()
        ));
    };
    if before.now != 0 {
        notes.push("a profile was on already: its interval stays".to_owned());
    }
    let raw = match first.mean {
        0 => last,
        _ => last.since(&first),
    };
    Ok(Window { raw, notes })
}

extern "C" fn note_interrupt(_signal: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// An interrupt ends the window, not the command: the switch goes back, and what there is is written.
fn catch_interrupts() {
    crate::exit::note_interrupts(note_interrupt);
}
