//! The file of a profile, `flagstone.profile.raw/1`: the tables as they are, and what was mapped where.
//!
//! ```text
//!   head, its sections' places in the file │ stacks │ frames │ live samples │ marks │ /proc/self/maps
//! ```
//!
//! Written beside its place and then put there, so that a file is whole or as it was; a device or a pipe is written to where it is.
//! Nothing is written where nothing was
//! sampled in a child or in one of many processes (`%p` in the name): a file costs a short process more than all else of a profile.
//! Nor where the process is not the one that began (the child of a `vfork`), or beside a filter;
//! a program that confines itself leaves the profile up to then.

use super::area::{self, Area, FRAMES, Head, LIVE, MAPS, MARKS, STACKS};
use super::{live, marks, stacks, switch};
use crate::env;
use crate::fork::AtFork;
use crate::init::static_heap;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use flagstone_linux::text::decimal;
use flagstone_linux::{clock, filter, process, sys};

/// Longest name of a file, in bytes.
const NAME_BYTES: usize = 1024;
/// Bytes of `/proc/self/maps` held at a time.
const TEXT_BYTES: usize = 4096;

/// Where the profile goes, and who is writing.
struct Output {
    name: UnsafeCell<[u8; NAME_BYTES]>,
    len: AtomicUsize,
    busy: AtomicBool,
    /// The process that began; another number is a child that shares our memory.
    process: AtomicI32,
    /// Whether the process is a child of the one that the environment named the file for.
    is_child: AtomicBool,
}

// SAFETY: the name is written once, before `len` says so; all else are atomics.
unsafe impl Sync for Output {}

static OUTPUT: Output = Output {
    name: UnsafeCell::new([0; NAME_BYTES]),
    len: AtomicUsize::new(0),
    busy: AtomicBool::new(false),
    process: AtomicI32::new(0),
    is_child: AtomicBool::new(false),
};

/// Begins a profile if the environment names a file for one. Called once, by a constructor of the face.
#[cold]
#[inline(never)]
pub fn begin(at_fork: AtFork, at_exit: fn()) {
    let Some(name) = env::profile() else { return };
    let mean = env::profile_interval();
    if name.is_empty() || name.len() >= NAME_BYTES || OUTPUT.len.load(Relaxed) != 0 {
        flagstone_linux::write_line(&[
            b"flagstone: FLAGSTONE_PROFILE: not a usable file name; no profile\n",
        ]);
        return;
    }
    if crate::heap().is_none() {
        return;
    }
    // SAFETY: called once, before any other thread; inside the array.
    unsafe {
        let place: *mut u8 = OUTPUT.name.get().cast();
        place.copy_from_nonoverlapping(name.as_ptr(), name.len());
    }
    OUTPUT.len.store(name.len(), Release);
    OUTPUT.process.store(process::id(), Relaxed);
    at_exit();
    at_fork(None, None, Some(forked));
    // Without memory a line was written.
    let _ = switch::ask(mean.unwrap_or(switch::MEAN), 0);
}

/// In the child of a fork, after the heap's own handler.
extern "C" fn forked() {
    OUTPUT.busy.store(false, Relaxed);
    OUTPUT.is_child.store(true, Relaxed);
    if let Some(_permit) = filter::permit() {
        OUTPUT.process.store(process::id(), Relaxed);
    }
}

/// The profile at the end of the process.
pub fn finish() {
    write(true);
}

/// The profile so far: the process is about to confine itself.
pub fn before_filter() {
    write(false);
}

fn write(is_last: bool) {
    let len = OUTPUT.len.load(Acquire);
    let Some(area) = area::area().filter(|_| len != 0 && !switch::is_new_process()) else {
        return;
    };
    let Some(_permit) = filter::permit() else {
        return;
    };
    if process::id() != OUTPUT.process.load(Relaxed) || OUTPUT.busy.swap(true, Acquire) {
        return;
    }
    // SAFETY: the name was written before `len`.
    let given = unsafe { &(&*OUTPUT.name.get())[..len] };
    if each_process_has_a_file(given) && area.head.samples.load(Relaxed) == 0 {
        OUTPUT.busy.store(false, Release);
        return;
    }
    let mut name = Name::new();
    name.push_given(
        given,
        OUTPUT.process.load(Relaxed),
        OUTPUT.is_child.load(Relaxed),
    );
    let error = match kind(&name) {
        libc::S_IFDIR => libc::EISDIR,
        0 | libc::S_IFREG => {
            let mut beside = name.clone();
            beside.push(b".new");
            let error = match fill(&beside, area, is_last) {
                0 => put(&beside, &name),
                error => error,
            };
            if error != 0 {
                unlink(&beside);
            }
            error
        }
        _ => fill(&name, area, is_last),
    };
    if error != 0 {
        complain(&name, error);
    }
    OUTPUT.busy.store(false, Release);
}

