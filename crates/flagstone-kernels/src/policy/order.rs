//! The order rules of kernels before 6.7, and two that were proposed.

use super::slab2007;
use flagstone_core::base::Order;
use flagstone_core::policy::{OrderQuery, OrderRule};

/// 2.6.24: fractions 1/8 and 1/4, the wanted objects halved when nothing fits (docs: linux-policies 1.3).
pub const A0: OrderRule = OrderRule::of_blocks("a0", order_a0);

/// 2.6.26 to 6.6: fractions 1/16, 1/8, 1/4, the wanted objects counted down (docs: linux-policies 1.4).
pub const A: OrderRule = OrderRule::of_blocks("a", order_a);

/// Jay Patel's RFC of June 2023 as published: the order with the smallest tail. Finds no order at all for objects
/// larger than a block of the largest slab order (docs: linux-policies 1.7).
pub const LEAST_WASTE: OrderRule = OrderRule::of_blocks("least-waste", order_least_waste);

/// The same with that defect repaired: such objects get the smallest order that holds one.
pub const LEAST_WASTE_REPAIRED: OrderRule = OrderRule::of_blocks("least-waste-repaired", |q| {
    order_least_waste(q).or_else(|| fits_one(q))
});

/// The SLAB allocator of 2.6.24: management data inside or beside the slab.
pub const SLAB: OrderRule = OrderRule {
    name: "slab",
    search: slab2007::order,
    shape: slab2007::shape,
};

fn order_a0(q: &OrderQuery) -> Option<u32> {
    let max = q.max_order.get();
    let search = |objects: usize, hi: u32, fraction: usize| {
        let lo = q.least_order(objects);
        q.first_within(lo, hi, fraction)
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
        let lo = q.least_order(objects);
        q.first_within(lo, hi, fraction)
    };
    // The published search answers this before it looks at anything else, at every call.
    if let Some(order) = q.capped_by_count(q.min_order.get()) {
        return Some(order);
    }
    let mut wanted = (q.min_objects as usize).min(q.objects_in(max));
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

fn order_least_waste(q: &OrderQuery) -> Option<u32> {
    let max = q.max_order.get();
    if let Some(order) = q.capped_by_count(q.min_order.get()) {
        return Some(order);
    }
    let best = |objects: usize, hi: u32| {
        let lo = q.least_order(objects);
        // `min_by_key` keeps the first of equals: the lower order.
        (lo..=hi).min_by_key(|&order| q.tail(order))
    };
    let mut wanted = (q.min_objects as usize).min(q.objects_in(max));
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
    Some(q.least_order(1))
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
