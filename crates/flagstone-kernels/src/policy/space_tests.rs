//! Every rule over the whole space of what may be asked: no panic, and answers that hold together.

use super::{BASES, MODIFIERS, Named, Populations};
use flagstone_core::base::*;
use flagstone_core::policy::*;
use proptest::prelude::*;
use std::borrow::ToOwned as _;
use std::string::{String, ToString as _};

/// A policy of any base with up to two modifiers.
fn policy() -> impl Strategy<Value = (String, Policy)> {
    let modifiers = prop::collection::vec(0..MODIFIERS.len(), 0..3);
    (0..BASES.len(), modifiers).prop_map(|(base, modifiers)| {
        let mut name = BASES[base].0.to_owned();
        for index in modifiers {
            name += "+";
            name += MODIFIERS[index].0;
        }
        let policy = Policy::parse(&name).unwrap();
        (name, policy)
    })
}

fn page_size() -> impl Strategy<Value = PageSize> {
    (12_u32..=16).prop_map(|shift| PageSize::new(1 << shift).unwrap())
}

/// Sizes near powers of two and page fractions as often as any others.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        1_usize..=4 << 20,
        1_usize..=8192,
        (3_u32..22, -3_isize..=3).prop_map(|(shift, off)| ((1_isize << shift) + off) as usize),
        (1_usize..400, 12_u32..=16).prop_map(|(part, shift)| ((1 << shift) * 8 / part).max(1)),
    ]
}

fn cpus() -> impl Strategy<Value = Cpus> {
    (1_u32..=8192, 1_u32..=8192, 1_u32..=8192).prop_map(|(a, b, c)| {
        let mut counts = [a, b, c];
        counts.sort_unstable();
        let [online, present, possible] = counts;
        Cpus {
            possible,
            present,
            online,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_answers_for_every_size_page_and_cpu_count(
        (name, policy) in policy(),
        page in page_size(),
        size in size(),
        cpus in cpus(),
        min_order in prop::option::of(0_u32..=10),
        objects in 0_u64..100_000,
    ) {
        let mut policy = policy;
        if let Some(order) = min_order {
            policy.set("slab_min_order", &order.to_string()).unwrap();
        }
        let _ = policy.min_partial(size);
        let capacity = policy.sheaf_capacity(size, page).unwrap_or(0);
        let _ = policy.barn_limits(size, capacity);
        let unit = policy.slab_unit(page);
        let Some(shape) = policy.slab_shape(size, page, cpus) else {
            // Only the published defects and what no block can hold find no order.
            let refused = policy.order_rule == crate::policy::order::LEAST_WASTE
                || policy.order_rule == crate::policy::order::SLAB
                || size > page.block_bytes(Order::MAX);
            prop_assert!(refused, "{name} has no order for {size}");
            return Ok(());
        };
        prop_assert!(shape.bytes(page) <= page.block_bytes(Order::MAX));
        prop_assert!(shape.objects as usize * size + shape.tail_bytes <= shape.bytes(page));
        if shape.objects == 0 {
            return Ok(());
        }
        let held = policy.population(size, page, cpus, objects).unwrap();
        prop_assert!(held.objects >= objects);
        let next = policy.next_slab(size, page, cpus, &held).unwrap();
        prop_assert!(next.objects > 0 && next.tail_bytes < size.max(shape.tail_bytes + 1));
        if policy.runs == Runs::ByPopulation {
            // No more than the order rule's slabs, but for the credit.
            let fixed = objects.div_ceil(shape.objects.into()) * shape.bytes(page) as u64;
            prop_assert!(
                held.bytes <= fixed + 4 * unit.bytes() as u64 || held.slabs > 512,
                "{name} {size} x {objects} on {page:?}: {held:?} against {fixed}"
            );
        }
    }

    #[test]
    fn every_policy_has_pageset_marks_for_every_zone(
        (_, policy) in policy(),
        page in page_size(),
        managed in 1_u64..1 << 48,
        low in 0_u64..1 << 44,
        cpus in 1_u32..=8192,
        high_fraction in prop_oneof![Just(0_u32), 8_u32..10_000],
    ) {
        let zone = PcpZone { managed, low, cpus, high_fraction, page_size: page };
        let marks = policy.pcp_marks(&zone);
        prop_assert!(marks.batch >= 1 && marks.high_min <= marks.high_max);
        let _ = policy.pcp_state::<crate::policy::KernelPages>(marks);
    }
}
