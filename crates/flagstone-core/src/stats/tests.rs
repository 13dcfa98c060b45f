use super::{Everything, Ledger, Line, Residency, Survey};
use crate::base::PageCount;
use crate::heap::{Heap, HeapConfig, Ready};
use crate::platform::testing::{Setup, Testing, World};
use crate::slab::SHEAF_CACHES;
use core::ptr::NonNull;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

const PAGE: usize = 4096;

fn heap_in(policy: &str, setup: Setup) -> Box<Heap<Testing>> {
    let _world = World::enter_new(setup);
    let heap = Box::new(Heap::new());
    let config = HeapConfig {
        policy: crate::policy::for_tests::named(policy),
        span_bytes: 64 << 20,
    };
    heap.init(&config).expect("memory for the tables");
    heap
}

fn heap() -> Box<Heap<Testing>> {
    heap_in("flagstone", Setup::default())
}

fn parts(heap: &Heap<Testing>) -> &Ready<Testing> {
    heap.ready_if_built().expect("built")
}

fn survey(heap: &Heap<Testing>, residency: &mut dyn Residency) -> Box<Survey> {
    let mut survey = Box::new(Survey::new());
    assert!(survey.take(parts(heap), residency), "memory for page bits");
    survey
}

fn ledger(heap: &Heap<Testing>) -> Ledger {
    survey(heap, &mut Everything).ledger
}

/// Says of each page by its address whether it is resident, and counts those it was asked about.
struct Chosen<F> {
    resident: F,
    said_yes: std::collections::BTreeSet<usize>,
}

impl<F: Fn(usize) -> bool> Residency for Chosen<F> {
    fn resident_runs(
        &mut self,
        start: NonNull<u8>,
        pages: PageCount,
        run: &mut dyn FnMut(usize, usize),
    ) {
        for index in 0..pages.0 {
            let address = start.addr().get() + index * PAGE;
            if (self.resident)(address) {
                self.said_yes.insert(address);
                run(index, 1);
            }
        }
    }
}

fn chosen<F: Fn(usize) -> bool>(resident: F) -> Chosen<F> {
    Chosen {
        resident,
        said_yes: std::collections::BTreeSet::new(),
    }
}

fn figures(heap: &Heap<Testing>, name: &str) -> (u64, u64, u64) {
    let found = survey(heap, &mut Everything);
    let slabs = parts(heap).slabs();
    found
        .caches(slabs)
        .find(|cache| cache.name == name)
        .map_or((0, 0, 0), |c| (c.active, c.objects, c.counts.in_sheaves))
}

#[test]
fn objects_the_program_holds_are_active_and_those_in_sheaves_are_not() {
    let heap = heap();
    let held: Vec<_> = (0..100)
        .map(|_| heap.alloc(1000).expect("memory"))
        .collect();
    let (active, objects, in_sheaves) = figures(&heap, "malloc-1k");
    assert_eq!(active, 100);
    assert!(in_sheaves > 0, "a refill brings more than one object");
    assert!(objects >= active + in_sheaves);
    for block in held {
        // SAFETY: allocated above and not used again.
        unsafe { heap.free(block.as_ptr()) };
    }
    let (active, _, in_sheaves) = figures(&heap, "malloc-1k");
    assert_eq!(active, 0);
    assert!(in_sheaves > 0);
}

#[test]
fn live_bytes_and_rounding_divide_objects_by_what_was_asked_for() {
    let heap = heap();
    for _ in 0..64 {
        let _held = heap.alloc(900).expect("memory");
    }
    let lines = ledger(&heap);
    assert_eq!(lines.get(Line::Live), 64 * 900);
    let size = (lines.get(Line::Live) + lines.get(Line::Rounding)) / 64;
    assert!((901..=1024).contains(&size), "objects of {size} bytes");
}

#[test]
fn a_large_block_is_counted_as_asked_for_and_the_end_of_its_last_page_as_rounding() {
    let heap = heap();
    let _block = heap.alloc(100_000).expect("memory");
    let lines = ledger(&heap);
    assert_eq!(lines.get(Line::Runs), 100_000);
    assert_eq!(lines.get(Line::RunRounding), 25 * PAGE as u64 - 100_000);
}

#[test]
fn a_huge_block_is_counted_outside_the_span() {
    let heap = heap();
    let bytes = (8 << 20) + 10;
    let block = heap.alloc(bytes).expect("memory");
    let lines = ledger(&heap);
    assert_eq!(lines.get(Line::Huge), bytes as u64);
    assert_eq!(lines.get(Line::HugeRounding), (PAGE - 10) as u64);
    let start = block.addr().get();
    let mut first_two = chosen(|page| page < start + 2 * PAGE && page >= start);
    let found = survey(&heap, &mut first_two);
    assert_eq!(found.ledger.get(Line::Huge), 2 * PAGE as u64);
    assert_eq!(found.ledger.get(Line::HugeRounding), 0);
    // SAFETY: allocated above and not used again.
    unsafe { heap.free(block.as_ptr()) };
    assert_eq!(ledger(&heap).get(Line::Huge), 0);
}

#[test]
fn pages_nobody_touched_are_on_no_line() {
    let heap = heap();
    let block = heap.alloc(64 * PAGE).expect("memory");
    let start = block.addr().get();
    let found = survey(&heap, &mut chosen(|page| page == start + PAGE));
    assert_eq!(found.ledger.get(Line::Runs), PAGE as u64);
    assert_eq!(found.ledger.heap(), PAGE as u64);
    assert!(found.ledger.untouched >= 63 * PAGE as u64);
}

