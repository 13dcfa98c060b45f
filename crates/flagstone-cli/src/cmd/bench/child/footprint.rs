//! What stays resident after much memory is freed.

use super::heap::{Dice, compare, give, granted, take};
use super::process::resident_bytes;
use super::{Damage, Job, Sample};
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Pointers in a mapping of their own, so that the list is neither the allocator's memory nor
/// counted in what it keeps.
struct Ledger {
    base: *mut (usize, usize),
    capacity: usize,
    len: usize,
}

impl Ledger {
    fn new(capacity: usize) -> Result<Ledger, Damage> {
        let bytes = capacity * size_of::<(usize, usize)>();
        // SAFETY: an anonymous private mapping of our own choosing of length.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Damage(format!("no address space for {capacity} pointers")));
        }
        Ok(Ledger {
            base: base.cast(),
            capacity,
            len: 0,
        })
    }

    fn push(&mut self, entry: (usize, usize)) {
        assert!(self.len < self.capacity, "the plan fits its ledger");
        // SAFETY: below the mapped capacity, checked above.
        unsafe { self.base.add(self.len).write(entry) };
        self.len += 1;
    }

    fn entries(&mut self) -> &mut [(usize, usize)] {
        // SAFETY: `len` entries were written by `push`, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let bytes = self.capacity * size_of::<(usize, usize)>();
        // SAFETY: the mapping made in `new`, of the same length, unmapped once.
        unsafe { libc::munmap(self.base.cast(), bytes) };
    }
}

/// Allocates and fills blocks of `low..=high` bytes until `total` bytes are live.
fn fill(total: usize, low: usize, high: usize) -> Result<Ledger, Damage> {
    let mut dice = Dice::new(5);
    let mut ledger = Ledger::new(total / low + 1)?;
    let mut live = 0;
    while live < total {
        let size = dice.log_uniform(low, high);
        // SAFETY: freed once, in `release`; every written byte is below `size`.
        unsafe {
            let object = granted(take(size), size)?;
            std::ptr::write_bytes(object, tag(ledger.len), size);
            ledger.push((object.expose_provenance(), size));
        }
        live += size;
    }
    Ok(ledger)
}

fn tag(number: usize) -> u8 {
    (number % 251) as u8
}

/// Frees one block after looking at its first and last byte, which must still be the same.
fn release(entry: (usize, usize)) -> Result<(), Damage> {
    let object: *mut u8 = std::ptr::with_exposed_provenance_mut(entry.0);
    // SAFETY: `fill` wrote all of it and it is released once.
    let (first, last) = unsafe {
        let ends = (*object, *object.add(entry.1 - 1));
        give(object);
        ends
    };
    compare(u64::from(first), u64::from(last))
}

/// 2 GiB of 64 B..64 KiB blocks written to, then all freed in random order; the figure is the
/// resident size right after the last free, in MiB.
pub fn giveback(job: Job) -> Result<Sample, Damage> {
    let total = job.scale.pick(2048, 256, 8) * MIB;
    let before = resident_bytes();
    let start = Instant::now();
    let mut ledger = fill(total, 64, 64 * KIB)?;
    let filled = resident_bytes();
    Dice::new(9).shuffle(ledger.entries());
    let blocks = ledger.len;
    for &mut entry in ledger.entries() {
        release(entry)?;
    }
    let elapsed = start.elapsed().as_nanos() as f64;
    drop(ledger);
    let after = resident_bytes();
    let sample = Sample {
        value: after as f64 / MIB as f64,
        ns_per_op: Some(elapsed / blocks as f64),
        ..Sample::default()
    };
    Ok(sample
        .with("rss_before_mib", before as f64 / MIB as f64)
        .with("rss_filled_mib", filled as f64 / MIB as f64))
}

/// A live GiB of 16 B..32 KiB blocks, of which 90 % are freed at random; the figure is resident
/// size divided by the bytes still live, at once; `after_3s` is the same after three idle seconds.
pub fn scatter(job: Job) -> Result<Sample, Damage> {
    let total = job.scale.pick(1024, 128, 8) * MIB;
    let start = Instant::now();
    let mut ledger = fill(total, 16, 32 * KIB)?;
    Dice::new(10).shuffle(ledger.entries());
    let blocks = ledger.len;
    let keep = blocks / 10;
    let mut kept = Ledger::new(keep)?;
    for (number, &mut entry) in ledger.entries().iter_mut().enumerate() {
        if number < keep {
            kept.push(entry);
        } else {
            release(entry)?;
        }
    }
    let elapsed = start.elapsed().as_nanos() as f64;
    drop(ledger);
    let live: usize = kept.entries().iter().map(|entry| entry.1).sum();
    let ours = (keep * size_of::<(usize, usize)>()) as u64;
    let ratio = || resident_bytes().saturating_sub(ours) as f64 / live as f64;
    let at_once = ratio();
    let pause = job.scale.pick(3000, 3000, 0);
    std::thread::sleep(Duration::from_millis(pause));
    let later = ratio();
    for &mut entry in kept.entries() {
        release(entry)?;
    }
    let sample = Sample {
        value: at_once,
        ns_per_op: Some(elapsed / blocks as f64),
        ..Sample::default()
    };
    Ok(sample
        .with("after_3s", later)
        .with("live_mib", live as f64 / MIB as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giveback_frees_everything_it_filled() {
        let sample = giveback(Job::SMOKE).unwrap();
        assert!(sample.parts["rss_filled_mib"] > 8.0);
        assert!(sample.value > 0.0);
    }

    #[test]
    fn scatter_keeps_about_a_tenth_alive() {
        let sample = scatter(Job::SMOKE).unwrap();
        assert!(sample.parts["live_mib"] < 2.0);
        assert!(
            sample.value >= 1.0,
            "live blocks are resident: {}",
            sample.value
        );
    }
}
