//! What single steps cost on this host.
//!
//! Each probe is a loop over one step; a figure is the lower quartile of undisturbed stretches
//! (threads.rs). What takes two CPUs is in between.rs.

use super::pace;
use super::threads::{Paced, Watch, quoted, time, time_at_pace};
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};
use flagstone_core::platform::Platform;
use flagstone_linux::Linux;
use std::time::{Duration, Instant};

/// Wall time of one probe.
const BUDGET: Duration = Duration::from_millis(250);

/// Bytes of the probe of memory: several times the largest last-level cache of today's servers
/// would take too long; four times that of most machines.
const FAR_BYTES: usize = 192 << 20;

/// On lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

/// A load from this CPU's own cache that the next one waits for, in ns.
#[must_use]
pub fn own_line() -> f64 {
    chased::<64>()
}

/// The same from the cache behind the first: all of an allocator's lines that are here do not fit that.
#[must_use]
pub fn near_line() -> f64 {
    // 128 KiB, so that a quarter of it at most is in a first cache, and not on the way to a third one.
    chased::<1024>()
}

/// Nanoseconds of a load among so many lines, in an order no prefetcher guesses.
fn chased<const LINES: usize>() -> f64 {
    const STEPS: u64 = 200_000;
    // Five times and an odd number on: all of a power of two are met.
    let next = |index: usize| (index * 5 + 3) % LINES;
    let ring: Vec<Padded<AtomicU64>> = (0..LINES)
        .map(|index| Padded(AtomicU64::new(next(index) as u64)))
        .collect();
    time(STEPS, BUDGET, || {
        let mut at = 0;
        for _ in 0..STEPS {
            at = ring[at as usize % LINES].0.load(Ordering::Relaxed);
        }
        black_box(at);
    })
}

/// A locked instruction on a line that is here, the access included.
#[must_use]
pub fn atomic() -> Paced {
    const STEPS: u64 = 100_000;
    let word = Padded(AtomicU64::new(0));
    time_at_pace(STEPS, BUDGET, || {
        for _ in 0..STEPS {
            black_box(&word).0.fetch_add(1, Ordering::AcqRel);
        }
    })
}

/// A branch that its CPU predicted wrong.
#[must_use]
pub fn mispredicted_branch() -> Paced {
    const STEPS: u64 = 50_000;
    let chance = crate::chance::Chance::new(9);
    let branches = |by_chance: u64| {
        time_at_pace(STEPS, BUDGET / 2, || {
            let (mut ones, mut others) = (0u64, 0u64);
            for step in 0..STEPS {
                // The same work for both: a bit of chance, or one that changes every thousand steps.
                let bit = chance.next() & by_chance | step >> 10 & !by_chance;
                if bit & 1 == 0 {
                    others = black_box(others + 1);
                } else {
                    ones = black_box(ones ^ step);
                }
            }
            black_box((ones, others));
        })
    };
    let (even, by_chance) = (branches(black_box(0)), branches(black_box(u64::MAX)));
    // Every second one by chance is predicted wrong.
    Paced {
        ns: 2.0 * (by_chance.at(even.pace, 1.0) - even.ns),
        pace: even.pace,
    }
}

/// A line nobody has, when each load waits for the last, and when eight are under way at once.
#[must_use]
pub fn memory() -> (f64, f64) {
    const WORDS_PER_LINE: usize = 8;
    const STEPS: u64 = 20_000;
    let lines = FAR_BYTES / 64;
    let mut ring = vec![0u32; lines * WORDS_PER_LINE * 2];
    let chance = crate::chance::Chance::new(9);
    // Sattolo's shuffle: one cycle through all lines.
    let mut order: Vec<u32> = (0..lines as u32).collect();
    for last in (1..lines).rev() {
        order.swap(last, chance.below(last as u32) as usize);
    }
    for (index, &next) in order.iter().enumerate() {
        ring[index * 16] = next;
    }
    drop(order);
    let mut at = 0;
    let chased = time(STEPS, BUDGET, || {
        for _ in 0..STEPS {
            at = ring[at as usize * 16];
        }
        black_box(at);
    });
    let mut heads: [u32; 8] = core::array::from_fn(|index| (index * lines / 8) as u32);
    let together = time(8 * STEPS, BUDGET, || {
        for _ in 0..STEPS {
            heads
                .iter_mut()
                .for_each(|head| *head = ring[*head as usize * 16]);
        }
        black_box(heads);
    });
    (chased, together)
}

/// Nanoseconds of so many rounds of idle work.
#[must_use]
pub fn pause(rounds: u32) -> f64 {
    const MANY: u32 = 20_000;
    let round = time(u64::from(MANY), BUDGET / 8, || pace::idle(1, MANY));
    round * f64::from(rounds)
}

/// Faulting in a fresh page, and giving one back, in ns each.
///
/// # Panics
/// When the system grants not even 16 MiB.
#[must_use]
pub fn pages() -> (f64, f64) {
    const PAGES: usize = 2048;
    let page = Linux::page_size().bytes();
    let bytes = PAGES * page;
    // SAFETY: a fresh private mapping; the result is checked.
    let at = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert!(at != libc::MAP_FAILED, "no memory for a probe");
    // Large pages would make one fault of 512.
    // SAFETY: the mapping is ours.
    unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
    let origin = Instant::now();
    let (mut faults, mut advices) = (Vec::new(), Vec::new());
    while faults.len() < 5 || origin.elapsed() < BUDGET {
        let mut watch = Watch::start(origin);
        for index in 0..PAGES {
            // SAFETY: inside the mapping.
            unsafe { at.cast::<u8>().add(index * page).write_volatile(1) };
        }
        faults.push(watch.cut(PAGES as u64));
        for index in 0..PAGES {
            // SAFETY: inside the mapping; its contents are not needed.
            unsafe { libc::madvise(at.byte_add(index * page), page, libc::MADV_DONTNEED) };
        }
        advices.push(watch.cut(PAGES as u64));
    }
    // SAFETY: the whole mapping, not used again.
    unsafe { libc::munmap(at, bytes) };
    (quoted(&faults).ns, quoted(&advices).ns)
}

/// The fence that stops another CPU's critical section, in ns; `None` where there is none.
#[must_use]
pub fn fence() -> Option<f64> {
    const ROUND: u64 = 50;
    if !flagstone_linux::membarrier::ready() {
        return None;
    }
    Some(time(ROUND, BUDGET, || {
        for _ in 0..ROUND {
            black_box(flagstone_linux::membarrier::fence());
        }
    }))
}
