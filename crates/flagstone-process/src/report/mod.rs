//! Reports: one document per process about where its memory went, without allocating.
//!
//! ```text
//!   FLAGSTONE_RUN_REPORT=DIR ─► start: heap watched, exit handlers registered
//!        slow paths ─► observe: resident size a sixteenth above the last sample? ─► sample
//!        exit       ─► finish:  the last sample                                      │
//!   sample:  smaps → outside the heap;  survey → the heap;  DIR/<pid>.json ◄─────────┘
//!                                                           DIR/<pid>.timeline: a line each
//! ```
//!
//! A document is written at every sample and replaced by the next one, so that a program that is
//! killed leaves the figures of its last sample. The ledger at the peak is that of the sample
//! with the largest resident size. The document's schema is `flagstone.report/1`.
//!
//! Everything lies in statics that stay untouched, and cost nothing, when no report is asked for.
//! There is no thread of ours; one sample at a time, others do not wait.

mod document;
mod json;
mod room;

use crate::Linux;
use crate::env;
use crate::fork::AtFork;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering::Relaxed};
use document::{Moment, Sample};
use flagstone_core::heap::{Heap, Ready};
use flagstone_core::platform::Platform;
use flagstone_core::stats::{Everything, Line, Residency, each_owned_part};
use flagstone_linux::filter::{self, Permit};
use flagstone_linux::outside::Sorter;
use flagstone_linux::process::Mapping;
use flagstone_linux::residency::Resident;
use flagstone_linux::{clock, process};
use room::{ROOM, Room};

/// A sample is taken when the resident size has grown by this share since the last one: enough
/// for a peak that is right within a sixteenth, and the work of all samples stays below
/// seventeen times that of the last.
const GROWTH: u64 = 16;

/// Growth below which no sample is taken, in bytes: small programs end before it matters.
const GROWTH_BYTES_MIN: u64 = 1 << 20;

/// Samples below the peak, which only the timeline needs, rest this many times as long as the last
/// one took: they cost at most a fiftieth of the time. Coarse clock: a sample counts as one tick at least.
const REST: u64 = 50;
const TICK_NS: u64 = 4_000_000;

/// How often a sample is measured until it closes: other threads move memory meanwhile.
const TRIES: u32 = 6;

/// A sample closes if its sum is off by less than this part of the resident size.
const CLOSES_WITHIN: u64 = 100;

static HEAP: AtomicPtr<Heap<Linux>> = AtomicPtr::new(core::ptr::null_mut());
/// The process that reports. Another number means a child that shares our memory: it keeps out.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// Resident bytes at which the next sample is due whatever it costs: growth beyond the peak.
static DUE: AtomicU64 = AtomicU64::new(0);
/// Resident bytes of the last sample.
static LAST: AtomicU64 = AtomicU64::new(0);
/// When a sample for the timeline may be taken again.
static REST_UNTIL: AtomicU64 = AtomicU64::new(0);
/// Whether every forked process takes a sample at its start.
static EVERY_PROCESS: AtomicBool = AtomicBool::new(false);

/// Begins to report on the process's heap if the environment names a directory for documents. Called once,
/// by a constructor of the face. `at_exit` has [`finish`] called at the end of the process; it and
/// `at_fork` are called if there is to be a report.
pub fn begin(at_fork: AtFork, at_exit: fn()) {
    if is_on() {
        return;
    }
    let Some(directory) = env::directory() else {
        return;
    };
    // Built only where there is to be a report.
    if let Some(heap) = crate::heap() {
        start(heap, directory, at_fork, at_exit);
    }
}

fn start(heap: &'static Heap<Linux>, directory: &[u8], at_fork: AtFork, at_exit: fn()) {
    let Some(ready) = heap.ready_if_built() else {
        return;
    };
    let named = ROOM
        .enter()
        .is_some_and(|mut room| room.set_directory(directory));
    if !named {
        flagstone_linux::write_line(&[
            b"flagstone: FLAGSTONE_RUN_REPORT: not a usable directory name; no report\n",
        ]);
        return;
    }
    HEAP.store(core::ptr::from_ref(heap).cast_mut(), Relaxed);
    PROCESS.store(process::id(), Relaxed);
    EVERY_PROCESS.store(env::every_process(), Relaxed);
    // SAFETY: called once.
    unsafe { flagstone_linux::observe::OBSERVER.set(observe) };
    ready.watch();
    at_exit();
    // Runs after the heap's own handler, which was registered first.
    at_fork(None, None, Some(forked));
    // A first one at once: a program may be killed before it has grown.
    if let Some(mut room) = ROOM.enter() {
        sample(ready, &mut room, Moment::Running);
    }
}

/// Whether a report of this process is to come.
pub fn is_on() -> bool {
    !HEAP.load(Relaxed).is_null()
}

/// In the child of a fork: it is a process of its own, whose peak begins now.
extern "C" fn forked() {
    let Some(_permit) = filter::permit() else {
        return;
    };
    PROCESS.store(process::id(), Relaxed);
    let resident = process::resident_quick().unwrap_or(0);
    DUE.store(resident + step(resident), Relaxed);
    LAST.store(resident, Relaxed);
    REST_UNTIL.store(0, Relaxed);
    ROOM.forget();
    // A worker may wait for work until it is killed: then this is the sample it leaves.
    if EVERY_PROCESS.load(Relaxed) {
        sample_now();
    }
}

/// The change of a resident size that is worth a sample.
fn step(resident: u64) -> u64 {
    (resident / GROWTH).max(GROWTH_BYTES_MIN)
}

