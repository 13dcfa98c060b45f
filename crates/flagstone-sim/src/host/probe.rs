//! What single steps cost on this host.
//!
//! Each probe is a loop over one step; a figure is the lower quartile of undisturbed stretches
//! (threads.rs). Probes between CPUs need two of them and answer `None` otherwise.

use super::pace;
use super::threads::{
    Meeting, Paced, Stretch, Watch, lower_quartile, median, on_each, quoted, time, time_at_pace,
    together_by_task,
};
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

/// On lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

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
        ns: 2.0 * (by_chance.at(even.pace) - even.ns),
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

/// Who looks at a field of lines when: first one CPU writes all of them, then another one does what
/// is measured; so many rounds. Lower quartile of a line's nanoseconds.
fn after_another_wrote(
    a: usize,
    b: usize,
    rounds: u64,
    measured: impl Fn(&Round) -> f64 + Sync,
) -> f64 {
    let field = Round::new();
    let turn = Padded(AtomicU64::new(0));
    let sides = on_each(&[a, b], |side| {
        let side = side as u64;
        let mut out = Vec::new();
        for round in 0..rounds {
            let mut spins = 0u32;
            while turn.0.load(Ordering::Acquire) != 2 * round + side {
                spins += 1;
                if spins.is_multiple_of(4096) {
                    // Whoever is to come may need this CPU.
                    std::thread::yield_now();
                }
                core::hint::spin_loop();
            }
            if side == 0 {
                field.write();
            } else {
                out.push(measured(&field));
            }
            turn.0.store(2 * round + side + 1, Ordering::Release);
        }
        lower_quartile(out)
    });
    sides[1]
}

/// Lines far from each other, in an order no prefetcher guesses: each names the next.
#[derive(Debug)]
pub(super) struct Field<const LINES: usize>(Vec<Padded<AtomicU64>>);

/// The lines of a round of a probe.
type Round = Field<128>;

impl<const LINES: usize> Field<LINES> {
    /// Lines looked at in a round.
    const STEPS: usize = LINES;
    /// Lines in all.
    const ALL: usize = 64 * LINES;

    pub(super) fn new() -> Self {
        let field = Self((0..Self::ALL).map(|_| Padded(AtomicU64::new(0))).collect());
        field.write();
        field
    }

    /// The line looked at as number `step`: in another part of the field than the one before.
    fn place(step: usize) -> usize {
        // 37 and the count have no common divisor, so no line is met twice.
        let part = step * 37 % LINES;
        part * (Self::ALL / LINES) + step * 29 % (Self::ALL / LINES)
    }

    /// The place of the line after number `step`.
    fn after(step: usize) -> u64 {
        Self::place((step + 1) % LINES) as u64
    }

