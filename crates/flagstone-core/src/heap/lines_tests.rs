//! What a slow visit writes: lines of the whole heap and of its cache are counted by comparing them.

use super::{Gate, Heap, Ready};
use crate::base::CpuId;
use crate::heap::test_heap::heap_in;
use crate::platform::testing::{Setup, Testing};
use crate::slab::Cache;
use crate::sync::Ordering::Relaxed;
use std::collections::BTreeSet;
use std::vec::Vec;

const LINE: usize = 64;
const CPUS: u32 = 4;

/// The words of some memory, in lines.
struct Part {
    start: *const u64,
    before: Vec<u64>,
}

impl Part {
    /// `value` points to memory that lives as long as the test's heap.
    fn of<T>(value: *const T) -> Self {
        let start = value.cast();
        let mut part = Self {
            start,
            before: std::vec![0; size_of::<T>() / 8],
        };
        part.changed();
        part
    }

    /// Addresses of the lines that differ from when it was last asked.
    fn changed(&mut self) -> BTreeSet<usize> {
        let mut lines = BTreeSet::new();
        for (at, before) in self.before.iter_mut().enumerate() {
            // SAFETY: inside the value, which lives as long as the test's heap.
            let (word, now) = unsafe { (self.start.add(at), self.start.add(at).read_volatile()) };
            if now != *before {
                lines.insert(word.addr() / LINE);
            }
            *before = now;
        }
        lines
    }
}

/// Calls of the program; for each that needed no upkeep, the lines that it changed.
fn lines_of_calls(mut see: impl FnMut(&BTreeSet<usize>, &BTreeSet<usize>, &BTreeSet<usize>)) {
    let setup = Setup {
        cpus: CPUS,
        ..Setup::default()
    };
    let (world, place) = heap_in("flagstone", setup);
    let heap: &Heap<Testing> = &place;
    // A heap begins with its gate.
    let ready: &Ready<Testing> = heap.ready_if_built().expect("built");
    let mut whole = Part::of(ready);
    let mut gate = Part::of(core::ptr::from_ref(heap).cast::<Gate>());
    let mut caches: Vec<Part> = ready
        .slabs()
        .live_caches()
        .map(|cache| Part::of::<Cache>(cache))
        .collect();
    let (mut live, mut random) = (Vec::new(), 0x9e37_79b9_7f4a_7c15_u64);
    for call in 0..60_000_usize {
        random = random.rotate_left(7).wrapping_mul(0x2545_f491_4f6c_dd1d);
        world.run_on(CpuId((random >> 50) as u32 % CPUS));
        let looks = ready.bell().load(Relaxed) / 64;
        // Phases of growth and of shrinking, so that sheaves run full and empty.
        let grows = call / 4000 % 2 == 0;
        if live.is_empty() || (random >> 20) % 8 < if grows { 6 } else { 2 } {
            live.extend(heap.alloc(16 << ((random >> 40) % 8)));
        } else {
            let block = live.swap_remove((random >> 30) as usize % live.len());
            // SAFETY: allocated above, freed once.
            unsafe { heap.free(block.as_ptr()) };
        }
        let heap_wide = whole.changed();
        let gates = gate.changed();
        let cache_wide = caches.iter_mut().flat_map(Part::changed).collect();
        if looks == ready.bell().load(Relaxed) / 64 {
            see(&heap_wide, &cache_wide, &gates);
        }
    }
}

#[test]
fn a_slow_visit_writes_two_lines_of_the_heap_and_two_of_its_cache_at_most() {
    let (mut visits, mut further) = (0, 0);
    lines_of_calls(|heap_wide, cache_wide, _| {
        assert!(heap_wide.len() <= 2, "{heap_wide:?}");
        visits += usize::from(!heap_wide.is_empty());
        // A new sheaf is an object of another cache, and the sizes of sheaves change now and then.
        further += usize::from(cache_wide.len() > 2);
    });
    assert!(visits > 500, "{visits}");
    assert!(further * 8 < visits, "{further} of {visits}");
}

#[test]
fn the_gate_is_written_where_the_heap_grows_alone() {
    let mut growths = 0;
    lines_of_calls(|_, _, gates| {
        assert!(gates.len() <= 1);
        growths += gates.len();
    });
    assert!((1..100).contains(&growths), "{growths}");
}
