//! `realloc` growth and large `calloc`.

use super::clock::ns_per_op;
use super::heap::{compare, granted};
use super::{Damage, Job, Sample};
use std::hint::black_box;

/// Bytes at which a growing buffer stops.
const GROWN: usize = 1 << 20;

/// Two buffers grow in turn from 16 B to 1 MiB, by half each time, as a vector does; one
/// operation is one `realloc`, and every byte that was added is written.
pub fn realloc(job: Job) -> Result<Sample, Damage> {
    let ns = ns_per_op(job, 2 * steps().count(), |_| || grow_two());
    Ok(Sample::of_ns(ns?))
}

fn steps() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(16usize), |size| {
        Some((size + size / 2).next_multiple_of(8))
    })
    .take_while(|&size| size < GROWN)
}

fn grow_two() -> Result<(), Damage> {
    let mut buffers = [(std::ptr::null_mut::<u8>(), 0usize); 2];
    for size in steps() {
        for (tag, (buffer, length)) in (1u8..).zip(&mut buffers) {
            // SAFETY: `buffer` is null or the last result; writes stay below the new size.
            unsafe {
                let moved = black_box(libc::realloc(black_box(*buffer).cast(), size)).cast();
                *buffer = granted(moved, size)?;
                std::ptr::write_bytes(buffer.add(*length), tag, size - *length);
            }
            *length = size;
        }
    }
    for (tag, (buffer, length)) in (1u64..).zip(buffers) {
        // SAFETY: all `length` bytes were written above, and the buffer is freed once.
        let ends = unsafe {
            let ends = u64::from(*buffer) + u64::from(*buffer.add(length - 1));
            libc::free(black_box(buffer).cast());
            ends
        };
        compare(2 * tag, ends)?;
    }
    Ok(())
}

/// `calloc` of 1 MiB, one byte of each page read (it must be zero) and written, `free`.
pub fn calloc(job: Job) -> Result<Sample, Damage> {
    let ns = ns_per_op(job, 1, |_| {
        || {
            let mut dirt = 0u64;
            // SAFETY: calloc grants GROWN bytes; every access is below that; freed once.
            unsafe {
                let buffer = granted(black_box(libc::calloc(1024, GROWN / 1024)).cast(), GROWN)?;
                for at in (0..GROWN).step_by(4096) {
                    dirt += u64::from(black_box(*buffer.add(at)));
                    *buffer.add(at) = 0xa5;
                }
                libc::free(black_box(buffer).cast());
            }
            compare(0, dirt)
        }
    });
    Ok(Sample::of_ns(ns?))
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn growth_and_calloc_run_and_find_what_they_wrote() {
        let job = Job {
            threads: 1,
            scale: Scale::Smoke,
        };
        assert!(realloc(job).unwrap().value > 0.0);
        assert!(calloc(job).unwrap().value > 0.0);
    }
}
