//! How fast a CPU is just now.
//!
//! A neighbour on the other thread of the core, of which a guest knows nothing, slows down all that
//! fills the core's pipelines and nothing that waits for its own last result. An allocator's fast
//! path is of both kinds. So the look is a loop of both: two fifths of its time, where the core is
//! its own, loads and stores that do not wait for each other, three fifths a chain. Loops through
//! the core follow it with a power that each host tells (loops.rs), here nearly one to one (Intel Emerald Rapids: slope 0.87 to 0.97 of their logarithms, r
//! 0.88, where either kind alone gave 0.45 and nothing).

use core::hint::black_box;
use std::time::Instant;

/// Loads, each with two stores, of a look. Ten times as many would be a part of what is measured.
const LOADS: u64 = 1_000;

/// Links of its chain.
const LINKS: u32 = 750;

/// Words it reads and writes: few lines, so that it drives nothing out of the cache.
const WORDS: usize = 64;

/// Nanoseconds of a step of the look, which takes about 2.5 µs in all.
#[must_use]
pub fn look() -> f64 {
    let mut words = [0u64; WORDS];
    let start = Instant::now();
    let mut sum = 1u64;
    for step in 0..LOADS {
        let at = (step * 37) as usize % WORDS;
        let word = words[at];
        sum = sum.wrapping_add(word);
        words[at] = word.wrapping_add(step);
        // Read again 59 steps later.
        words[(at + 7) % WORDS] = step;
        black_box(&mut words);
    }
    idle(black_box(sum), LINKS);
    start.elapsed().as_secs_f64() * 1e9 / LOADS as f64
}

/// Work in a register alone, each step of which waits for the last one: it takes as long whatever a
/// neighbour does.
#[inline]
pub fn idle(from: u64, links: u32) {
    let mut value = from | 1;
    for _ in 0..links {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
    }
    black_box(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_takes_time() {
        assert!(look() > 0.0);
    }
}
