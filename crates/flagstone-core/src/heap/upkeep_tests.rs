use super::LOOK_EVERY;
use crate::heap::Heap;
use crate::heap::test_heap::{heap, heap_in};
use crate::page::{PageSnapshot, TICK_NS};
use crate::platform::testing::{Setup, Testing};
use crate::platform::{LockKind, Platform};
use crate::sync::Ordering::Relaxed;
use crate::verify::check_heap;
use core::ptr::NonNull;
use std::vec::Vec;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

fn pages(heap: &Heap<Testing>) -> PageSnapshot {
    let ready = heap.ready_if_built().expect("built");
    ready.slabs().pages().snapshot()
}

/// Blocks of a page and of eleven pages, `bytes` of them, all freed again.
fn peak_of(heap: &Heap<Testing>, bytes: usize) {
    for block in blocks_of(heap, bytes) {
        // SAFETY: allocated above, freed once.
        unsafe { heap.free(block.as_ptr()) };
    }
}

/// The same, and the first third of them freed again: no fall that empties everything.
fn dip_of(heap: &Heap<Testing>, bytes: usize) {
    let blocks = blocks_of(heap, bytes);
    let freed = blocks.len() / 3;
    for block in blocks.into_iter().take(freed) {
        // SAFETY: allocated above, freed once.
        unsafe { heap.free(block.as_ptr()) };
    }
}

fn blocks_of(heap: &Heap<Testing>, bytes: usize) -> Vec<NonNull<u8>> {
    (0..bytes / (12 * PAGE))
        .flat_map(|_| [PAGE, 11 * PAGE])
        .map(|size| heap.alloc(size).expect("memory"))
        .collect()
}

/// Slow-path calls enough for one look at the clock.
fn calls(heap: &Heap<Testing>) {
    for _ in 0..=LOOK_EVERY {
        let block = heap.alloc(11 * PAGE).expect("memory");
        // SAFETY: allocated above, freed once.
        unsafe { heap.free(block.as_ptr()) };
    }
}

fn cached_bytes(heap: &Heap<Testing>) -> usize {
    let total = pages(heap).total;
    (total.free_resident_pages + total.in_use_pages) * PAGE
}

#[test]
fn a_heap_in_a_small_container_keeps_less_than_one_with_room() {
    let (_world, roomy) = heap();
    dip_of(&roomy, 40 * MIB);
    let (_world, tight) = heap_in(
        "flagstone",
        Setup {
            memory_limit: 64 * MIB,
            ..Setup::default()
        },
    );
    dip_of(&tight, 40 * MIB);
    assert!(pages(&roomy).total.free_resident_pages * PAGE > 4 * MIB);
    assert!(pages(&tight).total.free_resident_pages * PAGE <= MIB);
    let (_world, tight) = heap_in(
        "flagstone",
        Setup {
            memory_limit: 64 * MIB,
            ..Setup::default()
        },
    );
    peak_of(&tight, 40 * MIB);
    assert!(cached_bytes(&tight) <= 4 * MIB, "{}", cached_bytes(&tight));
}

#[test]
fn a_limit_that_falls_takes_back_what_is_kept_and_one_that_rises_lets_keep_again() {
    let (world, heap) = heap();
    dip_of(&heap, 40 * MIB);
    let before = pages(&heap).total;
    world.set_memory_limit(64 * MIB);
    for _ in 0..2 {
        world.advance(TICK_NS);
        calls(&heap);
    }
    let after = pages(&heap).total;
    assert!(before.free_resident_pages * PAGE > 4 * MIB);
    assert!(after.free_resident_pages * PAGE <= MIB);
    assert_eq!(after.managed_pages, 64 * MIB / PAGE);
    world.set_memory_limit(1024 * MIB);
    world.advance(TICK_NS);
    calls(&heap);
    assert_eq!(pages(&heap).total.managed_pages, 256 * MIB / PAGE);
}

#[test]
fn pagesets_hold_no_more_than_their_share_of_a_small_container() {
    let (_world, heap) = heap_in(
        "flagstone",
        Setup {
            memory_limit: 64 * MIB,
            cpus: 4,
            ..Setup::default()
        },
    );
    peak_of(&heap, 40 * MIB);
    let ready = heap.ready_if_built().expect("built");
    let node = crate::base::NodeId(0);
    for cpu in 0..4 {
        let set = ready.slabs().pages();
        let set = set.pageset_snapshot(node, crate::base::CpuId(cpu));
        assert!(set.expect("a CPU").high_max as usize * PAGE <= MIB / 4);
    }
}

#[test]
fn a_program_that_goes_on_swinging_keeps_its_swing_until_it_holds_one_for_a_second() {
    let (world, heap) = heap_in(
        "flagstone",
        Setup {
            memory_limit: 16 << 30,
            ..Setup::default()
        },
    );
    for _ in 0..5 {
        peak_of(&heap, 130 * MIB);
        assert!(cached_bytes(&heap) <= 12 * MIB, "within the credit");
    }
    for _ in 0..10 {
        peak_of(&heap, 130 * MIB);
    }
    let kept = cached_bytes(&heap);
    assert!((110 * MIB..=170 * MIB).contains(&kept), "{kept}");
    let blocks = blocks_of(&heap, 130 * MIB);
    calls(&heap);
    world.advance(TICK_NS);
    calls(&heap);
    for block in blocks {
        // SAFETY: allocated above, freed once.
        unsafe { heap.free(block.as_ptr()) };
    }
    assert!(cached_bytes(&heap) <= 12 * MIB, "{}", cached_bytes(&heap));
}

