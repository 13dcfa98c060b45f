//! One thread's events on their way to the file.
//!
//! ```text
//!   free streams ──► of a thread ──► its chunk full: sink ──► ... ──► thread exit: sink, free again
//! ```
//!
//! Invariants
//! - `stream.one-owner`: a stream in use is written by the thread whose words point to it, or, once
//!   recording stopped and the owner is not inside, by the process's exit.
//! - `stream.inside`: `busy` is set while its owner changes it.

use crate::tls::{self, Local};
use crate::{life, look, sink};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use flagstone_trace::encode::CHUNK_BYTES_MAX;
use flagstone_trace::{Encoder, Event, clock};

/// A thread's chunk.
#[repr(C)]
pub struct Stream {
    /// The next of all streams ever made.
    pub link: *mut Stream,
    /// Whether a thread owns it.
    pub owned: AtomicBool,
    /// Whether its owner is changing it.
    pub busy: AtomicBool,
    /// The thread's number in this process.
    pub number: u32,
    /// The thread as the system numbers it.
    pub thread: u32,
    /// Events of handlers that came while the owner was inside.
    pub lost: AtomicU64,
    /// The owner's stack, or the last owner's: the C library keeps stacks for threads to come.
    pub stack: [AtomicUsize; 2],
    /// The chunk's state.
    pub encoder: Encoder,
    /// The chunk.
    pub buffer: [u8; CHUNK_BYTES_MAX],
}

/// All streams; none is ever removed.
pub static ALL: AtomicPtr<Stream> = AtomicPtr::new(null_mut());

/// The last stream's number in this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Notes an event of this thread.
#[inline]
pub fn note(event: &Event) {
    note_at(clock::now(), event);
}

/// Notes an event that happened at `time`.
#[inline]
pub fn note_at(time: u64, event: &Event) {
    enter(time, |encoder, buffer| encoder.put(buffer, time, event));
}

/// Notes an allocation of the plainest kind.
#[inline]
pub fn note_alloc(address: u64, size: u64) {
    let time = clock::now();
    enter(time, |encoder, buffer| {
        encoder.put_alloc(buffer, time, address, size);
    });
}

/// Notes a free.
#[inline]
pub fn note_free(address: u64) {
    let time = clock::now();
    enter(time, |encoder, buffer| {
        encoder.put_free(buffer, time, address)
    });
}

/// Enters the recorder, if this thread is not in it already, to put an event.
#[inline]
fn enter(time: u64, put: impl FnOnce(&mut Encoder, &mut [u8])) {
    if !life::recording() {
        return;
    }
    let local = tls::local();
    // SAFETY: this thread's own words.
    let words = unsafe { &mut *local };
    if words.depth != 0 {
        return lost(words);
    }
    words.depth = 1;
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    write(words, put);
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    words.depth = 0;
    look::perhaps(time);
}

/// A handler's event on top of the recorder itself: counted.
#[cold]
fn lost(words: &Local) {
    if !words.stream.is_null() {
        // SAFETY: `stream.one-owner`; the count is atomic.
        unsafe { (*words.stream).lost.fetch_add(1, Ordering::Relaxed) };
    }
}

#[inline]
fn write(words: &mut Local, put: impl FnOnce(&mut Encoder, &mut [u8])) {
    if words.stream.is_null() {
        words.stream = begin();
        if words.stream.is_null() {
            return;
        }
    }
    // SAFETY: `stream.one-owner`.
    let stream = unsafe { &mut *words.stream };
    stream.busy.store(true, Ordering::Relaxed);
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    if life::recording() {
        if stream.encoder.is_full(&stream.buffer) {
            flush(stream);
        }
        put(&mut stream.encoder, &mut stream.buffer);
    }
    stream.busy.store(false, Ordering::Release);
}

/// Sends a chunk to the file, and begins the next with what was lost.
#[cold]
#[inline(never)]
pub fn flush(stream: &mut Stream) {
    if !stream.encoder.is_empty() {
        sink::append(stream);
    }
    stream.encoder.clear();
    let count = stream.lost.swap(0, Ordering::Relaxed);
    if count > 0 {
        let event = Event::Lost { count };
        stream.encoder.put(&mut stream.buffer, clock::now(), &event);
    }
}

