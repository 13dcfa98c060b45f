//! Falls of the heap: when is it so much smaller that what it keeps should shrink too?
//!
//! ```text
//!   bytes in use   ╱╲      peak
//!                 ╱  ╲
//!                ╱    ╲ ◄─ a fall: some eighths below the peak, and at least so many bytes
//!               ╱      ╲
//! ```
//!
//! Memory that was held for a while before it fell is not a swing's: the time it was held pays for
//! what giving it back can cost, whatever is owed.
#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Nanoseconds since the heap last doubled after which its memory was held. Why a sixth of a second: 3 % of it pay for
/// the faults of the 10 MiB that stay at most. Halving it lets programs that swing three times a second pay twice.
pub(super) const HELD_NS: u64 = 170_000_000;
/// The same for all that is above the bound, whatever it costs: a service that held it for a second is no swing.
pub(super) const HELD_LONG_NS: u64 = 1_000_000_000;

/// Eighths of the peak, and bytes, of a fall after which all caches shrink, and free pages go. Why half: a heap that swings
/// by less soon needs them again; at an eighth Python took a sixth more faults. Half a MiB: redis ends 2 MiB above its start.
pub(super) const DEEP: (usize, usize) = (4, 512 << 10);
/// Eighths after which a fall of memory that was held goes on. Why two: what sheaves take after the last one pins slabs; at
/// four, one redis in twenty that forgot all kept 6 MiB.
const GOES_ON: usize = 2;

/// A fall of what is out of slabs after which the same is done: by seven eighths. Cached objects that pin whole slabs hide
/// it from the others. Why not half: eight threads that free in rounds took a third more faults.
pub(super) const EMPTY: (usize, usize) = (7, 1 << 20);

/// What is remembered of one kind of fall. Racy on purpose.
#[derive(Debug)]
pub(super) struct Falls {
    /// Eighths of the peak by which the heap must have fallen.
    eighths: usize,
    /// A fall of fewer bytes is none: what could be given back is small then.
    bytes_min: usize,
    /// The most bytes in use since the last fall.
    peak: AtomicUsize,
    /// Bytes in use above which the last fall turns out to be a mistake; `usize::MAX`: none is open.
    again: AtomicUsize,
    /// Bytes in use when the heap last doubled, or less if it fell since, and when that was.
    doubled: AtomicUsize,
    doubled_at: AtomicU64,
}

/// What became of the heap since the last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Course {
    /// Nothing to be done.
    Level,
    /// A fall that can be followed now. One that the allowance does not pay for is a fall later.
    Fell,
    /// It grew again after a fall that was followed.
    Rose,
}

impl Falls {
    pub(super) const fn new((eighths, bytes_min): (usize, usize)) -> Self {
        Self {
            eighths,
            bytes_min,
            peak: AtomicUsize::new(0),
            again: AtomicUsize::new(usize::MAX),
            doubled: AtomicUsize::new(0),
            doubled_at: AtomicU64::new(0),
        }
    }

    /// How long memory that falls to `used` bytes at `now` was held. Called at every look, to know when the heap grew.
    pub(super) fn held_ns(&self, used: usize, now: u64) -> u64 {
        let doubled = self.doubled.load(Relaxed);
        if used / 2 >= doubled {
            self.doubled.store(used, Relaxed);
            self.doubled_at.store(now, Relaxed);
        } else if used < doubled {
            self.doubled.store(used, Relaxed);
        }
        now.saturating_sub(self.doubled_at.load(Relaxed))
    }

    /// Notes that `used` bytes are in use, which were `held` for a while.
    pub(super) fn follow(&self, used: usize, held: bool, affords: impl FnOnce() -> bool) -> Course {
        let peak = self.peak.load(Relaxed);
        if used > peak {
            self.peak.store(used, Relaxed);
            if used <= self.again.load(Relaxed) {
                return Course::Level;
            }
            self.again.store(usize::MAX, Relaxed);
            return Course::Rose;
        }
        let fall = peak - used;
        let goes_on = held && self.again.load(Relaxed) != usize::MAX;
        let eighths = if goes_on { GOES_ON } else { self.eighths };
        if fall < self.bytes_min.max(peak / 8 * eighths) || !affords() {
            return Course::Level;
        }
        self.peak.store(used, Relaxed);
        self.again.store(used + self.bytes_min, Relaxed);
        Course::Fell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_heap_that_shrinks_steadily_falls_again_and_again() {
        let falls = Falls::new((1, 4 * MIB));
        let found = (10..=100)
            .rev()
            .filter(|mib| falls.follow(mib * MIB, false, || true) == Course::Fell)
            .count();
        // 87, 76, 66, 57, 49, 42, 36, 31, and then by 4 MiB each: 27, 23, 19, 15, 11.
        assert_eq!(found, 13);
    }

    #[test]
    fn a_fall_of_memory_that_was_held_goes_on_by_less() {
        let fell = |held| {
            let falls = Falls::new((4, MIB));
            let course =
                [80, 45, 40, 30, 29, 45, 30].map(|mib| falls.follow(mib * MIB, held, || true));
            course.map(|course| course == Course::Fell)
        };
        // To half, and by a quarter more; once it grew again, by half.
        assert_eq!(fell(true), [false, false, true, true, false, false, false]);
        assert_eq!(
            fell(false),
            [false, false, true, false, false, false, false]
        );
    }

    #[test]
    fn small_falls_are_none() {
        let falls = Falls::new((4, 4 * MIB));
        let found = [7, 4, 3].map(|mib| falls.follow(mib * MIB, false, || true));
        assert_eq!(found, [Course::Level, Course::Level, Course::Fell]);
    }

    #[test]
    fn a_fall_that_cannot_be_paid_for_waits_until_it_can() {
        let falls = Falls::new((4, 4 * MIB));
        falls.follow(80 * MIB, false, || true);
        let found = [false, true, true].map(|affords| falls.follow(10 * MIB, false, || affords));
        assert_eq!(found, [Course::Level, Course::Fell, Course::Level]);
    }

    #[test]
    fn memory_was_held_a_sixth_of_a_second_after_the_heap_last_doubled() {
        let falls = Falls::new((4, MIB));
        let held = |mib: usize, ms: u64| falls.held_ns(mib * MIB, ms * 1_000_000) >= HELD_NS;
        assert!(!held(40, 1000));
        assert!(!held(70, 1160), "less than doubled, but too soon");
        assert!(held(70, 1170) && held(9, 1260) && held(2, 1270));
        assert!(!held(10, 1280), "it grew again");
        assert!(!held(2, 1300));
    }

    #[test]
    fn a_fall_was_a_mistake_once_when_the_heap_grows_again() {
        let falls = Falls::new((4, 4 * MIB));
        let course = [80, 10, 13, 15, 16, 80].map(|mib| falls.follow(mib * MIB, false, || true));
        use Course::{Fell, Level, Rose};
        assert_eq!(course, [Level, Fell, Level, Rose, Level, Level]);
    }
}
