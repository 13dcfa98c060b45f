//! The small loops through the core on this host, in turns, so that all of them meet every pace it has.

use super::ground::{Ground, Hall, Really};
use super::steps::{self, Row, WARM, turn};
use super::threads::{Paced, Stretch, Watch, median, quoted};
use crate::scenario::NamedPolicy;
use core::cell::Cell;
use std::time::{Duration, Instant};

/// How often it is each loop's turn.
const TURNS: u32 = 8;

/// Stretches of a loop's turn at least.
const STRETCHES: usize = 5;

/// All of them.
#[derive(Debug)]
pub struct Loops {
    /// Each one.
    pub loops: Vec<Loop>,
    /// The power of the look at the pace that their time goes with; `None` where they met one pace only.
    pub pace_power: Option<f64>,
}

/// A loop, and what it took.
pub struct Loop {
    /// The loop.
    pub row: Row,
    ground: Ground,
    stretches: Vec<Stretch>,
    /// Of its stretches, where halves are timed apart: the part of the time that the taking is.
    parts: Vec<f64>,
}

/// How often all of that is done at most, until the host has shown two paces.
const TIMES: u32 = 3;

/// Runs every loop on this host for `budget` in all, or as often as that until the power is known that
/// their time goes with; `span_bytes` of address space for each.
///
/// # Errors
/// One line, when the system grants no memory.
pub fn run(budget: Duration, span_bytes: usize) -> Result<Loops, String> {
    let loops = steps::rows().into_iter().map(|row| {
        Ok(Loop {
            row,
            // A core of its own, as on the virtual CPU: caches learn from what they have seen.
            ground: Ground::new(&NamedPolicy::parse(row.policy)?.policy, span_bytes)?,
            stretches: Vec::new(),
            parts: Vec::new(),
        })
    });
    let mut loops = loops.collect::<Result<Vec<Loop>, String>>()?;
    let each = budget / (loops.len() as u32 * TURNS);
    let mut pace_power = None;
    for _ in 0..TIMES {
        for _ in 0..TURNS {
            loops.iter_mut().for_each(|one| one.go_on(each));
        }
        pace_power = pace_power_of(&loops);
        if pace_power.is_some() {
            break;
        }
    }
    Ok(Loops { loops, pace_power })
}

impl Loop {
    fn go_on(&mut self, budget: Duration) {
        let (ground, step) = (&self.ground, self.row.step);
        let hall = Hall::new(1);
        let stage = Really::new(ground, ground, &hall, 0, u64::MAX);
        let cache = ground.class(step.size());
        let mut held = Vec::with_capacity(step.count());
        for _ in 0..WARM {
            turn(&stage, cache, step, &mut held, || ());
        }
        let turns = (20_000 / step.count()).max(1);
        let operations = (turns * step.count()) as u64;
        let origin = Instant::now();
        let mut watch = Watch::start(origin);
        let mut count = 0;
        while count < STRETCHES || origin.elapsed() < budget {
            let (mut taking, mut both) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..turns {
                if step.is_halved() {
                    let (start, taken) = (Instant::now(), Cell::new(Duration::ZERO));
                    let half = || taken.set(start.elapsed());
                    turn(&stage, cache, step, &mut held, half);
                    both += start.elapsed();
                    taking += taken.get();
                } else {
                    turn(&stage, cache, step, &mut held, || ());
                }
            }
            let stretch = watch.cut(operations);
            if stretch.is_undisturbed() && step.is_halved() {
                self.parts.push(taking.as_secs_f64() / both.as_secs_f64());
            }
            self.stretches.push(stretch);
            count += 1;
        }
    }

    /// Nanoseconds of taking and giving back one object, and the part of them that the taking is.
    #[must_use]
    pub fn took(&self) -> (Paced, f64) {
        let part = if self.parts.is_empty() {
            0.5
        } else {
            median(self.parts.clone())
        };
        (quoted(&self.stretches), part)
    }
}

/// The power of the look's step that the loops' time goes with: said by the slowest and the fastest
/// third of each loop that met two paces.
fn pace_power_of(loops: &[Loop]) -> Option<f64> {
    let thirds = loops.iter().filter_map(|one| {
        let clean = one.stretches.iter().filter(|s| s.is_undisturbed());
        let mut clean: Vec<(f64, f64)> = clean.map(|s| (s.pace, s.ns())).collect();
        clean.sort_by(|a, b| a.0.total_cmp(&b.0));
        let third = clean.len() / 3;
        let middle = |part: &[(f64, f64)]| {
            let of = |value: fn(&(f64, f64)) -> f64| median(part.iter().map(value).collect());
            (of(|one| one.0), of(|one| one.1))
        };
        (third > 0).then(|| {
            (
                middle(&clean[..third]),
                middle(&clean[clean.len() - third..]),
            )
        })
    });
    power(thirds.map(|(fast, slow)| ((slow.0 / fast.0).ln(), (slow.1 / fast.1).ln())))
}

/// The power by which ratios of times go with those of paces (logarithms: pace, time), if enough of them
/// say one.
fn power(ratios: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    /// Paces closer than this are one: of looks that scatter by a tenth, thirds are as far apart.
    const APART: f64 = 0.16;
    /// Loops that must have met two.
    const ENOUGH: usize = 6;
    /// A host on which it is beyond shows something else than its pace.
    const RANGE: (f64, f64) = (0.5, 2.5);
    let told: Vec<(f64, f64)> = ratios.filter(|(pace, _)| *pace > APART).collect();
    let powers = told.iter().map(|(pace, time)| time / pace).collect();
    (told.len() >= ENOUGH).then(|| median(powers).clamp(RANGE.0, RANGE.1))
}

impl core::fmt::Debug for Loop {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Loop")
            .field("row", &self.row)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_is_that_of_the_loops_that_met_two_paces() {
        let met = |pace: f64, power: f64| (pace, pace * power);
        let none = [met(0.12, 0.5); 30];
        assert_eq!(power(none.into_iter()), None, "noise");
        let some = [met(0.2, 1.4), met(0.3, 1.5), met(0.25, 1.6)].repeat(3);
        let found = power(none.into_iter().chain(some)).unwrap();
        assert!((found - 1.5).abs() < 1e-9, "{found}");
        assert_eq!(power([met(0.2, 9.0); 9].into_iter()), Some(2.5));
    }
}
