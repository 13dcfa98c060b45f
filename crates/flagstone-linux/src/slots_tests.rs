//! Threads, a seizing thread and signal handlers on the same slots; every object is in exactly
//! one place all the time.

use super::*;
use crate::membarrier;
use crate::take_over::{seize_fenced, seize_locked};
use core::num::NonZero;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicUsize};
use flagstone_core::slab::{OwnSheaf, bytes_for};
use std::alloc::{Layout, alloc_zeroed};
use std::sync::{Mutex, Once};
use std::vec::Vec;

/// Objects in play; small, so that sheaves run full and empty all the time.
const OBJECTS: usize = 96;
/// Objects one sheaf holds.
const CAPACITY: u32 = 12;
const SHEAVES: usize = 12;
const SHEAF_BYTES: usize = bytes_for(CAPACITY);
/// No object's address, and not zero.
const MARK: usize = 32;
const STEPS: usize = 60_000;
const WORKERS: usize = 4;

type Seize = unsafe fn(CpuArea, Range<u32>, Range<u32>, &mut dyn FnMut(Slot, SheafWord));

/// One form of the slot steps under test.
#[derive(Clone, Copy)]
struct Form {
    pop: unsafe fn(CpuArea, Slot) -> Option<NonNull<u8>>,
    push: unsafe fn(CpuArea, Slot, NonNull<u8>) -> bool,
    exchange: unsafe fn(CpuArea, Slot, SheafWord) -> SheafWord,
    seize: Seize,
}

const SEQUENCES: Form = Form {
    pop: rseq::pop,
    push: rseq::push,
    exchange: rseq::exchange,
    seize: seize_fenced,
};

const LOCKED: Form = Form {
    pop: pop_locked,
    push: push_locked,
    exchange: exchange_locked,
    seize: seize_locked,
};

/// The sequences with a pause before their last instruction, so that a fence which does not hold
/// shows.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const SLOW_SEQUENCES: Form = Form {
    pop: rseq::pop_slowly,
    push: rseq::push_slowly,
    // SAFETY: the caller's obligations; areas here have slots for every CPU.
    exchange: |area, slot, new| unsafe {
        rseq::exchange_below_slowly(Linux::cpu_count(), area, slot, new)
    },
    seize: seize_fenced,
};

fn start_once() {
    static START: Once = Once::new();
    START.call_once(crate::init);
}

fn zeroed(bytes: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(bytes, 4096).unwrap();
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap()
}

/// Keeps tests apart: one thread of the process takes sheaves at a time, and others go without.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The world of one test: an area, sheaves in a pool, objects with a mark each.
struct World {
    form: Form,
    area: CpuArea,
    slot: Slot,
    pool: Mutex<Vec<OwnSheaf>>,
    /// Zero: in a sheaf. One: a thread holds it.
    held: [AtomicU8; OBJECTS],
    /// Objects that a signal handler could not put back.
    escaped: [AtomicUsize; OBJECTS],
    escapes: AtomicUsize,
}

/// The object with this index: an address that is never followed.
fn object(index: usize) -> NonNull<u8> {
    NonNull::new(core::ptr::without_provenance_mut((index + 1) * 64)).unwrap()
}

fn index_of(object: NonNull<u8>) -> usize {
    let address = object.addr().get();
    assert!(address.is_multiple_of(64) && address / 64 - 1 < OBJECTS);
    address / 64 - 1
}

impl World {
    fn new(form: Form) -> Self {
        start_once();
        let base = zeroed(CpuArea::bytes_for(Linux::cpu_count()));
        // SAFETY: zeroed, aligned, never freed.
        let area = unsafe { CpuArea::new(base) };
        let world = Self {
            form,
            area,
            slot: Slot::main(7),
            pool: Mutex::default(),
            held: [const { AtomicU8::new(0) }; OBJECTS],
            escaped: [const { AtomicUsize::new(0) }; OBJECTS],
            escapes: AtomicUsize::new(0),
        };
        let mut next = 0;
        for _ in 0..SHEAVES {
            let memory = zeroed(bytes_for(CAPACITY));
            // SAFETY: fresh and ours, aligned to a page.
            let mut sheaf = unsafe { OwnSheaf::create(memory, CAPACITY) };
            for _ in 0..CAPACITY.min((OBJECTS - next) as u32) {
                sheaf.put(object(next));
                next += 1;
            }
            world.pool.lock().unwrap().push(sheaf);
        }
        assert_eq!(next, OBJECTS, "sheaves for all objects");
        world
    }

