//! Which shared lines an operation of the whole heap writes, by comparing memory before and after it.

use super::Served;
use crate::machine::Machine;
use crate::subject::Subject;
use crate::world::{Virtual, word_and_entry};
use crate::{Options, Vm};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use flagstone_core::base::{CacheId, CpuId, NodeId};
use flagstone_core::heap::{Gate, Heap};
use flagstone_core::platform::{MAX_CACHES, Slot};
use flagstone_core::slab::{Cache, Node};
use flagstone_kernels::Named;
use std::collections::BTreeSet;

const LINE: usize = 64;
const CPUS: u32 = 4;

/// Memory that all CPUs share, and what it held.
struct Part {
    start: usize,
    held: Vec<u64>,
}

impl Part {
    fn of<T>(first: *const T, count: usize) -> Self {
        let start = first as usize;
        assert_eq!(start % LINE, 0, "parts begin at a line");
        let mut part = Self {
            start,
            held: vec![0; count * size_of::<T>() / size_of::<u64>()],
        };
        part.changed();
        part
    }

    fn end(&self) -> usize {
        self.start + self.held.len() * size_of::<u64>()
    }

    /// Lines that hold something else than at the last call, by address.
    fn changed(&mut self) -> BTreeSet<usize> {
        let mut lines = BTreeSet::new();
        for (at, held) in self.held.iter_mut().enumerate() {
            let place = self.start + at * size_of::<u64>();
            // SAFETY: the part is the core's, live while its subject is; one operating-system thread
            // runs the whole machine, and it is here.
            let now = unsafe { (place as *const u64).read_volatile() };
            if core::mem::replace(held, now) != now {
                lines.insert(place / LINE * LINE);
            }
        }
        lines
    }
}

/// Everything of a heap that belongs to no CPU, no slab and no object.
struct Shared {
    heap: Part,
    caches: Part,
    nodes: Part,
}

/// Lines of each that one operation wrote.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Wrote {
    gate: usize,
    heap: usize,
    caches: usize,
    nodes: usize,
    slots_of_others: usize,
}

impl Wrote {
    fn most(self, other: Self) -> Self {
        Self {
            gate: self.gate.max(other.gate),
            heap: self.heap.max(other.heap),
            caches: self.caches.max(other.caches),
            nodes: self.nodes.max(other.nodes),
            slots_of_others: self.slots_of_others.max(other.slots_of_others),
        }
    }
}

impl Shared {
    fn of(subject: &Subject) -> Self {
        let Served::Whole(heap) = &subject.served else {
            panic!("the default policy is served by a heap")
        };
        let heap: *const Heap<Virtual> = &raw const **heap;
        let slabs = subject.slabs();
        let nodes = MAX_CACHES * usize::from(slabs.node_count());
        Self {
            heap: Part::of(heap, 1),
            caches: Part::of(
                core::ptr::from_ref::<Cache>(slabs.cache(CacheId(0))),
                MAX_CACHES,
            ),
            nodes: Part::of(
                core::ptr::from_ref::<Node>(slabs.node(CacheId(0), NodeId(0))),
                nodes,
            ),
        }
    }

    fn wrote(&mut self, by: impl FnOnce()) -> Wrote {
        self.heap.changed();
        self.caches.changed();
        self.nodes.changed();
        by();
        let gate = self.heap.start..self.heap.start + size_of::<Gate>();
        let (gates, heap): (BTreeSet<_>, BTreeSet<_>) = self
            .heap
            .changed()
            .into_iter()
            .partition(|line| gate.contains(line));
        assert!(heap.iter().all(|line| *line < self.heap.end()));
        Wrote {
            gate: gates.len(),
            heap: heap.len(),
            caches: self.caches.changed().len(),
            nodes: self.nodes.changed().len(),
            slots_of_others: 0,
        }
    }
}

/// Where the main and spare sheaf of each CPU's slots for `cache` end.
fn slots(subject: &Subject, cache: CacheId) -> Vec<[usize; 2]> {
    let area = subject.slabs().area();
    let of = |cpu: u32| {
        [Slot::main(cache.index()), Slot::spare(cache.index())].map(|slot| {
            // SAFETY: the machine has more CPUs than these.
            let (word, _) = unsafe { word_and_entry(area, CpuId(cpu), slot) };
            word.load(Relaxed)
        })
    };
    (0..CPUS).map(of).collect()
}

/// Slow visits so far, in groups at whose end upkeep looks.
fn looks(subject: &Subject) -> usize {
    let Served::Whole(heap) = &subject.served else {
        return 0;
    };
    let bell = heap.ready_if_built().map(|ready| ready.bell());
    bell.map_or(0, |bell| bell.load(Relaxed) / 64)
}

/// Objects of 64 B go from one CPU to the next in rounds of `count`; the most that one allocation and
/// one free wrote which upkeep did not ride on, after a first half that brings everything up to size.
fn most_written(rounds: u32, count: usize) -> [Wrote; 2] {
    let machine = Machine::named("x86-16").unwrap();
    let vm = Vm::new(machine, Options::default());
    let policy = flagstone_core::policy::Policy::parse("flagstone").unwrap();
    vm.boot(|| {
        let subject = Subject::new(&vm, &policy).unwrap();
        let cache = subject.kmalloc("test", 64);
        let mut shared = Shared::of(&subject);
        let mut most = [Wrote::default(); 2];
        let mut held: Vec<NonNull<u8>> = Vec::new();
        for round in 0..rounds {
            for which in [0, 1] {
                let cpu = (round + which) % CPUS;
                vm.cpu.set(cpu);
                for _ in 0..count {
                    let (before, looked) = (slots(&subject, cache), looks(&subject));
                    let mut wrote = shared.wrote(|| {
                        if which == 0 {
                            held.push(subject.alloc(&vm, cache));
                        } else if let Some(object) = held.pop() {
                            // SAFETY: allocated above from this cache.
                            unsafe { subject.free(&vm, cache, object) };
                        }
                    });
                    let after = slots(&subject, cache);
                    let others = (0..CPUS as usize).filter(|other| *other != cpu as usize);
                    wrote.slots_of_others = others.filter(|o| before[*o] != after[*o]).count();
                    if round >= rounds / 2 && looks(&subject) == looked {
                        most[which as usize] = most[which as usize].most(wrote);
                    }
                }
            }
        }
        most
    })
}

#[test]
fn a_slow_free_writes_no_line_that_other_cpus_fast_paths_read_and_few_that_all_write() {
    // Within sheaves, and far beyond sheaves and barns.
    for count in [40, 2000] {
        let [alloc, free] = most_written(10, count);
        println!("{count} objects: {alloc:?} {free:?}");
        assert_eq!((free.gate, free.slots_of_others), (0, 0));
        assert_eq!((alloc.gate, alloc.slots_of_others), (0, 0));
        // Ceilings: what is written today, to be lowered. Wanted are two for the heap and the caches together.
        assert!(free.heap <= 3 && free.caches <= 1 && free.nodes <= 1);
        assert!(alloc.heap <= 3 && alloc.caches <= 3 && alloc.nodes <= 1);
    }
}
