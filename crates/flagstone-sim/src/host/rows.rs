//! The objects of the published rows on real threads of this host: the default policy beside the
//! policies the rows are about.
//!
//! ```text
//!   S0  mmap1's objects       every thread for itself, frees deferred in batches
//!   S1  one allocates, N free
//!   S3  blocks of pages       one allocates, one frees                         ─┐ a relay: while
//!   S4  segments in bursts    one allocates, one frees                         ─┘ one batch is
//!                                                                                made, the last
//!                                                                                one is freed
//! ```
//!
//! Times are CPU time of the thread that did it, so that neighbours on a busy host are in them as
//! little as possible; runs of the compared policies take turns. Few CPUs show little of what 224
//! contend for: these rows say what the policy costs real threads, not what it gains there. The
//! engines with a slab per CPU enter a CPU's section by a lock here, where a kernel has a
//! compare-and-swap local to the CPU: their objects cost more by that than a kernel's (ADR 0012).

use super::ground::{Ground, Source};
use super::threads::{allowed, cpu_time, median, on_each};
use crate::chance::Chance;
use core::ptr::NonNull;
use flagstone_core::base::{CacheId, Order, Pfn};
use flagstone_core::platform::Platform;
use flagstone_core::policy::Policy;
use flagstone_kernels::Named;
use flagstone_linux::Linux;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

/// Runs of each policy, taking turns.
pub const RUNS: usize = 7;
/// Address space of each core: far more than any row needs.
const SPAN_BYTES: usize = 4 << 30;
/// Operations of one mmap1 run on each thread: about ten milliseconds.
const MMAP_OPERATIONS: u64 = 8_000;
/// Objects a thread defers before it frees half of them: a grace period's worth.
const DEFERRED: usize = 8_192;
/// Objects of one batch of one-alloc-N-free.
const BATCH: usize = 7 * 1024;
/// Batches of one run, of which the first quarter warms up.
const BATCHES: usize = 8;
/// Bursts of one netio run, likewise.
const BURSTS: usize = 240;
/// Freeing threads of S1.
const FREEING: [usize; 4] = [1, 2, 4, 7];
/// Object sizes of S1.
const SIZES: [usize; 4] = [8, 64, 256, 4096];

/// One figure of one policy on real threads.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The document whose row it belongs to.
    pub seed: &'static str,
    /// What ran.
    pub row: String,
    /// Which figure of it.
    pub column: &'static str,
    /// The policy.
    pub policy: &'static str,
    /// Always "measured".
    pub method: &'static str,
    /// Threads.
    pub threads: usize,
    /// CPUs they had.
    pub cpus: usize,
    /// Unit of the figures.
    pub unit: &'static str,
    /// Median of the runs.
    pub median: f64,
    /// Least of them.
    pub low: f64,
    /// Most of them.
    pub high: f64,
    /// How many.
    pub runs: usize,
}

/// Several policies' cores, and what is known about the row they run.
struct Row<'a> {
    seed: &'static str,
    name: String,
    threads: usize,
    grounds: &'a [(&'static str, Ground)],
}

/// Figures of one run: a column, its unit, the value.
type Figures = Vec<(&'static str, &'static str, f64)>;

impl Row<'_> {
    /// Runs `body` under every policy in turn.
    fn measure(&self, body: impl Fn(&Ground, u64) -> Figures) -> Vec<Measured> {
        let mut seen: Vec<Vec<Figures>> = self.grounds.iter().map(|_| Vec::new()).collect();
        for run in 0..RUNS {
            for ((_, ground), seen) in self.grounds.iter().zip(&mut seen) {
                seen.push(body(ground, run as u64));
            }
        }
        let mut rows = Vec::new();
        for ((policy, _), seen) in self.grounds.iter().zip(&seen) {
            for (index, &(column, unit, _)) in seen[0].iter().enumerate() {
                let values: Vec<f64> = seen.iter().map(|figures| figures[index].2).collect();
                rows.push(Measured {
                    seed: self.seed,
                    row: self.name.clone(),
                    column,
                    policy,
                    method: "measured",
                    threads: self.threads,
                    cpus: allowed().len().min(self.threads),
                    unit,
                    low: values.iter().copied().fold(f64::INFINITY, f64::min),
                    high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    median: median(values),
                    runs: RUNS,
                });
            }
        }
        rows
    }
}

