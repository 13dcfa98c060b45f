//! All engines over the test world: random programs against a model, and the figures of each
//! kernel version.

use crate::Kernels;
use crate::policy::Named;
use flagstone_core::base::{CacheId, CpuId, PageSize};
use flagstone_core::page::{PageConfig, Retention};
use flagstone_core::platform::testing::{Setup, TestingWith, World};
use flagstone_core::policy::Policy;
use flagstone_core::slab::{Cache, CacheError, CacheRequest, SlabView, Slabs};
use flagstone_core::sync::Ordering::Relaxed;
use flagstone_core::verify;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

pub type TestSlabs = Slabs<TestingWith<Kernels>>;

/// Policies that together reach every engine and every version of its rules.
pub const POLICIES: &[&str] = &[
    "linux-2.6.24",
    "linux-2.6.24+dynamic-min-partial",
    "linux-2.6.24+defer-contended-free+avoid-contended-slab",
    "slab-2.6.24",
    "linux-3.16",
    "linux-6.1",
    "linux-6.5+order4",
    "linux-6.12",
    "linux-6.12+defer-contended-free+avoid-contended-slab",
    "linux-6.18",
    "linux-7.0",
    "linux-7.2",
    "flagstone",
];

pub fn built(name: &str, setup: Setup) -> (Arc<World>, Box<TestSlabs>) {
    let policy = Policy::parse(name).expect("a known policy");
    built_with(&policy, setup)
}

pub fn built_with(policy: &Policy, setup: Setup) -> (Arc<World>, Box<TestSlabs>) {
    let world = World::enter_new(setup);
    let config = PageConfig {
        span_bytes: 64 << 20,
        span_bytes_min: 64 << 20,
        retention: Retention {
            min_bytes: 1 << 20,
            share: 0,
        },
        policy: *policy,
        ..PageConfig::default()
    };
    let mut place = Box::<TestSlabs>::new_uninit();
    // SAFETY: the box is ours and stays where it is.
    unsafe { Slabs::init(place.as_mut_ptr(), &config, policy) }.expect("the world grants it");
    // SAFETY: `init` succeeded.
    (world, unsafe { place.assume_init() })
}

pub fn cpus(count: u32) -> Setup {
    Setup {
        cpus: count,
        ..Setup::default()
    }
}

pub fn cache_of(slabs: &TestSlabs, size: usize) -> CacheId {
    let mut request = CacheRequest::new("objects", size);
    request.kmalloc = true;
    slabs.create_cache(&request).expect("a cache")
}

/// A cache whose creator asks for sheaves of `capacity` objects, if the policy heeds that.
pub fn opted_cache(slabs: &TestSlabs, size: usize, capacity: u32) -> CacheId {
    let mut request = CacheRequest::new("opted", size);
    request.sheaf_capacity = capacity;
    slabs.create_cache(&request).expect("a cache")
}

/// Numbers from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// Live objects by address: none may overlap another, and each keeps its mark.
#[derive(Default)]
struct Model {
    live: BTreeMap<usize, (usize, u8)>,
}

impl Model {
    fn born(&mut self, object: NonNull<u8>, size: usize, mark: u8) {
        let start = object.as_ptr() as usize;
        let before = self.live.range(..start + size).next_back();
        if let Some((&other, &(bytes, _))) = before {
            assert!(other + bytes <= start, "{start:#x} overlaps {other:#x}");
        }
        // SAFETY: the object has `size` bytes and is ours.
        unsafe { object.write_bytes(mark, size) };
        self.live.insert(start, (size, mark));
    }

    fn dies(&mut self, at: usize) -> NonNull<u8> {
        let (&start, &(size, mark)) = self.live.iter().nth(at).expect("chosen among the live");
        self.live.remove(&start);
        let object = NonNull::new(start as *mut u8).expect("not null");
        // SAFETY: live, with `size` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(object.as_ptr(), size) };
        assert!(
            bytes.iter().all(|&b| b == mark),
            "an object was overwritten"
        );
        object
    }
}

