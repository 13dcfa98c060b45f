//! Branches that a CPU predicts wrong.
//!
//! ```text
//!   the last steps ─ hash ─► what came next, how sure ─► another step: a branch was mispredicted
//! ```
//!
//! What the core decides shows in what it does next: which line it touches, which work it does, which
//! lock it takes. A predictor learns what follows the same last steps; where something else comes, the
//! CPU has begun the wrong thing and begins again, which has a price where a profile says so.
//!
//! Not here: branches of programs (their time is measured; what they touch of their own mailboxes is a
//! step like any other), and those both ways of which look alike.

use crate::chance::mix;
use core::cell::Cell;
use flagstone_core::platform::{Access, Line, LockKind, Work};

/// Steps that a prediction depends on: about those of an allocation and a free.
const STEPS: u32 = 8;
/// Predictions. More would hardly be used: few sequences of steps are frequent.
const PLACES: usize = 4096;
/// Most that it counts for a prediction to have held: so often it must fail before another takes its place.
const SURE: u8 = 3;

/// Something the core does that it might not have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step(u8);

impl Step {
    const BITS: u32 = 8;

    #[inline]
    pub(crate) fn of_touch(line: Line, access: Access) -> Self {
        Self(1 + line as u8 * 3 + access as u8)
    }

    #[inline]
    pub(crate) fn of_work(work: Work) -> Self {
        Self(match work {
            Work::Fast => 64,
            Work::FastFree => 65,
            Work::Slow => 66,
            Work::Objects(_) => 67,
            Work::NewSlab(_) => 68,
            Work::ManagedSlab => 69,
            Work::Blocks(_) => 70,
            Work::Pages(_) => 71,
        })
    }

    #[inline]
    pub(crate) fn of_lock(kind: LockKind) -> Self {
        Self(128 + kind as u8)
    }
}

/// What is predicted after some steps.
#[derive(Clone, Copy, Default, Debug)]
struct Guess {
    next: u8,
    sure: u8,
}

/// What one CPU has learned.
#[derive(Debug)]
pub(crate) struct Predictor {
    before: Cell<u64>,
    guesses: Box<[Cell<Guess>]>,
}

const _: () = assert!(
    STEPS * Step::BITS == u64::BITS,
    "a word holds the last steps"
);

impl Predictor {
    /// One that has seen nothing.
    pub(crate) fn new() -> Self {
        Self {
            before: Cell::new(0),
            guesses: vec![Cell::new(Guess::default()); PLACES].into(),
        }
    }

    /// Sees `step`; whether something else was predicted.
    pub(crate) fn misses(&self, step: Step) -> bool {
        let before = self.before.get();
        self.before.set(before << Step::BITS | u64::from(step.0));
        let cell = &self.guesses[mix(before) as usize % PLACES];
        let mut guess = cell.get();
        let missed = guess.next != step.0;
        if !missed {
            guess.sure = SURE.min(guess.sure + 1);
        } else if guess.sure > 0 {
            guess.sure -= 1;
        } else {
            guess = Guess {
                next: step.0,
                sure: 1,
            };
        }
        cell.set(guess);
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;

    /// The part of steps that were mispredicted where allocations take a slow path as `is_slow` says.
    fn missed(mut is_slow: impl FnMut(u32) -> bool) -> f64 {
        let predictor = Predictor::new();
        let (mut missed, mut seen) = (0, 0);
        for turn in 0..20_000 {
            let slow = is_slow(turn).then_some(Work::Slow);
            for work in [Some(Work::Fast), slow, Some(Work::FastFree)]
                .into_iter()
                .flatten()
            {
                let miss = predictor.misses(Step::of_work(work));
                // The first half teaches.
                if turn >= 10_000 {
                    seen += 1;
                    missed += u32::from(miss);
                }
            }
        }
        f64::from(missed) / f64::from(seen)
    }

    #[test]
    fn what_comes_in_turn_is_predicted_and_what_comes_by_chance_is_not() {
        assert_eq!(missed(|_| false), 0.0);
        assert_eq!(missed(|turn| turn % 2 == 0), 0.0);
        let chance = Chance::new(1);
        let half = missed(|_| chance.happens(1, 2));
        // Every second turn is wrong at one of two and a half steps.
        assert!((0.17..0.23).contains(&half), "{half}");
        let seldom = missed(|_| chance.happens(1, 20));
        assert!((0.02..0.03).contains(&seldom), "{seldom}");
    }

    #[test]
    fn steps_of_different_kinds_differ() {
        let touch = Step::of_touch(Line::Page, Access::Atomic);
        assert!(touch.0 < Step::of_work(Work::Fast).0);
        assert_ne!(Step::of_lock(LockKind::Zone), Step::of_lock(LockKind::List));
        assert_ne!(
            Step::of_touch(Line::Cpu, Access::Read),
            Step::of_touch(Line::Cpu, Access::Write)
        );
    }
}