fn grounds(policies: &[&'static str]) -> Result<Vec<(&'static str, Ground)>, String> {
    let ground = |name: &&'static str| {
        let policy = Policy::parse(name).map_err(|error| error.to_string())?;
        Ok((*name, Ground::new(&policy, SPAN_BYTES)?))
    };
    policies.iter().map(ground).collect()
}

/// So many CPUs of those this process may use, again from the first where they do not suffice.
fn places(threads: usize) -> Vec<usize> {
    allowed().into_iter().cycle().take(threads).collect()
}

/// One who makes and others who free, on CPUs of their own where there are enough.
fn apart(freeing: usize) -> Vec<usize> {
    let all = allowed();
    let others = if all.len() > 1 { &all[1..] } else { &all[..] };
    let mut places = vec![all[0]];
    places.extend(others.iter().cycle().take(freeing));
    places
}

/// The rows of the documents in `seeds`; `done` is told after each.
///
/// # Errors
/// One line, when the system grants no memory.
pub fn measure(seeds: &[&str], done: impl Fn(&str)) -> Result<Vec<Measured>, String> {
    type Family = fn(&dyn Fn(&str)) -> Result<Vec<Measured>, String>;
    let families: [(&str, Family); 4] = [
        ("S0", mmap1),
        ("S1", one_alloc),
        ("S3", pages),
        ("S4", netio),
    ];
    let mut rows = Vec::new();
    for (seed, family) in families {
        if seeds.contains(&seed) {
            rows.extend(family(&done)?);
        }
    }
    Ok(rows)
}

/// An object handed from thread to thread.
#[derive(Clone, Copy)]
struct Letter(CacheId, NonNull<u8>);

// SAFETY: whoever holds the letter owns the object.
unsafe impl Send for Letter {}

fn take(ground: &Ground, cache: CacheId) -> NonNull<u8> {
    let object = ground.take(cache);
    // SAFETY: just allocated, at least eight bytes long; a byte has no alignment.
    unsafe { object.write_volatile(1) };
    object
}

fn mmap1(done: &dyn Fn(&str)) -> Result<Vec<Measured>, String> {
    let grounds = grounds(&["linux-6.5", "linux-6.5+order4", "flagstone"])?;
    let mut counts = vec![1, allowed().len()];
    counts.dedup();
    let mut rows = Vec::new();
    for threads in counts {
        done("mmap1's objects");
        let row = Row {
            seed: "S0",
            name: format!("mmap1's objects, {threads} threads"),
            threads,
            grounds: &grounds,
        };
        rows.extend(row.measure(|ground, _| {
            let times = on_each(&places(threads), |_| map_and_unmap(ground));
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            vec![("one operation", "ns of CPU", mean)]
        }));
    }
    Ok(rows)
}

