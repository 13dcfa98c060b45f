//! Random programs against a model that knows which blocks are live, which are free, and what
//! marks say about them.

use super::{MARK_AT, Mark};
use crate::base::CpuId;
use crate::heap::test_heap::heap_in;
use crate::heap::{Heap, TABLE_MAX};
use crate::platform::testing::{Setup, Testing, World};
use crate::verify::check_heap;
use core::ptr::NonNull;
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

const CPUS: u32 = 3;

struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// A program that does what it may, and what is known of its blocks.
struct Program {
    world: Arc<World>,
    heap: Box<Heap<Testing>>,
    rng: Rng,
    /// Live blocks with the sizes asked for.
    live: BTreeMap<usize, usize>,
    /// Addresses freed and not handed out since.
    freed: BTreeSet<usize>,
}

impl Program {
    fn new(policy: &str, seed: u64) -> Self {
        let setup = Setup {
            cpus: CPUS,
            ..Setup::default()
        };
        let (world, heap) = heap_in(policy, setup);
        Self {
            world,
            heap,
            rng: Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            live: BTreeMap::new(),
            freed: BTreeSet::new(),
        }
    }

    /// The mark of the cache a block is of, if it is of one.
    fn mark_of(&self, block: usize) -> Option<Mark> {
        let slabs = self.heap.ready_if_built().expect("built").slabs();
        let pfn = slabs.pages().pfn_of(block as *const u8)?;
        let cache = slabs.cache_of_page(pfn)?;
        Some(self.heap.gate.mark_of(cache.id().index()))
    }

    /// Notes a block and writes its own mark all over it, or something else.
    fn keep(&mut self, block: NonNull<u8>, size: usize) {
        let address = block.as_ptr() as usize;
        let mark = self.mark_of(address);
        if let Some(mark) = mark {
            // SAFETY: a live block of a cache.
            let word = unsafe { block.byte_add(MARK_AT).cast::<u32>().read() };
            assert_ne!(word, mark.0, "mark.not-handed-out");
        }
        let (first, last) = (address, address + size.max(1) - 1);
        let below = self.live.range(..=last).next_back();
        assert!(
            below.is_none_or(|(start, bytes)| start + bytes.max(&1) <= first),
            "two live blocks overlap"
        );
        let pattern = match self.rng.below(3) {
            0 => mark.map_or(0, |mark| mark.0),
            1 => address as u32,
            _ => 0,
        };
        for at in 0..size / 4 {
            // SAFETY: inside the block.
            unsafe { block.cast::<u32>().add(at).write(pattern) };
        }
        self.live.insert(address, size);
        self.freed.remove(&address);
    }

    fn forget(&mut self, address: usize) {
        self.live.remove(&address);
        self.freed.insert(address);
    }

    fn any_live(&mut self) -> Option<(usize, usize)> {
        let at = self.rng.below(self.live.len().max(1));
        self.live.iter().nth(at).map(|(&a, &s)| (a, s))
    }

    fn size(&mut self) -> usize {
        match self.rng.below(8) {
            0 => self.rng.below(TABLE_MAX) + 1,
            1 => self.rng.below(17),
            _ => [16, 24, 64, 200, 256, 1000, 4096][self.rng.below(7)],
        }
    }

