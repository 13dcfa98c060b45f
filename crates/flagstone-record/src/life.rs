//! When recording begins and ends: start, fork, `exec`, thread exit, process exit.
//!
//! ```text
//!   cold ──constructor──► recording ──exit, full file, no memory──► stopped
//! ```
//!
//! At the process's end other threads may still run. Recording stops first; a barrier makes every
//! thread see that at its next event; then the chunks of all streams whose owners are not inside go to
//! the file. A chunk whose owner stays inside (it was stopped there for good) is counted as lost.

use crate::line::say;
use crate::stream::{self, ALL, Stream};
use crate::{look, next, ranges, sink, tls};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use flagstone_trace::clock;

/// Bytes of the file's path at most.
const PATH_BYTES: usize = 4096;

struct Path(UnsafeCell<[u8; PATH_BYTES]>);

// SAFETY: written by the constructor alone, before recording begins.
unsafe impl Sync for Path {}

static PATH: Path = Path(UnsafeCell::new([0; PATH_BYTES]));
static RECORDING: AtomicBool = AtomicBool::new(false);
/// Whether the line about the recording's end was printed.
static TOLD: AtomicBool = AtomicBool::new(false);
static PROCESS: AtomicU32 = AtomicU32::new(0);
static IMAGE: AtomicU32 = AtomicU32::new(0);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// Blocks are recorded whose hash is below: all, or 2^32 by `--sample`. Compared, not divided: a division took as
/// long as half of a request.
static SAMPLED_BELOW: AtomicU64 = AtomicU64::new(1 << 32);

/// Whether events are recorded now.
#[inline]
pub fn recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// Whether the block at `address` belongs to the sample.
#[inline]
pub fn sampled(address: *mut c_void) -> bool {
    let hash = (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    hash < SAMPLED_BELOW.load(Ordering::Relaxed)
}

/// The process that is recorded.
pub fn process() -> u32 {
    PROCESS.load(Ordering::Relaxed)
}

/// Which program of the process.
pub fn image() -> u32 {
    IMAGE.load(Ordering::Relaxed)
}

/// The file.
pub fn path() -> &'static CStr {
    // SAFETY: written before recording began; the last byte is always zero.
    unsafe { CStr::from_ptr(PATH.0.get().cast()) }
}

/// Ends the recording with one line; the program goes on.
#[cold]
pub fn stop(why: &str) {
    RECORDING.store(false, Ordering::Relaxed);
    if !TOLD.swap(true, Ordering::Relaxed) {
        let process = u64::from(process());
        say(
            &["flagstone record: recording ends: ", why, "; process"],
            process,
        );
    }
}

/// What a constructor is called with. The C library's own variables are not set yet where this library is
/// the first to be constructed.
type Start = unsafe extern "C" fn(i32, *const *const c_char, *const *const c_char);

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: Start = construct;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = finish;

/// Begins to record.
///
/// # Safety
/// 1. Called by the loader, before other threads, with the program's environment where that is glibc.
unsafe extern "C" fn construct(
    _count: i32,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    // Other C libraries pass nothing, and have set their variable.
    #[cfg(not(target_env = "gnu"))]
    let environment = {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        // SAFETY: a variable of the C library; obligation 1.
        unsafe { environ }
    };
    // SAFETY: obligation 1.
    let variables = unsafe { Variables::new(environment) };
    let Some(file) = variables.get(b"FLAGSTONE_RECORD_FILE=") else {
        return;
    };
    if file.is_empty() || file.len() >= PATH_BYTES {
        return;
    }
    // SAFETY: the constructor is the only writer.
    unsafe { (&mut *PATH.0.get())[..file.len()].copy_from_slice(file) };
    let most = variables.number(b"FLAGSTONE_RECORD_BYTES=", u64::MAX);
    sink::BYTES_MAX.store(most, Ordering::Relaxed);
    let every = variables.number(b"FLAGSTONE_RECORD_SAMPLE=", 1).max(1);
    SAMPLED_BELOW.store((1 << 32) / every, Ordering::Relaxed);
    let mut key = 0;
    // SAFETY: a key to fill and a function of the right type.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0 {
        KEY.store(key, Ordering::Relaxed);
    }
    // SAFETY: functions without obligations.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    // SAFETY: no preconditions; where it is refused, the end waits for owners all the same.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) };
    // SAFETY: obligation 1; recording begins below.
    unsafe { look::begin() };
    begin_process();
    RECORDING.store(true, Ordering::Release);
    describe(false);
}

/// The environment that a program began with.
struct Variables(*const *const c_char);

impl Variables {
    /// # Safety
    /// 1. A list of strings that ends in null, which nobody changes meanwhile; or null.
    unsafe fn new(list: *const *const c_char) -> Self {
        Self(list)
    }

