//! Slab order: how many pages one slab of a cache gets.
//!
//! ```text
//!   block  [ o0 | o1 | o2 | ... | on-1 | tail ]
//!          <------- objects * size ---->
//!          <----- page size << order -------->
//! ```
//!
//! A rule searches at most eleven orders by object stride, page size, order limits and the fewest objects worth a slab.
//! Nothing is cached: a cache asks once, when it is made. Other rules are the guests' (`flagstone-kernels`).
//!
//! Not here: how big an object's stride is (`layout`), how many objects are wanted (`Policy`).
#![forbid(unsafe_code)]

use crate::base::{Order, PageCount, PageSize};
use core::fmt;

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

/// A rule that picks a slab's order. Two are the same if their names are.
#[derive(Clone, Copy)]
pub struct OrderRule {
    /// Its name.
    pub name: &'static str,
    /// The order as a plain number, or `None` if it finds none (the kernel's `-ENOSYS`).
    pub search: fn(&OrderQuery) -> Option<u32>,
    /// What a slab of that order looks like, for objects of a stride.
    pub shape: fn(Order, usize, PageSize) -> SlabShape,
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
    /// 6.7 and later: fractions 1/16 to 1/2 over one range of orders (docs: linux-policies 1.5).
    pub const B: Self = Self::of_blocks("b", order_b);

    /// A rule whose slabs are whole blocks filled with objects.
    #[must_use]
    pub const fn of_blocks(name: &'static str, search: fn(&OrderQuery) -> Option<u32>) -> Self {
        Self {
            name,
            search,
            shape: SlabShape::of_block,
        }
    }

    /// The order this rule chooses, or `None` if it finds none.
    #[must_use]
    pub fn order(&self, q: &OrderQuery) -> Option<Order> {
        (self.search)(q).and_then(Order::new)
    }
}

impl PartialEq for OrderRule {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for OrderRule {}

impl fmt::Debug for OrderRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl OrderQuery {
    /// Smallest order as a plain number whose block holds `bytes`.
    #[must_use]
    pub fn order_of(&self, bytes: usize) -> u32 {
        // Beyond the largest order the exact value does not matter, only that it is too large.
        if bytes > self.page_size.block_bytes(Order::MAX) {
            Order::MAX.get() + 1
        } else {
            self.page_size.order_for(bytes.max(1)).get()
        }
    }

    /// The same for `objects` of them, and no order below the smallest allowed.
    #[must_use]
    pub fn least_order(&self, objects: usize) -> u32 {
        self.min_order.get().max(self.order_of(objects * self.size))
    }

    /// Objects in a block.
    #[must_use]
    pub const fn objects_in(&self, order: u32) -> usize {
        (self.page_size.bytes() << order) / self.size
    }

    /// Bytes behind the last of them.
    #[must_use]
    pub const fn tail(&self, order: u32) -> usize {
        (self.page_size.bytes() << order) % self.size
    }

    /// The order at which a slab holds no more than the count field can say, if `order` does not.
    #[must_use]
    pub fn capped_by_count(&self, order: u32) -> Option<u32> {
        (self.objects_in(order) > OBJECTS_PER_SLAB_MAX).then(|| {
            self.order_of(self.size.saturating_mul(OBJECTS_PER_SLAB_MAX))
                .saturating_sub(1)
        })
    }

    /// First order in `lo..=hi` whose tail is at most `1/fraction` of the block.
    #[must_use]
    pub fn first_within(&self, lo: u32, hi: u32, fraction: usize) -> Option<u32> {
        (lo..=hi).find(|&order| self.tail(order) <= (self.page_size.bytes() << order) / fraction)
    }
}

fn order_b(q: &OrderQuery) -> Option<u32> {
    let max = q.max_order.get();
    let wanted = (q.min_objects as usize).min(q.objects_in(max).max(1));
    let lo = q.least_order(wanted);
    let by_count = (lo <= Order::MAX.get()).then(|| q.capped_by_count(lo));
    let mut by_waste = [16, 8, 4, 2].into_iter();
    (by_count.flatten())
        .or_else(|| by_waste.find_map(|fraction| q.first_within(lo, max, fraction)))
        .or_else(|| Some(q.order_of(q.size)))
}
