//! A scripting language's heap that grows and shrinks: strings, tables whose parts grow by
//! reallocation, closures; a collector walks the list of all and frees what died.
//!
//! Real programs: games, editors and web servers with Lua, Ruby or JavaScript inside.
//!
//! ```text
//!   all ─► | next | word | part | length, kept | ... | ─► ...      one list through all objects,
//!                            └─► | ... |                           newest first, as collectors have it
//! ```

use super::clock::{fixed_work, pin};
use super::heap::{Dice, compare, give, granted, take};
use super::{Damage, Job, Sample};
use std::hint::black_box;
use std::ptr;

/// An object as it begins in its block.
#[repr(C)]
struct Object {
    next: *mut Object,
    word: u64,
    /// A table's part; null where there is none.
    part: *mut u64,
    length: usize,
}

/// Bytes at which the heap turns from growing to shrinking, and back.
const TURNS: [usize; 2] = [6 << 20, 48 << 20];
/// Words of a table's part when it stops to grow.
const LONGEST: usize = 512;

struct Heap {
    all: *mut Object,
    dice: Dice,
    made: u64,
    live_bytes: usize,
    growing: bool,
}

/// Objects are made until the heap has grown by half, then the collector runs; while the heap grows
/// few of the old die, while it shrinks many do.
pub fn script(job: Job) -> Result<Sample, Damage> {
    let objects = job.scale.pick(2_400_000, 500_000, 20_000);
    pin(0);
    fixed_work(job, objects as usize, || {
        let mut heap = Heap {
            all: ptr::null_mut(),
            dice: Dice::new(47),
            made: 0,
            live_bytes: 0,
            growing: true,
        };
        while heap.made < objects {
            let until = heap.live_bytes + (heap.live_bytes / 2).max(TURNS[0] / 4);
            while heap.live_bytes < until {
                heap.make()?;
            }
            heap.collect(if heap.growing { 960 } else { 600 })?;
            heap.growing = match heap.growing {
                true => heap.live_bytes < TURNS[1],
                false => heap.live_bytes < TURNS[0],
            };
        }
        heap.collect(0)?;
        compare(0, heap.live_bytes as u64)
    })
}

/// What an object of this place and size bears; the size is its lower half word.
fn word_of(object: *mut Object, size: usize) -> u64 {
    (object.addr() as u64) << 16 | size as u64
}

impl Heap {
    /// One object: six of ten are strings, three tables, one a closure. Short-lived ones, every second
    /// string, are made and freed at once, as an interpreter's temporaries are.
    fn make(&mut self) -> Result<(), Damage> {
        self.made += 1;
        let kind = self.dice.below(10);
        let size = match kind {
            0..6 => size_of::<Object>() + self.dice.below(72),
            6..9 => size_of::<Object>() + 24,
            _ => size_of::<Object>() + 8 * self.dice.below(6),
        };
        // SAFETY: at least an object's size, written before it is read; a temporary is freed once.
        unsafe {
            let object: *mut Object = granted(take(size), size)?.cast();
            object.cast::<u8>().write_bytes(1, size);
            let word = word_of(object, size);
            if kind < 3 {
                (*object).word = word;
                compare(word, (*black_box(object)).word)?;
                give(object.cast());
                return Ok(());
            }
            object.write(Object {
                next: self.all,
                word,
                part: ptr::null_mut(),
                length: 0,
            });
            self.all = object;
            self.live_bytes += size;
            if (6..9).contains(&kind) {
                self.fill(object)?;
            }
        }
        Ok(())
    }

    /// Entries go into a table one by one; its part doubles when it is full.
    ///
    /// # Safety
    /// 1. `object` is a live object of this heap.
    unsafe fn fill(&mut self, object: *mut Object) -> Result<(), Damage> {
        let entries = self.dice.log_uniform(1, LONGEST);
        let mut length = 0;
        // SAFETY: obligation 1; every entry is below the length that realloc granted.
        unsafe {
            for entry in 0..entries {
                if entry == length {
                    length = (2 * length).max(4);
                    let bytes = length * size_of::<u64>();
                    let part = libc::realloc(black_box((*object).part).cast(), bytes);
                    (*object).part = granted(black_box(part).cast(), bytes)?.cast();
                }
                (*object).part.add(entry).write(entry as u64);
            }
            (*object).length = length;
        }
        self.live_bytes += length * size_of::<u64>();
        Ok(())
    }

    /// Walks the list of all objects; of a thousand so many stay.
    fn collect(&mut self, stay: usize) -> Result<(), Damage> {
        let mut link = &raw mut self.all;
        // SAFETY: every object on the list is live, and only this list knows it.
        unsafe {
            while !(*link).is_null() {
                let object = *link;
                if self.dice.below(1000) < stay {
                    link = &raw mut (*object).next;
                    continue;
                }
                *link = (*object).next;
                let Object {
                    word, part, length, ..
                } = object.read();
                self.live_bytes -= (word & 0xffff) as usize + length * size_of::<u64>();
                compare(word_of(object, (word & 0xffff) as usize), word)?;
                // A block handed out twice would be freed twice: the second holder finds no word.
                (*object).word = 0;
                if !part.is_null() {
                    compare(0, part.read())?;
                    libc::free(black_box(part).cast());
                }
                give(object.cast());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn the_heap_grows_shrinks_and_ends_empty() {
        let job = Job {
            threads: 1,
            scale: Scale::Smoke,
        };
        assert!(script(job).unwrap().value > 0.0);
    }
}
