//! How far a heap is built, and by whom, in one word.
//!
//! ```text
//!   0 none ──► token of the thread that builds ──► all ones: ready
//!                             └──────► 0 again, if memory was refused
//! ```
//!
//! Another thread that comes while one builds waits. The builder itself coming again (a signal handler during
//! start-up) gets no memory rather than a deadlock; it is known from the first instant, because the step that
//! makes it the builder is the one that names it.

use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering};

const NONE: u64 = 0;
/// No token: those have no top bit (`lock.named`).
const READY: u64 = u64::MAX;

/// See the module's picture.
#[derive(Debug)]
pub(super) struct Stage(AtomicU64);

/// What a thread that wants the heap finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// The heap is built.
    Ready,
    /// The caller builds, and says so with [`Stage::leave`].
    Builds,
    /// The caller is a signal handler on top of the thread that builds.
    OnTop,
}

impl Stage {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(NONE))
    }

    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire) == READY
    }

    /// Makes the caller the builder, or waits until another has built.
    pub(super) fn enter<P: Platform>(&self) -> Turn {
        let me = P::token();
        let mut round = 0;
        loop {
            let taken = self
                .0
                .compare_exchange(NONE, me, Ordering::Acquire, Ordering::Acquire);
            match taken {
                Ok(_) => return Turn::Builds,
                Err(READY) => return Turn::Ready,
                Err(builder) if builder == me => return Turn::OnTop,
                Err(_) => {
                    P::pause(round);
                    round = round.saturating_add(1);
                }
            }
        }
    }

    /// Ends the caller's turn. After a refusal the next one who comes tries again: memory may be back.
    pub(super) fn leave(&self, built: Result<(), crate::platform::OutOfMemory>) {
        let word = if built.is_ok() { READY } else { NONE };
        self.0.store(word, Ordering::Release);
    }

    /// Waits while another thread builds.
    pub(super) fn wait_for_others<P: Platform>(&self) {
        let mut round = 0;
        while ![NONE, READY, P::token()].contains(&self.0.load(Ordering::Acquire)) {
            P::pause(round);
            round = round.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::CpuId;
    use crate::platform::OutOfMemory;
    use crate::platform::testing::{Setup, Testing, World};

    #[test]
    fn the_builder_is_known_to_itself_at_once_and_others_wait_for_it() {
        let world = World::enter_new(Setup::default());
        let stage = Stage::new();
        assert_eq!(stage.enter::<Testing>(), Turn::Builds);
        assert_eq!(stage.enter::<Testing>(), Turn::OnTop);
        stage.wait_for_others::<Testing>();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                world.enter(CpuId(0));
                stage.enter::<Testing>()
            });
            stage.leave(Ok(()));
            assert_eq!(other.join().expect("ends"), Turn::Ready);
        });
        assert!(stage.is_ready());
        assert_eq!(stage.enter::<Testing>(), Turn::Ready);
    }

    #[test]
    fn after_a_refusal_the_next_one_builds() {
        let _world = World::enter_new(Setup::default());
        let stage = Stage::new();
        assert_eq!(stage.enter::<Testing>(), Turn::Builds);
        stage.leave(Err(OutOfMemory));
        assert!(!stage.is_ready());
        assert_eq!(stage.enter::<Testing>(), Turn::Builds);
    }
}
