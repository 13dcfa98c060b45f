//! Memory pressure, answered by giving back: an option, off where nobody asks for it.
//!
//! ```text
//!   asked for ─► two files are opened: memory.pressure and memory.events of the own control group (version 2), or
//!                /proc/pressure/memory
//!   upkeep    ─► 100 ms since the last look? ─► stalled for a hundredth of the time, or above memory.high since?
//!                                              ─► give back what is free
//! ```
//!
//! No thread and no signal: whoever takes a slow path looks. A look is two calls of `pread`, and none is made beside a
//! system-call filter. A program may close the files and open others under their numbers: what does not read as it should
//! is not read again.

use crate::Linux;
use crate::beacon::GAUGES;
use crate::blocks;
use crate::init::static_heap;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use flagstone_core::platform::{LockKind, Platform};
use flagstone_linux::beacon::Gauge;
use flagstone_linux::limits::{self, Controller, Version};
use flagstone_linux::{clock, filter, sys, text};

/// Nanoseconds between two looks.
const LOOK_NS: u64 = 100_000_000;
/// One part in so many of the time since the last look must have been stalled.
const STALLED_PART: u64 = 100;
/// Free bytes worth giving back.
const FREE_MIN: usize = 1 << 20;
/// File numbers from here on are out of a program's way.
const ASIDE: i32 = 900;
/// No file.
const NONE: i32 = -1;

static ON: AtomicBool = AtomicBool::new(false);
static PRESSURE: AtomicI32 = AtomicI32::new(NONE);
static EVENTS: AtomicI32 = AtomicI32::new(NONE);
/// When it was looked last; the stalled microseconds and the times above memory.high then.
static LOOKED: AtomicU64 = AtomicU64::new(0);
static STALLED: AtomicU64 = AtomicU64::new(0);
static ABOVE: AtomicU64 = AtomicU64::new(0);

/// Whether pressure is looked at.
#[inline]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Begins to look; `false` where no file says anything about pressure, or beside a filter.
#[cold]
#[inline(never)]
pub fn begin() -> bool {
    if is_on() {
        return true;
    }
    let Some(_permit) = filter::permit() else {
        return false;
    };
    limits::each_group(Controller::Memory, |version, directory| {
        // The nearest group that has such files.
        for (place, name) in [
            (&PRESSURE, &b"/memory.pressure"[..]),
            (&EVENTS, b"/memory.events"),
        ] {
            if version == Version::Two && place.load(Relaxed) == NONE {
                open(place, &[directory, name]);
            }
        }
    });
    if PRESSURE.load(Relaxed) == NONE {
        open(&PRESSURE, &[b"/proc/pressure/memory"]);
    }
    STALLED.store(number(&PRESSURE, total_of).unwrap_or(0), Relaxed);
    ABOVE.store(number(&EVENTS, high_of).unwrap_or(0), Relaxed);
    LOOKED.store(clock::now(), Relaxed);
    let any = PRESSURE.load(Relaxed) != NONE || EVENTS.load(Relaxed) != NONE;
    ON.store(any, Relaxed);
    GAUGES.set(Gauge::Pressure, u64::from(any));
    any
}

/// Ends looking.
pub fn end() {
    ON.store(false, Relaxed);
    GAUGES.set(Gauge::Pressure, 0);
    let files = [&PRESSURE, &EVENTS].map(|place| place.swap(NONE, Relaxed));
    if let Some(_permit) = filter::permit() {
        files
            .into_iter()
            .filter(|&fd| fd != NONE)
            .for_each(sys::close);
    }
}

/// Opens a file under a high number: a program expects its own files under the lowest ones.
fn open(place: &AtomicI32, path: &[&[u8]]) {
    let Some(fd) = text::open(path) else { return };
    let aside = sys::duplicate_from(fd, ASIDE);
    if aside.is_some() {
        sys::close(fd);
    }
    place.store(aside.unwrap_or(fd), Relaxed);
}

/// Upkeep's call.
#[inline]
pub(crate) fn upkeep() {
    if is_on() {
        look();
    }
}

#[cold]
#[inline(never)]
fn look() {
    let (now, last) = (clock::now(), LOOKED.load(Relaxed));
    let is_due = now.wrapping_sub(last) >= LOOK_NS && !Linux::holds_from(LockKind::Heap);
    if !is_due
        || LOOKED
            .compare_exchange(last, now, Relaxed, Relaxed)
            .is_err()
    {
        return;
    }
    let Some(_permit) = filter::permit() else {
        return ON.store(false, Relaxed);
    };
    GAUGES.add(Gauge::PressureLooks, 1);
    let part = (now - last) / 1000 / STALLED_PART;
    let grew = |number: Option<u64>, before: &AtomicU64| match number {
        Some(now) => now.saturating_sub(before.swap(now, Relaxed)),
        None => 0,
    };
    let is_stalled = grew(number(&PRESSURE, total_of), &STALLED) >= part.max(1);
    let is_above = grew(number(&EVENTS, high_of), &ABOVE) != 0;
    if (is_stalled || is_above) && has_free() {
        let bytes = blocks::trim(0);
        GAUGES.add(Gauge::Relieved, 1);
        GAUGES.add(Gauge::RelievedBytes, bytes as u64);
    }
}

/// Whether there is something to give back.
fn has_free() -> bool {
    static_heap().ready_if_built().is_some_and(|ready| {
        let pages = ready.slabs().pages();
        let found = pages.snapshot();
        let free = found.total.free_resident_pages + found.total.cached_resident_pages;
        free * found.page_bytes + pages.budget().parked() >= FREE_MIN
    })
}

/// What a file says by `find`; `None` where it says nothing of the kind, and then it is not read again.
fn number(place: &AtomicI32, find: fn(&[u8]) -> Option<u64>) -> Option<u64> {
    let fd = place.load(Relaxed);
    let mut buffer = [0; 256];
    let got = (fd != NONE).then(|| sys::read_at(fd, &mut buffer, 0))?;
    let found = find(&buffer[..got]);
    if found.is_none() {
        place.store(NONE, Relaxed);
    }
    found
}

/// The total in `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`: microseconds in which some task waited for memory.
fn total_of(text: &[u8]) -> Option<u64> {
    let line = text
        .strip_prefix(b"some ")?
        .split(|&byte| byte == b'\n')
        .next()?;
    let total = line.windows(6).position(|word| word == b"total=")?;
    text::number(&line[total + 6..]).map(|(total, _)| total)
}

/// The number in the line `high 123`: how often the group was above memory.high.
fn high_of(text: &[u8]) -> Option<u64> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let high = lines.find_map(|line| line.strip_prefix(b"high "))?;
    text::number(high).map(|(times, _)| times)
}
