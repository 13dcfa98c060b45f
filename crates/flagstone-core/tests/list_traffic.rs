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
//! flagstone's shapes, first with those sheaves and then with the default policy's own at full
//! length (it starts them shorter and grows them under traffic).
//!
//! The mix, per cache of a capture with N live objects (bounded to 20,000), on four CPUs: grow to
//! N; 4 rounds of: free a random eighth and allocate it again on another CPU (objects made on one
//! CPU and freed on the next), then 500 pairs of one free and one alloc at random; shrink to
//! nothing.

mod ground_truth;

use flagstone_core::base::PageSize;
use flagstone_core::policy::{Cpus, Policy, SlabShape};
use flagstone_kernels::Named;
use flagstone_kernels::policy::{Population, Populations, estimated_live};
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
    shape: SlabShape,
}

struct Cache<'a> {
    shape: &'a dyn Fn(&Population) -> SlabShape,
    capacity: usize,
    barn_full: usize,
    min_partial: usize,
    slabs: Vec<Slab>,
    list: VecDeque<usize>,
    sheaves: Vec<[Vec<usize>; 2]>,
    barn: Vec<Vec<usize>>,
    held: Population,
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
                    let shape = (self.shape)(&self.held);
                    self.traffic.pages += 1;
                    self.held.add(&shape, self.unit, 1);
                    self.traffic.bytes = self.traffic.bytes.max(self.held.bytes);
                    self.slabs.push(Slab {
                        objects: shape.objects,
                        inuse: 0,
                        shape,
                    });
                    self.list.push_front(self.slabs.len() - 1);
                    surplus = true;
                    self.slabs.len() - 1
                }
            };
            let entry = &mut self.slabs[slab];
            let take = (entry.objects - entry.inuse).min((self.capacity - sheaf.len()) as u32);
            entry.inuse += take;
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
            let empty = slab.inuse == 0;
            self.traffic.locks += u64::from(was_full || empty);
            if was_full {
                self.list.push_back(chain[0]);
            }
            if empty && self.list.len() > self.min_partial {
                self.list.retain(|&listed| listed != chain[0]);
                self.held.remove(&self.slabs[chain[0]].shape, self.unit);
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
    let shape = |held: &_| policy.next_slab(row.size, page, cpus, held).unwrap();
    let mut cache = Cache {
        shape: &shape,
        capacity: sheaves.sheaf_capacity(row.size, page).unwrap() as usize,
        barn_full: 0,
        min_partial: sheaves.min_partial(row.size) as usize,
        slabs: Vec::new(),
        list: VecDeque::new(),
        sheaves: vec![[Vec::new(), Vec::new()]; CPUS],
        barn: Vec::new(),
        held: Population::default(),
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

fn percent_more(from: u64, to: u64) -> i64 {
    (to as i64 - from as i64) * 100 / from as i64
}

#[test]
fn slabs_by_population_refill_no_more_often_in_less_memory() {
    let boots = boots();
    let all = caches();
    let [base, patched, own, sheaves] = [
        "linux-6.5",
        "linux-6.5+least-waste-repaired",
        "flagstone",
        "linux-7.0",
    ]
    .map(|name| Policy::parse(name).unwrap());
    let rows = [
        (&base, &sheaves),
        (&patched, &sheaves),
        (&own, &sheaves),
        (&own, &own),
    ];
    let mut wrong = Vec::new();
    for (index, boot) in boots.iter().enumerate() {
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
            let page_size = boot.page_size.bytes();
            let name = format!("{} on {count} CPUs ({page_size})", boot.name);
            let [base, patched, shapes, default] = sums;
            println!("{name}: base {base:?}\n    patched {patched:?}");
            println!("    own shapes {shapes:?}\n    default {default:?}");
            // With equal sheaves every rule refills equally often: a sheaf is filled in one visit,
            // from however many slabs.
            if shapes.refills != base.refills || shapes.bytes >= base.bytes {
                wrong.push(format!(
                    "{name}, equal sheaves: {shapes:?} against {base:?}"
                ));
            }
            // Slabs that become partial or empty are visits too, and shorter runs have more.
            let most = if page_size <= 4096 { 7 } else { 55 };
            if percent_more(base.locks, shapes.locks) > most {
                wrong.push(format!("{name}, visits: {shapes:?} against {base:?}"));
            }
            // The default policy's sheaves give them back many times over.
            if percent_more(base.refills, default.refills) > -45
                || percent_more(base.locks, default.locks) > -40
            {
                wrong.push(format!("{name}, own sheaves: {default:?} against {base:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