    fn step(&mut self) {
        self.world
            .run_on(CpuId(self.rng.below(CPUS as usize) as u32));
        let size = self.size();
        let block = |address| NonNull::new(address as *mut u8).expect("not null");
        match (self.rng.below(16), self.any_live()) {
            (0, _) => {
                let align = 16 << self.rng.below(9);
                let got = self.heap.alloc_aligned(align, size).expect("memory");
                assert_eq!(got.as_ptr() as usize % align, 0);
                self.keep(got, size);
            }
            (1, _) => {
                let got = self.heap.alloc_zeroed(size).expect("memory");
                self.keep(got, size);
            }
            (2, Some((address, old))) => {
                let kept = self.live.remove(&address);
                // SAFETY: live; the old address is forgotten.
                let got = unsafe { self.heap.realloc(block(address), size) }.expect("memory");
                assert_eq!(kept, Some(old));
                if got.as_ptr() as usize == address {
                    self.live.insert(address, size);
                } else {
                    self.forget(address);
                    // What was copied may hold any mark, so no look at that.
                    self.live.insert(got.as_ptr() as usize, size);
                    self.freed.remove(&(got.as_ptr() as usize));
                }
            }
            (3, Some((address, _))) => {
                let address_there = address as *mut u8;
                // SAFETY: live, and forgotten. More is usable than was asked for, which may be
                // the size given too.
                unsafe {
                    let size = self.heap.usable_size(address_there);
                    self.heap.free_sized(address_there, size);
                }
                self.forget(address);
            }
            (4..=8, Some((address, _))) => {
                // SAFETY: live, and forgotten.
                unsafe { self.heap.free(address as *mut u8) };
                self.forget(address);
            }
            _ => {
                let got = self.heap.alloc(size).expect("memory");
                self.keep(got, size);
            }
        }
    }

    /// What the heap says to `call`, which must end the program.
    fn last_words(&self, call: impl FnOnce(&Heap<Testing>)) -> String {
        let ended = catch_unwind(AssertUnwindSafe(|| call(&self.heap)));
        let words = ended.expect_err("it went on");
        words.downcast_ref::<String>().expect("a sentence").clone()
    }
}

use crate::policy::for_tests::SHEAVES as POLICIES;

#[test]
fn programs_whose_data_are_marks_live_and_end_sound() {
    for policy in POLICIES {
        for seed in 0..6 {
            let mut program = Program::new(policy, seed);
            for _ in 0..3000 {
                program.step();
            }
            for &address in program.live.keys() {
                // SAFETY: live, once each.
                unsafe { program.heap.free(address as *mut u8) };
            }
            let ready = program.heap.ready_if_built().expect("built");
            assert_eq!(check_heap(ready), Ok(()), "{policy}, seed {seed}");
        }
    }
}

#[test]
fn whatever_is_free_is_known_to_be_when_it_is_freed_or_used_again() {
    const GONE: &str = "not the start of a block";
    for seed in 0..40 {
        let mut program = Program::new("flagstone", seed);
        for _ in 0..40 + 30 * seed {
            program.step();
        }
        let at = program.rng.below(program.freed.len());
        let address = *program.freed.iter().nth(at).expect("something was freed") as *mut u8;
        program.world.run_on(CpuId(seed as u32 % CPUS));
        let block = NonNull::new(address).expect("not null");
        // SAFETY: not safe at all, which is what must be noticed.
        let words = program.last_words(|heap| unsafe {
            match seed % 4 {
                0 => drop(heap.realloc(block, 1)),
                1 => drop(heap.usable_size(address)),
                2 => heap.free_sized(address, heap.usable_size(address)),
                _ => heap.free(address),
            }
        });
        assert!(
            words.contains("double free") || words.contains(GONE),
            "seed {seed}: {words}"
        );
    }
}

#[test]
fn a_mark_outlasts_the_way_through_barns_and_slabs() {
    // Of larger ones whole pages would be given back, and marks with them.
    for size in [16, 32, 100, 250, 256, 1000] {
        let mut program = Program::new("flagstone", size as u64);
        let blocks: Vec<_> = (0..3000)
            .map(|_| program.heap.alloc(size).expect("memory").as_ptr())
            .collect();
        // Every other one, so that slabs stay.
        for &block in blocks.iter().step_by(2) {
            // SAFETY: live, and not used again.
            unsafe { program.heap.free(block) };
        }
        program.heap.last_look();
        for _ in 0..50 {
            let block = program.heap.alloc(size).expect("memory");
            program.keep(block, size);
        }
        let mark = program.mark_of(blocks[0] as usize).expect("of a cache");
        let free = blocks.iter().step_by(2).filter(|&&block| {
            // SAFETY: memory of the heap, committed.
            !program.live.contains_key(&(block as usize))
                && unsafe { mark.is_on(NonNull::new(block).expect("not null")) }
        });
        assert_eq!(free.count(), 1500 - 50, "{size} bytes");
    }
}
