//! A heap on the real Linux world: blocks do not overlap, keep what was written, come back.

use flagstone_core::heap::Heap;
use flagstone_linux::Linux;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::mpsc;

static HEAP: Heap<Linux> = Heap::new();

fn start() -> &'static Heap<Linux> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(flagstone_linux::init);
    &HEAP
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn size(&mut self) -> usize {
        let bits = self.next() % 23;
        (self.next() as usize) % (1usize << bits) + 1
    }
}

fn fill(block: NonNull<u8>, size: usize, mark: u8) {
    // SAFETY: the block has `size` bytes.
    unsafe { block.write_bytes(mark, size.min(4096)) };
    // SAFETY: as above.
    unsafe { block.add(size - 1).write(mark) };
}

fn check(block: NonNull<u8>, size: usize, mark: u8) {
    // SAFETY: the block has `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), size.min(4096)) };
    assert!(
        bytes.iter().all(|&b| b == mark),
        "a block of {size} bytes was overwritten"
    );
    // SAFETY: as above.
    assert_eq!(unsafe { block.add(size - 1).read() }, mark);
}

#[test]
fn random_blocks_keep_what_was_written() {
    let heap = start();
    let mut rng = Rng(42);
    let mut live: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
    for step in 0..300_000u32 {
        let grow = live.len() < 2000 && rng.next() % 100 < 55;
        if grow || live.is_empty() {
            let size = rng.size();
            let block = heap.alloc(size).expect("memory");
            assert_eq!(block.as_ptr() as usize % 16, 0);
            let mark = step as u8;
            fill(block, size, mark);
            live.push((block, size, mark));
        } else {
            let at = rng.next() as usize % live.len();
            let (block, size, mark) = live.swap_remove(at);
            check(block, size, mark);
            if rng.next().is_multiple_of(8) {
                let new_size = rng.size();
                // SAFETY: the block is live and given up for the new one.
                let moved = unsafe { heap.realloc(block, new_size) }.expect("memory");
                check_prefix(moved, size.min(new_size), mark);
                fill(moved, new_size, mark);
                live.push((moved, new_size, mark));
            } else {
                // SAFETY: live, and not used again.
                unsafe { heap.free(block.as_ptr()) };
            }
        }
    }
    for (block, size, mark) in live {
        check(block, size, mark);
        // SAFETY: as above.
        unsafe { heap.free(block.as_ptr()) };
    }
    heap.trim(0);
}

fn check_prefix(block: NonNull<u8>, size: usize, mark: u8) {
    // SAFETY: the block has at least `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), size.min(4096)) };
    // Only what `fill` wrote: the first page's worth.
    assert!(
        bytes.iter().all(|&b| b == mark),
        "realloc lost the contents"
    );
}

#[test]
fn aligned_blocks_are_aligned() {
    let heap = start();
    for shift in 0..24 {
        for size in [0, 1, 17, 100, 1000, 5000, 70_000, 5 << 20] {
            let block = heap.alloc_aligned(1 << shift, size).expect("memory");
            assert_eq!(
                block.as_ptr() as usize % (1 << shift),
                0,
                "{size} at 2^{shift}"
            );
            // SAFETY: just allocated.
            assert!(unsafe { heap.usable_size(block.as_ptr()) } >= size);
            // SAFETY: as above.
            unsafe { heap.free(block.as_ptr()) };
        }
    }
}

#[test]
fn blocks_travel_between_threads() {
    let heap = start();
    struct Parcel(NonNull<u8>, usize, u8);
    // SAFETY: a block may be freed by any thread.
    unsafe impl Send for Parcel {}
    let (to, from) = mpsc::sync_channel::<Parcel>(512);
    let from = std::sync::Mutex::new(from);
    std::thread::scope(|scope| {
        for seed in 1..4 {
            let to = to.clone();
            scope.spawn(move || {
                let mut rng = Rng(seed);
                for n in 0..100_000u32 {
                    let size = (rng.next() % 5000 + 1) as usize;
                    let block = heap.alloc(size).expect("memory");
                    fill(block, size, n as u8);
                    to.send(Parcel(block, size, n as u8)).expect("open");
                }
            });
        }
        drop(to);
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last: HashMap<usize, usize> = HashMap::new();
                loop {
                    let next = from.lock().expect("fine").recv();
                    let Ok(Parcel(block, size, mark)) = next else {
                        break;
                    };
                    check(block, size, mark);
                    last.insert(block.as_ptr() as usize, size);
                    // SAFETY: received, so ours.
                    unsafe { heap.free(block.as_ptr()) };
                }
            });
        }
    });
}
