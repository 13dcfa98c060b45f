//! Who takes sheaves out of CPUs' slots now: one thread at a time, and no fork meanwhile.
//!
//! The sheaves under way are known to that thread's stack alone. A child forked then would lose them with their
//! objects, so a fork waits for the thread, and others stay away until it is over. It waits before it takes
//! any lock of the heap, since the thread takes them on its way. It does not wait for long with the C library's
//! list of streams locked: a signal handler on top of the thread may fork as well, and wants that list.

use crate::thread;
use crate::world::Linux;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use flagstone_core::platform::{LockKind, Platform};

/// The thread, by its token; with [`FOR_FORK`] for one that forks; zero for none.
static HOLDER: AtomicU64 = AtomicU64::new(0);
/// Forks within each other, of the holder.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Beside the token of a thread that forks. Tokens have no top bit.
const FOR_FORK: u64 = 1 << 63;

/// Rounds for which a fork waits that a signal handler begins on top of a lock's holder: about 50 ms. The
/// thread may wait for that very lock.
const PATIENCE: u32 = 90;

/// Rounds for which any other fork waits with the list of streams locked: as long as pauses spin and yield.
const GIVES_WAY_AFTER: u32 = 38;

fn take(word: u64) -> bool {
    HOLDER
        .compare_exchange(0, word, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Lets the caller take sheaves until [`end`], unless another does, or forks.
pub(crate) fn begin() -> bool {
    take(thread::token())
}

/// Ends [`begin`].
pub(crate) fn end() {
    HOLDER.store(0, Ordering::Release);
}

/// Whether the caller interrupted its own taking.
pub(crate) fn is_own() -> bool {
    HOLDER.load(Ordering::Relaxed) == thread::token()
}

/// Before a fork: keeps everybody from taking sheaves, once nobody does.
///
/// `false` where another thread goes on taking them: the caller unlocks what it holds, [waits](wait_while_held)
/// and begins again. On top of a lock's holder the caller cannot do that, and forks all the same.
#[must_use]
pub(crate) fn before_fork() -> bool {
    let word = thread::token() | FOR_FORK;
    let mut round = 0;
    while HOLDER.load(Ordering::Relaxed) != word && !take(word) {
        if is_own() || (round >= PATIENCE && is_on_top()) {
            return true;
        }
        if round >= GIVES_WAY_AFTER && !is_on_top() {
            return false;
        }
        thread::pause(round);
        round += 1;
    }
    FORKS.fetch_add(1, Ordering::Relaxed);
    true
}

/// Waits until the thread that takes sheaves now has ended.
pub(crate) fn wait_while_held() {
    let word = HOLDER.load(Ordering::Relaxed);
    let mut round = 0;
    while word != 0 && HOLDER.load(Ordering::Relaxed) == word {
        thread::pause(round);
        round += 1;
    }
}

fn is_on_top() -> bool {
    Linux::holds_from(LockKind::Heap)
}

/// After a fork, in the parent.
pub(crate) fn after_fork() {
    let forks = HOLDER.load(Ordering::Relaxed) == thread::token() | FOR_FORK;
    if forks && FORKS.fetch_sub(1, Ordering::Relaxed) == 1 {
        end();
    }
}

/// The same in the child, where a thread that was not waited for is gone.
pub(crate) fn after_fork_in_child() {
    after_fork();
    let holder = HOLDER.load(Ordering::Relaxed);
    if holder & !FOR_FORK != thread::token() {
        end();
    }
}
