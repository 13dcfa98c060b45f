//! The slab layer over the test world, for this layer's tests.

use super::*;
use crate::base::CacheId;
use crate::page::{PageConfig, Retention};
use crate::platform::testing::{Setup, Testing, World};
use crate::policy::Policy;
use crate::verify;
use std::boxed::Box;
use std::sync::Arc;

pub type TestSlabs = Slabs<Testing>;

pub fn built(name: &str, setup: Setup) -> (Arc<World>, Box<TestSlabs>) {
    let policy = crate::policy::for_tests::named(name);
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

pub fn check(slabs: &TestSlabs, context: &str) {
    if let Err(broken) = verify::check_slabs(slabs) {
        panic!("{context}: {broken}");
    }
}
