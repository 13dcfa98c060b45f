//! The C allocator, called so that the optimiser can neither see nor drop a call, and the small
//! generator that picks sizes and orders.

use super::Damage;
use std::hint::black_box;

/// `malloc`, opaque to the optimiser.
///
/// # Safety
/// 1. The result is used only up to `size` bytes and passed to `free` once, or leaked.
#[inline(always)]
pub unsafe fn take(size: usize) -> *mut u8 {
    // SAFETY: malloc takes any size; obligation 1 is the caller's.
    black_box(unsafe { libc::malloc(black_box(size)) }).cast()
}

/// `free`, opaque to the optimiser.
///
/// # Safety
/// 1. `object` came from `take` and was not given before.
#[inline(always)]
pub unsafe fn give(object: *mut u8) {
    // SAFETY: obligation 1.
    unsafe { libc::free(black_box(object).cast()) };
}

/// Writes the word that [`check`] looks for.
///
/// # Safety
/// 1. `object` is at least eight bytes of this program's own memory.
#[inline(always)]
pub unsafe fn mark(object: *mut u8, word: u64) {
    // SAFETY: obligation 1; malloc aligns to at least eight bytes.
    unsafe { object.cast::<u64>().write(word) };
}

/// The word that [`mark`] wrote.
///
/// # Safety
/// 1. `object` was marked and not given since.
#[inline(always)]
pub unsafe fn check(object: *mut u8) -> u64 {
    // SAFETY: obligation 1.
    unsafe { object.cast::<u64>().read() }
}

/// What a loop says when the words it finds do not add up to the words it wrote.
pub fn compare(wrote: u64, found: u64) -> Result<(), Damage> {
    if wrote == found {
        return Ok(());
    }
    Err(Damage(format!(
        "memory was handed out twice or changed: wrote words that sum to {wrote:#x}, found {found:#x}"
    )))
}

/// Fails when the allocator refused.
#[inline(always)]
pub fn granted(object: *mut u8, size: usize) -> Result<*mut u8, Damage> {
    if object.is_null() {
        return Err(Damage(format!("malloc({size}) returned NULL")));
    }
    Ok(object)
}

/// A small generator (Vigna's splitmix64): the same sizes and orders for every allocator.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    /// Starts at `seed`.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Uniform below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A size between `low` and `high`, each doubling equally likely.
    pub fn log_uniform(&mut self, low: usize, high: usize) -> usize {
        let part = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        let size = (low as f64 * (high as f64 / low as f64).powf(part)) as usize;
        size.clamp(low, high)
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..1000).collect();
        Dice::new(7).shuffle(&mut items);
        assert_ne!(items, (0..1000).collect::<Vec<u32>>());
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn log_uniform_sizes_stay_in_their_range_and_favour_no_doubling() {
        let mut dice = Dice::new(1);
        let sizes: Vec<usize> = (0..10_000).map(|_| dice.log_uniform(16, 4096)).collect();
        assert!(sizes.iter().all(|size| (16..=4096).contains(size)));
        let small = sizes.iter().filter(|&&size| size < 256).count();
        assert!(
            (4700..5300).contains(&small),
            "{small} of 10000 below the middle doubling"
        );
    }

    #[test]
    fn a_changed_word_is_reported() {
        assert!(compare(3, 3).is_ok());
        assert!(compare(3, 4).unwrap_err().0.contains("handed out twice"));
    }
}