    fn pop(&self) -> Option<usize> {
        // SAFETY: the area is live.
        let index = index_of(unsafe { (self.form.pop)(self.area, self.slot) }?);
        let before = self.held[index].swap(1, Ordering::AcqRel);
        assert_eq!(before, 0, "object {index} was handed out twice");
        Some(index)
    }

    fn push(&self, index: usize) -> bool {
        assert_eq!(self.held[index].swap(0, Ordering::AcqRel), 1);
        // SAFETY: the area is live; the object was held.
        let done = unsafe { (self.form.push)(self.area, self.slot, object(index)) };
        if !done {
            let before = self.held[index].swap(1, Ordering::AcqRel);
            assert_eq!(before, 0, "a refused object was handed out");
        }
        done
    }

    /// Swaps the current CPU's sheaf for one from the pool.
    fn renew(&self) {
        let fresh = self.pool.lock().unwrap().pop();
        let word = fresh.map_or(SheafWord::ABSENT, |sheaf| {
            self.area.word_of(sheaf.into_entry())
        });
        // SAFETY: the area is live; the pool's sheaf is ours.
        let old = unsafe { (self.form.exchange)(self.area, self.slot, word) };
        self.give_back(old);
    }

    /// Puts an owned sheaf into the pool, after checking that nobody else works on it.
    fn give_back(&self, word: SheafWord) {
        if word.is_absent() {
            return;
        }
        // SAFETY: ours by exchange or seizure.
        let mut sheaf = unsafe { OwnSheaf::from_entry(self.area.entry(word), SHEAF_BYTES) };
        let (len, room) = (sheaf.len(), sheaf.room());
        // What a step that comes late would store lies above the word.
        let mark = NonNull::without_provenance(NonZero::new(MARK).unwrap());
        (0..room).for_each(|_| sheaf.put(mark));
        for _ in 0..50 {
            core::hint::spin_loop();
            let marked = (len..len + room).all(|index| sheaf.get(index) == Some(mark));
            assert!(marked, "a step came late");
        }
        (0..room).for_each(|_| assert_eq!(sheaf.take(), Some(mark)));
        let mut pool = self.pool.lock().unwrap();
        let known = pool.iter().any(|other| other.address() == sheaf.address());
        assert!(!known, "a sheaf was handed out twice");
        pool.insert(0, sheaf);
    }

    fn work(&self, seed: usize) {
        let mut random = seed as u64 * 2 + 1;
        let mut mine = Vec::with_capacity(OBJECTS);
        for _ in 0..STEPS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            match random >> 60 {
                0..=6 => match self.pop() {
                    Some(index) => mine.push(index),
                    None => self.renew(),
                },
                7..=14 => match mine.pop() {
                    Some(index) if !self.push(index) => {
                        mine.push(index);
                        self.renew();
                    }
                    _ => {}
                },
                _ => self.renew(),
            }
        }
        for index in mine {
            while !self.push(index) {
                self.renew();
            }
        }
    }

    fn seize_all(&self) -> usize {
        let mut seized = 0;
        let cache = self.slot.index() as u32;
        // SAFETY: the area is live, the CPUs exist.
        unsafe {
            (self.form.seize)(
                self.area,
                0..Linux::cpu_count(),
                cache..cache + 1,
                &mut |_, word| {
                    seized += 1;
                    self.give_back(word);
                },
            );
        }
        seized
    }

    /// Takes everything out and checks that every object is there once.
    fn settle(&self) {
        let mut seen = [0; OBJECTS];
        self.seize_all();
        for sheaf in self.pool.lock().unwrap().drain(..) {
            for index in 0..sheaf.len() {
                seen[index_of(sheaf.get(index).unwrap())] += 1;
            }
        }
        for escaped in &self.escaped[..self.escapes.load(Ordering::Acquire)] {
            seen[escaped.load(Ordering::Acquire)] += 1;
        }
        assert_eq!(seen, [1; OBJECTS], "objects lost or doubled");
    }
}

/// Counts a worker out, also one that panics.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Workers, and one more thread that seizes until they are done. Returns sheaves seized.
fn hammer(world: &World) -> usize {
    let running = AtomicUsize::new(WORKERS);
    std::thread::scope(|scope| {
        for seed in 0..WORKERS {
            let ended = Ended(&running);
            scope.spawn(move || {
                let _ended = ended;
                world.work(seed);
            });
        }
        let mut seized = 0;
        while running.load(Ordering::Acquire) != 0 {
            seized += world.seize_all();
            std::thread::yield_now();
        }
        seized
    })
}

