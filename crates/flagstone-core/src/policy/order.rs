//! Slab order: how many pages one slab of a cache gets.
//!
//! ```text
//!   block  [ o0 | o1 | o2 | ... | on-1 | tail ]
//!          <------- objects * size ---->
//!          <----- page size << order -------->
//! ```
//!
//! Five published rules over the same four numbers: object stride, page size, the order limits
//! and the smallest number of objects worth a slab. All are integer searches over at most eleven
//! orders; nothing is cached because a cache asks once, when it is created.
//!
//! Not here: how big an object's stride is (`layout`), how many objects are wanted (`Policy`).
#![forbid(unsafe_code)]

use crate::base::{Order, PageCount, PageSize};

/// A slab's object count is a 15-bit field (docs: linux-policies 1.4).
pub const OBJECTS_PER_SLAB_MAX: usize = 32_767;

/// What one slab of a cache looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlabShape {
    /// Order of the block the slab is cut from.
    pub order: Order,
    /// Pages the slab keeps: `1 << order`, or fewer where a policy gives the block's end back.
    pub pages: PageCount,
    /// Objects in the slab.
    pub objects: u32,
    /// Bytes behind the last object that no object can use.
    pub tail_bytes: usize,
}

impl SlabShape {
    /// The shape of a whole block of `order` filled with objects of stride `size` bytes.
    #[must_use]
    pub const fn of_block(order: Order, size: usize, page_size: PageSize) -> Self {
        let block = page_size.block_bytes(order);
        Self {
            order,
            pages: order.pages(),
            objects: (block / size) as u32,
            tail_bytes: block % size,
        }
    }

    /// Bytes one slab takes from the page layer.
    #[must_use]
    pub const fn bytes(&self, page_size: PageSize) -> usize {
        self.pages.bytes(page_size)
    }
}

/// A published rule that picks a slab's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderRule {
    /// 2.6.24: fractions 1/8 and 1/4, the wanted objects halved when nothing fits
    /// (docs: linux-policies 1.3).
    A0,
    /// 2.6.26 to 6.6: fractions 1/16, 1/8, 1/4, the wanted objects counted down
    /// (docs: linux-policies 1.4).
    A,
    /// 6.7 and later: fractions 1/16 to 1/2 over one range of orders (docs: linux-policies 1.5).
    B,
    /// Jay Patel's RFC of June 2023 as published: the order with the smallest tail. Finds no
    /// order at all for objects larger than a block of the largest slab order
    /// (docs: linux-policies 1.7).
    LeastWaste,
    /// The same with that defect repaired: such objects get the smallest order that holds one.
    LeastWasteRepaired,
    /// The SLAB allocator of 2.6.24: management data inside or beside the slab
    /// (`slab2007`).
    Slab2007,
}

/// The numbers an order rule works from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderQuery {
    /// Object stride in bytes, metadata and alignment included; not zero.
    pub size: usize,
    /// Page size.
    pub page_size: PageSize,
    /// Smallest order allowed (`slab_min_order`).
    pub min_order: Order,
    /// Largest order the rule should choose (`slab_max_order`); one object may still need more.
    pub max_order: Order,
    /// Objects wanted per slab.
    pub min_objects: u32,
}

impl OrderRule {
    /// The order this rule chooses, or `None` if it finds none (the kernel's `-ENOSYS`).
    #[must_use]
    pub fn order(self, q: &OrderQuery) -> Option<Order> {
        let order = match self {
            Self::A0 => order_a0(q),
            Self::A => order_a(q),
            Self::B => order_b(q),
            Self::LeastWaste => order_least_waste(q),
            Self::LeastWasteRepaired => order_least_waste(q).or_else(|| fits_one(q)),
            Self::Slab2007 => super::slab2007::order(q.size, q.page_size, q.min_order),
        };
        order.and_then(Order::new)
    }
}

/// Smallest order as a plain number whose block holds `bytes`.
fn get_order(q: &OrderQuery, bytes: usize) -> u32 {
    // Beyond the largest order the exact value does not matter, only that it is too large.
    if bytes > q.page_size.block_bytes(Order::MAX) {
        Order::MAX.get() + 1
    } else {
        q.page_size.order_for(bytes.max(1)).get()
    }
}

