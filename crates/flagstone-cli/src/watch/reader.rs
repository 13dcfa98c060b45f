//! The process that reads: the core's own survey over a copy of another process's heap.
//!
//! Whatever a torn or damaged copy leads to (a fault, a broken assertion, a walk that does not end) ends this
//! process and no other; the one that started it tries again.

use super::figures;
use super::image::{self, CHANGED};
use super::maps;
use super::reading::{Reading, Second, Task};
use super::target::{Refusal, Region, Target, is_bare};
use super::world::Copied;
use crate::cmd::run::reports::Kind;
use crate::exit::Outcome;
use flagstone_core::base::PageCount;
use flagstone_core::heap::{Heap, Ready};
use flagstone_core::platform::{CpuArea, Platform};
use flagstone_core::stats::{Line, Residency, Survey, each_owned_part};
use flagstone_core::verify;
use flagstone_linux::outside::{Outside, Sorter};
use flagstone_linux::process::{Mapping, Place};
use flagstone_linux::residency::Resident;
use serde::Serialize;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::ptr::NonNull;

/// Exit status of a process that refused with one line on its standard output.
pub const REFUSED: u8 = 70;
/// Processor seconds after which a walk counts as one that does not end.
const SECONDS_MAX: libc::rlim_t = 10;
/// The same for a trim of the copy, which changes it and so meets more of what is torn.
const TRIM_SECONDS_MAX: libc::rlim_t = 1;
/// The word by which this command calls itself.
pub const WORD: &str = "--reader";

/// Reads, if this process was started for that: `flagstone stat --reader TASK PID`.
pub fn reader_process() -> Option<Outcome> {
    let mut words = std::env::args().skip(1);
    if words.next()? != "stat" || words.next()? != WORD {
        return None;
    }
    let (task, pid) = (Task::of(&words.next()?)?, words.next()?.parse().ok()?);
    // The one that started it says what happened.
    std::panic::set_hook(Box::new(|_| image::leave(CHANGED)));
    bound(SECONDS_MAX);
    Some(match read(task, pid) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(refusal) => {
            print!("{}", refusal.line());
            Ok(ExitCode::from(REFUSED))
        }
    })
}

/// Ends this process when it has used so many processor seconds in all.
fn bound(seconds: libc::rlim_t) {
    let limit = libc::rlimit {
        rlim_cur: seconds,
        rlim_max: SECONDS_MAX,
    };
    // SAFETY: a limit of this process.
    unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) };
}

/// More than a trim takes: it meets each page and each parked object a few times, and those have 16 B or more.
fn steps_at_most(ready: &Ready<Copied>) -> u64 {
    let pages = ready.slabs().pages();
    let used: u64 = pages
        .used_spans()
        .map(|(start, end)| u64::from(end.0 - start.0))
        .sum();
    used * (pages.page_size().bytes() as u64 / 4)
}

/// Processor seconds of this process, rounded up.
fn seconds_used() -> libc::rlim_t {
    let mut used = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock of this process, into a time of its own.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut used) };
    used.tv_sec as libc::rlim_t + 1
}

fn say<T: Serialize>(document: &T) -> Result<(), Refusal> {
    let failed = |error: String| Refusal::Line(error);
    let text = serde_json::to_string(document).map_err(|error| failed(error.to_string()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| failed(error.to_string()))
}

fn read(task: Task, pid: u32) -> Result<(), Refusal> {
    let target = Target::find(pid)?;
    let heap = heap_of(&target)?;
    let Some(ready) = heap.ready_if_built() else {
        image::leave(CHANGED);
    };
    if ready.slabs().pages().base().addr().get() as u64 != target.beacon.span {
        image::leave(CHANGED);
    }
    let pages = ready.slabs().pages();
    Copied::has_nodes(ready.slabs().node_count());
    // Lists of pages lead through descriptors and heads of every zone: a walk needs all of one instant.
    let (control, bytes) = pages.control_part();
    image::bring(control, bytes);
    pages.each_memmap_part(image::bring);
    let mut resident = Box::new(Resident::new());
    resident.look_at(target.pagemap.as_raw_fd());
    resident.shares(true);
    match task {
        Task::Verify => return say(&broken(ready)),
        Task::Maps => return say(&maps::of(&target, ready, &mut resident)),
        Task::Figures | Task::Trim => say(&figures_of(&target, ready, &mut resident))?,
    }
    if task == Task::Trim {
        bound(seconds_used() + TRIM_SECONDS_MAX);
        Copied::may_take(steps_at_most(ready));
        let _before = Copied::given_back();
        ready.trim(0);
        let bytes = Copied::given_back().into_iter().map(|(start, bytes)| {
            NonNull::new(start as *mut u8).map_or(0, |start| bytes_at(&mut resident, start, bytes))
        });
        say(&Second {
            trim_bytes: bytes.sum(),
        })?;
    }
    Ok(())
}

/// The heap, as it can be read here.
fn heap_of(target: &Target) -> Result<&'static Heap<Copied>, Refusal> {
    let (pid, beacon) = (target.pid, &target.beacon);
    let heap = beacon.heap as *const Heap<Copied>;
    let bytes = size_of::<Heap<Copied>>();
    if !heap.is_aligned() || heap.is_null() || !target.owns(beacon.heap, bytes) {
        let why = "its beacon is damaged: no heap can lie where it says; nothing is read";
        return Err(Refusal::Line(format!("process {pid}: {why}")));
    }
    Copied::has(beacon.cpus, beacon.state);
    image::adopt(target, bytes).map_err(|error| {
        Refusal::Line(format!(
            "process {pid}: no address space for a copy: {error}"
        ))
    })?;
    // SAFETY: the range is the other process's own data, so `adopt` has a copy of it here, as the layout
    // compared before; what is in it is checked by nobody, which is why this process is one of its own.
    Ok(unsafe { &*heap })
}

