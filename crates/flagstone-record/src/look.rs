//! Looks at the process's memory now and then: how much its allocator holds, how far large blocks are
//! touched.
//!
//! A look is made on the way of an event, at most a thirtieth of the time, by one thread at a time. Its time is that
//! of the processor: on a busy machine looks that are interrupted do not become rarer. A program
//! that allocates nothing is not looked at; its memory does not change by its allocator either.

use crate::stream::{self, note};
use crate::{life, ranges, tls};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use flagstone_linux::look::{Known, Look, Scratch, before};
use flagstone_linux::residency;
use flagstone_trace::extent::Seen;
use flagstone_trace::steady::Steady;
use flagstone_trace::{Event, clock};

/// Blocks of fewer bytes are taken for touched. Why 8 KiB: they are the first to have pages of which nobody else holds
/// a part, buffers and pools of that size stay half empty, and the question costs a system call.
const QUESTIONED_BYTES: usize = 8 << 10;

/// From this size on a look tells pages that were read and never written from others. Why 64 KiB: the question costs more
/// than the other, and smaller blocks are many.
const EXACT_BYTES: usize = 64 << 10;

/// Time between two looks at least, in units of 32 ticks: about a millisecond.
const APART: u64 = 80_000;

/// The part of the time that looks may take.
const SHARE: u64 = 30;

/// Large blocks known at once, by address, [`WAYS`] of them in one place; more count as touched.
const BLOCKS: usize = 8192;
const WAYS: usize = 4;

/// When the next look is due. It is "never" while a look is made, and once there can be no more.
pub static DUE: AtomicU64 = AtomicU64::new(0);

static ADDRESSES: [AtomicUsize; BLOCKS] = [const { AtomicUsize::new(0) }; BLOCKS];
static SIZES: [AtomicUsize; BLOCKS] = [const { AtomicUsize::new(0) }; BLOCKS];
/// Pages found at the last look, plus one.
static FOUND: [AtomicUsize; BLOCKS] = [const { AtomicUsize::new(0) }; BLOCKS];
/// Pages resident when the block was handed out; zero if that was not asked.
static BORN: [AtomicUsize; BLOCKS] = [const { AtomicUsize::new(0) }; BLOCKS];
static SEEN: Seen = Seen::new();
static STEADY: Steady = Steady::new();
/// In place of pages: the block will be touched as the last ones of its size were.
const EXPECTED: usize = usize::MAX;
/// A bit for each part of the table that was ever used; the rest is not even read.
static USED: AtomicU64 = AtomicU64::new(0);
/// Blocks of a part.
const PART: usize = BLOCKS / 64;

/// The first entry of an address.
#[inline]
fn place(address: usize) -> usize {
    let mixed = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 48) % (BLOCKS / WAYS) * WAYS
}

struct Room {
    scratch: Scratch,
    ranges: [[usize; 2]; ranges::RANGES + stream::STACKS],
}

struct Shared(UnsafeCell<Room>);

// SAFETY: used by the thread alone that turned `DUE` to "never".
unsafe impl Sync for Shared {}

static ROOM: Shared = Shared(UnsafeCell::new(Room {
    scratch: Scratch::new(),
    ranges: [[0; 2]; ranges::RANGES + stream::STACKS],
}));

/// A bit for each of 4096 hashes of large blocks that ever were: most frees end here, at one of eight cache lines.
static EVER: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// The word and the bit of an address in [`EVER`].
#[inline]
fn bit(address: usize) -> (usize, u64) {
    let mixed = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52;
    (mixed >> 6, 1 << (mixed & 63))
}

/// Whether a look failed: there will be none.
static BLIND: AtomicBool = AtomicBool::new(false);

/// Remembers a large block whose contents are new.
#[inline]
pub fn made(address: usize, size: usize) {
    if size >= QUESTIONED_BYTES && address != 0 {
        let born = match STEADY.expects(size) {
            true => EXPECTED,
            false => resident(address, size, None).unwrap_or(0),
        };
        remember(address, size, born);
    }
}

/// Remembers a large block that has the contents of another.
#[inline]
pub fn resized(address: usize, size: usize) {
    if size >= QUESTIONED_BYTES && address != 0 {
        remember(address, size, 0);
    }
}

#[cold]
#[inline(never)]
fn remember(address: usize, size: usize, born: usize) {
    let (word, bit) = bit(address);
    EVER[word].fetch_or(bit, Ordering::Relaxed);
    let first = place(address);
    for at in first..first + WAYS {
        let free = ADDRESSES[at].compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        if free.is_ok() {
            SIZES[at].store(size, Ordering::Relaxed);
            FOUND[at].store(0, Ordering::Relaxed);
            BORN[at].store(born, Ordering::Relaxed);
            USED.fetch_or(1 << (at / PART), Ordering::Relaxed);
            ADDRESSES[at].store(address, Ordering::Release);
            return;
        }
    }
}

/// Forgets a large block; its touched pages, if it is one and they can be told.
#[inline]
pub fn gone(address: usize) -> Option<usize> {
    let (word, bit) = bit(address);
    if EVER[word].load(Ordering::Relaxed) & bit == 0 {
        return None;
    }
    forget(address)
}

#[cold]
#[inline(never)]
fn forget(address: usize) -> Option<usize> {
    let first = place(address);
    let found = |&at: &usize| ADDRESSES[at].load(Ordering::Relaxed) == address;
    let at = (first..first + WAYS).find(found)?;
    let pages = touched(at, address, None);
    if let Some(pages) = pages
        && BORN[at].load(Ordering::Relaxed) != EXPECTED
    {
        STEADY.note(SIZES[at].load(Ordering::Relaxed), pages);
    }
    ADDRESSES[at].store(0, Ordering::Release);
    pages
}

