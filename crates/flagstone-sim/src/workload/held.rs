//! Blocks that a task holds, and replaces in an order that it chooses some operations before.
//!
//! Why before: hundreds of simulated tasks hold more than the host's caches do, and a machine that
//! knows what a task will look at asks for it meanwhile. On real threads the hints do nothing.

use super::stage::{Block, Stage};
use crate::tagged::Tagged;
use core::ptr::NonNull;
use flagstone_core::base::CacheId;

/// A block in one word: the blocks of hundreds of simulated tasks are read at random.
#[derive(Clone, Copy, Debug)]
pub struct Held(Tagged);

impl Held {
    /// Holds `block`.
    #[inline]
    #[must_use]
    pub fn new((cache, object): Block) -> Self {
        Self(Tagged::new(cache.0, object.as_ptr() as usize))
    }

    /// The block.
    #[inline]
    #[must_use]
    pub fn block(self) -> Block {
        let object = NonNull::new(self.0.address() as *mut u8);
        let cache = CacheId(self.0.tag());
        (cache, object.expect("made from an object"))
    }
}

/// One replacement: the block at place `at` for one of `cache`.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Which of the held blocks goes.
    pub at: u32,
    /// Where the new one comes from.
    pub cache: CacheId,
}

/// When a replacement comes, of which eight are known: what there is to ask for differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// After seven others: where the block is written down that will go.
    Later,
    /// After four others: the block itself, and where the new one will come from.
    Soon,
    /// After one other: the new one.
    Next,
}

/// Replacements chosen before.
const AHEAD: usize = 8;

/// The next replacements of one task.
#[derive(Debug)]
pub struct Coming {
    chosen: [Choice; AHEAD],
    done: usize,
}

impl Coming {
    /// A task that has chosen its first replacements.
    #[must_use]
    pub fn new(mut choose: impl FnMut() -> Choice) -> Self {
        Self {
            chosen: core::array::from_fn(|_| choose()),
            done: 0,
        }
    }

    /// Answers the next replacement of a block in `held`; `last` is the one to come after all others.
    #[inline]
    pub fn next<S: Stage>(&mut self, stage: &S, held: &[Held], last: Choice) -> Choice {
        self.advance(last, |when, choice| {
            stage.expect(when, choice.cache, &held[choice.at as usize]);
        })
    }

    #[inline]
    fn advance(&mut self, last: Choice, expect: impl Fn(When, Choice)) -> Choice {
        let now = core::mem::replace(&mut self.chosen[self.done % AHEAD], last);
        self.done += 1;
        for (when, others) in [
            (When::Later, AHEAD - 1),
            (When::Soon, AHEAD / 2),
            (When::Next, 1),
        ] {
            expect(when, self.chosen[(self.done + others) % AHEAD]);
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;

    #[test]
    fn a_block_is_what_was_held() {
        let mut object = 0;
        let block = (CacheId(7), NonNull::from(&mut object));
        assert_eq!(Held::new(block).block(), block);
    }

    #[test]
    fn replacements_come_in_the_order_of_their_choice_and_each_is_announced_three_times() {
        let choice = |at| Choice {
            at,
            cache: CacheId(0),
        };
        let said = RefCell::new(Vec::new());
        let mut chosen = 0..;
        let mut coming = Coming::new(|| choice(chosen.next().unwrap()));
        for turn in 0..3 * AHEAD as u32 {
            let last = choice(chosen.next().unwrap());
            let now = coming.advance(last, |when, choice| {
                said.borrow_mut().push((when, choice.at))
            });
            assert_eq!(now.at, turn);
            let said: Vec<_> = said.take();
            let others = AHEAD as u32;
            assert_eq!(
                said,
                [
                    (When::Later, turn + others),
                    (When::Soon, turn + 1 + others / 2),
                    (When::Next, turn + 2),
                ]
            );
        }
    }
}
