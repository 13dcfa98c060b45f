//! The byte ledger of a heap that these engines serve closes: every resident page is on some line.

use crate::Kernels;
use crate::policy::Named;
use core::ptr::NonNull;
use flagstone_core::base::PageCount;
use flagstone_core::heap::{Heap, HeapConfig};
use flagstone_core::platform::testing::{Setup, TestingWith, World};
use flagstone_core::policy::Policy;
use flagstone_core::slab::{Cache, SHEAF_CACHES};
use flagstone_core::stats::{Line, Residency, Survey};
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: usize = 4096;

/// Every page but one of eight is resident, another eighth in each round; those it was asked about.
struct SevenOfEight {
    round: usize,
    said_yes: BTreeSet<usize>,
}

impl Residency for SevenOfEight {
    fn resident_runs(
        &mut self,
        start: NonNull<u8>,
        pages: PageCount,
        run: &mut dyn FnMut(usize, usize),
    ) {
        for index in 0..pages.0 {
            let address = start.addr().get() + index * PAGE;
            if (address / PAGE).wrapping_mul(0x9E37_79B1) >> 7 & 7 != self.round % 8 {
                self.said_yes.insert(address);
                run(index, 1);
            }
        }
    }
}

/// Half a thousand steps: two allocations of any size up to 8 KiB for each free.
fn steps(heap: &Heap<TestingWith<Kernels>>, live: &mut BTreeMap<usize, usize>, state: &mut u64) {
    let mut draw = |bound: usize| {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*state >> 33) as usize % bound
    };
    for _ in 0..500 {
        if draw(3) < 2 || live.is_empty() {
            let size = 1 << draw(14);
            let block = heap.alloc(size).expect("memory");
            live.insert(block.addr().get(), size);
        } else {
            let at = *live
                .keys()
                .nth(draw(live.len()))
                .expect("chosen among them");
            live.remove(&at);
            // SAFETY: allocated above, live until now.
            unsafe { heap.free(at as *mut u8) };
        }
    }
}

#[test]
fn the_ledger_closes_after_random_programs_under_every_engine() {
    for (name, seed) in [
        ("linux-6.1", 5),
        ("linux-2.6.24", 6),
        ("slab-2.6.24", 7),
        ("linux-6.18", 8),
        ("linux-7.0", 9),
    ] {
        let _world = World::enter_new(Setup::default());
        let heap = Box::new(Heap::<TestingWith<Kernels>>::new());
        let config = HeapConfig {
            policy: Policy::parse(name).expect("a known policy"),
            span_bytes: 64 << 20,
        };
        heap.init(&config).expect("memory for the tables");
        let slabs = heap.ready_if_built().expect("built").slabs();
        let (mut live, mut state) = (BTreeMap::new(), seed);
        for round in 0..8 {
            steps(&heap, &mut live, &mut state);
            let mut some = SevenOfEight {
                round,
                said_yes: BTreeSet::new(),
            };
            let mut survey = Box::new(Survey::new());
            let ready = heap.ready_if_built().expect("built");
            assert!(survey.take(ready, &mut some), "memory for page bits");
            let said = (some.said_yes.len() * PAGE) as u64;
            assert_eq!(survey.ledger.heap(), said, "{name}, round {round}");
            assert_eq!(survey.ledger.get(Line::Unplaced), 0, "{name}");
            let ours = survey.caches(slabs).filter(|cache| !cache.internal);
            let active: u64 = ours.map(|cache| cache.active).sum();
            let classes = slabs
                .live_caches()
                .filter(|cache| cache.id().index() > SHEAF_CACHES);
            let largest = classes.map(Cache::object_size).max();
            let held = live.values().filter(|&&size| Some(size) <= largest).count();
            assert_eq!(active, held as u64, "{name}, round {round}");
        }
    }
}
