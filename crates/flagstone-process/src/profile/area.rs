//! The memory of a profile: one mapping with tables of fixed places, touched as far as they are used.
//!
//! ```text
//!   head │ stacks: index, entries, frames │ live: buckets, entries │ marks │ rules
//! ```
//!
//! All of it are atomics, and zeroes are its empty state. The head says where each table begins and how much of it
//! is used: by it another process reads the tables where they are, and a file holds the same (docs/profiles.md).

use super::live::{Entry, Live};
use super::marks::{Mark, Marks};
use super::stacks::{Stack, Stacks};
use super::unwind::Rules;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use flagstone_linux::sys;

/// What a profile's tables begin with; another layout has another last byte.
pub const MAGIC: u64 = u64::from_le_bytes(*b"\x7ffsprof\x01");

/// Where a table begins, in bytes from the head, how many entries of it are used, and their size.
#[repr(C)]
#[derive(Debug)]
pub struct Section {
    /// Bytes from the head to the first entry.
    pub at: AtomicU64,
    /// Entries in use.
    pub count: AtomicU64,
}

impl Section {
    fn set(&self, at: usize) {
        self.at.store(at as u64, Ordering::Relaxed);
    }
}

/// The head. Every field is eight bytes, in the order of docs/profiles.md.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Mean bytes between samples.
    pub mean: AtomicU64,
    /// When the profile began: nanoseconds of the monotonic clock.
    pub began_ns: AtomicU64,
    /// When the file was written; zero in memory.
    pub ended_ns: AtomicU64,
    /// The process.
    pub process: AtomicU64,
    /// Whether the process was at its end.
    pub is_last: AtomicU64,
    /// Samples taken.
    pub samples: AtomicU64,
    /// Samples that found no place among the live ones.
    pub lost_live: AtomicU64,
    /// Samples whose stack found no place.
    pub lost_stacks: AtomicU64,
    /// Samples whose stack had more frames than are kept.
    pub cut_stacks: AtomicU64,
    /// Bytes allocated, by the samples' weights.
    pub allocated: AtomicU64,
    /// Bytes live, by the samples' weights.
    pub live: AtomicU64,
    /// The most there were.
    pub live_peak: AtomicU64,
    /// Bytes that the heap's own account says are live, at the end; zero if it was not asked.
    pub account: AtomicU64,
    /// Stacks, their frames, live samples, marks in time, and in a file the text of `/proc/PID/maps`.
    pub sections: [Section; 5],
}

/// Index of a section.
pub const STACKS: usize = 0;
/// Index of a section.
pub const FRAMES: usize = 1;
/// Index of a section.
pub const LIVE: usize = 2;
/// Index of a section.
pub const MARKS: usize = 3;
/// Index of a section.
pub const MAPS: usize = 4;

/// Everything a profile keeps.
#[repr(C)]
pub struct Area {
    /// What is where.
    pub head: Head,
    /// Stacks by their frames.
    pub stacks: Stacks,
    /// Live samples by address.
    pub live: Live,
    /// Figures over time.
    pub marks: Marks,
    /// What was found out about unwinding.
    pub rules: Rules,
}

static AREA: AtomicPtr<Area> = AtomicPtr::new(core::ptr::null_mut());

/// The area, if there ever was a profile.
#[inline]
pub fn area() -> Option<&'static Area> {
    // SAFETY: only `make` stores there: a mapping that stays, of zeroes, which are an area.
    unsafe { AREA.load(Ordering::Acquire).as_ref() }
}

/// The area, made if there is none; `None` without memory. One caller at a time.
pub fn make() -> Option<&'static Area> {
    if let Some(area) = area() {
        return Some(area);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let arguments = [
        0,
        size_of::<Area>(),
        protection as usize,
        flags as usize,
        usize::MAX,
        0,
    ];
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let address = unsafe { sys::call(libc::SYS_mmap, arguments) };
    if (-4095..=0).contains(&address) {
        return None;
    }
    let place: *mut Area = core::ptr::with_exposed_provenance_mut(address as usize);
    let plain = [
        address as usize,
        size_of::<Area>(),
        libc::MADV_NOHUGEPAGE as usize,
        0,
        0,
        0,
    ];
    // A table's first entry would else cost zeroing a huge page where the system gives them to everybody: five million
    // instructions, three times what a short program executes.
    // SAFETY: says how the new mapping's pages are to be, which nobody uses yet.
    unsafe { sys::call(libc::SYS_madvise, plain) };
    if let Some(_permit) = flagstone_linux::filter::permit() {
        let name = c"flagstone profile";
        flagstone_linux::name_mapping(address as usize, size_of::<Area>(), name);
    }
    // SAFETY: just mapped, all zeroes, which are an area; nobody else knows it yet.
    let area = unsafe { &*place };
    let sections = &area.head.sections;
    sections[STACKS].set(offset_of!(Area, stacks) + offset_of!(Stacks, entries));
    sections[FRAMES].set(offset_of!(Area, stacks) + offset_of!(Stacks, frames));
    sections[LIVE].set(offset_of!(Area, live) + offset_of!(Live, entries));
    sections[MARKS].set(offset_of!(Area, marks) + offset_of!(Marks, marks));
    area.head.magic.store(MAGIC, Ordering::Relaxed);
    AREA.store(place, Ordering::Release);
    Some(area)
}

const _: () = assert!(size_of::<Head>() == 8 * (14 + 10));
const _: () = assert!(size_of::<Stack>() == 48 && size_of::<Entry>() == 32);
const _: () = assert!(size_of::<Mark>() == 32);
