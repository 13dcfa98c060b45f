//! Random programs against a model of the whole heap, and each of them again with memory refused at
//! every call for it.

use super::Heap;
use crate::heap::HeapConfig;
use crate::page::TICK_NS;
use crate::platform::testing::{Refusal, Setup, Testing, World};
use crate::policy::Policy;
use crate::verify::check_heap;
use core::ptr::NonNull;
use proptest::prelude::*;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A limit on address space that programs of this file reach.
const LIMIT: usize = 12 * MIB;

/// One step of a program. A slot is an index into the live blocks, as far as there are some.
#[derive(Clone, Debug)]
enum Op {
    Alloc(usize),
    Zeroed(usize),
    Aligned(u32, usize),
    Realloc(usize, usize),
    Free(usize),
    FreeSized(usize),
    /// This many blocks of a size, and all of them freed again, the second half first.
    Bulk(usize, usize),
    Trim,
    Second,
    RunOn(u32),
}

/// Sizes of every route: classes, runs, huge blocks.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0..2 * KIB,
        2 => 2 * KIB..33 * KIB,
        2 => 33 * KIB..700 * KIB,
        1 => 700 * KIB..4 * MIB,
        1 => 4 * MIB + 1..6 * MIB,
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let slot = 0..1usize << 16;
    prop_oneof![
        5 => size().prop_map(Op::Alloc),
        2 => size().prop_map(Op::Zeroed),
        2 => (4u32..24, size()).prop_map(|(shift, size)| Op::Aligned(shift, size)),
        5 => (slot.clone(), size()).prop_map(|(slot, size)| Op::Realloc(slot, size)),
        4 => slot.clone().prop_map(Op::Free),
        1 => slot.prop_map(Op::FreeSized),
        1 => (1..100usize, 0..3 * KIB).prop_map(|(count, size)| Op::Bulk(count, size)),
        1 => Just(Op::Trim),
        1 => Just(Op::Second),
        1 => (0..2u32).prop_map(Op::RunOn),
    ]
}

/// A live block: where, how long, and what it was filled with.
struct Block {
    at: NonNull<u8>,
    size: usize,
    fill: u8,
    /// What the heap rounds the size to may be more than a sized free accepts.
    resized: bool,
}

/// Bytes that are looked at, the same ones for every size: many of the first 64 KiB, few beyond.
fn places(size: usize) -> impl Iterator<Item = usize> {
    let near = (0..size.min(64 * KIB)).step_by(1021);
    near.chain((64 * KIB..size).step_by(512 * KIB + 7))
}

impl Block {
    fn write(&self) {
        // SAFETY: the block has `size` bytes and is the model's. The last byte is there to be used, but
        // a block that shrinks loses it.
        places(self.size)
            .chain(self.size.checked_sub(1))
            .for_each(|place| unsafe { self.at.add(place).write(self.fill) });
    }

    fn assert_holds(&self, bytes: usize, fill: u8) {
        // SAFETY: as above.
        places(bytes).for_each(|place| unsafe {
            assert_eq!(
                self.at.add(place).read(),
                fill,
                "byte {place} of {}",
                self.size
            );
        });
    }
}

/// A heap, and what it should hold.
struct Model {
    world: Arc<World>,
    heap: Box<Heap<Testing>>,
    blocks: Vec<Block>,
    fills: u8,
    refused: usize,
}

impl Model {
    fn new(refusal: Refusal) -> Self {
        Self::within(refusal, usize::MAX)
    }

    /// With a limit on address space, so that the heap claims its span and gives address space back.
    fn within(refusal: Refusal, address_space: usize) -> Self {
        let world = World::enter_new(Setup::default());
        world.limit_address_space(address_space);
        world.refuse(refusal);
        Self {
            world,
            heap: Box::new(Heap::new()),
            blocks: Vec::new(),
            fills: 0,
            refused: 0,
        }
    }

    /// Builds the heap, again where the first try was refused; `false` if it cannot be.
    fn start(&self) -> bool {
        let config = HeapConfig {
            policy: Policy::default(),
            span_bytes: 32 * MIB,
        };
        self.heap.init(&config).is_ok() || self.heap.init(&config).is_ok()
    }

    fn add(&mut self, at: Option<NonNull<u8>>, size: usize) {
        let Some(at) = at else {
            self.refused += 1;
            return;
        };
        self.fills = self.fills % 250 + 1;
        let block = Block {
            at,
            size,
            fill: self.fills,
            resized: false,
        };
        block.write();
        self.blocks.push(block);
    }

    fn take(&mut self, slot: usize) -> Option<Block> {
        let count = self.blocks.len();
        (count > 0).then(|| self.blocks.swap_remove(slot % count))
    }

