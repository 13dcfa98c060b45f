//! What single steps cost on this host.
//!
//! Each probe is a loop over one step; a figure is the lower quartile of undisturbed stretches
//! (threads.rs). Probes between CPUs need two of them and answer `None` otherwise.

use super::threads::{Meeting, Watch, lower_quartile, on_each, quoted, time, together};
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use flagstone_core::platform::{LockKind, Platform, RawLock};
use flagstone_linux::Linux;
use std::time::{Duration, Instant};

/// Wall time of one probe.
const BUDGET: Duration = Duration::from_millis(250);

/// Bytes of the probe of memory: several times the largest last-level cache of today's servers
/// would take too long; four times that of most machines.
const FAR_BYTES: usize = 192 << 20;

#[repr(align(128))]
struct Padded<T>(T);

/// A load from this CPU's own cache that the next one waits for, in ns.
#[must_use]
pub fn own_line() -> f64 {
    const LINES: usize = 64;
    const STEPS: u64 = 200_000;
    let ring: Vec<Padded<AtomicU64>> = (0..LINES)
        .map(|index| Padded(AtomicU64::new(((index + 1) % LINES) as u64)))
        .collect();
    time(STEPS, BUDGET, || {
        let mut at = 0;
        for _ in 0..STEPS {
            at = ring[at as usize % LINES].0.load(Ordering::Relaxed);
        }
        black_box(at);
    })
}

/// A locked instruction on a line that is here, beyond the access, in ns.
#[must_use]
pub fn atomic(own_line_ns: f64) -> f64 {
    const STEPS: u64 = 100_000;
    let word = Padded(AtomicU64::new(0));
    let whole = time(STEPS, BUDGET, || {
        for _ in 0..STEPS {
            black_box(&word).0.fetch_add(1, Ordering::AcqRel);
        }
    });
    (whole - own_line_ns).max(0.1)
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

/// A line's way from one CPU to another, in ns: a quarter of a round trip of a ball, because on
/// either way the line is fetched twice, to be read and to be written.
#[must_use]
pub fn transfer(from: usize, to: usize) -> f64 {
    const BOUNCES: u64 = 2_000;
    const ROUNDS: u64 = 120;
    let ball = Padded(AtomicU64::new(0));
    let origin = Instant::now();
    let sides = on_each(&[from, to], |side| {
        let side = side as u64;
        let mut watch = Watch::start(origin);
        let mut stretches = Vec::new();
        for round in 0..ROUNDS {
            for bounce in 0..BOUNCES {
                let mine = 2 * (round * BOUNCES + bounce) + side;
                while ball.0.load(Ordering::Acquire) != mine {
                    core::hint::spin_loop();
                }
                ball.0.store(mine + 1, Ordering::Release);
            }
            stretches.push(watch.cut(2 * BOUNCES));
        }
        stretches
    });
    quoted(&together(&sides)) / 2.0
}

/// Lines that another CPU has just written, written one after the other without waiting for each:
/// one of them, in ns.
#[must_use]
pub fn overlapped(a: usize, b: usize) -> f64 {
    const LINES: usize = 256;
    const ROUNDS: u64 = 1_500;
    let field: Vec<Padded<AtomicU64>> = (0..LINES).map(|_| Padded(AtomicU64::new(0))).collect();
    let turn = Padded(AtomicU64::new(0));
    let origin = Instant::now();
    let sides = on_each(&[a, b], |side| {
        let side = side as u64;
        let mut out = Vec::new();
        for round in 0..ROUNDS {
            while turn.0.load(Ordering::Acquire) != 2 * round + side {
                core::hint::spin_loop();
            }
            let start = origin.elapsed();
            for line in &field {
                // As a list is walked and changed: a load and a store, no lock.
                let seen = line.0.load(Ordering::Relaxed);
                line.0.store(seen + 1, Ordering::Relaxed);
            }
            core::sync::atomic::fence(Ordering::SeqCst);
            out.push((origin.elapsed() - start).as_secs_f64() * 1e9 / LINES as f64);
            turn.0.store(2 * round + side + 1, Ordering::Release);
        }
        lower_quartile(out)
    });
    sides[1]
}

/// Locked additions to one line by two CPUs all the time: one of either's, in ns.
#[must_use]
pub fn contended_atomic(a: usize, b: usize) -> f64 {
    const ROUND: u64 = 2_000;
    let word = Padded(AtomicU64::new(0));
    let start = Meeting::of(2);
    let stop = AtomicBool::new(false);
    let origin = Instant::now();
    let sides = on_each(&[a, b], |_| {
        start.wait();
        let mut out = Vec::new();
        let mut watch = Watch::start(origin);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..ROUND {
                word.0.fetch_add(1, Ordering::AcqRel);
            }
            out.push(watch.cut(ROUND));
            if origin.elapsed() > BUDGET {
                stop.store(true, Ordering::Relaxed);
            }
        }
        out
    });
    quoted(&together(&sides)) / 2.0
}

/// A lock of the core that two CPUs want all the time: one acquisition by either, in ns.
#[must_use]
pub fn hand_off(a: usize, b: usize) -> f64 {
    const ROUND: u64 = 2_000;
    let lock = Padded(RawLock::new(LockKind::List));
    let start = Meeting::of(2);
    let stop = AtomicBool::new(false);
    let origin = Instant::now();
    let answers = on_each(&[a, b], |_| {
        start.wait();
        let mut out = Vec::new();
        let mut watch = Watch::start(origin);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..ROUND {
                let taken = Linux::acquire(&lock.0).is_ok();
                debug_assert!(taken, "nobody interrupts");
                Linux::release_lock(&lock.0);
            }
            out.push(watch.cut(ROUND));
            if origin.elapsed() > BUDGET {
                stop.store(true, Ordering::Relaxed);
            }
        }
        out
    });
    // Each side's stretch holds its own acquisitions; the other's happen meanwhile.
    quoted(&together(&answers)) / 2.0
}

/// Waking a thread that sleeps on another CPU until it runs, in ns: half a round trip.
#[must_use]
pub fn wake(a: usize, b: usize) -> f64 {
    const ROUNDS: u32 = 3_000;
    let (send, receive) = std::sync::mpsc::sync_channel::<()>(0);
    let (answer, answered) = std::sync::mpsc::sync_channel::<()>(0);
    let ends = std::sync::Mutex::new((Some((send, answered)), Some((receive, answer))));
    let times = on_each(&[a, b], |side| {
        if side == 0 {
            let (send, answered) = ends.lock().ok()?.0.take()?;
            let mut trips = Vec::new();
            for _ in 0..ROUNDS {
                let start = Instant::now();
                send.send(()).ok()?;
                answered.recv().ok()?;
                trips.push(start.elapsed().as_secs_f64() * 1e9 / 2.0);
            }
            Some(super::threads::median(trips))
        } else {
            let (receive, answer) = ends.lock().ok()?.1.take()?;
            while receive.recv().is_ok() {
                answer.send(()).ok()?;
            }
            None
        }
    });
    times[0].unwrap_or(0.0)
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
    (quoted(&faults), quoted(&advices))
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
