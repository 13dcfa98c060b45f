//! The table of live samples, found by address.
//!
//! ```text
//!   address ─► two buckets of eight places ─► place: address and entry's number in one word ─► entry
//!   unused entries: a stack, its top with a count of changes
//! ```
//!
//! Places are taken and given up by compare-and-swap, so that a free is never refused, whoever it interrupts. The first
//! bucket goes by address, eight pages to each: what a small heap samples lies together, and makes few pages of the
//! table resident. The second is for what finds no place there. A sample that finds both full is lost: with half of all
//! places taken, one in some thousand. Blocks that begin inside a page are in the table never, and cost no look.
//! Invariants: `profile.listed-later`, `profile.at-a-page`.

use super::area::{Area, LIVE, area};
use super::number::mix;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Most live samples: 64 GiB of live memory at the default interval.
const ENTRIES: usize = 1 << 17;
/// Bits of a place that are its entry's number.
const NUMBER_BITS: u32 = 17;
/// Places in a bucket: one line of memory.
const BUCKET: usize = 8;
/// Buckets: twice as many places as entries.
const BUCKETS: usize = 2 * ENTRIES / BUCKET;
/// Set in an entry's stack number where the sample was taken by a parent process.
const INHERITED: u32 = 1 << 31;

const _: () = assert!(ENTRIES == 1 << NUMBER_BITS);

/// A live sample.
#[repr(C)]
#[derive(Debug)]
pub struct Entry {
    /// The block; zero for an unused entry.
    pub address: AtomicU64,
    /// Bytes asked for.
    pub size: AtomicU64,
    /// Its stack's number.
    pub stack: AtomicU32,
    /// Number plus one of the next unused entry.
    next: AtomicU32,
    /// When it was allocated.
    pub at_ns: AtomicU64,
}

/// The table.
#[repr(C)]
pub struct Live {
    buckets: [[AtomicU64; BUCKET]; BUCKETS],
    /// Entries.
    pub entries: [Entry; ENTRIES],
    /// Top of the unused entries that were used before: count of changes, number plus one.
    unused: AtomicU64,
}

/// What the table knows of a block.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Bytes asked for.
    pub size: u64,
    /// Its stack's number.
    pub stack: u32,
    at_ns: u64,
}

impl Taken {
    /// A sample taken now.
    pub fn now(size: u64, stack: u32) -> Self {
        Self {
            size,
            stack,
            at_ns: flagstone_linux::clock::now(),
        }
    }

    /// Whether a parent process took it.
    pub fn is_inherited(&self) -> bool {
        self.stack & INHERITED != 0
    }
}

/// The smallest page of any machine, in bytes.
const PAGE: usize = 4096;

/// Whether a block begins where a page does: `profile.at-a-page`.
fn is_at_a_page(address: NonNull<u8>) -> bool {
    address.addr().get() % PAGE == 0
}

/// The bits of an address that a place holds.
fn key_of(address: NonNull<u8>) -> u64 {
    (address.addr().get() as u64 >> 4) << NUMBER_BITS
}

/// Whether a place holds the key.
fn holds(place: u64, key: u64) -> bool {
    place != 0 && place >> NUMBER_BITS == key >> NUMBER_BITS
}

/// Bits of a key below those that name its first bucket.
const FIRST_SHIFT: u32 = NUMBER_BITS + (BUCKET * PAGE).trailing_zeros() - 4;

fn buckets_of(table: &Live, key: u64) -> [&[AtomicU64; BUCKET]; 2] {
    [key >> FIRST_SHIFT, mix(key)].map(|place| &table.buckets[place as usize % BUCKETS])
}

/// Enters a sample; `false` if it has no place.
pub fn put(area: &Area, address: NonNull<u8>, taken: Taken) -> bool {
    if !is_at_a_page(address) {
        return false;
    }
    let key = key_of(address);
    let Some(number) = new_entry(area) else {
        return false;
    };
    let entry = &area.live.entries[number as usize];
    entry.size.store(taken.size, Relaxed);
    entry.stack.store(taken.stack, Relaxed);
    entry.at_ns.store(taken.at_ns, Relaxed);
    entry.address.store(address.addr().get() as u64, Release);
    let word = key | u64::from(number);
    for place in buckets_of(&area.live, key).into_iter().flatten() {
        if place.load(Relaxed) == 0 && place.compare_exchange(0, word, AcqRel, Relaxed).is_ok() {
            return true;
        }
    }
    give_back(area, number);
    false
}

/// Takes a block out of the table, if it is there.
pub fn take(address: NonNull<u8>) -> Option<Taken> {
    if !is_at_a_page(address) {
        return None;
    }
    let area = area()?;
    let key = key_of(address);
    for place in buckets_of(&area.live, key).into_iter().flatten() {
        let word = place.load(Acquire);
        if !holds(word, key) {
            continue;
        }
        let number = (word & (ENTRIES as u64 - 1)) as u32;
        if number == 0 && key == 0 {
            continue;
        }
        let entry = &area.live.entries[number as usize];
        let taken = Taken {
            size: entry.size.load(Relaxed),
            stack: entry.stack.load(Relaxed),
            at_ns: entry.at_ns.load(Relaxed),
        };
        if place.compare_exchange(word, 0, AcqRel, Relaxed).is_ok() {
            give_back(area, number);
            return Some(taken);
        }
    }
    None
}

/// Enters a sample again whose block stayed after all.
pub fn put_back(address: NonNull<u8>, taken: Option<Taken>) {
    let Some((area, taken)) = area().zip(taken) else {
        return;
    };
    if !put(area, address, taken) {
        area.head.lost_live.fetch_add(1, Relaxed);
    }
}

fn new_entry(area: &Area) -> Option<u32> {
    let unused = &area.live.unused;
    let mut top = unused.load(Acquire);
    while top as u32 != 0 {
        let number = top as u32 - 1;
        let next = area.live.entries[number as usize].next.load(Relaxed);
        let changed = (top >> 32).wrapping_add(1) << 32 | u64::from(next);
        match unused.compare_exchange_weak(top, changed, AcqRel, Acquire) {
            Ok(_) => return Some(number),
            Err(other) => top = other,
        }
    }
    let used = &area.head.sections[LIVE].count;
    let fits = |used: u64| (used < ENTRIES as u64).then_some(used + 1);
    let number = used.fetch_update(Relaxed, Relaxed, fits).ok()?;
    Some(number as u32)
}

fn give_back(area: &Area, number: u32) {
    let entry = &area.live.entries[number as usize];
    entry.address.store(0, Relaxed);
    let unused = &area.live.unused;
    let mut top = unused.load(Relaxed);
    loop {
        entry.next.store(top as u32, Relaxed);
        let changed = (top >> 32).wrapping_add(1) << 32 | u64::from(number + 1);
        match unused.compare_exchange_weak(top, changed, AcqRel, Relaxed) {
            Ok(_) => return,
            Err(other) => top = other,
        }
    }
}

/// Makes all that is live the parent's, in a new process.
pub fn inherit(area: &Area) {
    let used = area.head.sections[LIVE].count.load(Relaxed) as usize;
    for entry in area.live.entries.iter().take(used) {
        if entry.address.load(Relaxed) != 0 {
            entry.stack.fetch_or(INHERITED, Relaxed);
        }
    }
}
