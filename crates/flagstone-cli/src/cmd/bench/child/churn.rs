//! Server churn: each thread replaces random blocks of its table, then hands the table to a fresh
//! thread and ends, so that most frees are of blocks that another thread allocated.
//!
//! Real programs: servers that give each connection or request a thread of its own, over sessions
//! that outlive it.

use super::clock::fixed_work;
use super::heap::{Dice, check, compare, granted, mark};
use super::sized::Calls;
use super::team::relays;
use super::{Damage, Job, Sample, Scale};

/// Live blocks of each thread.
const LIVE: usize = 4000;
/// Replacements before a thread hands its table on: some milliseconds.
const LEG: usize = 50_000;
/// The same in tests.
const SHORT_LEG: usize = 500;

/// What a thread does before it hands its table on.
type Leg = fn(&mut Table) -> Result<(), Damage>;
/// Sizes, bytes.
const SIZES: std::ops::Range<usize> = 16..1024;

struct Table {
    calls: Calls,
    /// Address, size and word of each live block; address zero where there is none.
    slots: Vec<(usize, usize, u64)>,
    dice: Dice,
    word: u64,
}

/// Random replacement in tables that go from thread to thread; `free`, or with `sized` the free that
/// is told the size.
pub fn churn(job: Job, sized: bool) -> Result<Sample, Damage> {
    let legs = job.scale.pick(240, 24, 4) / job.threads;
    let legs = legs.max(2);
    let calls = if sized {
        Calls::sized()
    } else {
        Calls::plain()
    };
    let table = |seed: u64| Table {
        calls,
        slots: vec![(0, 0, 0); LIVE],
        dice: Dice::new(seed + 101),
        word: seed << 40,
    };
    let tables: Vec<Table> = (0..job.threads as u64).map(table).collect();
    let (leg, replaced): (Leg, usize) = match job.scale {
        Scale::Smoke => (work::<SHORT_LEG>, SHORT_LEG),
        _ => (work::<LEG>, LEG),
    };
    let sample = fixed_work(job, legs * job.threads * replaced, || {
        relays(tables, legs, leg).iter_mut().try_for_each(clear)
    })?;
    Ok(match sized {
        true => sample.with("told_sizes", f64::from(u8::from(calls.are_told()))),
        false => sample,
    })
}

fn work<const REPLACED: usize>(table: &mut Table) -> Result<(), Damage> {
    let mut difference = 0;
    for _ in 0..REPLACED {
        let slot = table.dice.below(LIVE);
        let new = SIZES.start + table.dice.below(SIZES.len());
        table.word += 1;
        let (address, size, wrote) = &mut table.slots[slot];
        // SAFETY: a non-zero slot is a live, marked block that only this table knows, of that size.
        unsafe {
            if *address != 0 {
                let object = std::ptr::with_exposed_provenance_mut(*address);
                difference |= check(object) ^ *wrote;
                table.calls.give(object, *size);
            }
            let object = granted(table.calls.take(new), new)?;
            mark(object, table.word);
            (*address, *size, *wrote) = (object.expose_provenance(), new, table.word);
        }
    }
    compare(0, difference)
}

fn clear(table: &mut Table) -> Result<(), Damage> {
    let mut difference = 0;
    for (address, size, wrote) in table.slots.drain(..).filter(|slot| slot.0 != 0) {
        let object = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: as in `work`; the table forgets its blocks.
        unsafe {
            difference |= check(object) ^ wrote;
            table.calls.give(object, size);
        }
    }
    compare(0, difference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_inherited_intact_with_plain_and_with_sized_frees() {
        for (threads, sized) in [(1, false), (3, false), (2, true)] {
            let job = Job {
                threads,
                scale: Scale::Smoke,
            };
            let sample = churn(job, sized).unwrap();
            assert!(sample.value > 0.0);
            assert_eq!(sample.parts.contains_key("told_sizes"), sized);
        }
    }
}
