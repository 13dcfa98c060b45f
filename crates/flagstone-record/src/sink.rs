//! The file: a chunk is packed and appended by one `write`.
//!
//! The file is opened for each chunk: a program that closes descriptors it did not open, or reuses
//! their numbers, does not disturb the recording, nor the recording it.

use crate::life;
use crate::line::digits;
use crate::stream::Stream;
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use flagstone_trace::encode::CHUNK_BYTES_MAX;
use flagstone_trace::frame::{Kind, RECORD_BYTES, Record};

/// zstd's level. Why 1: levels above pack little better and take twice the time; a chunk of ten thousand
/// events takes a fifth of a millisecond.
const LEVEL: i32 = 1;

/// Bytes zstd may work in; checked at the first use. Measured: level 1 with 64 KiB takes 170 KiB.
const WORK_BYTES: usize = 512 << 10;

/// What packing a chunk takes: as many of these exist as threads packed at the same time.
#[repr(C, align(64))]
struct Press {
    link: *mut Press,
    /// zstd's context, which lies in `work`; null before the first use. To make it anew for each chunk would clear
    /// its tables each time.
    context: *mut zstd_sys::ZSTD_CCtx,
    work: [u64; WORK_BYTES / 8],
    out: [u8; RECORD_BYTES + CHUNK_BYTES_MAX + (CHUNK_BYTES_MAX >> 8) + 512],
}

/// Presses nobody uses. Taken all at once, so that no thread sees another's link change.
static FREE: AtomicPtr<Press> = AtomicPtr::new(null_mut());

/// Most bytes of the file.
pub static BYTES_MAX: AtomicU64 = AtomicU64::new(u64::MAX);

/// Packs a stream's chunk and appends it.
pub fn append(stream: &Stream) {
    let (first, last) = stream.encoder.times();
    let record = Record {
        kind: Kind::Chunk,
        stream: stream.number,
        process: life::process(),
        image: life::image(),
        thread: stream.thread,
        events: stream.encoder.events(),
        packed: 0,
        raw: stream.encoder.len() as u32,
        first,
        last,
    };
    append_frame(record, &stream.buffer[..stream.encoder.len()]);
}

/// Describes this process in the file.
pub fn append_process(parent: u32, forked: bool, name: &CStr) {
    let mut text = [0; 256];
    let mut at = 0;
    let mut put = |part: &[u8]| {
        text[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    let mut number = [0; 20];
    let members: [(&[u8], u32); 3] = [
        (b"{\"process\":", life::process()),
        (b",\"parent\":", parent),
        (b",\"image\":", life::image()),
    ];
    for (key, value) in members {
        put(key);
        let length = digits(&mut number, 0, u64::from(value));
        put(&number[..length]);
    }
    if forked {
        put(b",\"forked\":true");
    }
    put(b",\"name\":\"");
    for &byte in name.to_bytes().iter().take(64) {
        let plain = byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        put(&[if plain { byte } else { b'_' }]);
    }
    put(b"\"}");
    let record = Record {
        kind: Kind::Process,
        stream: 0,
        process: life::process(),
        image: life::image(),
        thread: 0,
        events: 0,
        packed: 0,
        raw: at as u32,
        first: 0,
        last: 0,
    };
    append_frame(record, &text[..at]);
}

fn append_frame(mut record: Record, raw: &[u8]) {
    // SAFETY: the C library's errno of this thread, which no allocation may change.
    let before = unsafe { *libc::__errno_location() };
    let Some(press) = take() else {
        return life::stop("no memory to pack a chunk");
    };
    // SAFETY: taken by this thread alone.
    let packed = unsafe { pack(&mut *press, raw) };
    match packed {
        Some(packed) => {
            record.packed = packed as u32;
            // SAFETY: as above.
            let out = unsafe { &mut (*press).out };
            out[..RECORD_BYTES].copy_from_slice(&record.bytes());
            write(&out[..RECORD_BYTES + packed]);
        }
        None => life::stop("a chunk could not be packed"),
    }
    give(press);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
}

/// Packs behind the room of a record; bytes packed.
fn pack(press: &mut Press, raw: &[u8]) -> Option<usize> {
    if press.context.is_null() {
        // SAFETY: memory of that many bytes, aligned to eight, used by one thread.
        press.context =
            unsafe { zstd_sys::ZSTD_initStaticCCtx(press.work.as_mut_ptr().cast(), WORK_BYTES) };
    }
    let context = press.context;
    if context.is_null() {
        return None;
    }
    let out = &mut press.out[RECORD_BYTES..];
    // SAFETY: a context, and buffers of the bytes said.
    let packed = unsafe {
        zstd_sys::ZSTD_compressCCtx(
            context,
            out.as_mut_ptr().cast::<c_void>(),
            out.len(),
            raw.as_ptr().cast::<c_void>(),
            raw.len(),
            LEVEL,
        )
    };
    // SAFETY: no preconditions.
    (unsafe { zstd_sys::ZSTD_isError(packed) } == 0).then_some(packed)
}

fn take() -> Option<*mut Press> {
    let all = FREE.swap(null_mut(), Ordering::Acquire);
    if all.is_null() {
        // SAFETY: a mapping of its own.
        let memory = unsafe {
            libc::mmap(
                null_mut(),
                size_of::<Press>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        return (memory != libc::MAP_FAILED).then_some(memory.cast());
    }
    // SAFETY: the whole list is this thread's since the swap.
    let rest = unsafe { core::mem::replace(&mut (*all).link, null_mut()) };
    if !rest.is_null() {
        give(rest);
    }
    Some(all)
}

/// Puts a list of presses back; the last one's link is null.
fn give(list: *mut Press) {
    let mut end = list;
    // SAFETY: the list is this thread's.
    while !unsafe { (*end).link }.is_null() {
        // SAFETY: as above.
        end = unsafe { (*end).link };
    }
    let mut first = FREE.load(Ordering::Relaxed);
    loop {
        // SAFETY: as above.
        unsafe { (*end).link = first };
        match FREE.compare_exchange_weak(first, list, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// Most bytes of a file that this process may write.
fn limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: memory for one limit.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

fn write(bytes: &[u8]) {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: a path that ends in a zero.
    let file = unsafe { libc::open(life::path().as_ptr(), flags) };
    if file < 0 {
        return life::stop("the file cannot be opened any more");
    }
    // SAFETY: an open file.
    let end = unsafe { libc::lseek(file, 0, libc::SEEK_END) };
    let after = end as u64 + bytes.len() as u64;
    if after > BYTES_MAX.load(Ordering::Relaxed) {
        life::stop("the file has its full size (--max-size)");
    } else if after > limit() {
        // A write beyond it would raise SIGXFSZ, which ends programs that know nothing of it.
        life::stop("the process may not write a longer file (ulimit -f)");
    } else {
        // SAFETY: a buffer of that many bytes.
        let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
        if written != bytes.len() as isize {
            life::stop("the file takes no more (is the disk full?)");
        }
    }
    // SAFETY: an open file of ours.
    unsafe { libc::close(file) };
}
