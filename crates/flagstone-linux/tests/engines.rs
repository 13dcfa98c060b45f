//! Every engine on real threads: objects keep what was written, none is handed out twice, and
//! the structures are whole afterwards.

use flagstone_core::base::CacheId;
use flagstone_core::heap::{Heap, HeapConfig};
use flagstone_core::page::PageConfig;
use flagstone_core::policy::Policy;
use flagstone_core::slab::{CacheRequest, Slabs};
use flagstone_core::verify;
use flagstone_kernels::Kernels;
use flagstone_kernels::Named;
use flagstone_linux::LinuxWith;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, mpsc};

/// Linux with every engine.
type Ours = LinuxWith<Kernels>;

const POLICIES: &[&str] = &[
    "linux-2.6.24",
    "linux-2.6.24+defer-contended-free+avoid-contended-slab",
    "slab-2.6.24",
    "linux-3.16",
    "linux-6.5",
    "linux-6.12",
    "linux-6.12+defer-contended-free+avoid-contended-slab",
    "linux-6.18",
    "linux-7.0",
    "flagstone",
];

fn start() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(flagstone_linux::init);
}

/// A slab allocator of its own, never ended: its memory is the test program's.
fn built(name: &str) -> &'static Slabs<Ours> {
    start();
    let policy = Policy::parse(name).expect("a known policy");
    let config = PageConfig {
        span_bytes: 256 << 20,
        policy,
        ..PageConfig::default()
    };
    let place = Box::leak(Box::new(MaybeUninit::uninit()));
    // SAFETY: the place is leaked, so it is ours and stays where it is.
    unsafe { Slabs::init(place.as_mut_ptr(), &config, &policy) }.expect("memory");
    // SAFETY: `init` succeeded.
    unsafe { place.assume_init_ref() }
}

fn cache(slabs: &Slabs<Ours>, size: usize) -> CacheId {
    slabs
        .create_cache(&CacheRequest::new("objects", size))
        .expect("a cache")
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// An object on its way between threads, with the mark it was filled with.
struct Marked {
    object: NonNull<u8>,
    mark: u8,
}

// SAFETY: the object belongs to whoever has this value.
unsafe impl Send for Marked {}

impl Marked {
    fn new(slabs: &Slabs<Ours>, id: CacheId, size: usize, mark: u8) -> Self {
        let object = slabs.alloc(slabs.cache(id)).expect("memory");
        // SAFETY: the object has `size` bytes and is ours.
        unsafe { object.write_bytes(mark, size) };
        Self { object, mark }
    }

    fn end(self, slabs: &Slabs<Ours>, id: CacheId, size: usize) {
        // SAFETY: live, with `size` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.object.as_ptr(), size) };
        assert!(
            bytes.iter().all(|&b| b == self.mark),
            "an object was overwritten"
        );
        // SAFETY: live, and given up.
        unsafe { slabs.free(slabs.cache(id), self.object) };
    }
}

fn settle(name: &str, slabs: &Slabs<Ours>, id: CacheId) {
    if let Err(broken) = verify::check_slabs(slabs) {
        panic!("{name}: {broken}");
    }
    assert_eq!(
        verify::live_objects(slabs, slabs.cache(id)),
        Ok(0),
        "{name}"
    );
    assert_eq!(slabs.destroy_cache(id), Ok(()), "{name}: objects were lost");
}

#[test]
fn threads_that_trade_objects_never_share_one() {
    for name in POLICIES {
        let slabs = built(name);
        for size in [16, 256, 1024] {
            let id = cache(slabs, size);
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..4).map(|_| mpsc::channel::<Marked>()).unzip();
            std::thread::scope(|scope| {
                for (thread, inbox) in receivers.into_iter().enumerate() {
                    let senders = senders.clone();
                    scope.spawn(move || {
                        let mut rng = Rng(thread as u64 * 77 + 5);
                        let mut own = Vec::new();
                        for step in 0..20_000 {
                            if own.len() < 200 && rng.below(100) < 60 {
                                own.push(Marked::new(slabs, id, size, step as u8));
                            } else if let Some(at) = own.len().checked_sub(1) {
                                let marked = own.swap_remove(rng.below(at + 1));
                                if rng.below(2) == 0 {
                                    senders[rng.below(4)].send(marked).expect("a receiver");
                                } else {
                                    marked.end(slabs, id, size);
                                }
                            }
                            for marked in inbox.try_iter().take(2) {
                                marked.end(slabs, id, size);
                            }
                        }
                        drop(senders);
                        own.into_iter().for_each(|m| m.end(slabs, id, size));
                        inbox.into_iter().for_each(|m| m.end(slabs, id, size));
                    });
                }
                drop(senders);
            });
            settle(name, slabs, id);
        }
    }
}