    fn write(&self) {
        for step in 0..LINES {
            let next = Self::after(step);
            self.0[Self::place(step)].0.store(next, Ordering::Relaxed);
        }
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Nanoseconds of each of a round's steps, of which each answers the word it found, whose lower half
    /// says where the next one is, as the step is told too.
    pub(super) fn walk(&self, step: impl Fn(&AtomicU64, u64) -> u64) -> f64 {
        let start = Instant::now();
        let mut at = Self::place(0) as u64;
        for number in 0..LINES {
            at = step(&self.0[at as usize].0, Self::after(number)) & u64::from(u32::MAX);
        }
        black_box(at);
        start.elapsed().as_secs_f64() * 1e9 / LINES as f64
    }
}

/// A locked addition that leaves the next place, in the lower half of the word, as it is.
fn add_above(word: &AtomicU64, _next: u64) -> u64 {
    word.fetch_add(1 << 32, Ordering::AcqRel)
}

/// A line's way from one CPU to another, in ns: locked additions to lines that the other CPU has
/// just written, less what one of them takes on a line that is here.
#[must_use]
pub fn transfer(from: usize, to: usize) -> f64 {
    transfer_of(from, to, 400)
}

/// The same at a glance: a millisecond or two.
#[must_use]
pub fn transfer_now(from: usize, to: usize) -> f64 {
    transfer_of(from, to, 20)
}

fn transfer_of(from: usize, to: usize, rounds: u64) -> f64 {
    let both = after_another_wrote(from, to, rounds, |field| {
        let first = field.walk(add_above);
        (first - field.walk(add_above)).max(0.1)
    });
    both.max(0.1)
}

/// What a locked addition takes beyond one on a line that is here, when this CPU has just read the
/// line that another one wrote, in ns: next to nothing where lines move whole to their readers.
#[must_use]
pub fn upgrade(from: usize, to: usize) -> f64 {
    const ROUNDS: u64 = 400;
    after_another_wrote(from, to, ROUNDS, |field| {
        field.walk(|word, _| word.load(Ordering::Acquire));
        let first = field.walk(add_above);
        (first - field.walk(add_above)).max(0.0)
    })
}

/// Lines that another CPU has just written, read and written one after the other without waiting
/// for each: one of them, in ns.
#[must_use]
pub fn overlapped(a: usize, b: usize) -> f64 {
    const ROUNDS: u64 = 1_500;
    after_another_wrote(a, b, ROUNDS, |field| {
        let start = Instant::now();
        for step in 0..Round::STEPS {
            // As a list is walked and changed: a load and a store, no lock.
            let word = &field.0[Round::place(step)].0;
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        core::sync::atomic::fence(Ordering::SeqCst);
        start.elapsed().as_secs_f64() * 1e9 / Round::STEPS as f64
    })
}

/// Stretches of either of two CPUs, during which both worked, that a figure needs.
const CLEAN: usize = 8;

/// How often a loop of two CPUs is run, each time twice as long, until there are so many.
const LONGER: u32 = 5;

/// Nanoseconds of one `step` by either of two CPUs that do nothing else, both at once, for `budget`
/// or, on a busy host, until both really worked at once.
fn at_once(a: usize, b: usize, budget: Duration, step: impl Fn() + Sync) -> f64 {
    let mut ns = 0.0;
    for longer in 0..LONGER {
        let sides = both(a, b, budget * (1 << longer), &step);
        let calm = together_by_task(&sides);
        let enough = calm.iter().all(|side| side.len() >= CLEAN);
        let sides = if enough { calm } else { sides };
        // In a stretch are its own CPU's steps only, and one of the two may do more than the other.
        let rate = |side: &Vec<Stretch>| 1.0 / median(side.iter().map(Stretch::ns).collect());
        ns = 1.0 / sides.iter().map(rate).sum::<f64>();
        if enough {
            break;
        }
    }
    ns
}

/// What two CPUs did for `budget`, in stretches.
fn both(a: usize, b: usize, budget: Duration, step: &(impl Fn() + Sync)) -> Vec<Vec<Stretch>> {
    // Long beside the look at the pace, during which the other CPU is alone.
    const ROUND: u64 = 10_000;
    let start = Meeting::of(2);
    let stop = AtomicBool::new(false);
    let origin = Instant::now();
    on_each(&[a, b], |_| {
        start.wait();
        let mut out = Vec::new();
        let mut watch = Watch::start(origin);
        while !stop.load(Ordering::Relaxed) {
            (0..ROUND).for_each(|_| step());
            out.push(watch.cut(ROUND));
            if origin.elapsed() > budget {
                stop.store(true, Ordering::Relaxed);
            }
        }
        out
    })
}

/// Nanoseconds of so many rounds of idle work.
#[must_use]
pub fn pause(rounds: u32) -> f64 {
    const MANY: u32 = 20_000;
    let round = time(u64::from(MANY), BUDGET / 8, || pace::idle(1, MANY));
    round * f64::from(rounds)
}

/// Locked additions to one line by two CPUs, each after so many rounds of idle work, all the time:
/// one of either's, in ns.
#[must_use]
pub fn contended_atomic(a: usize, b: usize, rounds: u32, budget: Duration) -> f64 {
    let word = Padded(AtomicU64::new(0));
    at_once(a, b, budget, || {
        pace::idle(1, rounds);
        word.0.fetch_add(1, Ordering::AcqRel);
    })
}

/// A lock of the core that two CPUs want all the time: one acquisition by either, in ns.
#[must_use]
pub fn hand_off(a: usize, b: usize, budget: Duration) -> f64 {
    let lock = Padded(RawLock::new(LockKind::List));
    at_once(a, b, budget, || {
        let taken = Linux::acquire(&lock.0).is_ok();
        debug_assert!(taken, "nobody interrupts");
        Linux::release_lock(&lock.0);
    })
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
            Some(median(trips))
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
