//! The player: a process that runs a program on the allocator it was started with.
//!
//! The program's tables, slots and samples are a shared mapping of its file; each thread reads its operations
//! from the file, a segment at a time, onto its stack. So memory does not grow with the program. What is
//! measured is the memory of the allocator: all of the process's own but data of the executable and its
//! libraries, and stacks.

use super::file::map;
use super::program::{Head, Op, SAMPLES_MAX, SEGMENT, Sample, Segment, StreamHead, kind};
use super::{Pace, feed};
use flagstone_linux::look::{Known, Look, Scratch, stack};
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Seconds without a new segment of a thousand operations after which a run is killed. Not with the trace's own pauses.
const STUCK_S: u32 = 600;

/// Rounds of waiting for another thread before the processor is given up.
const SPINS: u32 = 64;

/// The mapped program.
#[derive(Clone, Copy)]
struct Program {
    base: *mut u8,
}

// SAFETY: the mapping is shared; tables are only read, slots and counts are atomic, and each sample is
// written by the thread that got its number.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

/// What all threads of a run share.
struct Run {
    program: Program,
    file: File,
    pace: Pace,
    began: Instant,
    /// Streams that have operations left.
    left: AtomicUsize,
    /// Threads that have ended as the program's did.
    ended: AtomicU64,
    /// What threads that live until the program ends wait for: nothing.
    never: (Mutex<()>, Condvar),
    refused: AtomicU64,
    done: AtomicU64,
    /// When the last thread went to sleep for want of a window, after the start; zero while one is played.
    idle_at: AtomicU64,
    /// Nanoseconds of all such waits.
    stalled: AtomicU64,
    page: u64,
    /// Nanoseconds of the thread that spent most on samples.
    longest_look: AtomicU64,
    /// Processor time of all samples.
    looked: AtomicU64,
}

/// Tells that a thread has ended, when its thread-local values are given up.
struct Ended(&'static Run);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
    }
}

thread_local! {
    static TOLD: Cell<Option<Ended>> = const { Cell::new(None) };
}

/// Stacks of the player's threads, each once: threads get the stacks of those that have ended.
static STACKS: Mutex<([[usize; 2]; 1024], usize)> = Mutex::new(([[0; 2]; 1024], 0));

/// What a look works in: data of the executable, not memory of the allocator.
static SCRATCH: Mutex<Scratch> = Mutex::new(Scratch::new());

/// The run of this process; not memory of the allocator.
static RUN: OnceLock<Run> = OnceLock::new();

/// Plays the program in `file` and leaves the figures in it. Nothing is asked of the allocator before the program's first
/// operation.
///
/// # Errors
/// A line that says why it could not be played.
pub fn play(file: &Path, pace: Pace) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", file.display());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .map_err(told)?;
    let bytes = file.metadata().map_err(told)?.len() as usize;
    let base = map(&file, bytes).map_err(told)?;
    let program = Program { base };
    // A player lives no longer than its command, and as long as its trace.
    // SAFETY: neither call has obligations.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::alarm(if pace == Pace::Real { 0 } else { STUCK_S });
    }
    let head = program.head();
    // SAFETY: sysconf with a valid name has no obligations.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let (faults, cpu) = used();
    let mut run = Run {
        program,
        file,
        pace,
        began: Instant::now(),
        left: AtomicUsize::new(1),
        ended: AtomicU64::new(0),
        never: (Mutex::new(()), Condvar::new()),
        refused: AtomicU64::new(0),
        done: AtomicU64::new(0),
        idle_at: AtomicU64::new(0),
        stalled: AtomicU64::new(0),
        page,
        longest_look: AtomicU64::new(0),
        looked: AtomicU64::new(0),
    };
    let base_bytes = heap_bytes();
    run.awaited(0, 0);
    let began = Instant::now();
    run.began = began;
    let run = RUN.get_or_init(|| run);
    run.next_of(0).store(0, Ordering::Relaxed);
    if stream(run, 0) {
        run.ended.fetch_add(1, Ordering::AcqRel);
    }
    wait(|| run.left.load(Ordering::Acquire) == 0);
    let run_ns = began.elapsed().as_nanos() as u64;
    let aside = run.longest_look.load(Ordering::Relaxed) + run.stalled_ns();
    let run_ns = run_ns.saturating_sub(aside);
    run.sample(u64::MAX);
    let (faults_after, cpu_after) = used();
    // SAFETY: the other threads have ended; the head is this thread's.
    let left = unsafe { &mut *program.base.cast::<Head>() };
    *left = Head {
        samples: run.samples().min(SAMPLES_MAX),
        run_ns,
        base_bytes,
        faults: faults_after - faults,
        cpu_ns: (cpu_after - cpu).saturating_sub(run.looked.load(Ordering::Relaxed)),
        refused: run.refused.load(Ordering::Relaxed),
        ..head
    };
    Ok(())
}