#[test]
fn no_object_is_lost_or_doubled_under_locks_while_another_thread_seizes() {
    let _alone = alone();
    let world = World::new(LOCKED);
    let seized = hammer(&world);
    assert!(seized > 0);
    world.settle();
}

#[test]
fn no_object_is_lost_or_doubled_under_sequences_while_another_thread_seizes() {
    let _alone = alone();
    start_once();
    if !fast() {
        std::eprintln!("skipped: the C library registered no area for restartable sequences");
        return;
    }
    let world = World::new(SEQUENCES);
    let seized = hammer(&world);
    assert!(seized > 0);
    world.settle();
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn a_seized_sheaf_sees_no_late_step_of_a_slow_cpu() {
    let _alone = alone();
    start_once();
    if !fast() {
        std::eprintln!("skipped: the C library registered no area for restartable sequences");
        return;
    }
    let world = World::new(SLOW_SEQUENCES);
    let seized = hammer(&world);
    assert!(seized > 0);
    world.settle();
}

#[test]
fn both_forms_answer_the_same_to_the_same_steps() {
    let _alone = alone();
    start_once();
    if !fast() {
        std::eprintln!("skipped: the C library registered no area for restartable sequences");
        return;
    }
    pin_to_one_cpu();
    let transcript = |form| {
        let world = World::new(form);
        let mut random = 99u64;
        let mut said = Vec::new();
        let mut mine = Vec::new();
        for _ in 0..5_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            match random >> 61 {
                0..=2 => {
                    let got = world.pop();
                    mine.extend(got);
                    said.push(got);
                }
                3..=6 => {
                    if let Some(index) = mine.pop() {
                        let done = world.push(index);
                        said.push(Some(usize::from(done)));
                        if !done {
                            mine.push(index);
                        }
                    }
                }
                _ => world.renew(),
            }
        }
        said
    };
    // A dense index may change while the test's other threads come and go; then it says nothing.
    let undisturbed = || {
        let index = rseq::index();
        let said = transcript(SEQUENCES);
        (rseq::index() == index).then_some(said)
    };
    let said = (0..1000).find_map(|_| undisturbed());
    assert_eq!(said, Some(transcript(LOCKED)));
}

fn pin_to_one_cpu() {
    // SAFETY: plain integers; the mask is filled before use.
    unsafe {
        let mut mask: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut mask);
        libc::sched_setaffinity(0, size_of_val(&mask), &raw const mask);
    }
}

#[test]
fn the_top_object_is_not_taken_twice_in_a_row() {
    let _alone = alone();
    start_once();
    for form in [LOCKED].into_iter().chain(fast().then_some(SEQUENCES)) {
        pin_to_one_cpu();
        let world = World::new(form);
        let top = loop {
            match world.pop() {
                Some(index) => break object(index),
                None => world.renew(),
            }
        };
        // SAFETY: the area is live; the object was popped.
        unsafe {
            while !(form.push)(world.area, world.slot, top) {
                world.renew();
            }
            assert!(!(form.push)(world.area, world.slot, top));
        }
    }
}

#[test]
fn an_index_without_slots_reads_absent_and_installs_nothing() {
    let _alone = alone();
    start_once();
    if !fast() {
        std::eprintln!("skipped: the C library registered no area for restartable sequences");
        return;
    }
    let world = World::new(SEQUENCES);
    assert_eq!(world.pop(), None);
    let past_the_end = SheafWord(usize::MAX);
    // SAFETY: no index is below zero, so nothing is stored.
    let back = unsafe { rseq::exchange_below(0, world.area, world.slot, past_the_end) };
    assert_eq!(back, past_the_end);
}

/// The other half of a deadlock: the holder of this CPU's lock waits for one of ours.
#[test]
fn a_lock_that_never_comes_free_is_not_waited_for() {
    let _alone = alone();
    start_once();
    let cpu = CpuId(LOCKED_COUNT.load(Ordering::Acquire) - 1);
    let refused_to_others = |cpu| {
        let other = std::thread::spawn(move || locked_on(cpu, |_| ()).is_none());
        other.join().unwrap()
    };
    // Tests beside this one take the same lock for a moment.
    let refused = loop {
        if let Some(refused) = locked_on(cpu, refused_to_others) {
            break refused;
        }
    };
    assert!(refused);
}

