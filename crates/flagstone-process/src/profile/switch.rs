//! The switch: on from the start, or turned from outside while the process runs.
//!
//! ```text
//!    0  magic       16 bytes, also in the file the heap came from: so the switch is found, as the beacon is
//!   16  wanted      mean bytes between samples; 0: no profile. Another process may write it
//!   24  now         what holds; the next slow path of any thread makes it what is wanted
//!   32  area        address of the tables, from when a profile first began
//!   40  semaphores  of the probes `otel_memory:alloc` and `free`: a tracer counts itself in
//!   44  refused     1: no memory for the tables
//!   48  until       nanoseconds of the monotonic clock after which no profile is wanted; 0: no end
//! ```
//!
//! The end is for whoever turns the switch from outside and may be killed before turning it back.
//!
//! A process that makes no call of malloc or free, or none that takes a slow path, follows when it does.

use super::{area, live, marks, sample, stacks};
use crate::init::static_heap;
use core::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use flagstone_core::platform::Platform;
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
    magic: [u8; 16],
    wanted: AtomicU64,
    now: AtomicU64,
    area: AtomicU64,
    semaphores: [AtomicU16; 2],
    refused: AtomicU32,
    until: AtomicU64,
}

const _: () = assert!(size_of::<Switch>() == 64, "a line");

/// This process's. Not zero from the start, so that it lies in the file. Beside the
/// beacon, whose page is written to at the start: every slow path looks here, and must not make another page resident.
#[used]
#[unsafe(link_section = ".data.flagstone_seen")]
pub static SWITCH: Switch = Switch {
    magic: *b"\x7fflagstone-prof\x01",
    wanted: AtomicU64::new(0),
    now: AtomicU64::new(0),
    area: AtomicU64::new(0),
    semaphores: [const { AtomicU16::new(0) }; 2],
    refused: AtomicU32::new(0),
    until: AtomicU64::new(0),
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

/// Asks for a profile with this mean.
pub fn ask(mean: u64) {
    SWITCH.wanted.store(mean, Relaxed);
    follow();
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
    let refused = SWITCH.refused.load(Relaxed) != 0;
    if refused || TURNING.swap(true, Acquire) {
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
        static_heap().divert(mean != 0);
        slots::divert(mean != 0);
    } else {
        SWITCH.refused.store(1, Relaxed);
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
