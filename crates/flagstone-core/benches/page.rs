//! What the page layer's steps cost on one thread, in the test world.
//!
//! `cargo bench -p flagstone-core --features testing --bench page`
//!
//! Prints the median and the spread (lowest to highest) of 31 batches in nanoseconds per pair of
//! allocation and free. The test world adds two thread-local reads to every step; memory itself
//! is not touched.

use flagstone_core::base::{NodeId, Order, PageCount};
use flagstone_core::page::{PageAllocator, PageConfig, Retention};
use flagstone_core::platform::testing::{Setup, Testing, World};
use std::hint::black_box;
use std::time::Instant;

type Pages = PageAllocator<Testing>;

const NODE: NodeId = NodeId(0);
const BATCHES: usize = 31;

fn measure(name: &str, rounds: u32, mut step: impl FnMut()) {
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..rounds {
                step();
            }
            start.elapsed().as_nanos() as f64 / f64::from(rounds)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    println!(
        "{name:<44} {:>8.1} ns   {:.1} .. {:.1}",
        batches[BATCHES / 2],
        batches[0],
        batches[BATCHES - 1]
    );
}

fn run_pair(pages: &Pages, length: usize) {
    let length = PageCount(length);
    let run = black_box(pages.alloc_run(length, NODE)).expect("room");
    // SAFETY: the run is ours and freed once.
    unsafe { pages.free_run(run.pfn, length) };
}

fn main() {
    let rounds = if std::env::args().any(|arg| arg == "--test") {
        10
    } else {
        20_000
    };
    let _world = World::enter_new(Setup::default());
    let config = PageConfig {
        span_bytes: 256 << 20,
        retention: Retention::KEEP_ALL,
        ..PageConfig::default()
    };
    let mut place = Box::<Pages>::new_uninit();
    // SAFETY: the box is ours.
    unsafe { Pages::init(place.as_mut_ptr(), &config) }.expect("the world grants the span");
    // SAFETY: `init` succeeded.
    let pages = unsafe { place.assume_init() };

    for order in 0..=3 {
        let order = Order::new(order).expect("an order");
        measure(&format!("pageset hit, {order:?}"), rounds, || {
            let block = black_box(pages.alloc_block(order, NODE)).expect("room");
            // SAFETY: the block is ours and freed once.
            unsafe { pages.free_block(block.pfn, order) };
        });
    }
    for length in [3, 5, 16, 17, 64, 256, 1000, 1024] {
        measure(&format!("run of {length} pages"), rounds, || {
            run_pair(&pages, length);
        });
    }
    let mut held = Vec::new();
    measure(
        "1000 single pages, then 1000 frees, each",
        rounds / 1000 + 1,
        || {
            for _ in 0..1000 {
                held.push(pages.alloc_block(Order::ZERO, NODE).expect("room").pfn);
            }
            for pfn in held.drain(..) {
                // SAFETY: ours, freed once.
                unsafe { pages.free_block(pfn, Order::ZERO) };
            }
        },
    );
    measure("run of 16 pages, grown to 32, shrunk", rounds, || {
        let run = pages.alloc_run(PageCount(16), NODE).expect("room").pfn;
        // SAFETY: the run is ours throughout and freed once.
        unsafe {
            black_box(pages.grow_run(run, PageCount(16), PageCount(32)));
            pages.shrink_run(run, PageCount(32), PageCount(16));
            pages.free_run(run, PageCount(16));
        }
    });
}
