//! Random programs, every short program of a tiny zone, and real threads, all checked by `verify`.
//!
//! Every live page carries a stamp in its first and last words: two owners of one page, or
//! contents lost to a decommit, are seen when the block is freed.

use super::tests::{Pages, built};
use super::*;
use crate::base::CpuId;
use crate::page::{Extents, PageConfig, Retention, TICK_NS};
use crate::platform::testing::{Setup, Testing, World};
use crate::policy::Policy;
use crate::policy::for_tests::plain;
use crate::verify::check_pages;
use proptest::prelude::*;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

const PAGE: usize = 512;

/// What a thread holds that a signal handler interrupts at the worst moment.
fn lock_all(pages: &Pages) {
    pages.each_lock(|lock| Testing::acquire(lock).expect("free"));
}

fn unlock_all(pages: &Pages) {
    pages.each_lock(Testing::release_lock);
}

/// One step of a program. Indexes are taken modulo what is live.
#[derive(Clone, Debug)]
enum Op {
    Block {
        order: u32,
        node: u8,
    },
    Run {
        pages: usize,
        node: u8,
    },
    Free {
        which: usize,
    },
    Shrink {
        which: usize,
        to: usize,
    },
    Grow {
        which: usize,
        by: usize,
    },
    Hole {
        which: usize,
        holes: u32,
        then_free: bool,
    },
    MoveTo {
        cpu: u32,
    },
    Trim {
        keep: usize,
    },
    Tick,
    DrainAll,
    Own {
        bytes: usize,
    },
    Refuse {
        after: u32,
    },
    Allow,
    FreeReentered {
        which: usize,
    },
    Fork,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0u32..=10, 0u8..2).prop_map(|(order, node)| Op::Block { order, node }),
        8 => (0u32..=3, 0u8..2).prop_map(|(order, node)| Op::Block { order, node }),
        6 => (1usize..=40, 0u8..2).prop_map(|(pages, node)| Op::Run { pages, node }),
        1 => (1usize..=1024, 0u8..2).prop_map(|(pages, node)| Op::Run { pages, node }),
        14 => any::<usize>().prop_map(|which| Op::Free { which }),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(which, to)| Op::Shrink { which, to }),
        2 => (any::<usize>(), 1usize..200).prop_map(|(which, by)| Op::Grow { which, by }),
        2 => any::<(usize, u32, bool)>().prop_map(|(which, holes, then_free)| Op::Hole { which, holes, then_free }),
        3 => (0u32..3).prop_map(|cpu| Op::MoveTo { cpu }),
        1 => (0usize..100_000).prop_map(|keep| Op::Trim { keep }),
        1 => Just(Op::Tick),
        1 => Just(Op::DrainAll),
        1 => (1usize..4000).prop_map(|bytes| Op::Own { bytes }),
        1 => (0u32..4).prop_map(|after| Op::Refuse { after }),
        1 => Just(Op::Allow),
        1 => any::<usize>().prop_map(|which| Op::FreeReentered { which }),
        1 => Just(Op::Fork),
    ]
}

struct Live {
    pfn: Pfn,
    pages: usize,
    stamp: u64,
}

/// The allocator beside what a program holds.
struct Run {
    world: Arc<World>,
    pages: std::boxed::Box<Pages>,
    live: Vec<Live>,
    own: Vec<(usize, usize)>,
    stamps: u64,
}

fn words(pages: &Pages, pfn: Pfn) -> [*mut u64; 2] {
    let size = pages.page_size().bytes();
    let start = pages.address(pfn).as_ptr();
    // SAFETY: the first and last words of one page.
    unsafe { [start.cast(), start.add(size - 8).cast()] }
}

fn stamp_all(pages: &Pages, live: &Live, from: usize) {
    for page in from..live.pages {
        for word in words(pages, live.pfn.plus(PageCount(page))) {
            // SAFETY: a word of a live block of this program.
            unsafe { word.write(live.stamp + page as u64) };
        }
    }
}

fn check_stamps(pages: &Pages, live: &Live, from: usize, to: usize) {
    for page in from..to {
        for word in words(pages, live.pfn.plus(PageCount(page))) {
            // SAFETY: as above.
            let found = unsafe { word.read() };
            assert_eq!(
                found,
                live.stamp + page as u64,
                "{:?} page {page}",
                live.pfn
            );
        }
    }
}

impl Run {
    fn new(setup: Setup, config: &PageConfig) -> Self {
        let (world, pages) = built(setup, config);
        Self {
            world,
            pages,
            live: Vec::new(),
            own: Vec::new(),
            stamps: 1 << 32,
        }
    }

    fn keep(&mut self, block: Option<Block>, pages: usize) {
        let Some(block) = block else { return };
        if block.zeroed {
            let start = self.pages.address(block.pfn).as_ptr();
            // SAFETY: the block is ours.
            let bytes = unsafe { core::slice::from_raw_parts(start, pages * PAGE) };
            assert!(
                bytes.iter().all(|&byte| byte == 0),
                "{:?} is not zero",
                block.pfn
            );
        }
        self.stamps += 1 << 20;
        let live = Live {
            pfn: block.pfn,
            pages,
            stamp: self.stamps,
        };
        stamp_all(&self.pages, &live, 0);
        self.live.push(live);
    }