/// A stream for this thread: the one of the thread that had its stack, another that a thread gave up, or a new one;
/// null without memory.
#[cold]
#[inline(never)]
fn begin() -> *mut Stream {
    // SAFETY: no preconditions.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    // The first thread's stack has a name of its own among the mappings.
    // SAFETY: no preconditions.
    let first = thread == unsafe { libc::getpid() } as u32;
    let stack = match first {
        true => [0; 2],
        false => flagstone_linux::look::stack().unwrap_or_default(),
    };
    let had_it = |stream: &Stream| stream.stack[0].load(Ordering::Relaxed) == stack[0];
    let mut at = given_up(had_it);
    if at.is_null() {
        at = given_up(|_| true);
    }
    if at.is_null() {
        at = map();
    }
    if at.is_null() {
        life::stop("no memory for another thread's events");
        return at;
    }
    // SAFETY: owned by this thread since the exchange, or not yet known to anybody else.
    let stream = unsafe { &mut *at };
    stream.number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    stream.thread = thread;
    stream.encoder.clear();
    stream.stack[0].store(stack[0], Ordering::Relaxed);
    stream.stack[1].store(stack[1], Ordering::Relaxed);
    life::at_thread_exit();
    at
}

/// Takes a stream that a thread gave up and `fits`; null if there is none.
fn given_up(fits: impl Fn(&Stream) -> bool) -> *mut Stream {
    let mut at = ALL.load(Ordering::Acquire);
    while !at.is_null() {
        // SAFETY: streams are never unmapped.
        let stream = unsafe { &*at };
        let take = || {
            let owned = &stream.owned;
            owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
        };
        if fits(stream) && take().is_ok() {
            break;
        }
        at = stream.link;
    }
    at
}

/// Stacks told at most.
pub const STACKS: usize = 1024;

/// The stacks of threads that live, then those of threads that have ended; how many of each.
pub fn stacks(into: &mut [[usize; 2]]) -> [usize; 2] {
    let mut counts = [0; 2];
    let mut end = 0;
    for (count, owned) in counts.iter_mut().zip([true, false]) {
        let mut at = ALL.load(Ordering::Acquire);
        while !at.is_null() && end < into.len() {
            // SAFETY: streams are never unmapped.
            let stream = unsafe { &*at };
            let word = |which: usize| stream.stack[which].load(Ordering::Relaxed);
            if stream.owned.load(Ordering::Relaxed) == owned && word(1) != 0 {
                into[end] = [word(0), word(1)];
                end += 1;
                *count += 1;
            }
            at = stream.link;
        }
    }
    counts
}

fn map() -> *mut Stream {
    let bytes = size_of::<Stream>();
    // SAFETY: a mapping of its own.
    let memory = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return null_mut();
    }
    let stream = memory.cast::<Stream>();
    // SAFETY: fresh zeroed memory; all zeroes is a stream without owner, but for its encoder.
    unsafe {
        (&raw mut (*stream).encoder).write(Encoder::new());
        (*stream).owned.store(true, Ordering::Relaxed);
        let mut first = ALL.load(Ordering::Relaxed);
        loop {
            (*stream).link = first;
            let pushed =
                ALL.compare_exchange_weak(first, stream, Ordering::Release, Ordering::Relaxed);
            match pushed {
                Ok(_) => return stream,
                Err(now) => first = now,
            }
        }
    }
}

/// This thread ends: its chunk goes to the file, its stream to the next thread.
pub fn end() {
    let local = tls::local();
    // SAFETY: this thread's own words.
    let words = unsafe { &mut *local };
    if words.stream.is_null() || words.depth != 0 {
        return;
    }
    note(&Event::Exit);
    words.depth = 1;
    // SAFETY: `stream.one-owner`.
    let stream = unsafe { &mut *words.stream };
    if life::recording() {
        stream.busy.store(true, Ordering::Relaxed);
        flush(stream);
        stream.encoder.clear();
        stream.busy.store(false, Ordering::Release);
    }
    words.stream = null_mut();
    stream.owned.store(false, Ordering::Release);
    words.depth = 0;
}

/// A child has one thread: its stream begins anew, those of the others are free.
pub fn after_fork() {
    // SAFETY: this thread's own words.
    let own = unsafe { (*tls::local()).stream };
    NUMBER.store(0, Ordering::Relaxed);
    let mut at = ALL.load(Ordering::Relaxed);
    while !at.is_null() {
        // SAFETY: streams are never unmapped, and the child has this thread alone.
        let stream = unsafe { &mut *at };
        stream.encoder.clear();
        stream.lost.store(0, Ordering::Relaxed);
        stream.busy.store(false, Ordering::Relaxed);
        stream.owned.store(at == own, Ordering::Relaxed);
        if at == own {
            stream.number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
            // SAFETY: no preconditions.
            stream.thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        }
        at = stream.link;
    }
}
