//! One task allocates, another one frees: objects go from one to the other by mail.

use super::super::ground::{Ground, Hall, Really, Source};
use super::super::threads::{Meeting, Stretch, at_best_pace, on_each};
use super::row::Seen;
use crate::workload::one_alloc_n_free::{self, BUNDLE, COUNT};
use crate::workload::stage::Stage;
use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

/// A mailbox that holds a whole round: filled in order, with one atomic step for each bundle each way.
#[repr(align(128))]
struct Mail {
    posted: AtomicU64,
    letters: Vec<AtomicPtr<u8>>,
}

impl Mail {
    fn new() -> Self {
        let letters = (0..COUNT).map(|_| AtomicPtr::new(core::ptr::null_mut()));
        Self {
            posted: AtomicU64::new(0),
            letters: letters.collect(),
        }
    }

    fn post(&self, object: NonNull<u8>, at: &Cell<u64>) {
        self.letters[at.get() as usize].store(object.as_ptr(), Ordering::Relaxed);
        at.set(at.get() + 1);
        if at.get().is_multiple_of(BUNDLE) {
            self.posted.fetch_add(BUNDLE, Ordering::AcqRel);
        }
    }

    /// The letter after `at`, once it is there. Low bits count letters, high ones fetches.
    fn fetch(&self, at: &Cell<u64>) -> NonNull<u8> {
        const FETCHED: u64 = 1 << 32;
        while at.get().is_multiple_of(BUNDLE) {
            let posted = self.posted.fetch_add(FETCHED, Ordering::AcqRel) % FETCHED;
            if posted > at.get() {
                break;
            }
            while self.posted.load(Ordering::Acquire) % FETCHED <= at.get() {
                core::hint::spin_loop();
            }
        }
        let letter = self.letters[at.get() as usize].load(Ordering::Relaxed);
        at.set(at.get() + 1);
        NonNull::new(letter).expect("posted before it was counted")
    }
}

/// One producer, one consumer on the same or another CPU: both sides' figures while a line took `way`
/// nanoseconds between them.
pub(super) fn one_alloc<A: Source>(
    ground: &Ground,
    source: &A,
    cpus: &[usize],
    span: Duration,
    way: Option<f64>,
) -> [Seen; 2] {
    let hall = Hall::new(cpus.len());
    let cache = ground.class(one_alloc_n_free::SIZE);
    let (start, end) = (Meeting::of(cpus.len()), Meeting::of(cpus.len()));
    let mail = Mail::new();
    let each = COUNT / cpus.len() as u64;
    let over = AtomicBool::new(false);
    let sides = on_each(cpus, |task| {
        let stage = Really::new(ground, source, &hall, task, u64::MAX);
        let (mut made, mut freed) = (Vec::new(), Vec::new());
        let mut last_way = None;
        loop {
            if task == 0 {
                // The consumer looks after each round; until then these lines are the producer's.
                let _ = hall.way_to(task);
                mail.posted.store(0, Ordering::Relaxed);
                over.store(hall.origin().elapsed() > span, Ordering::Relaxed);
            }
            start.wait();
            if over.load(Ordering::Relaxed) {
                return (made, freed);
            }
            let (posted, fetched) = (Cell::new(0), Cell::new(0));
            stage.restart();
            if task == 0 {
                one_alloc_n_free::produce(&stage, cache, 1, |_, o| mail.post(o, &posted));
                stage.cut(COUNT);
                made.extend(stage.stretches());
            }
            if task == cpus.len() - 1 {
                one_alloc_n_free::consume(&stage, cache, each, || mail.fetch(&fetched));
                stage.cut(each);
                freed.extend(stage.stretches());
            }
            end.wait();
            if task == cpus.len() - 1 {
                let way = hall.way_to(task);
                let round = freed.last_mut().expect("one a round");
                round.ways = [last_way, way];
                last_way = way;
                while fetched.get() < COUNT {
                    // SAFETY: the producer gave it up; it came from this cache.
                    unsafe { stage.free(cache, mail.fetch(&fetched)) };
                }
            }
            // Nobody empties the mailbox for the next round before it is read to its end.
            end.wait();
        }
    });
    rounds_together(&sides[0].0, &sides[cpus.len() - 1].1, cpus.len() > 1, way)
}

/// Both sides' figures over the later half of the rounds, of those that nobody disturbed and, on
/// two CPUs, that both sides began at once with a line's way as it should be.
fn rounds_together(
    made: &[Stretch],
    freed: &[Stretch],
    at_once: bool,
    way: Option<f64>,
) -> [Seen; 2] {
    let rounds: Vec<_> = made.iter().zip(freed).skip(made.len() / 2).collect();
    let fits = |(made, freed): &&(&Stretch, &Stretch)| {
        let apart = made.from.abs_diff(freed.from);
        made.is_undisturbed()
            && freed.is_undisturbed()
            && freed.went(way)
            && (!at_once || apart < Duration::from_micros(3))
    };
    let clean: Vec<_> = rounds.iter().filter(fits).copied().collect();
    let (calm, all) = (clean.len(), rounds.len());
    let from = if clean.is_empty() { rounds } else { clean };
    let from = at_best_pace(from, |(made, freed)| f64::midpoint(made.pace, freed.pace));
    let (made, freed): (Vec<Stretch>, Vec<Stretch>) = from
        .into_iter()
        .map(|(m, f)| (Stretch { ways: f.ways, ..*m }, *f))
        .unzip();
    [made, freed].map(|side| Seen::of(&[side], calm, all))
}
