//! The switch: on from the start, or turned from outside while the process runs.
//!
//! ```text
//!   wanted      mean bytes between samples; 0: no profile
//!   until       nanoseconds of the monotonic clock after which none is wanted; 0: no end
//!   now         what holds; the next slow path of any thread makes it what is wanted
//!   area        whether a profile ever began: address of the tables
//!   semaphores  of the probes `otel_memory:alloc` and `free`: a tracer counts itself in
//! ```
//!
//! The command asks by control words (`crate::control`), C programs by a knob. The end is for a command that
//! may be killed before it turns the switch back. A process that takes no slow path follows when it does.

use super::{area, live, marks, sample, stacks};
use crate::beacon::GAUGES;
use crate::init::static_heap;
use core::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use flagstone_core::platform::Platform;
use flagstone_linux::beacon::Gauge;
use flagstone_linux::{clock, filter, slots};

/// Mean bytes between samples where nobody says another number. Half of it costs twice as much, and a heap of 100 MiB
/// is then known within 5 % instead of 7 % (one standard deviation).
pub const MEAN: u64 = 512 << 10;
/// The smallest mean: below, a sampled block's pages would be more than what it stands for.
pub const MEAN_MIN: u64 = 4 << 10;
/// The largest mean.
pub const MEAN_MAX: u64 = 1 << 40;

/// See the file's head.
#[repr(C, align(64))]
pub struct Switch {
    wanted: AtomicU64,
    now: AtomicU64,
    area: AtomicU64,
    until: AtomicU64,
    semaphores: [AtomicU16; 2],
    /// There was no memory for the tables.
    refused: AtomicBool,
}

const _: () = assert!(size_of::<Switch>() == 64, "a line");

/// This process's. In the file, and in the section of that name, since tracers (bpftrace, perf) find their semaphores there. Beside the beacon, whose page is written to at the start: every slow path looks here, and must not make another page resident.
#[used]
#[unsafe(link_section = ".probes")]
pub static SWITCH: Switch = Switch {
    wanted: AtomicU64::new(0),
    now: AtomicU64::new(0),
    area: AtomicU64::new(0),
    until: AtomicU64::new(0),
    semaphores: [const { AtomicU16::new(0) }; 2],
    refused: AtomicBool::new(false),
};

/// Where the probes' semaphores are in [`SWITCH`].
pub const SEMAPHORES_AT: usize = core::mem::offset_of!(Switch, semaphores);

/// Whether somebody is turning the switch.
static TURNING: AtomicBool = AtomicBool::new(false);
/// Whether the process is a child that has not taken a sample yet.
static NEW_PROCESS: AtomicBool = AtomicBool::new(false);

/// Whether slow paths have anything to do for a profile: one is taken, was taken, or is asked for.
#[inline]
pub fn is_asked() -> bool {
    let tracers = SWITCH.semaphores[0].load(Relaxed);
    SWITCH.wanted.load(Relaxed) | SWITCH.area.load(Relaxed) | u64::from(tracers) != 0
}

/// Whether a profile is taken.
#[inline]
pub fn is_on() -> bool {
    SWITCH.now.load(Relaxed) != 0
}

/// Mean bytes between samples.
pub fn mean() -> u64 {
    SWITCH.now.load(Relaxed).max(1)
}

/// Whether a tracer waits for probe `which`.
pub fn is_traced(which: usize) -> bool {
    SWITCH.semaphores[which].load(Relaxed) != 0
}

/// What is asked for: a mean, or 0. While a profile is taken its mean stays.
fn wish() -> u64 {
    let wanted = SWITCH.wanted.load(Relaxed);
    let until = SWITCH.until.load(Relaxed);
    let is_over = until != 0 && clock::now() > until;
    let mean = match wanted {
        0 if is_traced(0) => MEAN,
        _ if is_over && !is_traced(0) => 0,
        wanted => wanted,
    };
    let now = SWITCH.now.load(Relaxed);
    match (mean, now) {
        (0, _) => 0,
        (_, 0) => mean.clamp(MEAN_MIN, MEAN_MAX),
        (_, now) => now,
    }
}

/// There is no memory for the tables of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoTables;

/// What a request for a profile came to.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The mean that holds now; 0 while no profile is taken.
    pub mean: u64,
    /// Where the tables are; 0 if there never was a profile.
    pub area: u64,
    /// The mean that held before.
    pub before: u64,
}