impl Program {
    fn head(self) -> Head {
        // SAFETY: the file begins with its head.
        unsafe { self.base.cast::<Head>().read() }
    }

    fn at<T>(self, offset: u64, index: u64) -> *mut T {
        // SAFETY: the compiler of programs put the tables there, aligned to eight.
        unsafe {
            self.base
                .add(offset as usize)
                .cast::<T>()
                .add(index as usize)
        }
    }
}

/// Plays one stream to its end; whether its thread ends then.
fn stream(run: &'static Run, number: u64) -> bool {
    let program = run.program;
    let head = program.head();
    let mut until_sample = head.sample_every;
    let mut looked = 0;
    let mut ahead = Ahead::of(run, &head, number);
    let mut exits = false;
    let mut room = [0; SEGMENT];
    // SAFETY: a stream of the table, whose last window stays as it is.
    let last = unsafe { (*program.at::<StreamHead>(head.streams_at, number)).last };
    let mut done = 0;
    while done < last {
        let (window, mut next) = run.awaited(number, done);
        done = window;
        while next != 0 {
            // SAFETY: a segment of the table, which stays until it is consumed.
            let segment = unsafe { program.at::<Segment>(head.segments_at, next - 1).read() };
            let rest = &mut room[..segment.bytes as usize];
            if let Err(error) = run.file.read_exact_at(rest, segment.offset) {
                eprintln!("flagstone: replay: the program made of the trace: {error}");
                std::process::exit(1);
            }
            run.consumed();
            let mut rest: &[u8] = rest;
            while let Some((op, after)) = Op::unpack(rest, segment.began) {
                rest = after;
                ahead.meet(run, op.ns);
                if run.pace == Pace::Real {
                    wait_until(run.began + Duration::from_nanos(op.ns + run.stalled_ns()));
                }
                perform(run, &head, &op);
                exits |= op.kind == kind::EXIT;
                // What a forked process began with is made before the trace's time.
                until_sample -= u64::from(op.ns > 0 || until_sample > 1);
                if until_sample == 0 {
                    until_sample = head.sample_every;
                    looked += run.sample(op.ns);
                }
            }
            next = segment.next;
        }
    }
    run.longest_look.fetch_max(looked, Ordering::Relaxed);
    run.next_of(number).store(u64::MAX, Ordering::Release);
    run.left.fetch_sub(1, Ordering::AcqRel);
    exits
}