#[test]
fn slabs_that_only_cached_objects_hold_are_pinned_and_not_fragmented() {
    let heap = heap();
    let held: Vec<_> = (0..2000)
        .map(|_| heap.alloc(200).expect("memory"))
        .collect();
    let full = ledger(&heap);
    assert_eq!(full.get(Line::Pinned), 0, "every slab has an object in use");
    for block in &held[1..] {
        // SAFETY: allocated above and not used again.
        unsafe { heap.free(block.as_ptr()) };
    }
    let found = survey(&heap, &mut Everything);
    let cache = found
        .caches(parts(&heap).slabs())
        .find(|cache| cache.active == 1 && cache.object_size >= 200)
        .expect("the class of 200 bytes");
    let (pinned, all) = (cache.counts.pinned_slabs, cache.counts.slabs);
    assert!(pinned > 0, "{cache:?}");
    assert_eq!(pinned + cache.counts.empty_slabs + 1, all, "{cache:?}");
    assert_eq!(found.ledger.get(Line::Pinned), cache.counts.pinned_bytes);
    let slab = (cache.pages * PAGE) as u64;
    assert!(cache.counts.partial_bytes < slab, "of one slab: {cache:?}");
}

#[test]
fn a_freed_object_whose_page_is_gone_costs_nothing() {
    let heap = heap();
    let held: Vec<_> = (0..32).map(|_| heap.alloc(4096).expect("memory")).collect();
    let gone = held[7].addr().get();
    // SAFETY: allocated above and not used again.
    unsafe { heap.free(held[7].as_ptr()) };
    let all = survey(&heap, &mut Everything).ledger;
    let less = survey(&heap, &mut chosen(|page| page != gone)).ledger;
    let lines = [Line::Sheaves, Line::Barns, Line::PartialSlabs, Line::Pinned];
    let free = |l: &Ledger| lines.map(|line| l.get(line)).iter().sum::<u64>();
    assert_eq!(free(&all) - free(&less), PAGE as u64);
    assert_eq!(all.get(Line::Live), less.get(Line::Live));
}

#[test]
fn freed_pages_are_free_pages_and_pages_given_back_are_in_no_line() {
    let heap = heap();
    let block = heap.alloc(1 << 20).expect("memory");
    // SAFETY: allocated above and not used again.
    unsafe { heap.free(block.as_ptr()) };
    let lines = ledger(&heap);
    assert!(lines.get(Line::FreePages) >= 1 << 20);
    let none = survey(&heap, &mut chosen(|_| false)).ledger;
    assert_eq!(none.heap(), 0);
    assert!(none.released >= 1 << 20);
}

#[test]
fn addresses_of_the_heap_are_told_from_others() {
    let heap = heap();
    let small = heap.alloc(100).expect("memory").addr().get();
    let huge = heap.alloc(9 << 20).expect("memory").addr().get();
    let owned = |start: usize, bytes: usize| {
        let mut sum = 0;
        super::each_owned_part(parts(&heap), start, bytes, &mut |_, bytes| sum += bytes);
        sum
    };
    assert_eq!(owned(small & !(PAGE - 1), PAGE), PAGE);
    assert_eq!(owned(huge, 2 * PAGE), 2 * PAGE);
    let local = 0u8;
    assert_eq!(owned((&raw const local).addr(), 1), 0);
}

/// What the program holds, by address.
#[derive(Default)]
struct Model {
    live: BTreeMap<usize, usize>,
}

/// Runs a random program and checks after each part that every resident page is on some line.
fn closes_under(policy: &str, setup: Setup, mut seed: u64) {
    let heap = heap_in(policy, setup);
    let mut model = Model::default();
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (seed >> 33) % below
    };
    for round in 0..12 {
        for _ in 0..400 {
            if random(5) < 3 || model.live.is_empty() {
                let size = match random(20) {
                    0 => random(200_000) as usize + 1,
                    1..=4 => random(20_000) as usize + 1,
                    _ => random(700) as usize + 1,
                };
                let block = heap.alloc(size).expect("memory");
                model.live.insert(block.addr().get(), size);
            } else {
                let at = random(model.live.len() as u64) as usize;
                let address = *model.live.keys().nth(at).expect("some");
                model.live.remove(&address);
                // SAFETY: the model says the block is live; it is forgotten.
                unsafe { heap.free(address as *mut u8) };
            }
        }
        let mut some = chosen(|page| (page / PAGE).wrapping_mul(0x9E37_79B1) >> 7 & 7 != round % 8);
        let found = survey(&heap, &mut some);
        let said = (some.said_yes.len() * PAGE) as u64;
        assert_eq!(
            found.ledger.heap(),
            said,
            "{policy}, round {round}: {found:?}"
        );
        let slabs = parts(&heap).slabs();
        let active: u64 = found
            .caches(slabs)
            .filter(|cache| !cache.internal)
            .map(|cache| cache.active)
            .sum();
        let classes = slabs
            .live_caches()
            .filter(|cache| cache.id().index() > SHEAF_CACHES);
        let largest = classes.map(crate::slab::Cache::object_size).max();
        let sizes = model.live.values();
        let held = sizes.filter(|&&size| Some(size) <= largest).count() as u64;
        assert_eq!(active, held, "{policy}, round {round}");
        assert_eq!(found.ledger.get(Line::Unplaced), 0);
    }
}

#[test]
fn the_ledger_closes_after_random_programs_under_any_residency() {
    for (policy, seed) in [("flagstone", 1), ("flagstone", 2), ("plain", 3)] {
        closes_under(policy, Setup::default(), seed);
    }
}

#[test]
fn the_ledger_closes_with_two_memory_nodes() {
    let setup = Setup {
        nodes: 2,
        cpus: 4,
        ..Setup::default()
    };
    closes_under("flagstone", setup, 4);
}