/// Asks for a profile with this mean up to a moment, or with 0 for none. One that is taken goes on as it is.
///
/// # Errors
/// There is no memory for its tables.
pub fn ask(mean: u64, until: u64) -> Result<Asked, NoTables> {
    let before = SWITCH.now.load(Relaxed);
    if before == 0 || mean == 0 {
        SWITCH.until.store(until, Relaxed);
        SWITCH.wanted.store(mean, Relaxed);
        follow();
    }
    if mean != 0 && SWITCH.refused.load(Relaxed) {
        return Err(NoTables);
    }
    Ok(Asked {
        mean: SWITCH.now.load(Relaxed),
        area: SWITCH.area.load(Acquire),
        before,
    })
}

/// Mean bytes between samples of the profile that is taken; 0 for none.
pub fn current() -> u64 {
    SWITCH.now.load(Relaxed)
}

/// Makes what is wanted what is.
#[inline]
pub fn follow() {
    if wish() != SWITCH.now.load(Relaxed) {
        turn();
    }
}

/// A handler on top of whoever is turning, and other threads meanwhile, go on as it was.
#[cold]
#[inline(never)]
fn turn() {
    if SWITCH.refused.load(Relaxed) || TURNING.swap(true, Acquire) {
        return;
    }
    let wish = wish();
    let mean = match wish {
        0 => Some(0),
        mean => begin(mean),
    };
    if let Some(mean) = mean {
        // Counted before diverted, so that whoever comes finds the counting form ready; and back.
        SWITCH.now.store(mean, Relaxed);
        GAUGES.set(Gauge::Profile, mean);
        static_heap().divert(mean != 0);
        slots::divert(mean != 0);
    } else {
        SWITCH.refused.store(true, Relaxed);
        if let Some(_permit) = filter::permit() {
            flagstone_linux::write_line(&[
                b"flagstone: no memory for a heap profile; none is taken\n",
            ]);
        }
    }
    TURNING.store(false, Release);
}

/// Makes the tables ready; the mean, which is that of the first time: weights of samples taken then depend on it.
/// `None` without memory.
fn begin(mean: u64) -> Option<u64> {
    let area = area::make()?;
    let head = &area.head;
    if head.began_ns.load(Relaxed) == 0 {
        head.mean.store(mean, Relaxed);
        head.began_ns.store(clock::now(), Relaxed);
        let mut seed = clock::now() ^ crate::Linux::token();
        if let Some(_permit) = filter::permit() {
            let process = flagstone_linux::process::id();
            head.process.store(process as u64, Relaxed);
            seed ^= crate::Linux::seed();
        }
        sample::seed(seed);
        super::unwind::prepare();
    }
    let address = core::ptr::from_ref(area).expose_provenance();
    SWITCH.area.store(address as u64, Release);
    Some(head.mean.load(Relaxed))
}

/// In the child of a fork: what is live is the parent's, and sums begin anew, when the first sample comes.
pub fn forked() {
    TURNING.store(false, Relaxed);
    if SWITCH.area.load(Relaxed) != 0 {
        NEW_PROCESS.store(true, Relaxed);
    }
}

/// Whether this process is the child of one that took a profile, and has taken no sample.
pub fn is_new_process() -> bool {
    NEW_PROCESS.load(Relaxed)
}

/// Before a sample: a new process forgets its parent's sums.
#[inline]
pub fn rebase(area: &area::Area) {
    if NEW_PROCESS.load(Relaxed) && NEW_PROCESS.swap(false, Relaxed) {
        forget(area);
    }
}

#[cold]
fn forget(area: &area::Area) {
    let head = &area.head;
    live::inherit(area);
    stacks::clear(area);
    marks::clear(area);
    for figure in [
        &head.samples,
        &head.lost_live,
        &head.lost_stacks,
        &head.cut_stacks,
        &head.allocated,
        &head.live,
        &head.live_peak,
    ] {
        figure.store(0, Relaxed);
    }
    if let Some(_permit) = filter::permit() {
        let process = flagstone_linux::process::id();
        head.process.store(process as u64, Relaxed);
    }
    head.began_ns.store(clock::now(), Relaxed);
    sample::seed(clock::now() ^ head.process.load(Relaxed) << 32);
}
