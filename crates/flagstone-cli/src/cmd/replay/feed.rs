//! A program that is longer than its file, handed to its player window by window.
//!
//! ```text
//!   command                                              player
//!   decodes ─► segments, tables ─► published + 1 ─ wakes ─► threads read and perform
//!              sleeps               consumed     ◄───────── + 1 for each segment read
//!   decodes the next window                              asleep: no part of the run's time
//! ```
//!
//! What is published is all of the trace up to a moment, and an operation waits only for earlier ones: a window is
//! always read to its end. A stream without operations in a window waits for a later one.

use super::file::map;
use super::program::{Head, Segment, StreamHead};
use super::segments::{Late, Open, table};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks at how far the player is. Its processor time is not the player's.
const NAP: Duration = Duration::from_micros(200);

/// What making a long program again needs to know.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of operations after which a window ends.
    pub window_bytes: u64,
    /// The last window of each stream, counted from 1.
    pub last: Vec<u64>,
    /// What is learned of operations after their window, by window.
    pub late: Vec<Late>,
}

/// A player's file from the side that fills it.
pub struct Feed {
    file: File,
    base: *mut u8,
    head: Head,
    plan: Plan,
    /// The first of the plan's late ones that is left.
    next_late: usize,
    /// Streams of the windows before.
    known: usize,
    windows: u64,
    segments: u64,
    ended: std::sync::Arc<AtomicBool>,
}

impl Feed {
    /// Maps the file of a player, which is started at the same time; `ended` is set when it is no more.
    ///
    /// # Errors
    /// The system's.
    pub fn new(
        file: File,
        head: Head,
        plan: Plan,
        ended: std::sync::Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let base = map(&file, head.slots_at as usize)?;
        let words = |&last: &u64| [0, 0, last, u64::MAX];
        let streams = plan.last.iter().flat_map(words);
        let streams: Vec<u8> = streams.flat_map(u64::to_ne_bytes).collect();
        let feed = Self {
            file,
            base,
            head,
            plan,
            next_late: 0,
            known: 0,
            windows: 0,
            segments: 0,
            ended,
        };
        feed.file.write_all_at(&streams, head.streams_at)?;
        Ok(feed)
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The last window in which a stream has operations.
    pub fn last(&self, stream: usize) -> u64 {
        self.plan.last.get(stream).copied().unwrap_or(0)
    }

    /// What is learned later of operations of a window.
    pub fn late_of(&mut self, window: u32) -> Vec<Late> {
        let rest = &self.plan.late[self.next_late..];
        let count = rest.partition_point(|late| late.window() <= window);
        self.next_late += count;
        rest[..count].to_vec()
    }

    fn word(&self, byte: u64) -> &AtomicU64 {
        // SAFETY: a word of the head or of the streams' table, aligned to eight, in a mapping that lives as long
        // as this; it is only used as an atomic.
        unsafe { &*self.base.add(byte as usize).cast() }
    }

    /// Gives a window to the player, and waits until all of it is read.
    ///
    /// # Errors
    /// The file's; a broken pipe if the player has ended.
    pub fn hand_over(
        &mut self,
        segments: &[Segment],
        streams: &[Open],
        at_end: bool,
    ) -> io::Result<()> {
        let at = self.head.segments_at;
        self.file.write_all_at(&table(segments), at)?;
        self.windows += 1;
        for (number, open) in streams
            .iter()
            .enumerate()
            .filter(|(_, open)| open.first != 0)
        {
            let at = self.head.streams_at + (number * size_of::<StreamHead>()) as u64;
            let field = |offset: usize| self.word(at + offset as u64);
            if number < self.known {
                // It has been started: others see how far it is.
                let began = segments[open.first as usize - 1].began;
                field(std::mem::offset_of!(StreamHead, next_ns)).store(began, Ordering::Release);
            }
            field(std::mem::offset_of!(StreamHead, first)).store(open.first, Ordering::Relaxed);
            field(std::mem::offset_of!(StreamHead, window)).store(self.windows, Ordering::Release);
        }
        self.known = streams.len();
        self.segments += segments.len() as u64;
        let handed = self.word(std::mem::offset_of!(Head, handed) as u64);
        handed.store(self.segments, Ordering::Release);
        publish(
            self.word(std::mem::offset_of!(Head, published) as u64),
            self.windows,
        );
        if at_end {
            return Ok(());
        }
        let consumed = self.word(std::mem::offset_of!(Head, consumed) as u64);
        while consumed.load(Ordering::Acquire) < self.segments {
            if self.ended.load(Ordering::Acquire) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, of which no reference is left.
        unsafe { libc::munmap(self.base.cast(), self.head.slots_at as usize) };
    }
}

/// Tells a player that there will be no other window.
///
/// # Errors
/// The system's.
pub fn give_up(file: &File) -> io::Result<()> {
    let bytes = size_of::<Head>();
    let base = map(file, bytes)?;
    // SAFETY: words of the head, aligned to eight, only used as atomics; the mapping goes after the last use.
    unsafe {
        let word = |byte: usize| &*base.add(byte).cast::<AtomicU64>();
        word(std::mem::offset_of!(Head, failed)).store(1, Ordering::Release);
        let published = word(std::mem::offset_of!(Head, published));
        publish(published, published.load(Ordering::Acquire) + 1);
        libc::munmap(base.cast(), bytes);
    }
    Ok(())
}

/// The half of a word that a thread can sleep on.
fn half(word: &AtomicU64) -> *const AtomicU32 {
    let low = usize::from(cfg!(target_endian = "big"));
    // SAFETY: one of the two halves of the word.
    unsafe { (&raw const *word).cast::<AtomicU32>().add(low) }
}

/// Says how many windows there are, and wakes who sleeps.
pub fn publish(word: &AtomicU64, windows: u64) {
    word.store(windows, Ordering::Release);
    // SAFETY: an aligned word of a shared mapping; the call takes nothing else.
    unsafe { libc::syscall(libc::SYS_futex, half(word), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleeps until there are other than so many windows; may wake before.
pub fn sleep(word: &AtomicU64, windows: u64) {
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: as for `publish`.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            half(word),
            libc::FUTEX_WAIT,
            windows as u32,
            forever,
        )
    };
}