#[test]
fn one_thread_allocates_and_others_free() {
    for name in POLICIES {
        let slabs = built(name);
        let id = cache(slabs, 128);
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..3)
                .map(|_| {
                    let (sender, inbox) = mpsc::sync_channel::<Marked>(256);
                    scope.spawn(move || inbox.into_iter().for_each(|m| m.end(slabs, id, 128)));
                    sender
                })
                .collect();
            for step in 0..60_000 {
                let marked = Marked::new(slabs, id, 128, step as u8);
                senders[step % 3].send(marked).expect("a receiver");
            }
        });
        settle(name, slabs, id);
    }
}

#[test]
fn caches_may_be_shrunk_while_they_are_used() {
    for name in POLICIES {
        let slabs = built(name);
        let id = cache(slabs, 512);
        let gate = Barrier::new(3);
        let left = AtomicU64::new(2);
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let (gate, left) = (&gate, &left);
                scope.spawn(move || {
                    gate.wait();
                    let mut rng = Rng(thread + 9);
                    let mut own = Vec::new();
                    for step in 0..30_000 {
                        if own.is_empty() || (own.len() < 300 && rng.below(2) == 0) {
                            own.push(Marked::new(slabs, id, 512, step as u8));
                        } else {
                            own.swap_remove(rng.below(own.len())).end(slabs, id, 512);
                        }
                    }
                    own.into_iter().for_each(|m| m.end(slabs, id, 512));
                    left.fetch_sub(1, Relaxed);
                });
            }
            gate.wait();
            while left.load(Relaxed) > 0 {
                slabs.shrink_cache(slabs.cache(id));
                std::thread::yield_now();
            }
        });
        settle(name, slabs, id);
    }
}

#[test]
fn a_heap_runs_on_any_engine() {
    start();
    for name in POLICIES {
        let heap: &'static Heap<Ours> = Box::leak(Box::new(Heap::new()));
        let policy = Policy::parse(name).expect("a known policy");
        let config = HeapConfig {
            policy,
            span_bytes: 256 << 20,
        };
        assert_eq!(heap.init(&config), Ok(()), "{name}");
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                scope.spawn(move || {
                    let mut rng = Rng(thread * 31 + 3);
                    let mut live: Vec<(usize, usize, u8)> = Vec::new();
                    for step in 0..30_000usize {
                        if live.len() < 300 && rng.below(100) < 55 {
                            let bits = rng.below(15);
                            let size = rng.below(1 << bits) + 1;
                            let block = heap.alloc(size).expect("memory");
                            // SAFETY: the block has `size` bytes and is ours.
                            unsafe { block.write_bytes(step as u8, size) };
                            live.push((block.as_ptr() as usize, size, step as u8));
                        } else if !live.is_empty() {
                            let (block, size, mark) = live.swap_remove(rng.below(live.len()));
                            // SAFETY: live, with `size` bytes.
                            let bytes =
                                unsafe { std::slice::from_raw_parts(block as *const u8, size) };
                            assert!(bytes.iter().all(|&b| b == mark), "{name}");
                            // SAFETY: live, and given up.
                            unsafe { heap.free(block as *mut u8) };
                        }
                    }
                    for (block, _, _) in live {
                        // SAFETY: live, and given up.
                        unsafe { heap.free(block as *mut u8) };
                    }
                });
            }
        });
        heap.trim(0);
        let slabs = heap.ready().expect("built").slabs();
        if let Err(broken) = verify::check_slabs(slabs) {
            panic!("{name}: {broken}");
        }
        for cache in slabs.live_caches().skip(8) {
            assert_eq!(verify::live_objects(slabs, cache), Ok(0), "{name}");
        }
    }
}
