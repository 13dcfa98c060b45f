//! Regret: how bounds on what is kept learn from what was given back.
//!
//! ```text
//!   in use   ╱╲  give  ╱╲  give  ╱╲        given back and wanted again within seconds, a quarter
//!           ╱  ╲      ╱  ╲      ╱  ╲       of it and fast enough to cost more than keeping it:
//!          ╱    ╲____╱    ╲____╱    ╲      a mistake
//!                  want      want
//!   raised  0 ───── twice the floor ──── + all that was wanted: the swing repeats
//!   falls by an eighth each second without a mistake
//! ```
//!
//! One mistake raises little: most are the end of a phase and the start of another. Two in a row
//! are a swing, which will come again, and then as much is kept as would have saved the faults,
//! but of a wide one no more than is in use: nobody knows which swing is the last, and what was kept
//! then stays.
//!
//! Plain arithmetic on bytes. Racy on purpose: most users hold a lock, and for those that do not
//! a lost count delays a lesson.
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// Nanoseconds in which memory given back and wanted again can be a mistake. Why four seconds: at
/// [`BYTES_PER_SECOND`] it takes 256 MiB to be one so late. A shorter time forgets programs that
/// swing on a busy machine, a longer one keeps for programs that have long done something else.
pub const REGRET_NS: u64 = 4 * SECOND_NS;

/// Nanoseconds between two falls of what was learnt.
const SECOND_NS: u64 = 1_000_000_000;

/// Bytes wanted again per second from which on giving them back costs more than keeping them. Why
/// 64 MiB: with 4 KiB pages 16,384 faults, which cost one to two hundredths of a CPU. Doubling it
/// keeps less for programs that swing slowly, and doubles what they may pay.
pub const BYTES_PER_SECOND: u64 = 64 << 20;

/// Widest swing that is kept whole, in bytes. Why 64 MiB: what a program keeps when it falls asleep
/// after a swing should be little beside what the machine has (ADR 0009 has the price).
pub const SWING_MAX: usize = 64 << 20;

/// Mistakes in a row that make a swing.
const SWING: u32 = 2;

/// How far one learner's figure may rise, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// What is kept anyway.
    pub floor: usize,
    /// Most after a mistake that did not repeat.
    pub once: usize,
    /// Most while the program swings.
    pub swing: usize,
}

/// What is remembered of giving back.
#[derive(Debug)]
pub struct Regret {
    /// Given back since the last mistake, and wanted again of that.
    given: AtomicUsize,
    wanted: AtomicUsize,
    /// When the first and the last of `given` were given back.
    first: AtomicU64,
    last: AtomicU64,
    /// Mistakes in a row; the one that is going on is counted already.
    mistakes: AtomicU32,
    /// One if what is wanted now belongs to a mistake.
    mistaken: AtomicU32,
    raised: AtomicUsize,
    fell: AtomicU64,
}

impl Default for Regret {
    fn default() -> Self {
        Self::new()
    }
}

