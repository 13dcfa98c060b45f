use crate::base::{CpuId, NodeId};
use crate::heap::test_heap::heap;
use crate::heap::{Heap, Ready};
use crate::platform::testing::{Testing, pauses, stand_on_top};
use crate::platform::{ASK_AFTER, Platform};
use crate::verify::check_heap;
use std::sync::Barrier;
use std::vec::Vec;

const MIB: usize = 1 << 20;

fn ready(heap: &Heap<Testing>) -> &Ready<Testing> {
    heap.ready_if_built().expect("built")
}

fn held(heap: &Heap<Testing>) -> usize {
    let mut held = 0;
    ready(heap).each_lock(|lock| held += usize::from(lock.holder() != 0));
    held
}

#[test]
fn a_fork_holds_everything_and_both_sides_give_it_back() {
    let (_world, heap) = heap();
    for end in [Heap::fork_parent, Heap::fork_child] {
        assert!(heap.fork_prepare());
        let mut free = 0;
        ready(&heap).each_lock(|lock| free += usize::from(lock.holder() == 0));
        assert_eq!(free, 0);
        assert!(ready(&heap).is_on_top(), "handlers go without");
        end(&heap);
        assert_eq!(held(&heap), 0);
    }
}

#[test]
fn a_fork_in_a_handler_leaves_its_lock_to_the_thread_below() {
    let (_world, heap) = heap();
    let block = heap.alloc(100).expect("memory");
    let table = ready(&heap).slabs().registry_lock();
    for end in [Heap::fork_parent, Heap::fork_child] {
        Testing::acquire(table).expect("free");
        assert!(heap.fork_prepare());
        end(&heap);
        assert_eq!((held(&heap), table.holder()), (1, Testing::token()));
        Testing::release_lock(table);
    }
    // SAFETY: allocated above, freed once.
    unsafe { heap.free(block.as_ptr()) };
    assert_eq!(check_heap(ready(&heap)), Ok(()));
}

#[test]
fn a_fork_inside_a_fork_leaves_the_outer_ones_locks_held() {
    let (_world, heap) = heap();
    assert!(heap.fork_prepare());
    let all = held(&heap);
    assert!(heap.fork_prepare());
    heap.fork_child();
    assert_eq!(held(&heap), all);
    heap.fork_parent();
    assert_eq!(held(&heap), 0);
}

#[test]
fn a_child_whose_lock_went_with_a_strangers_thread_gets_memory_all_the_same() {
    let (world, heap) = heap();
    let node = ready(&heap).slabs().pages();
    let below = ready(&heap).slabs().registry_lock();
    let cache = ready(&heap).slabs().live_caches().last().expect("caches");
    let list = ready(&heap).slabs().node(cache.id(), NodeId(0)).raw_lock();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            world.enter(CpuId(0));
            for strange in [list, ready(&heap).huge.raw()] {
                Testing::acquire(strange).expect("free");
            }
        });
    });
    Testing::acquire(below).expect("free");
    assert!(heap.fork_prepare());
    heap.fork_child();
    Testing::release_lock(below);
    assert_eq!(held(&heap), 2);
    let blocks: Vec<_> = [100, 30_000, 32_000, 100_000, 5 * MIB]
        .map(|size| heap.alloc(size).expect("memory"))
        .into();
    for block in blocks {
        // SAFETY: allocated above, freed once.
        unsafe { heap.free(block.as_ptr()) };
    }
    assert!(node.snapshot().total.in_use_pages > 0);
}

#[test]
fn a_huge_block_freed_on_top_of_its_tables_holder_goes_back_at_the_next_call() {
    let (world, heap) = heap();
    let [block, next] = [5, 6].map(|mib| heap.alloc(mib * MIB).expect("memory"));
    let before = world.committed_bytes();
    let table = ready(&heap).huge_table().expect("free");
    // SAFETY: live blocks; the first is freed once.
    unsafe {
        assert_eq!(heap.usable_size(next.as_ptr()), 0, "nobody knows");
        assert_eq!(heap.realloc(next, 7 * MIB), None, "and it stays as it was");
        assert_eq!(heap.realloc(next, 100), Some(next), "a page it has");
        heap.free(block.as_ptr());
    }
    drop(table);
    // SAFETY: freed once.
    unsafe { heap.free(next.as_ptr()) };
    ready(&heap).trim(0);
    assert!(world.committed_bytes() + 11 * MIB <= before);
    assert_eq!(check_heap(ready(&heap)), Ok(()));
}