    fn realloc(&mut self, slot: usize, size: usize) {
        let Some(mut block) = self.take(slot) else {
            return;
        };
        // SAFETY: live, and the old address is used only where the call was refused.
        match unsafe { self.heap.realloc(block.at, size) } {
            Some(moved) => {
                block.at = moved;
                block.assert_holds(block.size.min(size), block.fill);
                block.size = size;
                block.resized = true;
                block.write();
            }
            None => {
                assert!(
                    size > block.size,
                    "{} to {size} bytes was refused",
                    block.size
                );
                block.assert_holds(block.size, block.fill);
                self.refused += 1;
            }
        }
        self.blocks.push(block);
    }

    fn free(&self, block: &Block, sized: bool) {
        block.assert_holds(block.size, block.fill);
        // SAFETY: live, and taken out of the model.
        unsafe {
            if sized && !block.resized {
                self.heap.free_sized(block.at.as_ptr(), block.size);
            } else {
                self.heap.free(block.at.as_ptr());
            }
        }
    }

    fn bulk(&mut self, count: usize, size: usize) {
        let before = self.blocks.len();
        for _ in 0..count {
            let block = self.heap.alloc(size);
            self.add(block, size);
        }
        let half = before + (self.blocks.len() - before) / 2;
        for block in self.blocks.split_off(half) {
            self.free(&block, false);
        }
        for block in self.blocks.split_off(before) {
            self.free(&block, true);
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Alloc(size) => {
                let block = self.heap.alloc(size);
                self.add(block, size);
            }
            Op::Zeroed(size) => {
                let block = self.heap.alloc_zeroed(size);
                if let Some(at) = block {
                    let zeroes = Block {
                        at,
                        size,
                        fill: 0,
                        resized: false,
                    };
                    zeroes.assert_holds(size, 0);
                }
                self.add(block, size);
            }
            Op::Aligned(shift, size) => {
                let block = self.heap.alloc_aligned(1 << shift, size);
                if let Some(at) = block {
                    assert!(at.addr().get() % (1 << shift) == 0, "{op:?}");
                }
                self.add(block, size);
                if let Some(block) = self.blocks.last_mut() {
                    block.resized = true;
                }
            }
            Op::Realloc(slot, size) => self.realloc(slot, size),
            Op::Free(slot) | Op::FreeSized(slot) => {
                if let Some(block) = self.take(slot) {
                    self.free(&block, matches!(op, Op::FreeSized(_)));
                }
            }
            Op::Bulk(count, size) => self.bulk(count, size),
            Op::Trim => {
                self.heap.trim(0);
            }
            Op::Second => self.world.advance(TICK_NS),
            Op::RunOn(cpu) => self.world.run_on(crate::base::CpuId(cpu)),
        }
    }

    fn check(&self) {
        if let Some(ready) = self.heap.ready_if_built() {
            assert_eq!(check_heap(ready), Ok(()));
        }
    }

    /// Runs a program to its end: everything is freed, and may be had again once nothing is refused.
    /// Answers how many calls for memory the program made.
    fn run(mut self, program: &[Op]) -> usize {
        if !self.start() {
            self.world.refuse(Refusal::Never);
            assert!(self.start(), "a heap may be built once memory is back");
        }
        for op in program {
            self.step(op);
        }
        self.check();
        let calls = self.world.memory_calls();
        while let Some(block) = self.take(0) {
            self.free(&block, false);
        }
        self.check();
        self.world.refuse(Refusal::Never);
        self.world.limit_address_space(usize::MAX);
        for size in [1, 5000, MIB, 20 * MIB] {
            let block = self.heap.alloc(size).expect("memory is back");
            // SAFETY: allocated just now.
            unsafe { self.heap.free(block.as_ptr()) };
        }
        self.check();
        calls
    }
}

/// A program, and then the same with every call for memory refused in turn, alone and with all after
/// it.
fn walk(program: &[Op]) {
    let calls = Model::new(Refusal::Never).run(program);
    for call in 0..calls {
        Model::new(Refusal::Only(call)).run(program);
        Model::new(Refusal::From(call)).run(program);
    }
    let calls = Model::within(Refusal::Never, LIMIT).run(program);
    for call in 0..calls {
        Model::within(Refusal::Only(call), LIMIT).run(program);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_random_program_finds_its_bytes_again(program in prop::collection::vec(op(), 1..200)) {
        Model::new(Refusal::Never).run(&program);
        Model::within(Refusal::Never, LIMIT).run(&program);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3,
        max_shrink_iters: 50,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_random_program_survives_refusals_at_every_call(
        program in prop::collection::vec(op(), 1..30),
    ) {
        walk(&program);
    }
}

#[test]
fn swings_of_huge_blocks_survive_refusals_at_every_call() {
    let mut program = Vec::new();
    for round in 0..2 {
        program.extend([5, 6, 9].map(|mib| Op::Alloc(mib * MIB + round)));
        program.extend([Op::Realloc(0, 10 * MIB), Op::Realloc(1, 4 * MIB + 1)]);
        program.extend([Op::Realloc(2, 3 * MIB), Op::Realloc(0, 100)]);
        program.extend([Op::Free(0), Op::Free(0), Op::Free(0)]);
    }
    walk(&program);
}
