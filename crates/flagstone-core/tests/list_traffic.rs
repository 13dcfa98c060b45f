//! Partial-list traffic of slab shapes, counted over a stated mix of operations.
//!
//! ```text
//!   CPUs --- main, spare sheaf ---+
//!                                 +--- barn: 10 full ---+--- node list of part-used slabs
//!   CPUs --- main, spare sheaf ---+
//! ```
//!
//! A counting model, not an allocator: it holds no memory and measures no time. It keeps which
//! slab each object is in, moves objects between sheaves and slabs by the rules of the sheaf
//! engine (docs: linux-policies 5.3, 5.4), and counts how often the node list's lock is taken.
//! Compared are base shapes with the sheaves of 7.0, the patch's shapes with those sheaves, and
//! flagstone's shapes, first with those sheaves and then with somewhat larger ones for small
//! objects: 96 objects or 15 KiB, three quarters of a page where pages are large.
//!
//! The mix, per cache of a capture with N live objects (bounded to 20,000), on four CPUs: grow to
//! N; 4 rounds of: free a random eighth and allocate it again on another CPU (objects made on one
//! CPU and freed on the next), then 500 pairs of one free and one alloc at random; shrink to
//! nothing.

mod ground_truth;

use flagstone_core::base::PageSize;
use flagstone_core::policy::{Cpus, Policy, SlabShape, estimated_live};
use ground_truth::{CacheRow, boots, caches};
use std::collections::VecDeque;

const CPUS: usize = 4;

#[derive(Clone, Copy, Default, Debug)]
struct Traffic {
    /// Sheaves refilled from slabs: each is one visit to the node list.
    refills: u64,
    /// Every time the list lock is taken, refills included.
    locks: u64,
    /// Slabs made and given back.
    pages: u64,
    /// Most bytes of slabs at any time, with what CPUs and barn keep parked.
    bytes: u64,
}

impl Traffic {
    fn add(&mut self, other: Self) {
        self.refills += other.refills;
        self.locks += other.locks;
        self.pages += other.pages;
        self.bytes += other.bytes;
    }
}

struct Slab {
    objects: u32,
    inuse: u32,
    bytes: u64,
}

struct Cache<'a> {
    shape: &'a dyn Fn(u64) -> SlabShape,
    capacity: usize,
    barn_full: usize,
    min_partial: usize,
    slabs: Vec<Slab>,
    list: VecDeque<usize>,
    sheaves: Vec<[Vec<usize>; 2]>,
    barn: Vec<Vec<usize>>,
    inuse: u64,
    bytes: u64,
    unit: PageSize,
    traffic: Traffic,
}

impl Cache<'_> {
    fn alloc(&mut self, cpu: usize) -> usize {
        if self.sheaves[cpu][0].is_empty() {
            self.sheaves[cpu].swap(0, 1);
        }
        if self.sheaves[cpu][0].is_empty() {
            let full = self.barn.pop().unwrap_or_else(|| self.refill());
            self.sheaves[cpu][0] = full;
        }
        self.sheaves[cpu][0]
            .pop()
            .expect("a refilled sheaf holds objects")
    }

    fn refill(&mut self) -> Vec<usize> {
        self.traffic.refills += 1;
        self.traffic.locks += u64::from(!self.list.is_empty());
        let mut sheaf = Vec::with_capacity(self.capacity);
        let mut surplus = false;
        while sheaf.len() < self.capacity {
            let slab = match self.list.front() {
                Some(&slab) => slab,
                None => {
                    let shape = (self.shape)(self.inuse);
                    self.traffic.pages += 1;
                    let bytes = shape.bytes(self.unit) as u64;
                    self.bytes += bytes;
                    self.traffic.bytes = self.traffic.bytes.max(self.bytes);
                    self.slabs.push(Slab {
                        objects: shape.objects,
                        inuse: 0,
                        bytes,
                    });
                    self.list.push_front(self.slabs.len() - 1);
                    surplus = true;
                    self.slabs.len() - 1
                }
            };
            let entry = &mut self.slabs[slab];
            let take = (entry.objects - entry.inuse).min((self.capacity - sheaf.len()) as u32);
            entry.inuse += take;
            self.inuse += u64::from(take);
            sheaf.extend(std::iter::repeat_n(slab, take as usize));
            if entry.inuse == entry.objects {
                self.list.pop_front();
                surplus = false;
            }
        }
        // A new slab with objects left goes on the list: one more lock.
        self.traffic.locks += u64::from(surplus);
        sheaf
    }

    fn free(&mut self, cpu: usize, object: usize) {
        if self.sheaves[cpu][0].len() == self.capacity {
            self.sheaves[cpu].swap(0, 1);
        }
        if self.sheaves[cpu][0].len() == self.capacity {
            let full = std::mem::take(&mut self.sheaves[cpu][0]);
            if self.barn.len() < self.barn_full {
                self.barn.push(full);
            } else {
                self.flush(full);
            }
        }
        self.sheaves[cpu][0].push(object);
    }

    /// Gives objects back slab by slab: one lock for each slab that was full or becomes empty.
    fn flush(&mut self, mut objects: Vec<usize>) {
        objects.sort_unstable();
        for chain in objects.chunk_by(|a, b| a == b) {
            let slab = &mut self.slabs[chain[0]];
            let was_full = slab.inuse == slab.objects;
            slab.inuse -= chain.len() as u32;
            self.inuse -= chain.len() as u64;
            let empty = slab.inuse == 0;
            self.traffic.locks += u64::from(was_full || empty);
            if was_full {
                self.list.push_back(chain[0]);
            }
            if empty && self.list.len() > self.min_partial {
                self.list.retain(|&listed| listed != chain[0]);
                self.bytes -= self.slabs[chain[0]].bytes;
                self.traffic.pages += 1;
            }
        }
    }
}