mod interrupted {
    //! A signal handler that allocates and frees on top of a step.

    use super::*;
    use core::sync::atomic::{AtomicBool, AtomicPtr};

    static WORLD: AtomicPtr<World> = AtomicPtr::new(core::ptr::null_mut());
    static SIGNALS: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn handler(_signal: i32) {
        let world = WORLD.load(Ordering::Acquire);
        if world.is_null() {
            return;
        }
        SIGNALS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: set for the time the signals are sent.
        let world = unsafe { &*world };
        if let Some(index) = world.pop()
            && !world.push(index)
        {
            let place = world.escapes.fetch_add(1, Ordering::AcqRel);
            world.escaped[place].store(index, Ordering::Release);
        }
    }

    fn run(form: Form) {
        let world = std::boxed::Box::leak(std::boxed::Box::new(World::new(form)));
        let on_signal: extern "C" fn(i32) = handler;
        // SAFETY: the handler uses only atomics and the steps under test.
        unsafe { libc::signal(libc::SIGUSR2, on_signal as libc::sighandler_t) };
        WORLD.store(world, Ordering::Release);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let world = &*world;
            let done = &done;
            // SAFETY: no preconditions.
            let target = unsafe { libc::pthread_self() };
            let sender = scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    // SAFETY: the target outlives this scope.
                    unsafe { libc::pthread_kill(target, libc::SIGUSR2) };
                    for _ in 0..200 {
                        core::hint::spin_loop();
                    }
                }
            });
            while SIGNALS.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            // Both forms run in this thread only: under locks the handler meets its own steps.
            world.work(3);
            done.store(true, Ordering::Release);
            sender.join().unwrap();
        });
        WORLD.store(core::ptr::null_mut(), Ordering::Release);
        world.settle();
        SIGNALS.store(0, Ordering::Relaxed);
    }

    #[test]
    fn a_handler_on_top_of_a_step_loses_nothing() {
        let _alone = alone();
        start_once();
        run(LOCKED);
        if fast() {
            run(SEQUENCES);
        }
    }
}

#[test]
fn a_handler_on_top_of_a_cpus_holder_that_moved_on_to_another_is_told_so() {
    let _alone = alone();
    start_once();
    assert!(!stands_on_top());
    for cpu in 0..LOCKED_COUNT.load(Ordering::Relaxed) {
        assert_eq!(locked_on(CpuId(cpu), |_| stands_on_top()), Some(true));
        let of_another = locked_on(CpuId(cpu), |_| {
            std::thread::scope(|scope| scope.spawn(stands_on_top).join().expect("an answer"))
        });
        assert_eq!(of_another, Some(false));
    }
}

/// Fences that one take-over of `caches` caches on 224 CPUs costs, and the sheaves that it hands out.
fn take_over_of_224_cpus(caches: u32) -> (u32, u32) {
    const CPUS: u32 = 224;
    let base = zeroed(CpuArea::bytes_for(CPUS));
    // SAFETY: zeroed, aligned, never freed.
    let area = unsafe { CpuArea::new(base) };
    let places = || flagstone_core::platform::percpu::each_slot(0..CPUS, 0..caches);
    for (cpu, slot) in places() {
        // SAFETY: the area has slots for these CPUs.
        unsafe { area.word(cpu, slot) }.store(MARK, Ordering::Relaxed);
    }
    let before = membarrier::FENCES.load(Ordering::Relaxed);
    let mut handed = 0;
    let mut take = |_: Slot, word: SheafWord| handed += u32::from(word.0 == MARK);
    // SAFETY: the area is live, and nobody else uses it.
    unsafe { seize_fenced(area, 0..CPUS, 0..caches, &mut take) };
    for (cpu, slot) in places() {
        // SAFETY: as above.
        assert_eq!(unsafe { area.word(cpu, slot) }.load(Ordering::Relaxed), 0);
    }
    (membarrier::FENCES.load(Ordering::Relaxed) - before, handed)
}

#[test]
fn taking_the_slots_of_224_cpus_costs_two_fences_in_all() {
    let _alone = alone();
    start_once();
    if !fast() || !membarrier::ready() {
        std::eprintln!("skipped: no restartable sequences, or no fence for them");
        return;
    }
    assert_eq!(take_over_of_224_cpus(1), (2, 2 * 224));
    assert_eq!(
        take_over_of_224_cpus(70),
        (2, 2 * 224 * 70),
        "more than the stack holds"
    );
}