#[test]
fn a_fall_that_could_not_be_paid_is_followed_by_the_first_slow_call_after_the_debt() {
    let (world, heap) = heap();
    let blocks = blocks_of(&heap, 40 * MIB);
    let ready = heap.ready_if_built().expect("built");
    let budget = ready.slabs().pages().budget();
    budget.charge_pages(10_000, Testing::now());
    for block in blocks {
        // SAFETY: allocated above, freed once.
        unsafe { heap.free(block.as_ptr()) };
    }
    calls(&heap);
    assert!(!budget.affords(Testing::now()) && cached_bytes(&heap) > 4 * MIB);
    world.advance(2 * TICK_NS);
    // As far from the next look as can be.
    ready.bell().store(1024 * LOOK_EVERY, Relaxed);
    let _block = heap.alloc(11 * PAGE).expect("memory");
    assert!(cached_bytes(&heap) < 2 * MIB, "{}", cached_bytes(&heap));
}

/// Allocates and frees huge blocks of these MiB, all live at once.
fn huge_blocks_of(heap: &Heap<Testing>, mib: &[usize]) {
    let blocks: Vec<_> = (mib.iter())
        .map(|mib| heap.alloc(mib * MIB).expect("memory"))
        .collect();
    for (block, mib) in blocks.into_iter().zip(mib) {
        // SAFETY: allocated above with this size, freed once.
        unsafe {
            block.write_bytes(0x5a, mib * MIB);
            heap.free(block.as_ptr());
        }
    }
}

fn kept_huge(heap: &Heap<Testing>) -> usize {
    let mut bytes = 0;
    let ready = heap.ready_if_built().expect("built");
    ready.each_kept(|block| bytes += block.bytes);
    bytes / MIB
}

#[test]
fn huge_blocks_stay_within_the_budget_are_cut_to_what_is_wanted_and_go_once_nobody_wants_them() {
    let (world, heap) = heap_in(
        "flagstone",
        Setup {
            memory_limit: 8192 * MIB,
            ..Setup::default()
        },
    );
    huge_blocks_of(&heap, &[20, 30]);
    assert_eq!(kept_huge(&heap), 10, "of a longer block its start stays");
    let budget = || {
        heap.ready_if_built()
            .expect("built")
            .slabs()
            .pages()
            .budget()
    };
    assert!(budget().parked() >= 10 * MIB);
    let before = world.committed_bytes();
    huge_blocks_of(&heap, &[5, 5]);
    assert_eq!(world.committed_bytes(), before, "cut from what was kept");
    assert_eq!(kept_huge(&heap), 10);
    huge_blocks_of(&heap, &[80, 9]);
    assert!(kept_huge(&heap) <= 10, "the least bound");
    for _ in 0..3 {
        world.advance(TICK_NS);
        calls(&heap);
    }
    assert_eq!(kept_huge(&heap), 0);
    assert!(budget().parked() < MIB);
}

#[test]
fn random_huge_blocks_keep_every_rule_of_the_table() {
    let (world, heap) = heap_in(
        "flagstone",
        Setup {
            memory_limit: 8192 * MIB,
            ..Setup::default()
        },
    );
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let mut live: Vec<NonNull<u8>> = Vec::new();
    let mut kept = 0;
    for step in 0..300 {
        if live.len() < 8 && (live.is_empty() || below(2) == 0) {
            live.push(heap.alloc((5 + below(16) as usize) * MIB).expect("memory"));
        } else {
            let block = live.swap_remove(below(live.len() as u64) as usize);
            // SAFETY: allocated above, freed once.
            unsafe { heap.free(block.as_ptr()) };
        }
        if step % 50 == 49 {
            world.advance(TICK_NS);
            calls(&heap);
        }
        kept = kept.max(kept_huge(&heap));
        let ready = heap.ready_if_built().expect("built");
        assert_eq!(check_heap(ready), Ok(()), "step {step}");
    }
    assert!(kept > 0, "nothing was ever kept");
}

#[test]
fn a_handler_gets_memory_from_the_system_where_the_thread_below_holds_what_it_needs() {
    let (_world, heap) = heap();
    let ready = heap.ready_if_built().expect("built");
    assert!(!ready.is_on_top(), "nothing is held yet");
    assert_eq!(
        ready.alloc_beside(16, 100),
        None,
        "memory is exhausted then"
    );
    let lock = ready.slabs().registry_lock();
    Testing::acquire(lock).expect("free");
    assert!(ready.is_on_top());
    assert!(
        !Testing::holds_from(LockKind::Local),
        "what comes later is free"
    );
    let [block, sized] = [100, 16].map(|size| {
        ready
            .alloc_beside(16, size)
            .expect("memory beside the heap")
    });
    Testing::release_lock(lock);
    // SAFETY: allocated above, freed once.
    unsafe { heap.free(block.as_ptr()) };
    // SAFETY: as above, with the size that was asked for.
    unsafe { heap.free_sized(sized.as_ptr(), 16) };
}
