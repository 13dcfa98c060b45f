//! The two functions a sampler needs, without a mathematics library: the logarithm that draws an interval, and the
//! probability that a block is taken.

use core::f64::consts::{LN_2, SQRT_2};

/// Natural logarithm of a number in `(0, 1]`, to twelve digits.
fn ln(number: f64) -> f64 {
    let bits = number.to_bits();
    let mut exponent = ((bits >> 52) & 0x7FF) as i32 - 1023;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)), whose argument is below 0.172.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let mut sum = 0.0;
    let mut odd = 17.0;
    while odd > 0.0 {
        sum = sum * square + 1.0 / odd;
        odd -= 2.0;
    }
    f64::from(exponent) * LN_2 + 2.0 * ratio * sum
}

/// A draw from the exponential distribution with this mean, rounded up: at least 1. `random` is uniform.
pub fn exponential(mean: u64, random: u64) -> u64 {
    // 53 bits, from just above zero to one.
    let uniform = ((random >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let drawn = -ln(uniform) * mean as f64;
    (drawn as u64).saturating_add(1)
}

/// `1 - exp(-x)` for `x ≥ 0`: the probability that a block of `x` times the mean is taken.
pub fn taken(x: f64) -> f64 {
    if x > 40.0 {
        return 1.0;
    }
    // By x / 2^k below a half, and 1 - q² = p (2 - p) for each doubling.
    let (mut small, mut doublings) = (x, 0);
    while small > 0.5 {
        small /= 2.0;
        doublings += 1;
    }
    let (mut term, mut sum) = (small, small);
    let mut n = 2.0;
    while n < 16.0 {
        term *= -small / n;
        sum += term;
        n += 1.0;
    }
    let mut p = sum;
    for _ in 0..doublings {
        p *= 2.0 - p;
    }
    p
}

/// A number between all others: the finaliser of the generator splitmix64.
pub fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
