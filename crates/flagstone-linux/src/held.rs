//! A thread's word of the locks it holds (`flagstone_core::platform::Held`): thread-local storage that a
//! signal handler can reach at any time ([`crate::tls`]).

use flagstone_core::platform::{Held, LockKind};

crate::thread_storage! {
    /// Where the calling thread's word is.
    fn place: Held = "flagstone_held", 8
}

/// The calling thread's word.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline]
pub(crate) fn word() -> &'static Held {
    // SAFETY: eight zeroed bytes that live as long as the thread; nobody hands the reference to another one.
    unsafe { &*place() }
}

/// The words of other machines, found by a thread's token. Threads that share one may find each other's
/// locks counted: a handler then goes without a lock that it could have waited for.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static WORDS: [Held; 256] = [const { Held::new() }; 256];

/// The calling thread's word.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn word() -> &'static Held {
    let mixed = crate::thread::token().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &WORDS[(mixed >> 56) as usize]
}

/// From now on the caller goes without a lock that another holds, as if it stood on top of all: it ends the
/// process, and the holder may be a thread that ended in the middle of an allocation.
pub fn never_wait() {
    word().add(LockKind::Zone);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_a_word_of_its_own_and_starts_with_nothing_held() {
        let ours = core::ptr::from_ref(word()) as usize;
        word().add(LockKind::List);
        let theirs = std::thread::spawn(|| {
            assert!(
                !word().has_from(LockKind::Heap),
                "a new thread holds nothing"
            );
            core::ptr::from_ref(word()) as usize
        });
        assert_ne!(theirs.join().expect("no panic"), ours);
        assert_eq!(core::ptr::from_ref(word()) as usize, ours);
        assert!(word().has_from(LockKind::List));
        word().remove(LockKind::List);
        assert!(!word().has_from(LockKind::Heap));
    }
}