/// What one mmap with its munmap allocates (see the workload `mmap1`), without the rest of it.
fn map_and_unmap(ground: &Ground) -> f64 {
    let [area, lock, node] = [192, 40, 256].map(|size| ground.class(size));
    let mut deferred = VecDeque::with_capacity(DEFERRED);
    let mut tree = take(ground, node);
    let mut operation = |operations: u64| {
        for _ in 0..operations {
            let made = [
                Letter(area, take(ground, area)),
                Letter(lock, take(ground, lock)),
            ];
            for _ in 0..2 {
                let nodes: [NonNull<u8>; 7] = core::array::from_fn(|_| take(ground, node));
                let [used, rest @ ..] = nodes;
                for unused in rest {
                    // SAFETY: taken from this cache on the lines above.
                    unsafe { ground.give(node, unused) };
                }
                deferred.push_back(Letter(node, core::mem::replace(&mut tree, used)));
            }
            deferred.extend(made);
            if deferred.len() >= DEFERRED {
                give_all(ground, deferred.drain(..DEFERRED / 2));
            }
        }
    };
    operation(MMAP_OPERATIONS / 4);
    let before = cpu_time();
    operation(MMAP_OPERATIONS);
    let spent = cpu_time().saturating_sub(before);
    give_all(ground, deferred.drain(..));
    // SAFETY: the last node of the tree, from this cache.
    unsafe { ground.give(node, tree) };
    spent.as_secs_f64() * 1e9 / MMAP_OPERATIONS as f64
}

fn give_all(ground: &Ground, letters: impl Iterator<Item = Letter>) {
    for Letter(cache, object) in letters {
        // SAFETY: the letter owned its object, from that cache.
        unsafe { ground.give(cache, object) };
    }
}

/// CPU time of each side of a relay and what it handled, the first quarter apart.
struct Sides {
    making: Duration,
    freeing: Duration,
    items: usize,
}

impl Sides {
    fn ns(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e9 / self.items.max(1) as f64
    }
}

/// While thread 0 makes a batch with `make(number)`, the others free the last one, each its part.
fn relay<T: Send>(
    places: &[usize],
    batches: usize,
    make: impl Fn(usize) -> Vec<T> + Sync,
    free: impl Fn(Vec<T>) + Sync,
) -> Sides {
    let freeing = places.len() - 1;
    let parts: Vec<Mutex<Vec<T>>> = (0..freeing).map(|_| Mutex::new(Vec::new())).collect();
    let (begin, end) = (Barrier::new(places.len()), Barrier::new(places.len()));
    let warm = batches / 4;
    let sides = on_each(places, |thread| {
        let (mut spent, mut items) = (Duration::ZERO, 0);
        for batch in 0..=batches {
            begin.wait();
            let before = cpu_time();
            let mut made = Vec::new();
            if thread == 0 && batch < batches {
                made = make(batch);
            } else if thread > 0 {
                let part = core::mem::take(&mut *parts[thread - 1].lock().expect("nobody panics"));
                free(part);
            }
            let took = cpu_time().saturating_sub(before);
            end.wait();
            if batch >= warm && batch < batches {
                spent += took;
                items += made.len();
            }
            let count = made.len().div_ceil(freeing.max(1)).max(1);
            let mut made = made.into_iter();
            for part in &parts {
                if thread == 0 {
                    *part.lock().expect("nobody panics") = made.by_ref().take(count).collect();
                }
            }
        }
        (spent, items)
    });
    Sides {
        making: sides[0].0,
        freeing: sides[1..].iter().map(|side| side.0).sum(),
        items: sides[0].1,
    }
}

fn one_alloc(done: &dyn Fn(&str)) -> Result<Vec<Measured>, String> {
    let grounds = grounds(&["slab-2.6.24", "linux-2.6.24", "flagstone"])?;
    let mut rows = Vec::new();
    for size in SIZES {
        for freeing in FREEING {
            done("one allocates, N free");
            let row = Row {
                seed: "S1",
                name: format!("{size} B, {freeing} free"),
                threads: freeing + 1,
                grounds: &grounds,
            };
            rows.extend(row.measure(|ground, _| {
                let cache = ground.class(size);
                let make = |_| {
                    (0..BATCH)
                        .map(|_| Letter(cache, take(ground, cache)))
                        .collect()
                };
                let free = |letters: Vec<Letter>| give_all(ground, letters.into_iter());
                let sides = relay(&apart(freeing), BATCHES, make, free);
                vec![
                    ("alloc", "ns of CPU", sides.ns(sides.making)),
                    ("free", "ns of CPU", sides.ns(sides.freeing)),
                ]
            }));
        }
    }
    Ok(rows)
}