/// Touched pages of the block in entry `at`.
fn touched(at: usize, address: usize, look: Option<&mut Look<'_>>) -> Option<usize> {
    let size = SIZES[at].load(Ordering::Relaxed);
    let born = BORN[at].load(Ordering::Relaxed);
    if born == EXPECTED {
        return STEADY.last(size);
    }
    resident(address, size, look).map(|now| SEEN.touched(size, born, now))
}

/// Notes the mappings that stand before the first allocation: they are not the allocator's.
///
/// # Safety
/// 1. The process has one thread, and there was no look.
pub unsafe fn begin() {
    // SAFETY: obligation 1.
    let room = unsafe { &mut *ROOM.0.get() };
    before(&mut room.scratch, ranges::add);
}

/// Looks if it is time.
#[inline]
pub fn perhaps(now: u64) {
    if now >= DUE.load(Ordering::Relaxed) {
        take(now);
    }
}

#[cold]
#[inline(never)]
fn take(now: u64) {
    let due = DUE.load(Ordering::Relaxed);
    let mine = now >= due
        && DUE
            .compare_exchange(due, u64::MAX, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
    if !mine {
        return;
    }
    // SAFETY: the C library's errno of this thread, which no allocation may change.
    let before = unsafe { *libc::__errno_location() };
    let (wall, cpu) = (ns(libc::CLOCK_MONOTONIC), ns(libc::CLOCK_THREAD_CPUTIME_ID));
    now_look(1);
    let cpu = ns(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(cpu);
    let wall = ns(libc::CLOCK_MONOTONIC).saturating_sub(wall).max(1);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
    let end = clock::now();
    let took = u128::from(end.saturating_sub(now)) * u128::from(cpu.min(wall)) / u128::from(wall);
    let pause = (took as u64).saturating_mul(SHARE).max(APART);
    let next = match BLIND.load(Ordering::Relaxed) {
        true => u64::MAX,
        false => end + pause,
    };
    DUE.store(next, Ordering::Release);
}

/// A clock of the system.
fn ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a structure to fill.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The last look, at the process's end: every large block is told.
pub fn last() {
    let due = DUE.swap(u64::MAX, Ordering::Acquire);
    if due != u64::MAX && due != 0 {
        now_look(0);
    }
}

/// In a child of fork no other thread looks.
pub fn after_fork() {
    if !BLIND.load(Ordering::Relaxed) {
        DUE.store(clock::now(), Ordering::Relaxed);
    }
}

/// Notes what is there; blocks that grew by a sixteenth times `least` and more.
fn now_look(least: usize) {
    let local = tls::local();
    // SAFETY: this thread's own words.
    let depth = unsafe { (*local).depth };
    // SAFETY: `DUE` is "never": the room is this thread's.
    let Room { scratch, ranges } = unsafe { &mut *ROOM.0.get() };
    // SAFETY: this thread's own words; nothing of a look is noted as the program's.
    unsafe { (*local).depth = 1 };
    let count = ranges::copy(&mut ranges[..ranges::RANGES]);
    let [live, ended] = stream::stacks(&mut ranges[count..]);
    let (ranges, rest) = ranges.split_at(count + live);
    let known = Known {
        ranges,
        ended: &rest[..ended],
    };
    let mut look = Look::open(scratch);
    let found = look.as_mut().and_then(|look| look.share(known));
    // SAFETY: as above.
    unsafe { (*local).depth = depth };
    let Some(found) = found else {
        return BLIND.store(true, Ordering::Relaxed);
    };
    note(&Event::Resident {
        heap: found.heap,
        other: found.other,
    });
    let used = USED.load(Ordering::Relaxed);
    let parts = (0..64).filter(|part| used >> part & 1 != 0);
    for at in parts.flat_map(|part| part * PART..(part + 1) * PART) {
        let address = ADDRESSES[at].load(Ordering::Acquire);
        if address <= 1 || !life::sampled(address as *mut _) {
            continue;
        }
        let Some(pages) = touched(at, address, look.as_mut()) else {
            continue;
        };
        let before = FOUND[at].swap(pages + 1, Ordering::Relaxed);
        if before == 0 || pages + 1 > before + least * before / 16 {
            note(&Event::Extent {
                address: address as u64,
                bytes: (pages as u64) << 12,
            });
        }
    }
}

/// Pages of a block that are there; those alone that were written, where a look is at hand. Its first page
/// is one of them, as the allocator writes there; its last is where all between are, as a neighbour may have written there.
fn resident(address: usize, size: usize, look: Option<&mut Look<'_>>) -> Option<usize> {
    let (start, end) = ((address & !0xfff) + 0x1000, (address + size) & !0xfff);
    let pages = match look {
        Some(look) if size >= EXACT_BYTES => look.own(start, end)?,
        _ => present(start, end)?,
    };
    Some(match pages << 12 == end - start {
        true => pages + 2,
        false => pages + 1,
    })
}

/// Pages from `start` to `end` that are there. Asked for 2 MiB at a time: most blocks are far smaller, and clearing room for
/// more would cost as much as the question.
fn present(start: usize, end: usize) -> Option<usize> {
    let mut pages = 0;
    let mut present = [0_u8; 512];
    let mut at = start;
    while at < end {
        let bytes = (end - at).min(present.len() << 12);
        if !residency::present(at, bytes, &mut present) {
            return None;
        }
        let asked = &present[..bytes >> 12];
        pages += asked.iter().filter(|&&page| page & 1 != 0).count();
        at += bytes;
    }
    Some(pages)
}