const fn objects_in(q: &OrderQuery, order: u32) -> usize {
    (q.page_size.bytes() << order) / q.size
}

const fn rem(q: &OrderQuery, order: u32) -> usize {
    (q.page_size.bytes() << order) % q.size
}

/// The order at which a slab holds no more than the count field can say, if `order` does not.
fn capped_by_count(q: &OrderQuery, order: u32) -> Option<u32> {
    (objects_in(q, order) > OBJECTS_PER_SLAB_MAX)
        .then(|| get_order(q, q.size.saturating_mul(OBJECTS_PER_SLAB_MAX)).saturating_sub(1))
}

/// First order in `lo..=hi` whose tail is at most `1/fraction` of the block.
fn first_within(q: &OrderQuery, lo: u32, hi: u32, fraction: usize) -> Option<u32> {
    (lo..=hi).find(|&order| rem(q, order) <= (q.page_size.bytes() << order) / fraction)
}

fn order_a0(q: &OrderQuery) -> Option<u32> {
    let max = q.max_order.get();
    let search = |objects: usize, hi: u32, fraction: usize| {
        let lo = q.min_order.get().max(get_order(q, objects * q.size));
        first_within(q, lo, hi, fraction)
    };
    let mut wanted = q.min_objects as usize;
    while wanted > 1 {
        for fraction in [8, 4] {
            if let Some(order) = search(wanted, max, fraction) {
                return Some(order);
            }
        }
        wanted /= 2;
    }
    search(1, max, 1).or_else(|| search(1, Order::MAX.get(), 1))
}

fn order_a(q: &OrderQuery) -> Option<u32> {
    let max = q.max_order.get();
    let search = |objects: usize, hi: u32, fraction: usize| {
        let lo = q.min_order.get().max(get_order(q, objects * q.size));
        first_within(q, lo, hi, fraction)
    };
    // The published search answers this before it looks at anything else, at every call.
    if let Some(order) = capped_by_count(q, q.min_order.get()) {
        return Some(order);
    }
    let mut wanted = (q.min_objects as usize).min(objects_in(q, max));
    while wanted > 1 {
        for fraction in [16, 8, 4] {
            if let Some(order) = search(wanted, max, fraction) {
                return Some(order);
            }
        }
        wanted -= 1;
    }
    search(1, max, 1).or_else(|| search(1, Order::MAX.get(), 1))
}

fn order_b(q: &OrderQuery) -> Option<u32> {
    let max = q.max_order.get();
    let wanted = (q.min_objects as usize).min(objects_in(q, max).max(1));
    let lo = q.min_order.get().max(get_order(q, wanted * q.size));
    let by_count = (lo <= Order::MAX.get()).then(|| capped_by_count(q, lo));
    let mut by_waste = [16, 8, 4, 2].into_iter();
    (by_count.flatten())
        .or_else(|| by_waste.find_map(|fraction| first_within(q, lo, max, fraction)))
        .or_else(|| Some(get_order(q, q.size)))
}

fn order_least_waste(q: &OrderQuery) -> Option<u32> {
    let max = q.max_order.get();
    if let Some(order) = capped_by_count(q, q.min_order.get()) {
        return Some(order);
    }
    let best = |objects: usize, hi: u32| {
        let lo = q.min_order.get().max(get_order(q, objects * q.size));
        // `min_by_key` keeps the first of equals: the lower order.
        (lo..=hi).min_by_key(|&order| rem(q, order))
    };
    let mut wanted = (q.min_objects as usize).min(objects_in(q, max));
    while wanted >= 1 {
        if let Some(order) = best(wanted, max) {
            return Some(order);
        }
        wanted -= 1;
    }
    // The last resort searches every order but accepts only those up to the slab limit: that is
    // the published defect, kept here because this rule is the one as published.
    best(1, Order::MAX.get()).filter(|&order| order <= max)
}

fn fits_one(q: &OrderQuery) -> Option<u32> {
    Some(q.min_order.get().max(get_order(q, q.size)))
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
