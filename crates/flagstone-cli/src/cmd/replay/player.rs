//! The player: a process that runs a program on the allocator it was started with.
//!
//! The program is a shared mapping of a file, slots and samples included, so nothing of the player is
//! anonymous memory but its threads' stacks; what it had before the first operation is subtracted.

use super::Pace;
use super::program::{Head, Op, SAMPLES_MAX, Sample, Segment, StreamHead, kind};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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
    pace: Pace,
    began: Instant,
    /// Streams that have not ended.
    left: AtomicUsize,
    refused: AtomicU64,
    done: AtomicU64,
    page: u64,
}

/// Plays the program in `file` and leaves the figures in it.
///
/// # Errors
/// A line that says why it could not be played.
pub fn play(file: &Path, pace: Pace) -> Result<(), String> {
    let program = map(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let head = program.head();
    // SAFETY: sysconf with a valid name has no obligations.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let (faults, cpu) = used();
    let run = Box::leak(Box::new(Run {
        program,
        pace,
        began: Instant::now(),
        left: AtomicUsize::new(1),
        refused: AtomicU64::new(0),
        done: AtomicU64::new(0),
        page,
    }));
    let base_pages = anonymous_pages();
    let began = Instant::now();
    run.began = began;
    let run: &'static Run = run;
    stream(run, 0);
    while run.left.load(Ordering::Acquire) > 0 {
        std::thread::yield_now();
    }
    let run_ns = began.elapsed().as_nanos() as u64;
    run.sample(u64::MAX);
    let (faults_after, cpu_after) = used();
    // SAFETY: the other threads have ended; the head is this thread's.
    let left = unsafe { &mut *program.base.cast::<Head>() };
    *left = Head {
        samples: run.samples().min(SAMPLES_MAX),
        run_ns,
        base_pages,
        faults: faults_after - faults,
        cpu_ns: cpu_after - cpu,
        refused: run.refused.load(Ordering::Relaxed),
        ..head
    };
    Ok(())
}

fn map(file: &Path) -> std::io::Result<Program> {
    let file = OpenOptions::new().read(true).write(true).open(file)?;
    let bytes = file.metadata()?.len() as usize;
    // SAFETY: a mapping of a file, which nobody shortens while it is played.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    Ok(Program { base: base.cast() })
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

/// Plays one stream to its end.
fn stream(run: &'static Run, number: u64) {
    let program = run.program;
    let head = program.head();
    // SAFETY: a stream of the table.
    let mut next = unsafe {
        program
            .at::<StreamHead>(head.streams_at, number)
            .read()
            .first
    };
    let mut until_sample = head.sample_every;
    while next != 0 {
        // SAFETY: a segment of the table.
        let segment = unsafe { program.at::<Segment>(head.segments_at, next - 1).read() };
        for index in 0..segment.count {
            // SAFETY: an operation of the segment.
            let op = unsafe { program.at::<Op>(segment.offset, index).read() };
            if run.pace == Pace::Real {
                wait_until(run.began + Duration::from_nanos(op.ns));
            }
            perform(run, &head, &op);
            until_sample -= 1;
            if until_sample == 0 {
                until_sample = head.sample_every;
                run.sample(op.ns);
            }
        }
        next = segment.next;
    }
    run.left.fetch_sub(1, Ordering::AcqRel);
}

fn wait_until(due: Instant) {
    let now = Instant::now();
    if due > now {
        // The trace's own pause: part of what is replayed.
        std::thread::sleep(due - now);
    }
}

/// Waits until the slot is empty, or full, as an earlier operation of another thread leaves it.
fn awaited(slot: &AtomicUsize, full: bool) -> usize {
    let mut round = 0;
    loop {
        let held = slot.load(Ordering::Acquire);
        if (held != 0) == full {
            return held;
        }
        round += 1;
        if round % SPINS == 0 {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// What a slot holds while its block could not be had.
const REFUSED: usize = 1;

fn perform(run: &'static Run, head: &Head, op: &Op) {
    // SAFETY: slots are words below the head's count.
    let slot = || unsafe {
        &*run
            .program
            .at::<AtomicUsize>(head.slots_at, u64::from(op.slot))
    };
    match op.kind {
        kind::SPAWN => {
            run.left.fetch_add(1, Ordering::AcqRel);
            let number = u64::from(op.slot);
            let spawned = std::thread::Builder::new()
                .stack_size(128 << 10)
                .spawn(move || stream(run, number));
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
        kind::FREE => {
            let slot = slot();
            let block = awaited(slot, true);
            if block != REFUSED {
                // SAFETY: the slot's block, which no later operation uses.
                unsafe { libc::free(block as *mut libc::c_void) };
            }
            slot.store(0, Ordering::Release);
        }
        kind::REALLOC => {
            let slot = slot();
            let block = awaited(slot, true);
            let old = if block == REFUSED { 0 } else { block };
            let size = (op.size as usize).max(1);
            // SAFETY: the slot's block, which is used by its new address from here on.
            let new = unsafe { libc::realloc(old as *mut libc::c_void, size) } as usize;
            run.got(new, op);
            slot.store(if new == 0 { block } else { new }, Ordering::Release);
        }
        _ => {
            let slot = slot();
            awaited(slot, false);
            let block = allocate(op);
            run.got(block, op);
            slot.store(if block == 0 { REFUSED } else { block }, Ordering::Release);
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
    /// Touches a block as far as the trace says, or counts that there is none.
    fn got(&self, block: usize, op: &Op) {
        if block == 0 {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let touch = op.touch.min(op.size);
        let mut at = 0;
        while at < touch {
            // SAFETY: a byte of the block; volatile, so that the store is made.
            unsafe { ((block + at as usize) as *mut u8).write_volatile(1) };
            at += self.page;
        }
    }

    fn samples(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn sample(&self, trace_ns: u64) {
        let number = self.done.fetch_add(1, Ordering::Relaxed);
        if number >= SAMPLES_MAX {
            return;
        }
        let sample = Sample {
            trace_ns,
            run_ns: self.began.elapsed().as_nanos() as u64,
            pages: anonymous_pages(),
        };
        let head = self.program.head();
        // SAFETY: the number is this thread's alone and within the table.
        unsafe {
            self.program
                .at::<Sample>(head.samples_at, number)
                .write(sample)
        };
    }
}

/// Anonymous resident pages of this process, read without allocating: resident less shared ones.
fn anonymous_pages() -> u64 {
    let mut text = [0_u8; 128];
    let read = std::fs::File::open("/proc/self/statm").and_then(|mut file| file.read(&mut text));
    let text = std::str::from_utf8(&text[..read.unwrap_or(0)]).unwrap_or("");
    let mut words = text
        .split(' ')
        .skip(1)
        .map(|word| word.parse().unwrap_or(0));
    let resident: u64 = words.next().unwrap_or(0);
    resident.saturating_sub(words.next().unwrap_or(0))
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