fn pages(done: &dyn Fn(&str)) -> Result<Vec<Measured>, String> {
    /// As AF_UNIX takes them: 64 KiB in fragments.
    const ORDERS: [u32; 4] = [3, 2, 1, 0];
    done("blocks of pages");
    let grounds = grounds(&["linux-6.6", "linux-6.6+pcp9", "flagstone"])?;
    let row = Row {
        seed: "S3",
        name: "blocks of 8, 4, 2 and 1 pages, one allocates, one frees".into(),
        threads: 2,
        grounds: &grounds,
    };
    let orders = || ORDERS.iter().cycle().filter_map(|order| Order::new(*order));
    Ok(row.measure(|ground, _| {
        let layer = ground.slabs().pages();
        let node = Linux::node_of(Linux::current_cpu());
        let before = layer.snapshot().total;
        let make = |_| {
            let block = |order| {
                (
                    layer
                        .alloc_block(order, node)
                        .expect("memory for a test")
                        .pfn,
                    order,
                )
            };
            orders().take(64).map(block).collect()
        };
        let free = |blocks: Vec<(Pfn, Order)>| {
            for (pfn, order) in blocks {
                // SAFETY: allocated by `make`, with this order, and handed over.
                unsafe { layer.free_block(pfn, order) };
            }
        };
        let sides = relay(&apart(1), BURSTS, make, free);
        let after = layer.snapshot().total;
        let through_zone = (after.counters.alloc_pages - before.counters.alloc_pages) as f64;
        let blocks = BURSTS as f64 * 64.0;
        vec![
            ("alloc", "ns of CPU", sides.ns(sides.making)),
            ("free", "ns of CPU", sides.ns(sides.freeing)),
            (
                "pages fetched from the zone for each block",
                "pages",
                through_zone / blocks,
            ),
            ("pages kept in pagesets", "pages", after.cached_pages as f64),
        ]
    }))
}

fn netio(done: &dyn Fn(&str)) -> Result<Vec<Measured>, String> {
    done("segments in bursts");
    let grounds = grounds(&[
        "linux-2.6.26",
        "linux-2.6.26+dynamic-min-partial",
        "flagstone",
    ])?;
    let row = Row {
        seed: "S4",
        name: "netio's segments in bursts, one allocates, one frees".into(),
        threads: 2,
        grounds: &grounds,
    };
    Ok(row.measure(|ground, run| {
        let head = ground.class(456);
        let data = [2048, 4096].map(|size| ground.class(size));
        let make = |burst: usize| {
            let chance = Chance::new(run + 1).fork(burst as u64);
            let length = chance.exponential(24.0).clamp(1, 1024);
            let segment = |_| {
                let cache = data[chance.below(2) as usize];
                [head, cache].map(|cache| Letter(cache, take(ground, cache)))
            };
            (0..length).map(segment).collect()
        };
        let free = |segments: Vec<[Letter; 2]>| give_all(ground, segments.into_iter().flatten());
        let before = ground.slabs().pages().snapshot().total.counters.alloc_pages;
        let sides = relay(&apart(1), BURSTS, make, free);
        let after = ground.slabs().pages().snapshot().total;
        let fetched = (after.counters.alloc_pages - before) as f64;
        let warm = BURSTS as f64 / (BURSTS - BURSTS / 4) as f64;
        vec![
            ("alloc", "ns of CPU", sides.ns(sides.making)),
            ("free", "ns of CPU", sides.ns(sides.freeing)),
            (
                "pages fetched from zones for 1000 segments",
                "pages",
                fetched / (sides.items as f64 * warm) * 1000.0,
            ),
            (
                "pages in use afterwards",
                "pages",
                after.in_use_pages as f64,
            ),
        ]
    }))
}