/// Whether a file's name has the process's number in it: somebody looks at many processes.
fn each_process_has_a_file(name: &[u8]) -> bool {
    name.windows(2).any(|pair| pair == b"%p")
}

/// Writes everything to a file; the error, or 0.
fn fill(name: &Name, area: &Area, is_last: bool) -> i32 {
    let fd = match create(name) {
        Ok(fd) => fd,
        Err(error) => return error,
    };
    let mut file = File {
        fd,
        at: 0,
        error: 0,
    };
    tables(&mut file, area, is_last);
    sys::close(fd);
    file.error
}

/// Gives a whole file its name. One that has the name already is exchanged for it and then removed: ext4 first writes to the
/// disk what replaces a file by `rename` (0.13 ms; this way 0.04).
fn put(beside: &Name, name: &Name) -> i32 {
    let error = rename(beside, name, libc::RENAME_NOREPLACE);
    if error == libc::EEXIST && rename(beside, name, libc::RENAME_EXCHANGE) == 0 {
        unlink(beside);
        return 0;
    }
    match error {
        0 => 0,
        // Not every file system knows the ways above.
        _ => rename(beside, name, 0),
    }
}

/// Writes everything; an error stays in `file`.
fn tables(file: &mut File, area: &Area, is_last: bool) {
    let head = &area.head;
    let used = |section: usize| head.sections[section].count.load(Relaxed) as usize;
    let mut sections = [(0, 0); 5];
    let parts: [(usize, &[u8]); 4] = [
        (
            STACKS,
            bytes_of(&area.stacks.entries[..used(STACKS).min(stacks::STACKS_MAX)]),
        ),
        (
            FRAMES,
            bytes_of(&area.stacks.frames[..used(FRAMES).min(area.stacks.frames.len())]),
        ),
        (
            LIVE,
            bytes_of(&area.live.entries[..used(LIVE).min(area.live.entries.len())]),
        ),
        (
            MARKS,
            bytes_of(&area.marks.marks[..used(MARKS).min(area.marks.marks.len())]),
        ),
    ];
    let sizes = [
        size_of::<stacks::Stack>(),
        8,
        size_of::<live::Entry>(),
        size_of::<marks::Mark>(),
    ];
    let mut at = size_of::<Head>();
    for (section, bytes) in parts {
        sections[section] = (at as u64, (bytes.len() / sizes[section]) as u64);
        at += bytes.len();
    }
    // The last section reaches to the end of the file: what is mapped may change while it is read.
    sections[MAPS] = (at as u64, 0);
    let account = static_heap()
        .ready_if_built()
        .filter(|_| is_last && head.live.load(Relaxed) != 0)
        .map_or(0, crate::report::bytes_asked_for);
    let word = |value: &core::sync::atomic::AtomicU64| value.load(Relaxed);
    let mut words = [0; size_of::<Head>() / 8];
    words[..14].copy_from_slice(&[
        word(&head.magic),
        word(&head.mean),
        word(&head.began_ns),
        clock::now(),
        word(&head.process),
        u64::from(is_last),
        word(&head.samples),
        word(&head.lost_live),
        word(&head.lost_stacks),
        word(&head.cut_stacks),
        word(&head.allocated),
        word(&head.live),
        word(&head.live_peak),
        account,
    ]);
    for (pair, (at, count)) in words[14..].chunks_exact_mut(2).zip(sections) {
        pair.copy_from_slice(&[at, count]);
    }
    file.write(words_of(&words));
    for (_, bytes) in parts {
        file.write(bytes);
    }
    copy_maps(file, word(&head.samples) != 0);
}

/// The bytes of a table's used part. Others may write there meanwhile: then the file has what was there at some
/// moment, word by word.
fn bytes_of<T>(entries: &[T]) -> &[u8] {
    // SAFETY: the entries are atomics without gaps, readable for their length; the kernel alone reads these bytes.
    unsafe { core::slice::from_raw_parts(entries.as_ptr().cast(), size_of_val(entries)) }
}