/// Numbers below `bound`, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % bound
    }
}

/// Runs the mix with the shapes of `policy` and the sheaves of `sheaves`.
fn run_mix(
    policy: &Policy,
    sheaves: &Policy,
    row: &CacheRow,
    page: PageSize,
    cpus: Cpus,
    live: usize,
) -> Traffic {
    let shape = |inuse| policy.next_slab(row.size, page, cpus, inuse).unwrap();
    let mut cache = Cache {
        shape: &shape,
        capacity: sheaves.sheaf_capacity(row.size, page).unwrap() as usize,
        barn_full: 0,
        min_partial: sheaves.min_partial(row.size) as usize,
        slabs: Vec::new(),
        list: VecDeque::new(),
        sheaves: vec![[Vec::new(), Vec::new()]; CPUS],
        barn: Vec::new(),
        inuse: 0,
        bytes: 0,
        unit: policy.slab_unit(page),
        traffic: Traffic::default(),
    };
    cache.barn_full = sheaves.barn_limits(row.size, cache.capacity as u32).full as usize;
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut objects: Vec<usize> = (0..live).map(|index| cache.alloc(index % CPUS)).collect();
    for round in 0..4 {
        for _ in 0..live / 8 {
            let object = objects.swap_remove(dice.below(objects.len()));
            cache.free(round % CPUS, object);
        }
        while objects.len() < live {
            objects.push(cache.alloc((round + 1) % CPUS));
        }
        for _ in 0..500 {
            let cpu = dice.below(CPUS);
            let object = objects.swap_remove(dice.below(objects.len()));
            cache.free(cpu, object);
            objects.push(cache.alloc(dice.below(CPUS)));
        }
    }
    while let Some(object) = objects.pop() {
        cache.free(dice.below(CPUS), object);
    }
    cache.traffic
}

#[test]
fn slabs_by_population_visit_node_lists_less_often_in_less_memory() {
    let boots = boots();
    let all = caches();
    let [base, patched, own, sheaves] = [
        "linux-6.5",
        "linux-6.5+least-waste-repaired",
        "flagstone",
        "linux-7.0",
    ]
    .map(|name| Policy::parse(name).unwrap());
    let mut wrong = Vec::new();
    for (index, boot) in boots.iter().enumerate() {
        let mut larger = own;
        larger.limits.sheaf_capacity_max = 96;
        larger.limits.sheaf_bytes_max = (15 << 10).max(boot.page_size.bytes() * 3 / 4);
        larger.limits.barn_bytes_max = 1 << 20;
        let rows = [
            (&base, &sheaves),
            (&patched, &sheaves),
            (&own, &sheaves),
            (&own, &larger),
        ];
        for count in [16, 160] {
            let mut sums = [Traffic::default(); 4];
            for row in all.iter().filter(|row| row.boot == index) {
                let live =
                    estimated_live(row.active, row.slabs, row.objects.into(), boot.cpus.online);
                let live = live.min(20_000) as usize;
                if live < 8 {
                    continue;
                }
                for ((shapes, sheaves), sum) in rows.iter().zip(&mut sums) {
                    let cpus = Cpus::new(count);
                    sum.add(run_mix(shapes, sheaves, row, boot.page_size, cpus, live));
                }
            }
            let name = format!("{} on {count} CPUs", boot.name);
            println!("{name}: base {:?}", sums[0]);
            println!(
                "    patched {:?}\n    own shapes {:?}\n    own {:?}",
                sums[1], sums[2], sums[3]
            );
            let [base, _, shapes, own] = sums;
            let fewer = own.refills < base.refills && own.locks < base.locks;
            if !fewer || own.bytes >= base.bytes {
                wrong.push(format!("{name}: {own:?} against {base:?}"));
            }
            // With the same sheaves every rule refills equally often: a sheaf is filled in one
            // visit, from however many slabs.
            if shapes.refills != base.refills {
                wrong.push(format!("{name}, shapes alone: {shapes:?} against {base:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
