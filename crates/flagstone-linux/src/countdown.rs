//! A thread's countdown to the next sampled allocation: its second word of thread-local storage.
//!
//! ```text
//!   0          not drawn yet: the thread has counted nothing
//!   n > 0      n bytes until a sample
//!   allocation of s bytes:  n > s: n - s      n ≤ s: due, and drawn anew
//! ```
//!
//! Found as [`crate::tls`] says. The fast path in assembly subtracts by one instruction
//! (`flagstone_abi::hot`), so that a signal handler on top of it counts as well; the functions here may
//! lose what a handler counted between their load and their store.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

crate::thread_storage! {
    /// Where the calling thread's word is.
    fn place: AtomicU64 = "flagstone_countdown", 8
}

/// The calling thread's word.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline]
fn word() -> &'static AtomicU64 {
    // SAFETY: eight zeroed bytes that live as long as the thread; nobody hands the reference to another one.
    unsafe { &*place() }
}

/// One word for all threads, on other machines: samples are as many, and come from whoever is there.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn word() -> &'static AtomicU64 {
    static WORD: AtomicU64 = AtomicU64::new(0);
    &WORD
}

/// Counts an allocation of `bytes`; whether one is due, or nothing was drawn yet.
#[inline]
pub fn count(bytes: u64) -> bool {
    let word = word();
    let left = word.load(Relaxed);
    word.store(left.wrapping_sub(bytes), Relaxed);
    left <= bytes
}

/// What the word was before an allocation of `bytes`, which was counted already, was found due.
pub fn before(bytes: u64) -> u64 {
    word().load(Relaxed).wrapping_add(bytes)
}

/// Sets the calling thread's countdown.
pub fn set(bytes: u64) {
    word().store(bytes, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_due_when_it_reaches_what_is_left() {
        assert!(count(10), "nothing was drawn yet");
        assert_eq!(before(10), 0);
        set(100);
        assert!(!count(99));
        assert!(count(1));
        assert_eq!(before(1), 1);
        set(5);
        assert!(count(u64::MAX >> 1));
        assert_eq!(before(u64::MAX >> 1), 5);
        std::thread::spawn(|| assert_eq!(before(0), 0))
            .join()
            .expect("each thread has its own");
    }
}