/// A thread but the first: it ends, or stays until the process does.
fn thread(run: &'static Run, number: u64) {
    know_stack();
    if stream(run, number) {
        let told = Ended(run);
        return TOLD.set(Some(told));
    }
    let mut held = run.never.0.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        held = run
            .never
            .1
            .wait(held)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// Waits for other threads: first by giving the processor up, then asleep.
fn wait(until: impl Fn() -> bool) {
    const ROUNDS: u32 = 50;
    const NAP: Duration = Duration::from_micros(20);
    let mut round = 0;
    while !until() {
        round += 1;
        if round < ROUNDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}

/// How far a stream is, and may be ahead of others. The stream that is last is never held up: what others
/// know of it is less than a quarter of the window old.
struct Ahead {
    streams: u64,
    window: u64,
    own: &'static AtomicU64,
    /// What others know.
    told: u64,
    /// Up to here it may go on without a look at the others.
    until: u64,
}

impl Ahead {
    fn of(run: &'static Run, head: &Head, number: u64) -> Self {
        Self {
            streams: head.streams,
            window: match run.pace {
                Pace::Together => head.window_ns,
                Pace::Fast | Pace::Real => u64::MAX / 4,
            },
            own: run.next_of(number),
            told: 0,
            until: match run.pace {
                Pace::Together => 0,
                Pace::Fast | Pace::Real => u64::MAX,
            },
        }
    }

    /// Waits until no other stream is too far behind.
    fn meet(&mut self, run: &'static Run, ns: u64) {
        if ns > self.told + self.window / 4 {
            self.own.store(ns, Ordering::Release);
            self.told = ns;
        }
        if ns > self.until {
            self.look(run, ns);
        }
    }

    #[cold]
    fn look(&mut self, run: &'static Run, ns: u64) {
        self.own.store(ns, Ordering::Release);
        self.told = ns;
        let last = || {
            let all = (0..self.streams).map(|other| run.next_of(other).load(Ordering::Acquire));
            all.min().unwrap_or(ns).saturating_add(self.window)
        };
        wait(|| ns <= last());
        self.until = last().min(ns + self.window);
    }
}

fn wait_until(due: Instant) {
    let now = Instant::now();
    if due > now {
        // The trace's own pause: part of what is replayed.
        std::thread::sleep(due - now);
    }
}

/// Bits of an address; above them a slot holds its turn.
const ADDRESS_BITS: u32 = 48;

/// What a slot holds while its block could not be had.
const REFUSED: u64 = 1;
/// What a slot holds while its block is touched.
const BUSY: u64 = 2;

/// A slot: whose turn it is, and the block, zero while there is none.
#[derive(Clone, Copy)]
struct Slot<'a> {
    word: &'a AtomicU64,
    turn: u16,
}

impl Slot<'_> {
    /// Waits until the operations before this one are done; the block they left.
    fn awaited(self) -> usize {
        let mut round = 0;
        loop {
            let (turn, block) = apart(self.word.load(Ordering::Acquire));
            if turn == self.turn && block != BUSY {
                return block as usize;
            }
            round += 1;
            if round % SPINS == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Whether the operations before this one are done; later ones may be as well.
    fn has_come(self) -> bool {
        let (turn, _) = apart(self.word.load(Ordering::Acquire));
        turn.wrapping_sub(self.turn) < 1 << 15
    }

    /// Takes the block out of others' reach if it is still there.
    fn claim(self, block: usize) -> bool {
        let held = together(self.turn, block as u64);
        let busy = together(self.turn, BUSY);
        self.word
            .compare_exchange(held, busy, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Waits for the block, and keeps others from touching it where a program has such operations.
    fn claimed(self, head: &Head) -> usize {
        loop {
            let block = self.awaited();
            if head.touches == 0 || self.claim(block) {
                return block;
            }
        }
    }

    /// Leaves a block, zero for none, to the next operation.
    fn leave(self, block: usize) {
        let next = together(self.turn.wrapping_add(1), block as u64);
        self.word.store(next, Ordering::Release);
    }
}

/// A block, or that there is none.
fn or_refused(block: usize) -> usize {
    if block == 0 { REFUSED as usize } else { block }
}

fn together(turn: u16, block: u64) -> u64 {
    u64::from(turn) << ADDRESS_BITS | block
}

fn apart(word: u64) -> (u16, u64) {
    (
        (word >> ADDRESS_BITS) as u16,
        word & ((1 << ADDRESS_BITS) - 1),
    )
}

fn perform(run: &'static Run, head: &Head, op: &Op) {
    let slot = || Slot {
        // SAFETY: slots are words below the head's count.
        word: unsafe {
            &*run
                .program
                .at::<AtomicU64>(head.slots_at, u64::from(op.slot))
        },
        turn: op.turn,
    };
    match op.kind {
        kind::SPAWN => {
            wait(|| run.ended.load(Ordering::Acquire) >= op.size);
            run.left.fetch_add(1, Ordering::AcqRel);
            let number = u64::from(op.slot);
            run.next_of(number).store(op.ns, Ordering::Release);
            let spawned = std::thread::Builder::new()
                .stack_size(128 << 10)
                .spawn(move || thread(run, number));
            if spawned.is_err() {
                eprintln!("flagstone: replay: thread {number} could not be started");
                std::process::exit(1);
            }
        }
        kind::TRIM => {
            // A C library without the function has no use for the call.
            #[cfg(target_env = "gnu")]
            // SAFETY: no preconditions.
            unsafe {
                libc::malloc_trim(op.size as usize)
            };
        }
        kind::EXIT => {}
        kind::TOUCH => touch_further(run, slot(), op.touch),
        kind::FREE => {
            let slot = slot();
            let block = slot.claimed(head);
            if block != REFUSED as usize {
                // SAFETY: the slot's block, which no later operation uses.
                unsafe { libc::free(block as *mut libc::c_void) };
            }
            slot.leave(0);
        }
        kind::REALLOC => {
            let slot = slot();
            let block = slot.claimed(head);
            let old = if block == REFUSED as usize { 0 } else { block };
            let size = (op.size as usize).max(1);
            // SAFETY: the slot's block, which is used by its new address from here on.
            let new = unsafe { libc::realloc(old as *mut libc::c_void, size) } as usize;
            run.got(new, op);
            slot.leave(if new == 0 { block } else { new });
        }
        _ => {
            let slot = slot();
            slot.awaited();
            let block = allocate(op);
            run.got(block, op);
            slot.leave(or_refused(block));
        }
    }
}

/// Touches a block if it is still there: a look's thread is not the one that frees the block. Nobody frees a
/// block whose slot is busy.
fn touch_further(run: &Run, slot: Slot<'_>, bytes: u64) {
    wait(|| slot.has_come());
    let word = slot.word.load(Ordering::Acquire);
    let (turn, block) = apart(word);
    if turn == slot.turn && block > BUSY && slot.claim(block as usize) {
        run.touch(block as usize, bytes);
        slot.word.store(word, Ordering::Release);
    }
}

fn know_stack() {
    if let (Some(stack), Ok(mut known)) = (stack(), STACKS.lock()) {
        let count = known.1;
        if count < known.0.len() && known.0[..count].iter().all(|old| old[0] != stack[0]) {
            known.0[count] = stack;
            known.1 += 1;
        }
    }
}

fn allocate(op: &Op) -> usize {
    let size = op.size as usize;
    // SAFETY: allocation functions have no obligations; the result of `posix_memalign` is read only
    // where it says so.
    unsafe {
        match op.kind {
            kind::ZEROED => libc::calloc(1, size) as usize,
            kind::ALIGNED => {
                let align = (1_usize << op.align_log2).max(size_of::<usize>());
                let mut block = std::ptr::null_mut();
                match libc::posix_memalign(&raw mut block, align, size) {
                    0 => block as usize,
                    _ => 0,
                }
            }
            _ => libc::malloc(size) as usize,
        }
    }
}

impl Run {
    /// A word of the head that the command uses too.
    fn word(&self, offset: usize) -> &'static AtomicU64 {
        // SAFETY: a word of the head, in a mapping that stays; it is only used as an atomic.
        unsafe { &*self.program.base.add(offset).cast() }
    }

    /// Waits for a stream's next window after the one it is through with; that window, and the first segment plus
    /// one. Of a process that has done none yet, waits for the first window.
    fn awaited(&self, number: u64, done: u64) -> (u64, u64) {
        let head = self.program.head();
        let stream = self.program.at::<StreamHead>(head.streams_at, number);
        // SAFETY: a stream of the table, in a mapping that stays; the words are only used as atomics meanwhile.
        let (window, first): (&AtomicU64, &AtomicU64) = unsafe {
            (
                &*(&raw mut (*stream).window).cast(),
                &*(&raw mut (*stream).first).cast(),
            )
        };
        let published = self.word(offset_of!(Head, published));
        loop {
            let windows = published.load(Ordering::Acquire);
            if self.word(offset_of!(Head, failed)).load(Ordering::Acquire) != 0 {
                eprintln!("flagstone: replay: the trace could not be read to its end");
                std::process::exit(1);
            }
            let next = window.load(Ordering::Acquire);
            if next > done {
                return (next, first.load(Ordering::Relaxed));
            }
            // Nobody waits for a stream that has nothing to do.
            self.next_of(number).store(u64::MAX, Ordering::Release);
            let consumed = self
                .word(offset_of!(Head, consumed))
                .load(Ordering::Acquire);
            let handed = self.word(offset_of!(Head, handed)).load(Ordering::Acquire);
            if windows > 0 && consumed == handed {
                self.idle_at.fetch_max(self.elapsed_ns(), Ordering::AcqRel);
            }
            feed::sleep(published, windows);
        }
    }

    /// A segment is read: its room is free. A program whose windows stop coming, or go on for ever, is stuck.
    fn consumed(&self) {
        self.word(offset_of!(Head, consumed))
            .fetch_add(1, Ordering::Release);
        if self.idle_at.load(Ordering::Relaxed) != 0 {
            // The window's first: the thread that went to sleep last began the wait.
            let since = self.idle_at.swap(0, Ordering::AcqRel);
            if since != 0 {
                let stalled = self.elapsed_ns().saturating_sub(since);
                self.stalled.fetch_add(stalled, Ordering::AcqRel);
            }
        }
        if self.pace != Pace::Real {
            // SAFETY: alarm has no obligations.
            unsafe { libc::alarm(STUCK_S) };
        }
    }

    /// Nanoseconds in which there was nothing to do but to wait for a window.
    fn stalled_ns(&self) -> u64 {
        self.stalled.load(Ordering::Acquire)
    }

    fn elapsed_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Where a stream says how far it is.
    fn next_of(&self, number: u64) -> &'static AtomicU64 {
        let head = self.program.head();
        let stream = self.program.at::<StreamHead>(head.streams_at, number);
        // SAFETY: a stream of the table, in a mapping that stays; the word is only used as an atomic.
        unsafe { &*(&raw mut (*stream).next_ns).cast() }
    }

    /// Touches a block as far as the trace says, or counts that there is none.
    fn got(&self, block: usize, op: &Op) {
        if block == 0 {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.touch(block, op.touch.min(op.size));
    }

    fn touch(&self, block: usize, bytes: u64) {
        let mut at = 0;
        while at < bytes {
            // SAFETY: a byte of the block; volatile, so that the store is made.
            unsafe { ((block + at as usize) as *mut u8).write_volatile(1) };
            at += self.page;
        }
    }

    fn samples(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Looks at the memory; the nanoseconds that took.
    fn sample(&self, trace_ns: u64) -> u64 {
        let number = self.done.fetch_add(1, Ordering::Relaxed);
        if number >= SAMPLES_MAX {
            return 0;
        }
        let (began, cpu) = (Instant::now(), thread_cpu_ns());
        let sample = Sample {
            trace_ns,
            run_ns: self.began.elapsed().as_nanos() as u64,
            bytes: heap_bytes(),
        };
        let head = self.program.head();
        // SAFETY: the number is this thread's alone and within the table.
        unsafe {
            self.program
                .at::<Sample>(head.samples_at, number)
                .write(sample)
        };
        let cpu = thread_cpu_ns().saturating_sub(cpu);
        self.looked.fetch_add(cpu, Ordering::Relaxed);
        began.elapsed().as_nanos() as u64
    }
}

/// Processor time of this thread.
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a structure to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Resident bytes of the allocator; zero where the system does not tell.
fn heap_bytes() -> u64 {
    let (Ok(mut scratch), Ok(stacks)) = (SCRATCH.lock(), STACKS.lock()) else {
        return 0;
    };
    let known = Known {
        // A stack that lives begins with its mapping as well: they are the C library's.
        ended: &stacks.0[..stacks.1],
        ..Known::default()
    };
    Look::open(&mut scratch)
        .and_then(|mut look| look.share(known))
        .map_or(0, |found| found.heap)
}

/// Faults and processor time so far.
fn used() -> (u64, u64) {
    // SAFETY: plain integers; all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a structure to fill.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    (
        (usage.ru_minflt + usage.ru_majflt) as u64,
        ns(usage.ru_utime) + ns(usage.ru_stime),
    )
}
