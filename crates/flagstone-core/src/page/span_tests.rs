use crate::base::{NodeId, Order, PageCount, PageSize, Pfn};
use crate::heap::{Heap, HeapConfig};
use crate::page::allocator::tests::{Pages, built, small};
use crate::platform::testing::{Setup, Testing, World};
use crate::policy::Policy;
use crate::verify::{check_heap, check_pages};
use std::boxed::Box;
use std::vec::Vec;

const MIB: usize = 1 << 20;
const NODE: NodeId = NodeId(0);

/// Blocks of the largest order until there is no more.
fn fill(pages: &Pages) -> Vec<Pfn> {
    let next = || pages.alloc_run(Order::MAX.pages(), NODE);
    core::iter::from_fn(next).map(|block| block.pfn).collect()
}

fn free(pages: &Pages, blocks: Vec<Pfn>) {
    for pfn in blocks {
        // SAFETY: from `fill`, freed once.
        unsafe { pages.free_run(pfn, Order::MAX.pages()) };
    }
}

/// Half of the span is used, then the limit falls to `limit` bytes.
fn lowered(setup: Setup, span: usize, limit: usize) {
    let (world, pages) = built(setup, &small(span));
    let half = span / 2 / Order::MAX.pages().bytes(pages.page_size());
    let block = Order::MAX.pages();
    let mut used: Vec<Pfn> = (0..half)
        .map(|_| pages.alloc_run(block, NODE).expect("room").pfn)
        .collect();
    let used_bytes = half * block.bytes(pages.page_size());
    world.limit_address_space(limit);
    pages.fit_address_space();
    assert_eq!(check_pages(&pages), Ok(()));
    let left = limit - world.reserved_bytes();
    let room = limit - used_bytes;
    assert!(
        left >= room * 3 / 4,
        "{left} of {room} bytes may be anybody's"
    );
    let more = fill(&pages);
    let block_bytes = block.bytes(pages.page_size());
    let got = more.len() * block_bytes;
    assert!(
        got + 2 * block_bytes >= room * 15 / 16,
        "{got} of {room} bytes could be had"
    );
    used.extend(more);
    assert_eq!(check_pages(&pages), Ok(()));
    free(&pages, used);
    pages.trim(0);
    assert_eq!(check_pages(&pages), Ok(()));
}

#[test]
fn under_a_lowered_limit_what_is_left_is_for_whoever_comes_first() {
    let poisoned = Setup {
        poison: true,
        ..Setup::default()
    };
    lowered(poisoned, 256 * MIB, 200 * MIB);
    let two_nodes = Setup {
        nodes: 2,
        ..poisoned
    };
    lowered(two_nodes, 256 * MIB, 200 * MIB);
    let large_pages = Setup {
        page_size: PageSize::K64,
        memory_limit: 8 << 30,
        reserve_limit: 8 << 30,
        ..Setup::default()
    };
    lowered(large_pages, 1 << 30, 800 * MIB);
}

#[test]
fn a_limit_below_what_is_used_takes_everything_unused() {
    let (world, pages) = built(Setup::default(), &small(64 * MIB));
    let run = pages.alloc_run(PageCount(700), NODE).expect("room").pfn;
    world.limit_address_space(MIB);
    pages.fit_address_space();
    let left = world.reserved_bytes();
    assert!(left < 9 * MIB, "{left} bytes stay reserved");
    assert!(!pages.make_room(), "nothing is left to give up");
    assert_eq!(check_pages(&pages), Ok(()));
    // SAFETY: ours, freed once.
    unsafe { pages.free_run(run, PageCount(700)) };
    pages.trim(0);
    assert_eq!(pages.unmap_idle(), Order::MAX.pages());
    assert!(pages.is_gone(run));
    assert_eq!(check_pages(&pages), Ok(()));
    world.limit_address_space(64 * MIB);
    let again = pages.alloc_run(PageCount(700), NODE).expect("room").pfn;
    assert_eq!(
        again, run,
        "what was unmapped is mapped again before the frontier moves"
    );
    assert_eq!(check_pages(&pages), Ok(()));
}

/// A heap under a limit of address space of `limit` bytes.
fn limited_heap(limit: usize) -> (std::sync::Arc<World>, Box<Heap<Testing>>) {
    let world = World::enter_new(Setup::default());
    world.limit_address_space(limit);
    let heap = Box::new(Heap::<Testing>::new());
    let config = HeapConfig {
        policy: Policy::default(),
        span_bytes: 256 * MIB,
    };
    heap.init(&config).expect("memory for the tables");
    (world, heap)
}

fn free_all(heap: &Heap<Testing>, blocks: Vec<core::ptr::NonNull<u8>>) {
    for block in blocks {
        // SAFETY: allocated by the caller, freed once.
        unsafe { heap.free(block.as_ptr()) };
    }
    assert_eq!(check_heap(heap.ready_if_built().expect("built")), Ok(()));
}

#[test]
fn under_a_limit_a_heap_takes_what_it_uses_and_a_huge_block_nearly_all_that_was_freed() {
    let (world, heap) = limited_heap(256 * MIB);
    assert!(
        world.reserved_bytes() < 8 * MIB,
        "{}",
        world.reserved_bytes()
    );
    for _ in 0..3 {
        let next = || heap.alloc(64 << 10);
        let small: Vec<_> = core::iter::from_fn(next).collect();
        assert!(small.len() * (64 << 10) > 240 * MIB, "{}", small.len());
        free_all(&heap, small);
        let huge = heap.alloc(240 * MIB).expect("all of it was freed");
        assert!(heap.alloc(32 * MIB).is_none(), "more than there is");
        free_all(&heap, std::vec![huge]);
    }
}

#[test]
fn a_reserved_span_gives_way_to_huge_blocks_under_a_limit_set_later() {
    let world = World::enter_new(Setup::default());
    let heap = Box::new(Heap::<Testing>::new());
    let config = HeapConfig {
        policy: Policy::default(),
        span_bytes: 256 * MIB,
    };
    heap.init(&config).expect("memory for the tables");
    let small = heap.alloc(100).expect("memory");
    world.limit_address_space(world.reserved_bytes() + MIB);
    let huge = heap.alloc(64 * MIB).expect("the span gives way");
    assert!(heap.alloc(512 * MIB).is_none(), "more than there is");
    let second = heap.alloc(100 * MIB).expect("what is left");
    let third = heap.alloc(2 * MIB).expect("the span grows again");
    free_all(&heap, std::vec![small, huge, second, third]);
}