impl Regret {
    /// Nothing was learnt yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            given: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            mistakes: AtomicU32::new(0),
            mistaken: AtomicU32::new(0),
            raised: AtomicUsize::new(0),
            fell: AtomicU64::new(0),
        }
    }

    /// Bytes to be kept by what was learnt.
    #[inline]
    #[must_use]
    pub fn raised(&self) -> usize {
        self.raised.load(Relaxed)
    }

    /// Whether anything was given back that may still be missed: whether [`Regret::want`] matters.
    #[inline]
    #[must_use]
    pub fn gave(&self) -> bool {
        self.given.load(Relaxed) != 0
    }

    /// Whether the program swings: mistakes repeated, the last of them just now.
    #[must_use]
    pub fn swings(&self, now: u64) -> bool {
        self.mistakes.load(Relaxed) >= SWING && !self.is_old(now)
    }

    fn is_old(&self, now: u64) -> bool {
        now.saturating_sub(self.last.load(Relaxed)) > REGRET_NS
    }

    /// Notes that `bytes` were given back.
    pub fn give(&self, bytes: usize, now: u64) {
        let mistaken = self.mistaken.load(Relaxed) != 0;
        let long = now.saturating_sub(self.first.load(Relaxed)) > REGRET_NS;
        if self.is_old(now) || (long && !mistaken) {
            self.mistakes.store(0, Relaxed);
        }
        if long || mistaken || !self.gave() {
            self.forget();
            self.first.store(now, Relaxed);
        }
        self.given
            .store(self.given.load(Relaxed).saturating_add(bytes), Relaxed);
        self.last.store(now, Relaxed);
    }

    /// Notes that `bytes` are wanted that are not there; answers whether it turns out just now
    /// that giving back was a mistake.
    pub fn want(&self, bytes: usize, reach: Reach, now: u64) -> bool {
        let given = self.given.load(Relaxed);
        if given == 0 {
            return false;
        }
        if self.is_old(now) {
            self.forget();
            self.mistakes.store(0, Relaxed);
            return false;
        }
        let before = self.wanted.load(Relaxed);
        let wanted = before.saturating_add(bytes).min(given);
        self.wanted.store(wanted, Relaxed);
        if self.mistaken.load(Relaxed) != 0 {
            self.raise(wanted - before, reach);
            return false;
        }
        let took = now.saturating_sub(self.first.load(Relaxed));
        let worth = u128::from(took) * u128::from(BYTES_PER_SECOND) / u128::from(SECOND_NS);
        if wanted < given.div_ceil(4) || (wanted as u128) < worth {
            return false;
        }
        self.mistaken.store(1, Relaxed);
        let mistakes = self.mistakes.load(Relaxed).saturating_add(1);
        self.mistakes.store(mistakes, Relaxed);
        self.fell.store(now, Relaxed);
        if mistakes < SWING {
            let twice = self
                .raised()
                .max(reach.floor)
                .saturating_mul(2)
                .min(reach.once);
            self.raised.store(self.raised().max(twice), Relaxed);
        } else {
            self.raise(wanted, reach);
        }
        true
    }

    /// While the program swings: `bytes` more would have saved them.
    fn raise(&self, bytes: usize, reach: Reach) {
        if self.mistakes.load(Relaxed) >= SWING {
            let enough = self.raised().max(reach.floor).saturating_add(bytes);
            self.raised.store(enough.min(reach.swing), Relaxed);
        }
    }

    fn forget(&self) {
        self.given.store(0, Relaxed);
        self.wanted.store(0, Relaxed);
        self.mistaken.store(0, Relaxed);
    }

    /// Lets what was learnt fall by an eighth for every second since it last fell, or since the last
    /// mistake.
    pub fn decay(&self, now: u64) {
        let seconds = now.saturating_sub(self.fell.load(Relaxed)) / SECOND_NS;
        if seconds == 0 {
            return;
        }
        self.fell.store(now, Relaxed);
        self.raised
            .store(eighths_off(self.raised(), seconds), Relaxed);
    }

    /// Keeps no more than `most` bytes by what was learnt.
    pub fn limit(&self, most: usize) {
        if self.raised() > most {
            self.raised.store(most, Relaxed);
        }
    }
}

/// What may be kept of a swing between `peak` bytes and now `in_use`: an eighth of the peak more
/// than that, because what is free is not always long enough for what is wanted; of a wide one no
/// more than is in use.
#[inline]
#[must_use]
pub fn swing_room(peak: usize, in_use: usize) -> usize {
    let all = (peak + peak / 8).saturating_sub(in_use);
    if peak.saturating_sub(in_use) > SWING_MAX {
        return all.min(in_use);
    }
    all
}

