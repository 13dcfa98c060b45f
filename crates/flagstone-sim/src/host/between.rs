//! What single steps between two CPUs of this host cost.
//!
//! ```text
//!   a round of a field    one CPU writes its lines, then the other one does what is measured
//!   both at once          a loop of either, in stretches during which both worked
//! ```

use super::pace;
use super::probe::Padded;
use super::threads::{Meeting, Stretch, Watch, lower_quartile, median, on_each, together_by_task};
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use flagstone_core::platform::{LockKind, Platform, RawLock};
use flagstone_linux::Linux;
use std::time::{Duration, Instant};

/// Who looks at lines when: first one CPU writes all of them, then another one does what is measured;
/// so many rounds. Lower quartile of a line's nanoseconds.
fn after_another_wrote(
    a: usize,
    b: usize,
    rounds: u64,
    write: impl Fn() + Sync,
    measured: impl Fn() -> f64 + Sync,
) -> f64 {
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
                write();
            } else {
                out.push(measured());
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
    beyond_one_here(from, to, rounds, |_| ()).max(0.1)
}

/// What a locked addition takes beyond one on a line that is here, when this CPU has just read the
/// line that another one wrote, in ns: next to nothing where lines move whole to their readers.
#[must_use]
pub fn upgrade(from: usize, to: usize) -> f64 {
    beyond_one_here(from, to, 400, |field| {
        field.walk(|word, _| word.load(Ordering::Acquire));
    })
}

/// What a locked addition takes beyond one on a line that is here, in ns, when another CPU has written
/// the lines and then this one has done `before` with them.
fn beyond_one_here(from: usize, to: usize, rounds: u64, before: impl Fn(&Round) + Sync) -> f64 {
    let field = Round::new();
    let write = || field.write();
    after_another_wrote(from, to, rounds, write, || {
        before(&field);
        let first = field.walk(add_above);
        (first - field.walk(add_above)).max(0.0)
    })
}

/// Lines that another CPU has just written, read and written one after the other without waiting
/// for each: one of them, in ns.
#[must_use]
pub fn overlapped(a: usize, b: usize) -> f64 {
    const ROUNDS: u64 = 1_500;
    let field = Round::new();
    after_another_wrote(
        a,
        b,
        ROUNDS,
        || field.write(),
        || {
            let start = Instant::now();
            for step in 0..Round::STEPS {
                // As a list is walked and changed: a load and a store, no lock.
                let word = &field.0[Round::place(step)].0;
                word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            core::sync::atomic::fence(Ordering::SeqCst);
            start.elapsed().as_secs_f64() * 1e9 / Round::STEPS as f64
        },
    )
}

/// Free objects of so many lines in a row, one or two, of which another CPU has just written the links, in
/// their last lines: one of them, in ns, when this one takes them in turn, the last one first, each link
/// saying where the next one is, and writes their first lines. Those have come and gone with the second
/// ones, which prefetchers fetch as pairs.
#[must_use]
pub fn in_row(a: usize, b: usize, lines: usize) -> f64 {
    const ROUNDS: u64 = 1_500;
    const OBJECTS: usize = 128;
    let words = |_| Padded::<[AtomicU64; 16]>(Default::default());
    let pairs: Vec<Padded<[AtomicU64; 16]>> = (0..=OBJECTS).map(words).collect();
    let line = |number: usize| &pairs[number / 2].0[number % 2 * 8];
    let (first, link) = (|at| line(at * lines), |at| line(at * lines + lines - 1));
    let write = || {
        for at in (1..=OBJECTS).rev() {
            link(at).store(at as u64 - 1, Ordering::Relaxed);
        }
        core::sync::atomic::fence(Ordering::SeqCst);
    };
    after_another_wrote(a, b, ROUNDS, write, || {
        let start = Instant::now();
        let mut at = OBJECTS;
        for _ in 0..OBJECTS {
            let next = link(at).load(Ordering::Relaxed) as usize;
            // Its mark goes, as an object is handed out.
            link(at).store(0, Ordering::Relaxed);
            first(at).store(1, Ordering::Relaxed);
            at = next;
        }
        black_box(at);
        start.elapsed().as_secs_f64() * 1e9 / OBJECTS as f64
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