    /// The value of the variable whose name and equals sign are `prefix`.
    fn get(&self, prefix: &[u8]) -> Option<&'static [u8]> {
        let mut at = self.0;
        if at.is_null() {
            return None;
        }
        loop {
            // SAFETY: obligation 1 of `new`: an entry up to and with the null.
            let entry = unsafe { *at };
            if entry.is_null() {
                return None;
            }
            // SAFETY: obligation 1 of `new`.
            let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
            if let Some(value) = text.strip_prefix(prefix) {
                return Some(value);
            }
            // SAFETY: the entry was not the last.
            at = unsafe { at.add(1) };
        }
    }

    fn number(&self, prefix: &[u8], default: u64) -> u64 {
        let text = self.get(prefix).and_then(|text| str::from_utf8(text).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    }
}

fn begin_process() {
    // SAFETY: no preconditions.
    PROCESS.store(unsafe { libc::getpid() } as u32, Ordering::Relaxed);
    IMAGE.store(clock::now() as u32 | 1, Ordering::Relaxed);
}

/// Tells the file of this process, and whether it began as a copy of its parent.
fn describe(forked: bool) {
    let mut name = [0 as c_char; 17];
    // SAFETY: room for sixteen bytes and a zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    // SAFETY: ends in a zero; the parent's number has no preconditions.
    let (name, parent) = unsafe { (CStr::from_ptr(name.as_ptr()), libc::getppid()) };
    inside(|| sink::append_process(parent as u32, forked, name));
}

/// Runs `work` as a part of the recorder: what it allocates is not noted.
fn inside(work: impl FnOnce()) {
    let local = tls::local();
    // SAFETY: this thread's own words.
    unsafe { (*local).depth += 1 };
    work();
    // SAFETY: as above.
    unsafe { (*local).depth -= 1 };
}

extern "C" fn child() {
    if recording() {
        begin_process();
        stream::after_fork();
        ranges::after_fork();
        look::after_fork();
        describe(true);
    }
}

extern "C" fn thread_ends(_stream: *mut c_void) {
    stream::end();
}

/// This thread's end will be noted: the key's value only has to be there.
pub fn at_thread_exit() {
    let key = KEY.load(Ordering::Relaxed);
    if key != u32::MAX {
        // SAFETY: a key of ours.
        unsafe { libc::pthread_setspecific(key, tls::local().cast()) };
    }
}

/// Sends this thread's chunk to the file, before `exec` or `_exit` take its memory.
fn flush_own() {
    let local = tls::local();
    // SAFETY: this thread's own words, and its stream (`stream.one-owner`).
    unsafe {
        if recording() && !(*local).stream.is_null() && (*local).depth == 0 {
            (*local).depth = 1;
            stream::flush(&mut *(*local).stream);
            (*local).depth = 0;
        }
    }
}

/// Rounds in which an owner may leave the recorder before its chunk counts as lost. Why so many: some
/// tenths of a second, in which a thread that has a CPU leaves it thousands of times.
const ROUNDS: u32 = 10_000;

extern "C" fn finish() {
    // A child of `vfork` shares its parent's chunks, one of raw `clone` or `_Fork` has copies of them.
    // SAFETY: no preconditions.
    if process() != unsafe { libc::getpid() } as u32 {
        return;
    }
    if recording() {
        look::last();
    }
    if !RECORDING.swap(false, Ordering::SeqCst) {
        return;
    }
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
    let mut lost = 0;
    inside(|| {
        let mut at = ALL.load(Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: streams are never unmapped.
            let stream = unsafe { &mut *at };
            if is_left(stream) {
                stream::flush(stream);
                stream.encoder.clear();
            } else {
                lost += 1;
            }
            at = stream.link;
        }
    });
    if lost > 0 {
        say(&["flagstone record: chunks lost at the end:"], lost);
    }
}

fn is_left(stream: &Stream) -> bool {
    (0..ROUNDS).any(|_| {
        let left = !stream.busy.load(Ordering::Acquire);
        if !left {
            // SAFETY: no preconditions.
            unsafe { libc::sched_yield() };
        }
        left
    })
}

/// Ends the process at once; its chunks go to the file first.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: i32) -> ! {
    finish();
    // SAFETY: as the caller meant it.
    unsafe {
        let _ = next::exit_now(status);
        libc::syscall(libc::SYS_exit_group, status);
    }
    loop {}
}

/// The C standard's name for [`_exit`].
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: i32) -> ! {
    _exit(status)
}

/// Replaces the program; this thread's chunk goes to the file first.
///
/// # Safety
/// 1. As the C library says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> i32 {
    flush_own();
    // SAFETY: obligation 1.
    unsafe { next::execve(path.cast(), arguments.cast(), environment.cast()) }.unwrap_or(-1)
}

/// See [`execve`].
///
/// # Safety
/// 1. As the C library says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> i32 {
    flush_own();
    // SAFETY: obligation 1.
    unsafe { next::execv(path.cast(), arguments.cast()) }.unwrap_or(-1)
}

/// See [`execve`].
///
/// # Safety
/// 1. As the C library says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: *const *const c_char) -> i32 {
    flush_own();
    // SAFETY: obligation 1.
    unsafe { next::execvp(file.cast(), arguments.cast()) }.unwrap_or(-1)
}