fn random_program(name: &str, setup: Setup, sizes: &[usize], steps: u32, seed: u64) {
    let (world, slabs) = built(name, setup);
    let asks = |&size: &usize| opted_cache(&slabs, size, size as u32 % 3 * 4);
    let ids: Vec<_> = sizes.iter().map(asks).collect();
    let mut models: Vec<_> = sizes.iter().map(|_| Model::default()).collect();
    let mut chance = Chance(seed | 1);
    let mut grows = true;
    for step in 0..steps {
        world.run_on(CpuId(chance.below(setup.cpus as usize) as u32));
        if step % 512 == 0 {
            grows = chance.below(2) == 0;
        }
        let which = chance.below(ids.len());
        let (cache, model) = (slabs.cache(ids[which]), &mut models[which]);
        let live = model.live.len();
        let limit = (1 << 20) / sizes[which];
        if live == 0 || (live < limit && chance.below(100) < if grows { 70 } else { 30 }) {
            let object = slabs.alloc(cache).expect("memory");
            model.born(object, sizes[which], step as u8);
        } else {
            let object = model.dies(chance.below(live));
            // SAFETY: live until now, and not used again.
            unsafe { slabs.free(cache, object) };
        }
        if chance.below(2000) == 0 {
            check(&slabs, name);
            slabs.shrink_cache(cache);
            check(&slabs, name);
        }
    }
    for (&id, model) in ids.iter().zip(&mut models) {
        let cache = slabs.cache(id);
        check(&slabs, name);
        assert_eq!(live(&slabs, cache), model.live.len(), "{name}");
        if !model.live.is_empty() {
            assert_eq!(slabs.destroy_cache(id), Err(CacheError::Busy), "{name}");
        }
        while !model.live.is_empty() {
            let object = model.dies(0);
            // SAFETY: live until now, and not used again.
            unsafe { slabs.free(cache, object) };
        }
        assert_eq!(slabs.destroy_cache(id), Ok(()), "{name}: objects were lost");
    }
    assert_eq!(slabs.lost.load(Relaxed), 0);
}

pub fn check(slabs: &TestSlabs, context: &str) {
    if let Err(broken) = verify::check_slabs(slabs) {
        panic!("{context}: {broken}");
    }
}

pub fn live(slabs: &TestSlabs, cache: &Cache) -> usize {
    verify::live_objects(slabs, cache).expect("sound structures") as usize
}

#[test]
fn random_programs_lose_nothing_and_overlap_nothing_under_any_engine() {
    for name in POLICIES {
        for seed in 1..4 {
            let setup = cpus(1 + seed as u32);
            random_program(name, setup, &[8, 64, 256, 700, 4096], 10_000, seed);
        }
    }
}

#[test]
fn random_programs_on_two_memory_nodes_and_on_64k_pages() {
    for name in POLICIES {
        let two = Setup {
            cpus: 4,
            nodes: 2,
            ..Setup::default()
        };
        random_program(name, two, &[32, 256, 2048], 10_000, 77);
        let large = Setup {
            page_size: PageSize::K64,
            ..cpus(2)
        };
        random_program(name, large, &[32, 256, 8192], 6_000, 99);
    }
}

/// What a step of a tiny program does: on which CPU, and to the oldest or the newest object.
const STEPS: &[(u32, Option<bool>)] = &[
    (0, None),
    (1, None),
    (0, Some(true)),
    (1, Some(true)),
    (1, Some(false)),
];

#[test]
fn every_program_of_six_steps_over_slabs_of_two_objects_leaves_sound_structures() {
    for name in POLICIES {
        let mut policy = Policy::parse(name).expect("known");
        policy.set("slab_max_order", "0").expect("accepted");
        policy.set("min_partial", "1").expect("accepted");
        let (world, slabs) = built_with(&policy, cpus(2));
        let cache = slabs.cache(cache_of(&slabs, 1600));
        for number in 0..(STEPS.len() as u32).pow(6) {
            tiny_program(&world, &slabs, cache, number, name);
        }
    }
}

fn tiny_program(world: &World, slabs: &TestSlabs, cache: &Cache, number: u32, name: &str) {
    let mut live: Vec<NonNull<u8>> = Vec::new();
    let mut code = number;
    for _ in 0..6 {
        let (cpu, free) = STEPS[code as usize % STEPS.len()];
        code /= STEPS.len() as u32;
        world.run_on(CpuId(cpu));
        match free {
            None => {
                let object = slabs.alloc(cache).expect("memory");
                assert!(!live.contains(&object), "{name}, program {number}");
                live.push(object);
            }
            Some(oldest) if !live.is_empty() => {
                let at = if oldest { 0 } else { live.len() - 1 };
                // SAFETY: live, and given up.
                unsafe { slabs.free(cache, live.remove(at)) };
            }
            Some(_) => {}
        }
    }
    if let Err(broken) = verify::check_cache(slabs, cache) {
        panic!("{name}, program {number}: {broken}");
    }
    let held = verify::live_objects(slabs, cache);
    assert_eq!(held, Ok(live.len() as u64), "{name}, program {number}");
    for object in live {
        // SAFETY: live, and given up.
        unsafe { slabs.free(cache, object) };
    }
    slabs.shrink_cache(cache);
    assert_eq!(
        SlabView::heads(slabs, cache).count(),
        0,
        "{name}, program {number}"
    );
}
