//! The SLAB allocator of 2.6.24, the peer of the 2007 comparison: slab shape.
//!
//! ```text
//!   small objects   [ header | u32 index per object | o0 | o1 | ... | left over ]
//!   size >= page/8  [ o0 | o1 | ... | left over ]      header and indexes kept elsewhere
//! ```
//!
//! Source: the author's knowledge of that kernel (64-bit, more than 32 MiB of memory); no figure
//! here could be checked against a running one, so read it as weaker evidence than the rest.

use flagstone_core::base::{Order, PageSize};
use flagstone_core::policy::{OrderQuery, SlabShape};

/// Bytes of the per-slab header on a 64-bit machine: two links, colour, first object, two
/// counters, node.
pub const HEADER_BYTES: usize = 48;
/// Bytes of one entry of the index list that links free objects.
pub const INDEX_BYTES: usize = 4;
/// Orders above this are tried only until one object fits (machines with more than 32 MiB).
const BREAK_ORDER: u32 = 1;

/// Whether header and indexes live outside the slab.
#[must_use]
pub const fn off_slab(size: usize, page_size: PageSize) -> bool {
    size >= page_size.bytes() / 8
}

/// Objects in a block of `order`, and the bytes left over.
#[must_use]
pub const fn estimate(size: usize, page_size: PageSize, order: Order) -> (usize, usize) {
    let block = page_size.block_bytes(order);
    if off_slab(size, page_size) {
        return (block / size, block % size);
    }
    let mut objects = (block - HEADER_BYTES) / (size + INDEX_BYTES);
    // Rounding the management area up to a word may cost the last object.
    if management(objects) + objects * size > block {
        objects -= 1;
    }
    (objects, block - management(objects) - objects * size)
}

const fn management(objects: usize) -> usize {
    (HEADER_BYTES + objects * INDEX_BYTES).next_multiple_of(8)
}

/// First order that holds an object and either wastes at most an eighth or is high enough.
pub(super) fn order(q: &OrderQuery) -> Option<u32> {
    (q.min_order.get()..=Order::MAX.get()).find(|&order| {
        let Some(kind) = Order::new(order) else {
            return false;
        };
        let (objects, left) = estimate(q.size, q.page_size, kind);
        objects > 0 && (order >= BREAK_ORDER || left * 8 <= q.page_size.block_bytes(kind))
    })
}

/// A slab of that order.
pub(super) fn shape(order: Order, size: usize, page_size: PageSize) -> SlabShape {
    let (objects, tail_bytes) = estimate(size, page_size, order);
    SlabShape {
        objects: objects as u32,
        tail_bytes,
        ..SlabShape::of_block(order, size, page_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_slabs_carry_their_own_management() {
        let (objects, left) = estimate(32, PageSize::K4, Order::ZERO);
        assert_eq!((objects, left), (112, 4096 - 112 * 32 - 496));
        assert_eq!(estimate(512, PageSize::K4, Order::ZERO), (8, 0));
    }
}
