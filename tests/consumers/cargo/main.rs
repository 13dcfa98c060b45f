//! What a Rust program does with the crate.

#[global_allocator]
static ALLOCATOR: flagstone::Flagstone = flagstone::Flagstone;

struct Order {
    lines: Vec<u32>,
}

static ORDERS: flagstone::Cache<Order> = flagstone::Cache::new("order");

unsafe extern "C" {
    safe fn malloc(size: usize) -> *mut u8;
    fn free(block: *mut u8);
}

/// Whether a block of the C library's malloc is one of ours.
fn shares_the_heap() -> bool {
    let before = flagstone::statistics().in_use;
    let block = malloc(8 << 20);
    let after = flagstone::statistics().in_use;
    // SAFETY: live, and not used again.
    unsafe { free(block) };
    after >= before + (8 << 20)
}

fn main() {
    let orders: Vec<_> = (0..1000u32)
        .map(|n| ORDERS.alloc(Order { lines: vec![n; 20] }).ok().unwrap())
        .collect();
    let sum: u32 = orders.iter().map(|order| order.lines[19]).sum();
    assert_eq!(sum, 499_500);
    drop(orders);
    let threads: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(|| (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>().len()))
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 10_000));
    println!("shared with C: {}", shares_the_heap());
}
