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
    let room = limit - used_bytes;
    let left = limit - world.reserved_bytes();
    assert!(left >= room / 6, "{left} of {room} bytes are others'");
    let more = fill(&pages);
    let block_bytes = block.bytes(pages.page_size());
    let kept = more.len() * block_bytes;
    assert!(
        kept + block_bytes >= room / 2,
        "{kept} of {room} bytes are the heap's"
    );
    used.extend(more);
    assert_eq!(check_pages(&pages), Ok(()));
    free(&pages, used);
    pages.trim(0);
    assert_eq!(check_pages(&pages), Ok(()));
}

#[test]
fn under_a_lowered_limit_most_is_kept_and_some_is_left_to_others() {
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
fn a_limit_below_what_is_used_takes_everything_unused_and_a_high_one_nothing() {
    let (world, pages) = built(Setup::default(), &small(64 * MIB));
    let run = pages.alloc_run(PageCount(700), NODE).expect("room").pfn;
    let before = world.reserved_bytes();
    world.limit_address_space(4 * before);
    pages.fit_address_space();
    assert_eq!(world.reserved_bytes(), before);
    assert!(!pages.make_room(8 * before), "more than there is");
    assert_eq!(world.reserved_bytes(), before);
    world.limit_address_space(MIB);
    pages.fit_address_space();
    let left = world.reserved_bytes();
    assert!(left < 9 * MIB, "{left} bytes stay reserved");
    assert_eq!(check_pages(&pages), Ok(()));
    // SAFETY: ours, freed once.
    unsafe { pages.free_run(run, PageCount(700)) };
    assert_eq!(check_pages(&pages), Ok(()));
}

#[test]
fn a_huge_block_takes_address_space_from_the_span_and_no_more_than_it_needs() {
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
    let reserved = world.reserved_bytes();
    assert!(heap.alloc(512 * MIB).is_none(), "more than there is");
    assert_eq!(world.reserved_bytes(), reserved);
    let second = heap.alloc(100 * MIB).expect("the span gives way again");
    assert!(heap.alloc(2 * MIB).is_some(), "something is left of it");
    for block in [small, huge, second] {
        // SAFETY: allocated above, freed once.
        unsafe { heap.free(block.as_ptr()) };
    }
    assert_eq!(check_heap(heap.ready_if_built().expect("built")), Ok(()));
}