    fn take(&mut self, which: usize) -> Option<Live> {
        if self.live.is_empty() {
            return None;
        }
        let index = which % self.live.len();
        let live = self.live.swap_remove(index);
        check_stamps(&self.pages, &live, 0, live.pages);
        Some(live)
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Block { order, node } => {
                let order = Order::new(order).expect("an order");
                let block = self.pages.alloc_block(order, NodeId(node));
                self.keep(block, order.pages().0);
            }
            Op::Run { pages, node } => {
                let block = self.pages.alloc_run(PageCount(pages), NodeId(node));
                self.keep(block, pages);
            }
            Op::Free { which } => {
                if let Some(live) = self.take(which) {
                    // SAFETY: the program's own block, freed once.
                    unsafe { self.pages.free_run(live.pfn, PageCount(live.pages)) };
                }
            }
            Op::Shrink { which, to } => self.resize(which, |old| 1 + to % old),
            Op::Grow { which, by } => self.resize(which, |old| (old + by).min(1024)),
            Op::Hole {
                which,
                holes,
                then_free,
            } => {
                let Some(live) = self.take(which) else { return };
                let holes = holes & (u32::MAX >> (32 - live.pages.min(32)));
                // SAFETY: the program's own pages, which it stamps anew or frees.
                unsafe {
                    self.pages
                        .punch_holes(live.pfn, holes, &mut Extents::default())
                };
                if then_free {
                    // SAFETY: the program's own block, freed once, its holes as they were made.
                    unsafe {
                        self.pages
                            .free_with_holes(live.pfn, PageCount(live.pages), holes);
                    }
                    return;
                }
                self.pages.fill_holes(live.pfn, holes);
                stamp_all(&self.pages, &live, 0);
                self.live.push(live);
            }
            Op::MoveTo { cpu } => self.world.run_on(CpuId(cpu)),
            Op::Trim { keep } => {
                self.pages.trim(keep);
                let left = self.pages.snapshot().total.free_resident_pages * PAGE;
                assert!(left <= keep, "{left} bytes stay after trim({keep})");
            }
            Op::Tick => {
                self.world.advance(TICK_NS);
                self.pages.tick();
            }
            Op::DrainAll => self.pages.drain_pagesets(),
            Op::Own { bytes } => {
                if let Some(start) = self.pages.alloc_own(bytes) {
                    self.own.push((start.as_ptr() as usize, bytes));
                }
            }
            Op::Refuse { after } => self.world.refuse_after(Some(after)),
            Op::Allow => self.world.refuse_after(None),
            Op::FreeReentered { which } => self.reentered(which),
            Op::Fork => {
                lock_all(&self.pages);
                unlock_all(&self.pages);
                self.pages.recover_after_fork();
            }
        }
    }

    fn resize(&mut self, which: usize, to: impl Fn(usize) -> usize) {
        let Some(mut live) = self.take(which) else {
            return;
        };
        let (old, new) = (live.pages, to(live.pages));
        // SAFETY: the program's own run.
        unsafe {
            if new <= old {
                self.pages
                    .shrink_run(live.pfn, PageCount(old), PageCount(new));
                live.pages = new;
            } else if self
                .pages
                .grow_run(live.pfn, PageCount(old), PageCount(new))
            {
                live.pages = new;
            }
        }
        check_stamps(&self.pages, &live, 0, old.min(live.pages));
        stamp_all(&self.pages, &live, old.min(live.pages));
        self.live.push(live);
    }

    /// What a signal handler does on top of a thread that holds every lock.
    fn reentered(&mut self, which: usize) {
        let live = self.take(which);
        lock_all(&self.pages);
        assert!(self.pages.alloc_block(Order::ZERO, NodeId(0)).is_none());
        if let Some(live) = live {
            // SAFETY: the program's own block, freed once.
            unsafe { self.pages.free_run(live.pfn, PageCount(live.pages)) };
        }
        unlock_all(&self.pages);
    }

    fn check(&self) {
        assert_eq!(check_pages(&self.pages), Ok(()));
    }

    /// Frees everything; the zones must be whole again.
    fn end(mut self) {
        self.world.refuse_after(None);
        while let Some(live) = self.take(0) {
            // SAFETY: the program's own block, freed once.
            unsafe { self.pages.free_run(live.pfn, PageCount(live.pages)) };
        }
        self.check();
        self.pages.trim(0);
        self.check();
        let after = self.pages.snapshot();
        let own = after.own_bytes / PAGE;
        assert_eq!(
            (after.total.in_use_pages, after.total.free_resident_pages),
            (own, 0)
        );
        if own == 0 {
            let whole = after.total.released_blocks[10] as usize;
            assert_eq!(
                whole,
                after.total.frontier_pages / 1024,
                "zones are whole again"
            );
        }
    }
}