/// The bytes of numbers.
fn words_of(words: &[u64]) -> &[u8] {
    // SAFETY: any bytes are numbers, and numbers have no gaps.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// What was mapped where; without a sample, which has no address to name, only the beginning: it says what program it was.
fn copy_maps(file: &mut File, is_whole: bool) {
    let Some(fd) = sys::open(b"/proc/self/maps\0") else {
        return;
    };
    let mut text = [0; TEXT_BYTES];
    let text = &mut text[..if is_whole { TEXT_BYTES } else { NAME_BYTES }];
    loop {
        let got = sys::read(fd, text);
        file.write(&text[..got]);
        if got == 0 || file.error != 0 || !is_whole {
            break;
        }
    }
    sys::close(fd);
}

/// A file that is being written.
struct File {
    fd: i32,
    at: usize,
    error: i32,
}

impl File {
    fn write(&mut self, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() && self.error == 0 {
            let rest = &bytes[done..];
            let arguments = [
                self.fd as usize,
                rest.as_ptr().expose_provenance(),
                rest.len(),
                0,
                0,
                0,
            ];
            // SAFETY: the kernel reads the bytes.
            let written = unsafe { sys::call(libc::SYS_write, arguments) };
            match written {
                1.. => done += written as usize,
                _ if sys::is_error(written, libc::EINTR) => {}
                0 => self.error = libc::ENOSPC,
                error => self.error = -error as i32,
            }
        }
        self.at += done;
    }
}

/// A zero-terminated name under construction.
#[derive(Clone)]
struct Name {
    bytes: [u8; NAME_BYTES + 40],
    len: usize,
}

impl Name {
    fn new() -> Self {
        Self {
            bytes: [0; NAME_BYTES + 40],
            len: 0,
        }
    }

    fn push(&mut self, part: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + part.len() + 1) {
            room[..part.len()].copy_from_slice(part);
            self.len += part.len();
        }
    }

    fn push_number(&mut self, number: i32) {
        self.push(decimal(u64::from(number.unsigned_abs()), &mut [0; 20]));
    }

    /// The name given, `%p` replaced by the process's number; a child's has it at the end otherwise.
    fn push_given(&mut self, given: &[u8], process: i32, is_child: bool) {
        match given.windows(2).position(|pair| pair == b"%p") {
            Some(at) => {
                self.push(&given[..at]);
                self.push_number(process);
                self.push(&given[at + 2..]);
            }
            None => {
                self.push(given);
                if is_child {
                    self.push(b".");
                    self.push_number(process);
                }
            }
        }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn address(&self) -> usize {
        self.bytes.as_ptr().expose_provenance()
    }
}

const HERE: usize = libc::AT_FDCWD as isize as usize;

fn create(name: &Name) -> Result<i32, i32> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    let arguments = [HERE, name.address(), flags as usize, 0o644, 0, 0];
    // SAFETY: a zero-terminated string that lives during the call.
    let fd = unsafe { sys::call(libc::SYS_openat, arguments) };
    if fd >= 0 {
        Ok(fd as i32)
    } else {
        Err(-fd as i32)
    }
}

/// What has that name: a kind of `st_mode`, or 0 for nothing.
fn kind(name: &Name) -> u32 {
    let mut found = core::mem::MaybeUninit::<libc::stat>::zeroed();
    let place = found.as_mut_ptr().expose_provenance();
    // SAFETY: a zero-terminated string, and the kernel writes at most one `stat`.
    unsafe { sys::call(libc::SYS_newfstatat, [HERE, name.address(), place, 0, 0, 0]) };
    // SAFETY: all zeroes are a `stat` too.
    unsafe { found.assume_init() }.st_mode & libc::S_IFMT
}

fn rename(from: &Name, to: &Name, how: u32) -> i32 {
    let arguments = [HERE, from.address(), HERE, to.address(), how as usize, 0];
    // SAFETY: zero-terminated strings that live during the call.
    -unsafe { sys::call(libc::SYS_renameat2, arguments) } as i32
}

fn unlink(name: &Name) {
    // SAFETY: a zero-terminated string that lives during the call.
    unsafe { sys::call(libc::SYS_unlinkat, [HERE, name.address(), 0, 0, 0, 0]) };
}

fn complain(name: &Name, error: i32) {
    let why: &[u8] = match error {
        libc::ENOSPC | libc::EDQUOT => b"no space left",
        libc::EACCES | libc::EPERM | libc::EROFS => b"may not be written",
        libc::ENOENT | libc::ENOTDIR => b"its directory does not exist",
        libc::EISDIR => b"is a directory",
        _ => b"cannot be written",
    };
    let line: [&[u8]; 5] = [
        b"flagstone: FLAGSTONE_PROFILE: ",
        name.text(),
        b": ",
        why,
        b"; no profile is left\n",
    ];
    flagstone_linux::write_line(&line);
}