/// Resident bytes among `bytes` from `start` on.
pub fn bytes_at(resident: &mut Resident, start: NonNull<u8>, bytes: usize) -> u64 {
    let size = Copied::page_size();
    PageCount(resident.count(start, size.pages_for(bytes))).bytes(size) as u64
}

fn figures_of(target: &Target, ready: &Ready<Copied>, resident: &mut Resident) -> Reading {
    let (outside, outside_bytes) = outside(target, ready, resident);
    let rss_bytes = target.resident_bytes();
    let gauges = target.gauges();
    let mut survey = Box::new(Survey::new());
    if !survey.take(ready, resident) {
        image::leave(CHANGED);
    }
    survey.ledger.add(Line::NonHeap, outside_bytes);
    let kinds = outside.kinds().map(|(kind, bytes)| Kind {
        kind: kind.to_owned(),
        bytes,
    });
    Reading {
        schema: Reading::SCHEMA.to_owned(),
        pid: target.pid,
        program: target.program.clone(),
        version: target.beacon.version.clone(),
        cpus: target.beacon.cpus,
        restartable_sequences: target.beacon.state == 1,
        rss_bytes,
        sum_bytes: survey.ledger.total(),
        trim_bytes: None,
        caches: figures::caches(&survey, ready),
        ledger: figures::ledger(&survey.ledger),
        outside: kinds.collect(),
        released_bytes: survey.ledger.released,
        untouched_bytes: survey.ledger.untouched,
        pages: figures::pages(ready),
        bounds: figures::bounds(&gauges),
        knobs: figures::knobs(ready, &gauges),
    }
}

/// Resident bytes that are not the heap's, by kind, and their sum.
fn outside(target: &Target, ready: &Ready<Copied>, resident: &mut Resident) -> (Outside, u64) {
    let mut owned = Vec::new();
    each_owned_part(ready, 0, usize::MAX, &mut |start, bytes| {
        owned.push((start, start + bytes))
    });
    let area = ready.slabs().area().base().addr().get();
    if ready.slabs().pages().pfn_of(area as *const u8).is_none() {
        owned.push((area, area + CpuArea::bytes_for(Copied::cpu_count())));
    }
    owned.sort_unstable();
    let (mut sorter, mut sum) = (Sorter::new(), 0);
    for Region {
        mapping, set_aside, ..
    } in &target.regions
    {
        let skipped =
            *set_aside || mapping.place == Place::Kernel || is_bare(mapping) && !resident.scans();
        let bytes = if skipped {
            0
        } else {
            between(&owned, mapping, resident)
        };
        sum += bytes;
        sorter.next(mapping, bytes);
    }
    (sorter.finish(), sum)
}

/// Resident bytes of a mapping outside the `owned` ranges.
fn between(owned: &[(usize, usize)], mapping: &Mapping, resident: &mut Resident) -> u64 {
    let (mut at, mut sum) = (mapping.start, 0);
    let first = owned.partition_point(|&(_, end)| end <= mapping.start);
    let ours = owned[first..]
        .iter()
        .take_while(|&&(start, _)| start < mapping.end);
    let ends = [(mapping.end, mapping.end)];
    for &(start, end) in ours.chain(&ends) {
        if at < start
            && let Some(from) = NonNull::new(at as *mut u8)
        {
            sum += bytes_at(resident, from, start - at);
        }
        at = at.max(end);
    }
    sum
}

/// The rules that do not hold in this copy, each with where.
fn broken(ready: &Ready<Copied>) -> Vec<String> {
    let mut found = Vec::new();
    if let Err(rule) = verify::check_heap(ready) {
        found.push(format!("{} at {:#x}", rule.rule, rule.address));
    }
    if let Err(rule) = verify::check_pages(ready.slabs().pages()) {
        found.push(format!("{rule:?}"));
    }
    for cache in ready.slabs().live_caches() {
        if let Err(rule) = verify::check_cache(ready.slabs(), cache) {
            found.push(format!("{}: {rule:?}", cache.name()));
        }
    }
    found
}
