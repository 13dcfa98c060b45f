//! A program's file: its mapping, its head, and room for what a player writes.

use super::program::Head;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Bytes that are free where a file lies.
///
/// # Errors
/// The system's.
pub fn free_bytes(file: &File) -> io::Result<u64> {
    // SAFETY: plain integers; all zeroes is a value.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open file and a structure to fill.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut about) } {
        0 => Ok(about.f_bavail.saturating_mul(about.f_frsize)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps the first bytes of a program's file, shared by the command and the player.
///
/// # Errors
/// The system's.
pub fn map(file: &File, bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: a new mapping of a file that nobody shortens while it is played.
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
        return Err(io::Error::last_os_error());
    }
    Ok(base.cast())
}

/// Words of the head.
pub const HEAD_WORDS: usize = size_of::<Head>() / 8;

/// The head's words, in order.
pub fn head_words(head: &Head) -> [u64; HEAD_WORDS] {
    [
        head.bytes,
        head.streams,
        head.streams_at,
        head.segments,
        head.segments_at,
        head.slots,
        head.slots_at,
        head.samples_at,
        head.ops,
        head.sample_every,
        head.touches,
        head.window_ns,
        head.samples,
        head.run_ns,
        head.base_bytes,
        head.faults,
        head.cpu_ns,
        head.refused,
        head.published,
        head.consumed,
        head.handed,
        head.failed,
    ]
}

/// Writes the head, and zeroes what a run left behind.
pub fn write_head(file: &File, head: &Head) -> io::Result<()> {
    let bytes: Vec<u8> = head_words(head)
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    file.write_all_at(&bytes, 0)?;
    file.set_len(head.slots_at)?;
    file.set_len(head.bytes)?;
    // A player writes there through a mapping, which could not say that the disk is full.
    reserve(file, head.slots_at, head.bytes - head.slots_at)
}

/// Takes room on the disk.
///
/// # Errors
/// The system's: a full disk, most of all.
pub fn reserve(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: an open file.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), at as i64, bytes as i64) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