fn world(nodes: u8, limit: usize) -> Setup {
    Setup {
        page_size: crate::base::PageSize::new(PAGE).expect("a page size"),
        cpus: 3,
        nodes,
        memory_limit: limit,
        poison: true,
        ..Setup::default()
    }
}

fn config(policy: Policy, span: usize) -> PageConfig {
    PageConfig {
        span_bytes: span,
        span_bytes_min: span,
        retention: Retention {
            min_bytes: 64 * PAGE,
            share: 64,
        },
        ..PageConfig::of(&policy)
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 96 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_keep_every_invariant(
        ops in proptest::collection::vec(op(), 1..if cfg!(miri) { 40 } else { 400 }),
        bounded in any::<bool>(),
        nodes in 1u8..=2,
    ) {
        let blocks = if cfg!(miri) { 2 } else { 6 };
        let mut run = Run::new(
            world(nodes, 64 << 20),
            &config(if bounded { Policy::default() } else { plain() }, blocks * 1024 * PAGE),
        );
        for op in &ops {
            run.step(op);
            run.check();
        }
        run.end();
    }
}

/// Every program of `depth` steps over a zone of `span` pages without pagesets' help.
fn every_program(span: usize, depth: u32, choices: usize) {
    let mut config = config(plain(), span * PAGE);
    config.policy.pcp_batch_set = Some(1);
    config.policy.pcp_high_min_set = Some(0);
    config.policy.pcp_high_max_set = Some(0);
    config.retention = Retention {
        min_bytes: 2 * PAGE,
        share: 0,
    };
    for program in 0..choices.pow(depth) {
        let mut run = Run::new(world(1, 1 << 20), &config);
        let mut rest = program;
        for _ in 0..depth {
            run.step(&match rest % choices {
                pages @ 0..4 => Op::Run {
                    pages: pages + 1,
                    node: 0,
                },
                4 => Op::Free { which: 0 },
                5 => Op::Free { which: 1 },
                6 => Op::Grow { which: 0, by: 1 },
                _ => Op::Shrink { which: 0, to: 0 },
            });
            run.check();
            rest /= choices;
        }
        run.world.refuse_after(None);
    }
}

#[test]
fn every_short_program_of_a_zone_of_eight_pages_keeps_every_invariant() {
    every_program(8, if cfg!(miri) { 2 } else { 5 }, 8);
}

#[test]
fn a_zone_of_eleven_pages_uses_its_odd_end() {
    every_program(11, if cfg!(miri) { 2 } else { 4 }, 8);
    let (_world, pages) = built(world(1, 1 << 20), &config(plain(), 11 * PAGE));
    let blocks: Vec<_> =
        core::iter::from_fn(|| pages.alloc_block(Order::ZERO, NodeId(0))).collect();
    assert_eq!(blocks.len(), 11);
}

#[test]
fn threads_on_three_cpus_never_share_a_page() {
    let rounds = if cfg!(miri) { 60 } else { 20_000 };
    let setup = world(2, 64 << 20);
    let (world, pages) = built(setup, &config(Policy::default(), 8 * 1024 * PAGE));
    std::thread::scope(|scope| {
        for cpu in 0..3u64 {
            let (world, pages) = (Arc::clone(&world), &pages);
            scope.spawn(move || {
                world.enter(CpuId(cpu as u32));
                let mut live: Vec<Live> = Vec::new();
                let mut random = 0x9e37_79b9_7f4a_7c15u64 ^ (cpu << 7);
                for round in 0..rounds {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let pick = (random >> 16) as usize;
                    if random & 3 < 2 && live.len() < 200 || live.is_empty() {
                        let count = if pick.is_multiple_of(16) {
                            pick % 300 + 1
                        } else {
                            1 << (pick % 4)
                        };
                        let node = NodeId((pick >> 20) as u8 & 1);
                        let Some(block) = pages.alloc_run(PageCount(count), node) else {
                            continue;
                        };
                        let stamp = (cpu << 60) + (round << 20);
                        live.push(Live {
                            pfn: block.pfn,
                            pages: count,
                            stamp,
                        });
                        stamp_all(pages, live.last().expect("just pushed"), 0);
                    } else {
                        let gone = live.swap_remove(pick % live.len());
                        check_stamps(pages, &gone, 0, gone.pages);
                        // SAFETY: this thread's own block, freed once.
                        unsafe { pages.free_run(gone.pfn, PageCount(gone.pages)) };
                    }
                    if pick.is_multiple_of(4096) {
                        pages.trim(0);
                    }
                }
                for gone in live {
                    check_stamps(pages, &gone, 0, gone.pages);
                    // SAFETY: as above.
                    unsafe { pages.free_run(gone.pfn, PageCount(gone.pages)) };
                }
            });
        }
    });
    assert_eq!(check_pages(&pages), Ok(()));
    pages.trim(0);
    assert_eq!(check_pages(&pages), Ok(()));
    assert_eq!(pages.snapshot().total.in_use_pages, 0);
}
