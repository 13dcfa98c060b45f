//! Figures over time: one mark now and then, fewer where the program runs long.

use super::area::{Area, MARKS};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Most marks. When they are used up, every second one goes and the pause between marks doubles.
const MARKS_MAX: usize = 2048;
/// The first pause, in nanoseconds.
const PAUSE_NS: u64 = 10_000_000;

/// Figures at one moment.
#[repr(C)]
#[derive(Debug)]
pub struct Mark {
    /// When, by the monotonic clock.
    pub at_ns: AtomicU64,
    /// Bytes live.
    pub live: AtomicU64,
    /// Bytes allocated so far.
    pub allocated: AtomicU64,
    /// Samples so far.
    pub samples: AtomicU64,
}

impl Mark {
    fn fields(&self) -> [&AtomicU64; 4] {
        [&self.at_ns, &self.live, &self.allocated, &self.samples]
    }
}

/// The marks.
#[repr(C)]
pub struct Marks {
    /// Not zero while somebody writes here; others go without a mark.
    busy: AtomicU32,
    unused: AtomicU32,
    last_ns: AtomicU64,
    pause_ns: AtomicU64,
    /// The marks.
    pub marks: [Mark; MARKS_MAX],
}

/// Adds a mark if the last one is old enough.
pub fn look(area: &Area) {
    let now = flagstone_linux::clock::now();
    let marks = &area.marks;
    let due = marks.last_ns.load(Relaxed) + marks.pause_ns.load(Relaxed).max(PAUSE_NS);
    if now < due {
        return;
    }
    if marks.busy.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
        add(area, now);
        marks.busy.store(0, Release);
    }
}

fn add(area: &Area, now: u64) {
    let head = &area.head;
    let (marks, count) = (&area.marks, &head.sections[MARKS].count);
    let mut used = count.load(Relaxed) as usize;
    if used >= MARKS_MAX {
        used = MARKS_MAX / 2;
        for at in 0..used {
            let (kept, place) = (&marks.marks[2 * at], &marks.marks[at]);
            for (from, to) in kept.fields().into_iter().zip(place.fields()) {
                to.store(from.load(Relaxed), Relaxed);
            }
        }
        let pause = marks.pause_ns.load(Relaxed).max(PAUSE_NS);
        marks.pause_ns.store(2 * pause, Relaxed);
    }
    let mark = &marks.marks[used];
    mark.at_ns.store(now, Relaxed);
    mark.live.store(head.live.load(Relaxed), Relaxed);
    mark.allocated.store(head.allocated.load(Relaxed), Relaxed);
    mark.samples.store(head.samples.load(Relaxed), Relaxed);
    marks.last_ns.store(now, Relaxed);
    count.store(used as u64 + 1, Relaxed);
}

/// Forgets all marks, in a new process; nobody else is there to write.
pub fn clear(area: &Area) {
    area.head.sections[MARKS].count.store(0, Relaxed);
    area.marks.busy.store(0, Relaxed);
    area.marks.last_ns.store(0, Relaxed);
}