/// What is left of `bytes` when an eighth goes each second.
#[must_use]
pub fn eighths_off(bytes: usize, seconds: u64) -> usize {
    (0..seconds.min(256)).fold(bytes, |left, _| left - left.div_ceil(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const REACH: Reach = Reach {
        floor: 8 * MIB,
        once: 16 * MIB,
        swing: 256 * MIB,
    };
    const MS: u64 = 1_000_000;

    /// Gives `mib` MiB back and wants them again `ms` milliseconds later, in ten parts each.
    fn swing(regret: &Regret, mib: usize, at: u64, ms: u64) {
        for _ in 0..10 {
            regret.give(mib * MIB / 10, at);
        }
        for _ in 0..10 {
            regret.want(mib * MIB / 10, REACH, at + ms * MS);
        }
    }

    fn after(swings: usize, mib: usize, ms: u64) -> usize {
        let regret = Regret::new();
        for number in 0..swings as u64 {
            swing(&regret, mib, number * ms * MS, ms);
        }
        regret.raised() / MIB
    }

    #[test]
    fn one_mistake_raises_little_and_a_swing_all_that_was_wanted() {
        assert_eq!(
            [0, 1, 2].map(|swings| after(swings, 100, 100)),
            [0, 16, 116]
        );
    }

    #[test]
    fn a_swing_raises_no_further_than_it_may() {
        assert_eq!(after(2, 400, 100), 256);
    }

    #[test]
    fn of_a_swing_a_little_more_than_it_is_kept_and_of_a_wide_one_as_much_as_is_in_use() {
        let room = |peak: usize, in_use: usize| swing_room(peak * MIB, in_use * MIB) / MIB;
        assert_eq!(room(40, 8), 37);
        assert_eq!(room(2048, 1984), 320);
        assert_eq!(
            [1000, 100, 0].map(|in_use| room(2048, in_use)),
            [1000, 100, 0]
        );
        assert_eq!(room(8, 40), 0);
    }

    #[test]
    fn what_is_wanted_slowly_or_late_is_no_mistake() {
        assert_eq!(after(5, 40, 700), 0, "57 MiB per second");
        assert_eq!(after(2, 40, 600), 56, "67 MiB per second");
        assert_eq!(after(5, 1000, 4001), 0, "250 MiB per second, but late");
    }

    #[test]
    fn a_long_decline_before_does_not_hide_a_swing() {
        let regret = Regret::new();
        for second in 0..60 {
            regret.give(MIB, second * SECOND_NS);
        }
        swing(&regret, 100, 60 * SECOND_NS, 1);
        swing(&regret, 100, 60 * SECOND_NS + 2 * MS, 1);
        assert!(regret.raised() >= 100 * MIB);
    }

    #[test]
    fn a_floor_without_end_stays() {
        let regret = Regret::new();
        let reach = Reach {
            floor: usize::MAX,
            once: usize::MAX,
            swing: usize::MAX,
        };
        for at in 0..3 {
            regret.give(MIB, at);
            regret.want(MIB, reach, at);
        }
        assert_eq!(regret.raised(), usize::MAX);
    }

    #[test]
    fn what_is_not_wanted_again_is_no_mistake() {
        let regret = Regret::new();
        for at in 0..10 {
            regret.give(100 * MIB, at);
            regret.want(10 * MIB, REACH, at);
        }
        assert_eq!(regret.raised(), 0);
        assert!(!regret.swings(10));
    }

    #[test]
    fn no_more_is_regretted_than_was_given_back() {
        let regret = Regret::new();
        for at in 0..2 {
            regret.give(20 * MIB, at);
            regret.want(500 * MIB, REACH, at);
            regret.want(500 * MIB, REACH, at);
        }
        assert_eq!(regret.raised() / MIB, 36);
    }

    #[test]
    fn a_pause_ends_the_swing() {
        let regret = Regret::new();
        swing(&regret, 40, 0, 1);
        swing(&regret, 40, 2 * MS, 1);
        assert!(regret.swings(3 * MS) && !regret.swings(3 * REGRET_NS));
        swing(&regret, 40, 3 * REGRET_NS, 1);
        assert!(!regret.swings(3 * REGRET_NS), "the first of a row again");
    }

    #[test]
    fn what_was_learnt_falls_by_an_eighth_each_second_however_late_that_is_seen() {
        let regret = Regret::new();
        swing(&regret, 50, 0, 1);
        swing(&regret, 50, MS, 1);
        let all = regret.raised();
        let learnt = 2 * MS;
        regret.decay(learnt + SECOND_NS / 2);
        assert_eq!(regret.raised(), all);
        for (seconds, left) in [(1, 1), (3, 3), (60, 60)] {
            regret.decay(learnt + seconds * SECOND_NS);
            assert_eq!(regret.raised(), eighths_off(all, left));
        }
        assert!(regret.raised() < all / 1000);
    }
}
