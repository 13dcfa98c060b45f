//! The machine's memory as ranges of frames, first fit, one bit each.
//!
//! - `frames.zero`: a frame that nobody has holds zeroes.
//!
//! Everything above the kernel is mapped as it lies, so a range is usable at once. Its lock is held with
//! interrupts off: a handler may come here for memory, too.

use crate::cpus::without_interrupts;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

pub const FRAME: usize = 4096;
/// Below are the kernel, its stacks and the firmware's leftovers.
const FIRST: usize = 32 << 20;
/// At the top lie the firmware's tables.
const TOP: usize = 2 << 20;
const FRAMES_MAX: usize = (1 << 30) / FRAME;

struct Frames {
    taken: [u64; FRAMES_MAX / 64],
    count: usize,
}

struct Locked {
    held: AtomicBool,
    frames: UnsafeCell<Frames>,
}

// SAFETY: the frames are used under `held` alone.
unsafe impl Sync for Locked {}

static FRAMES: Locked = Locked {
    held: AtomicBool::new(false),
    frames: UnsafeCell::new(Frames {
        taken: [0; FRAMES_MAX / 64],
        count: 0,
    }),
};

fn with<T>(step: impl FnOnce(&mut Frames) -> T) -> T {
    without_interrupts(|| {
        while FRAMES.held.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        // SAFETY: `held` was free and is ours now.
        let done = step(unsafe { &mut *FRAMES.frames.get() });
        FRAMES.held.store(false, Ordering::Release);
        done
    })
}

impl Frames {
    fn is_taken(&self, at: usize) -> bool {
        self.taken[at / 64] & 1 << (at % 64) != 0
    }

    fn mark(&mut self, from: usize, count: usize, taken: bool) {
        for at in from..from + count {
            assert!(
                self.is_taken(at) != taken,
                "a frame is taken or given back twice"
            );
            self.taken[at / 64] ^= 1 << (at % 64);
        }
    }

    /// The first free range of `count` frames that starts at a multiple of `align` bytes.
    fn find(&self, count: usize, align: usize) -> Option<usize> {
        let step = align.div_ceil(FRAME).max(1);
        let skew = FIRST / FRAME;
        let mut from = skew.next_multiple_of(step) - skew;
        while from + count <= self.count {
            match (from..from + count).rev().find(|&at| self.is_taken(at)) {
                None => return Some(from),
                Some(taken) => from = (skew + taken + 1).next_multiple_of(step) - skew,
            }
        }
        None
    }
}

/// Makes a machine's memory known.
pub fn give(memory: usize) {
    let bytes = memory.saturating_sub(FIRST + TOP);
    with(|frames| frames.count = (bytes / FRAME).min(FRAMES_MAX));
}

/// Bytes there are in all.
pub fn bytes() -> usize {
    with(|frames| frames.count) * FRAME
}

/// A range of zeroes, aligned.
pub fn take(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let count = bytes.div_ceil(FRAME);
    let from = with(|frames| {
        let from = frames.find(count, align)?;
        frames.mark(from, count, true);
        Some(from)
    })?;
    NonNull::new((FIRST + from * FRAME) as *mut u8)
}

/// Gives a range back.
///
/// # Safety
/// 1. The range is the caller's, whole frames, and nobody uses it again.
pub unsafe fn put(start: NonNull<u8>, bytes: usize) {
    // SAFETY: obligation 1; this makes `frames.zero` true again.
    unsafe { start.write_bytes(0, bytes) };
    let from = (start.addr().get() - FIRST) / FRAME;
    with(|frames| frames.mark(from, bytes / FRAME, false));
}
