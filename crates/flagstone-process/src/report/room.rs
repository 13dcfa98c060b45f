//! The memory a report works in: one static, used by one thread at a time.

use crate::Linux;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};
use flagstone_core::platform::Platform;
use flagstone_core::stats::{Ledger, Survey};
use flagstone_linux::residency::Resident;

/// Longest directory name, in bytes.
const DIRECTORY_BYTES: usize = 1024;
/// Bytes of `/proc` text held at a time, and of a document before it is written.
const TEXT_BYTES: usize = 4096;
/// How often the last sample looks whether another one has ended.
const PATIENCE: u32 = 10_000;

/// What a report works with.
pub struct Room {
    directory: [u8; DIRECTORY_BYTES],
    directory_len: usize,
    /// Parts of files read and written.
    pub text: [u8; TEXT_BYTES],
    /// The walk's result.
    pub survey: Survey,
    /// Which pages are resident.
    pub resident: Resident,
    /// Samples taken.
    pub samples: u64,
    /// The largest resident size of a sample.
    pub peak_bytes: u64,
    /// The ledger of that sample.
    pub peak: Ledger,
}

impl Room {
    const fn new() -> Self {
        Self {
            directory: [0; DIRECTORY_BYTES],
            directory_len: 0,
            text: [0; TEXT_BYTES],
            survey: Survey::new(),
            resident: Resident::new(),
            samples: 0,
            peak_bytes: 0,
            peak: Ledger::EMPTY,
        }
    }

    /// Remembers where documents go; `false` if the name is empty or too long.
    pub fn set_directory(&mut self, directory: &[u8]) -> bool {
        if directory.is_empty() || directory.len() > DIRECTORY_BYTES {
            return false;
        }
        self.directory[..directory.len()].copy_from_slice(directory);
        self.directory_len = directory.len();
        true
    }

    /// Where documents go.
    pub fn directory(&self) -> &[u8] {
        &self.directory[..self.directory_len]
    }
}

/// A room and whether somebody is in it.
pub struct Shared {
    /// The token of the thread inside; zero for none.
    taken: AtomicU64,
    room: UnsafeCell<Room>,
}

// SAFETY: `taken` gives one thread at a time the use of the room.
unsafe impl Sync for Shared {}

/// The room of this process.
pub static ROOM: Shared = Shared {
    taken: AtomicU64::new(0),
    room: UnsafeCell::new(Room::new()),
};

impl Shared {
    /// The room, unless somebody is in it.
    pub fn enter(&'static self) -> Option<Inside> {
        // Made only if the room was free: dropping one opens the room.
        self.taken
            .compare_exchange(0, Linux::token(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| Inside(self))
    }

    /// The room, after a while if need be; `None` if whoever is in it does not leave (it may be
    /// the caller, interrupted by a signal).
    pub fn enter_waiting(&'static self) -> Option<Inside> {
        (0..PATIENCE).find_map(|_| {
            self.enter().or_else(|| {
                // SAFETY: the call has no arguments; it lets others run.
                unsafe { flagstone_linux::sys::call(libc::SYS_sched_yield, [0; 6]) };
                None
            })
        })
    }

    /// In the child of a fork: whoever was inside does not exist here, and no sample was taken. But
    /// where the caller is inside itself, below a signal handler that forked, it goes on.
    pub fn forget(&'static self) {
        if self.taken.load(Ordering::Relaxed) == Linux::token() {
            return;
        }
        self.taken.store(Linux::token(), Ordering::Relaxed);
        // SAFETY: the only thread of a new process, which took the room on the line above.
        let room = unsafe { &mut *self.room.get() };
        room.samples = 0;
        room.peak_bytes = 0;
        room.peak = Ledger::EMPTY;
        self.taken.store(0, Ordering::Release);
    }
}

/// The use of the room.
pub struct Inside(&'static Shared);

impl Deref for Inside {
    type Target = Room;

    fn deref(&self) -> &Room {
        // SAFETY: whoever holds an `Inside` is alone in the room.
        unsafe { &*self.0.room.get() }
    }
}

impl DerefMut for Inside {
    fn deref_mut(&mut self) -> &mut Room {
        // SAFETY: as above.
        unsafe { &mut *self.0.room.get() }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.taken.store(0, Ordering::Release);
    }
}
