//! What the program mapped by itself: memory that is not its allocator's.
//!
//! Mappings made by the allocator's library, known by who called, are left out. The C library's own
//! (threads' stacks, its large blocks) do not come this way.

use crate::next;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most ranges; mappings beyond count as the allocator's.
pub const RANGES: usize = 4096;

/// Rounds of waiting for another thread.
const SPINS: u32 = 10_000;

static LOCK: AtomicBool = AtomicBool::new(false);
static STARTS: [AtomicUsize; RANGES] = [const { AtomicUsize::new(0) }; RANGES];
static ENDS: [AtomicUsize; RANGES] = [const { AtomicUsize::new(0) }; RANGES];
/// Entries that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Where the allocator's library lies; zeroes while that is not known.
static LIBRARY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Does `work` with the table, unless its holder keeps it: a handler may stand on top of the holder.
fn with<R>(work: impl FnOnce() -> R) -> Option<R> {
    for _ in 0..SPINS {
        if !LOCK.swap(true, Ordering::Acquire) {
            let result = work();
            LOCK.store(false, Ordering::Release);
            return Some(result);
        }
        core::hint::spin_loop();
    }
    None
}

/// In a child of fork no other thread holds the table.
pub fn after_fork() {
    LOCK.store(false, Ordering::Relaxed);
}

/// Adds memory that is not the allocator's.
pub fn add(start: usize, end: usize) {
    with(|| insert(start, end));
}

/// Copies the table.
pub fn copy(into: &mut [[usize; 2]]) -> usize {
    let copied = with(|| {
        let mut count = 0;
        for at in 0..USED.load(Ordering::Relaxed) {
            let range = get(at);
            if range[0] != range[1] && count < into.len() {
                into[count] = range;
                count += 1;
            }
        }
        count
    });
    copied.unwrap_or(0)
}

fn get(at: usize) -> [usize; 2] {
    [
        STARTS[at].load(Ordering::Relaxed),
        ENDS[at].load(Ordering::Relaxed),
    ]
}

fn set(at: usize, [start, end]: [usize; 2]) {
    STARTS[at].store(start, Ordering::Relaxed);
    ENDS[at].store(end, Ordering::Relaxed);
}

/// Adds a range, to a neighbour where there is one.
fn insert(start: usize, end: usize) {
    let used = USED.load(Ordering::Relaxed);
    let mut free = used;
    for at in 0..used {
        let range = get(at);
        if range[0] == range[1] {
            free = at;
        } else if range[1] == start {
            return set(at, [range[0], end]);
        } else if range[0] == end {
            return set(at, [start, range[1]]);
        }
    }
    if free < RANGES {
        set(free, [start, end]);
        USED.store(used.max(free + 1), Ordering::Relaxed);
    }
}

/// Takes a range out.
fn remove(start: usize, end: usize) {
    for at in 0..USED.load(Ordering::Relaxed) {
        let range = get(at);
        if range[0] >= end || range[1] <= start {
            continue;
        }
        match (range[0] < start, range[1] > end) {
            (true, true) => {
                set(at, [range[0], start]);
                insert(end, range[1]);
            }
            (true, false) => set(at, [range[0], start]),
            (false, true) => set(at, [end, range[1]]),
            (false, false) => set(at, [0, 0]),
        }
    }
}

fn pages(address: usize, length: usize) -> [usize; 2] {
    [
        address,
        address.saturating_add(length).next_multiple_of(4096),
    ]
}

/// Whether a caller is the allocator below.
fn of_allocator(caller: usize) -> bool {
    if LIBRARY[1].load(Ordering::Relaxed) == 0 {
        let [start, end] = next::library();
        LIBRARY[0].store(start, Ordering::Relaxed);
        LIBRARY[1].store(end, Ordering::Relaxed);
    }
    (LIBRARY[0].load(Ordering::Relaxed)..LIBRARY[1].load(Ordering::Relaxed)).contains(&caller)
}

unsafe extern "C" fn mapped(
    address: *mut c_void,
    length: usize,
    rights: i32,
    flags: i32,
    file: i32,
    offset: i64,
    caller: usize,
) -> *mut c_void {
    // SAFETY: as the caller of `mmap` meant it.
    let result =
        unsafe { libc::syscall(libc::SYS_mmap, address, length, rights, flags, file, offset) }
            as *mut c_void;
    if result != libc::MAP_FAILED && flags & libc::MAP_PRIVATE != 0 && !of_allocator(caller) {
        let [start, end] = pages(result as usize, length);
        with(|| {
            remove(start, end);
            insert(start, end);
        });
    }
    result
}

unsafe extern "C" fn moved(
    old: *mut c_void,
    length: usize,
    size: usize,
    flags: i32,
    wanted: *mut c_void,
    caller: usize,
) -> *mut c_void {
    // SAFETY: as the caller of `mremap` meant it.
    let result =
        unsafe { libc::syscall(libc::SYS_mremap, old, length, size, flags, wanted) } as *mut c_void;
    if result != libc::MAP_FAILED && !of_allocator(caller) {
        let (old, new) = (pages(old as usize, length), pages(result as usize, size));
        with(|| {
            remove(old[0], old[1]);
            remove(new[0], new[1]);
            insert(new[0], new[1]);
        });
    }
    result
}

/// `munmap`.
///
/// # Safety
/// 1. As the C library says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> i32 {
    if USED.load(Ordering::Relaxed) > 0 {
        let [start, end] = pages(address as usize, length);
        with(|| remove(start, end));
    }
    // SAFETY: obligation 1.
    unsafe { libc::syscall(libc::SYS_munmap, address, length) as i32 }
}

// Who called is the return address, which only assembly sees: it is passed on as one more argument.
macro_rules! with_caller {
    ($($symbol:ident $argument:literal $inner:ident;)*) => { $(
        /// A function of the C library, with its caller.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $symbol() {
            core::arch::naked_asm!($argument, inner = sym $inner)
        }
    )* };
}

#[cfg(target_arch = "x86_64")]
with_caller! {
    mmap "push qword ptr [rsp]\ncall {inner}\nadd rsp, 8\nret" mapped;
    mmap64 "push qword ptr [rsp]\ncall {inner}\nadd rsp, 8\nret" mapped;
    mremap "mov r9, [rsp]\njmp {inner}" moved;
}

#[cfg(target_arch = "aarch64")]
with_caller! {
    mmap "mov x6, x30\nb {inner}" mapped;
    mmap64 "mov x6, x30\nb {inner}" mapped;
    mremap "mov x5, x30\nb {inner}" moved;
}