/// What a handler on top of another lock's holder waits for: never as long as whoever has the table
/// may need, since that one may wait for the thread below the handler.
#[test]
fn handlers_neither_wait_for_the_table_of_huge_blocks_nor_go_without_memory() {
    const BLOCKS: usize = 20;
    let (world, heap) = heap();
    let live: Vec<_> = (0..BLOCKS)
        .map(|_| heap.alloc(5 * MIB).expect("memory"))
        .collect();
    let before = world.committed_bytes();
    let (held_there, done) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            world.enter(CpuId(0));
            let table = ready(&heap).huge_table();
            held_there.wait();
            done.wait();
            drop(table);
        });
        held_there.wait();
        stand_on_top(true);
        let waited = pauses();
        for block in live {
            // SAFETY: allocated above, freed once.
            unsafe { heap.free(block.as_ptr()) };
        }
        let for_frees = pauses() - waited;
        assert_eq!(for_frees, BLOCKS as u32 * ASK_AFTER, "not for each other");
        let block = heap.alloc(5 * MIB).expect("memory");
        let aligned = heap.alloc_aligned(MIB, 5 * MIB).expect("memory");
        assert_eq!(aligned.as_ptr() as usize % MIB, 0);
        assert!(pauses() - waited - for_frees <= 4 * ASK_AFTER);
        stand_on_top(false);
        done.wait();
        for block in [block, aligned] {
            // SAFETY: live, freed once.
            unsafe {
                block.write_bytes(1, 5 * MIB);
                assert!(heap.usable_size(block.as_ptr()) >= 5 * MIB);
                heap.free(block.as_ptr());
            }
        }
    });
    ready(&heap).trim(0);
    assert!(world.committed_bytes() + BLOCKS * 5 * MIB <= before);
    assert_eq!(check_heap(ready(&heap)), Ok(()));
}

#[test]
fn a_block_that_a_handler_got_on_top_of_the_tables_holder_is_one_like_any_other() {
    let (world, heap) = heap();
    let _live = heap.alloc(5 * MIB).expect("memory");
    let before = world.committed_bytes();
    let table = ready(&heap).huge_table().expect("free");
    let [kept, given_up] = [6, 7].map(|mib| heap.alloc(mib * MIB).expect("memory"));
    // SAFETY: a live block, freed once.
    unsafe { heap.free(given_up.as_ptr()) };
    drop(table);
    assert_eq!(ready(&heap).huge_counts().0.blocks, 3);
    // SAFETY: a live block.
    let grown = unsafe { heap.realloc(kept, 9 * MIB) }.expect("memory");
    // SAFETY: a live block, freed once.
    unsafe { heap.free(grown.as_ptr()) };
    ready(&heap).trim(0);
    assert_eq!(world.committed_bytes(), before);
    assert_eq!(check_heap(ready(&heap)), Ok(()));
}

#[test]
fn a_block_the_table_has_no_memory_for_waits_until_there_is_some() {
    let (world, heap) = heap();
    let table = ready(&heap).huge_table().expect("free");
    let block = heap.alloc(5 * MIB).expect("memory");
    drop(table);
    world.refuse_after(Some(0));
    // SAFETY: a live block.
    assert_eq!(unsafe { heap.usable_size(block.as_ptr()) }, 0, "unknown");
    // SAFETY: a live block, freed once.
    unsafe { heap.free(block.as_ptr()) };
    world.refuse_after(None);
    // SAFETY: allocated here, freed once.
    unsafe { heap.free(heap.alloc(6 * MIB).expect("memory").as_ptr()) };
    assert_eq!(ready(&heap).huge_counts().0.blocks, 0);
    assert_eq!(check_heap(ready(&heap)), Ok(()));
}

#[test]
fn a_fork_that_would_wait_with_locks_held_gives_way() {
    let (world, heap) = heap();
    let table = ready(&heap).slabs().registry_lock();
    let (held_there, given_way) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            world.enter(CpuId(0));
            Testing::acquire(table).expect("free");
            held_there.wait();
            given_way.wait();
            assert!(
                heap.fork_prepare(),
                "on top of the holder: nobody else holds anything"
            );
            heap.fork_parent();
            Testing::release_lock(table);
        });
        held_there.wait();
        assert!(!heap.fork_prepare());
        assert_eq!(held(&heap), 1, "what the other holds");
        given_way.wait();
        while !heap.fork_prepare() {
            heap.fork_wait();
        }
        heap.fork_parent();
    });
    assert_eq!(held(&heap), 0);
}
