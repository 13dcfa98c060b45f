//! The table of stacks: what was allocated from each place, and what of it was freed.
//!
//! ```text
//!   index: hash of the frames ─► entry's number + 1 ─► entry ─► frames, innermost first
//! ```
//!
//! Entries and frames are taken from the front and never given back. An entry is filled before its number is
//! published in the index by compare-and-swap; who loses that race uses the winner's and wastes its own.
//! Entry 0 stands for stacks that found no place.

use super::area::{Area, FRAMES, STACKS};
use super::number::mix;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Most stacks: 1.5 MiB of entries if all are used.
pub const STACKS_MAX: usize = 1 << 15;
/// Places of the index: at most half of them are in use.
const INDEX: usize = 2 * STACKS_MAX;
/// Most frames of all stacks together: 8 MiB if all are used.
const FRAMES_MAX: usize = 1 << 20;
/// Places looked at for one stack.
const PROBES: usize = 64;
/// Objects are counted in this part of one: a weight is a fraction.
pub const PARTS: f64 = 1024.0;

/// A stack and its sums.
#[repr(C)]
#[derive(Debug)]
pub struct Stack {
    /// Hash of the frames.
    pub hash: AtomicU64,
    /// Its first frame's place among all frames.
    pub frames_at: AtomicU32,
    /// Its frames.
    pub depth: AtomicU32,
    /// Objects allocated, in [`PARTS`].
    pub objects: AtomicU64,
    /// Bytes allocated.
    pub bytes: AtomicU64,
    /// Objects freed again, in [`PARTS`].
    pub freed_objects: AtomicU64,
    /// Bytes freed again.
    pub freed_bytes: AtomicU64,
}

/// The table.
#[repr(C)]
pub struct Stacks {
    index: [AtomicU32; INDEX],
    /// Entries, in the order they came.
    pub entries: [Stack; STACKS_MAX],
    /// Frames of all.
    pub frames: [AtomicU64; FRAMES_MAX],
}

/// Takes `count` places from the front of a table of `max`.
fn take(used: &AtomicU64, count: u64, max: usize) -> Option<usize> {
    let fits = |used: u64| used.checked_add(count).filter(|&sum| sum <= max as u64);
    used.fetch_update(Relaxed, Relaxed, fits)
        .ok()
        .map(|at| at as usize)
}

/// The number of the stack with these frames; 0 if it has no place.
pub fn number_of(area: &Area, frames: &[u64]) -> u32 {
    let hash = frames.iter().fold(frames.len() as u64, |hash, &frame| {
        mix(hash ^ frame).wrapping_add(0x9E37_79B9_7F4A_7C15)
    });
    let table = &area.stacks;
    let mut own = None;
    for probe in 0..PROBES {
        let place = &table.index[(hash as usize).wrapping_add(probe) % INDEX];
        let mut found = place.load(Acquire);
        if found == 0 {
            let Some(number) = own.or_else(|| add(area, hash, frames)) else {
                break;
            };
            own = Some(number);
            match place.compare_exchange(0, number + 1, AcqRel, Acquire) {
                Ok(_) => return number,
                Err(other) => found = other,
            }
        }
        let number = found - 1;
        if table.entries[number as usize].hash.load(Relaxed) == hash {
            return number;
        }
    }
    area.head.lost_stacks.fetch_add(1, Relaxed);
    0
}

fn add(area: &Area, hash: u64, frames: &[u64]) -> Option<u32> {
    let sections = &area.head.sections;
    // Number 0 is nobody's.
    let _ = sections[STACKS]
        .count
        .compare_exchange(0, 1, Relaxed, Relaxed);
    let at = take(&sections[FRAMES].count, frames.len() as u64, FRAMES_MAX)?;
    let number = take(&sections[STACKS].count, 1, STACKS_MAX)?;
    let table = &area.stacks;
    for (place, &frame) in table.frames[at..].iter().zip(frames) {
        place.store(frame, Relaxed);
    }
    let entry = &table.entries[number];
    entry.hash.store(hash, Relaxed);
    entry.frames_at.store(at as u32, Relaxed);
    entry.depth.store(frames.len() as u32, Release);
    Some(number as u32)
}

impl Stack {
    /// Adds an allocation.
    pub fn add(&self, objects: u64, bytes: u64) {
        self.objects.fetch_add(objects, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Adds a free.
    pub fn subtract(&self, objects: u64, bytes: u64) {
        self.freed_objects.fetch_add(objects, Relaxed);
        self.freed_bytes.fetch_add(bytes, Relaxed);
    }

    fn clear(&self) {
        for sum in [
            &self.objects,
            &self.bytes,
            &self.freed_objects,
            &self.freed_bytes,
        ] {
            sum.store(0, Relaxed);
        }
    }
}

/// Forgets all sums, for a new process; the stacks stay.
pub fn clear(area: &Area) {
    let used = area.head.sections[STACKS].count.load(Relaxed) as usize;
    for stack in area.stacks.entries.iter().take(used) {
        stack.clear();
    }
}