/// Whether a sample is due at this resident size.
fn due(resident: u64) -> bool {
    let last = LAST.load(Relaxed);
    resident >= DUE.load(Relaxed)
        || resident.abs_diff(last) >= step(last) && clock::now() >= REST_UNTIL.load(Relaxed)
}

/// The heap, if the caller's process reports on it now, and the right to ask the kernel. The last report of
/// a program that confines itself is from before.
fn reporting() -> Option<(&'static Ready<Linux>, Permit)> {
    let heap = HEAP.load(Relaxed);
    if heap.is_null() {
        return None;
    }
    let permit = filter::permit()?;
    if process::id() != PROCESS.load(Relaxed) {
        return None;
    }
    // SAFETY: `start` stored a static's address.
    let ready = unsafe { &*heap }.ready_if_built()?;
    Some((ready, permit))
}

/// A slow path's call: looks at the resident size, and takes a sample if it is due.
fn observe() {
    let Some((ready, _permit)) = reporting() else {
        return;
    };
    let due = process::resident_quick().is_some_and(due);
    if let Some(mut room) = due.then(|| ROOM.enter()).flatten() {
        sample(ready, &mut room, Moment::Running);
    }
}

/// The last sample, at the end of the program.
pub fn finish() {
    let Some((ready, _permit)) = reporting() else {
        return;
    };
    if let Some(mut room) = ROOM.enter_waiting() {
        sample(ready, &mut room, Moment::Exit);
    }
}

/// A sample now, due or not: the program is about to confine itself.
pub fn before_filter() {
    sample_now();
}

/// A sample, if the process reports and no other sample is being taken.
fn sample_now() {
    let Some((ready, _permit)) = reporting() else {
        return;
    };
    if let Some(mut room) = ROOM.enter() {
        sample(ready, &mut room, Moment::Running);
    }
}

/// Bytes that the program asked for and holds, resident or not; zero if another sample is being taken.
pub fn bytes_asked_for(ready: &Ready<Linux>) -> u64 {
    let Some(mut room) = ROOM.enter() else {
        return 0;
    };
    let found = room.survey.take(ready, &mut Everything);
    let ledger = &room.survey.ledger;
    let asked = [Line::Live, Line::Runs, Line::Huge];
    let lines = ledger.lines().filter(|(line, _)| asked.contains(line));
    lines.map(|(_, bytes)| bytes * u64::from(found)).sum()
}

/// Resident bytes of a mapping that are the heap's. The kernel may have joined ours with a
/// neighbour.
fn ours_of(ready: &Ready<Linux>, resident: &mut Resident, mapping: &Mapping) -> u64 {
    resident.shares(mapping.shared > 0);
    let page_size = Linux::page_size();
    let whole = mapping.end - mapping.start;
    let (mut bytes, mut ours) = (0, 0);
    each_owned_part(ready, mapping.start, whole, &mut |start, part| {
        bytes += part;
        let start = NonNull::new(start as *mut u8);
        if let Some(start) = start.filter(|_| part < whole) {
            ours += resident.count(start, page_size.pages_for(part)) * page_size.bytes();
        }
    });
    if bytes == whole {
        mapping.resident
    } else {
        (ours as u64).min(mapping.resident)
    }
}

fn sample(ready: &Ready<Linux>, room: &mut Room, moment: Moment) {
    let began = clock::now();
    room.resident.open();
    let measured = (0..TRIES).find_map(|again| {
        let resident = measure(ready, room)?;
        let sum = room.survey.ledger.total();
        let off = resident.is_some_and(|size| size.abs_diff(sum) * CLOSES_WITHIN > size);
        (!off || again + 1 == TRIES).then_some(resident)
    });
    let tells_pages = room.resident.tells_pages();
    room.resident.close();
    let Some(resident) = measured else { return };
    room.samples += 1;
    let size = resident.unwrap_or_else(|| room.survey.ledger.total());
    if size >= room.peak_bytes {
        room.peak_bytes = size;
        room.peak = room.survey.ledger;
        room.peak_outside = room.outside;
    }
    DUE.fetch_max(size + step(size), Relaxed);
    LAST.store(size, Relaxed);
    let sample = Sample {
        ready,
        resident,
        tells_pages,
        moment,
        process: PROCESS.load(Relaxed),
    };
    document::write(room, &sample);
    document::append(room, &sample);
    let now = clock::now();
    REST_UNTIL.store(now + REST * (now - began).max(TICK_NS), Relaxed);
}

/// Measures both halves once: the resident size the kernel counts, if it says, and the ledger in
/// the room. `None` if the walk had no memory.
fn measure(ready: &Ready<Linux>, room: &mut Room) -> Option<Option<u64>> {
    // First, since the walk itself makes some pages resident.
    let (mut total, mut outside, mut shares) = (0, 0, false);
    let mut sorter = Sorter::new();
    let Room { text, resident, .. } = room;
    let read = process::each_mapping(text, |mapping| {
        let ours = ours_of(ready, resident, &mapping);
        total += mapping.resident;
        outside += mapping.resident - ours;
        sorter.next(&mapping, mapping.resident - ours);
        shares |= ours > 0 && mapping.shared > 0;
    });
    room.outside = sorter.finish();
    room.resident.shares(shares || !read);
    if !room.survey.take(ready, &mut room.resident) {
        return None;
    }
    room.survey.ledger.add(Line::NonHeap, outside);
    Some(read.then_some(total))
}
