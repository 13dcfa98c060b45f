//! Seeded chance and the event digest: what makes a run repeatable, and shows that it was.

use core::cell::Cell;

/// A small generator (splitmix64): one seed, one sequence, on every machine.
#[derive(Debug)]
pub struct Chance {
    state: Cell<u64>,
}

/// Mixes all bits of `value` into each other.
#[inline]
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Chance {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            state: Cell::new(seed),
        }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next(&self) -> u64 {
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        mix(state)
    }

    /// A number below `bound` (which is not zero), all equally likely up to 1 in 2^32.
    #[inline]
    pub fn below(&self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// Whether something happens whose chance is `numerator` in `denominator`.
    #[inline]
    pub fn happens(&self, numerator: u32, denominator: u32) -> bool {
        self.below(denominator) < numerator
    }

    /// A sequence of its own for part `index` of a run.
    #[must_use]
    pub fn fork(&self, index: u64) -> Self {
        Self::new(mix(self.state.get() ^ mix(index.wrapping_add(1))))
    }

    /// Any number from zero up to one, one excluded.
    #[must_use]
    pub fn uniform(&self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Sample of an exponential distribution with this mean, in whole units.
    pub fn exponential(&self, mean: f64) -> u64 {
        (-ln(1.0 - self.uniform()) * mean) as u64
    }
}

/// Natural logarithm of a normal number above zero, by IEEE sums and products alone: the libraries
/// of two machines need not agree on the last bit of theirs. Within 1e-14 of it.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let fraction = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // 2 atanh(z) with z at most 1/3: terms fall by 9 each.
    let z = (fraction - 1.0) / (fraction + 1.0);
    let (square, mut power, mut sum) = (z * z, z, 0.0);
    for odd in 0..18 {
        sum += power / f64::from(2 * odd + 1);
        power *= square;
    }
    2.0 * sum + exponent as f64 * core::f64::consts::LN_2
}

/// A hash over everything that happened, in order: same seed, same digest.
#[derive(Debug, Default)]
pub struct Digest {
    state: Cell<u64>,
}

impl Digest {
    /// Adds one event.
    #[inline]
    pub fn add(&self, event: u64) {
        let state = self.state.get().rotate_left(23) ^ event;
        self.state.set(state.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    /// The digest so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        mix(self.state.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_the_usual_one() {
        for x in [1e-16, 0.001, 0.5, 0.9999, 1.0, 1.5, 3.0, 1e10] {
            let usual = f64::ln(x);
            assert!((ln(x) - usual).abs() <= 1e-14 * usual.abs().max(1.0), "{x}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_sequence_and_forks_differ() {
        let (a, b) = (Chance::new(7), Chance::new(7));
        let first: Vec<_> = (0..100).map(|_| a.next()).collect();
        assert_eq!(first, (0..100).map(|_| b.next()).collect::<Vec<_>>());
        assert_ne!(a.fork(0).next(), a.fork(1).next());
    }

    #[test]
    fn a_digest_depends_on_the_order_of_events() {
        let (a, b) = (Digest::default(), Digest::default());
        [1, 2].into_iter().for_each(|event| a.add(event));
        [2, 1].into_iter().for_each(|event| b.add(event));
        assert_ne!(a.value(), b.value());
    }
}
