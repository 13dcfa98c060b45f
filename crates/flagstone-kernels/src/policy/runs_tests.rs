use super::*;

/// The default policy with slabs by the order rule.
fn plain() -> Policy {
    Policy {
        runs: Runs::ByOrder,
        ..Policy::default()
    }
}

fn flagstone() -> Policy {
    Policy::default()
}

/// What a cache holds once it has grown to `objects`.
fn grown(size: usize, page: PageSize, cpus: u32, objects: u64) -> Population {
    flagstone()
        .population(size, page, Cpus::new(cpus), objects)
        .unwrap()
}

/// The slab it would get next.
fn next(size: usize, page: PageSize, cpus: u32, objects: u64) -> SlabShape {
    let held = grown(size, page, cpus, objects);
    flagstone()
        .next_slab(size, page, Cpus::new(cpus), &held)
        .unwrap()
}

#[test]
fn a_first_slab_is_short_and_grows_with_its_cache() {
    let pages = |objects| next(256, PageSize::K4, 64, objects).pages.0;
    assert_eq!(pages(0), 1);
    assert_eq!(pages(100_000), 2, "as many as the order rule gives");
}

#[test]
fn five_units_of_640_byte_objects_have_no_tail() {
    let shape = next(640, PageSize::K4, 160, 0);
    assert_eq!((shape.pages.0, shape.objects, shape.tail_bytes), (5, 32, 0));
    assert_eq!(shape.order.get(), 3, "the block it is cut from");
    // Three pages are what is left of the order rule's eight, and hold what is left of its 51.
    let rest = next(640, PageSize::K4, 160, 32);
    assert_eq!((rest.pages.0, rest.objects), (3, 19));
}

#[test]
fn tails_that_add_up_pay_for_longer_runs_without_them() {
    // 5-page runs do not divide the order rule's 8 pages, so that ending the tails costs memory
    // for a while; a large cache does it and is smaller in the end.
    let fixed = plain();
    let cpus = Cpus::new(160);
    let large = grown(640, PageSize::K4, 160, 51 * 400);
    let base = fixed.population(640, PageSize::K4, cpus, 51 * 400).unwrap();
    assert!(large.tail_bytes < base.tail_bytes / 10, "{large:?}");
    assert!(large.bytes < base.bytes, "{large:?} {base:?}");
}

#[test]
fn no_cache_takes_more_than_under_the_order_rule_but_for_its_credit() {
    let cpus = Cpus::new(16);
    for page in [PageSize::K4, PageSize::K16, PageSize::K64] {
        for size in (8..=3 * page.bytes()).step_by(page.bytes() / 61) {
            let fixed = flagstone().slab_shape(size, page, cpus).unwrap();
            let credit = 4 * flagstone().slab_unit(page).bytes() as u64;
            let mut held = Population::default();
            while held.objects < 12 * u64::from(fixed.objects) {
                let slabs = held.objects / u64::from(fixed.objects) + 1;
                let shape = flagstone().next_slab(size, page, cpus, &held).unwrap();
                held.add(&shape, flagstone().slab_unit(page), 1);
                let most = slabs * fixed.bytes(page) as u64;
                let excess = held.bytes.saturating_sub(most);
                assert!(excess <= credit, "{size} of {}: {held:?}", page.bytes());
            }
        }
    }
}

#[test]
fn large_pages_are_shared_by_small_caches() {
    let policy = flagstone();
    assert_eq!(policy.slab_unit(PageSize::K64).bytes(), 256);
    assert_eq!(policy.slab_unit(PageSize::K4), PageSize::K4);
    let three = grown(256, PageSize::K64, 160, 3);
    assert_eq!((three.bytes, three.tail_bytes), (16_384, 0));
}

#[test]
fn every_run_holds_its_objects_and_stays_within_a_block_of_order_three() {
    let policy = flagstone();
    for page in [PageSize::K4, PageSize::K16, PageSize::K64] {
        let unit = policy.slab_unit(page);
        for size in (8..=2 * page.bytes()).step_by(page.bytes() / 100) {
            for live in [0, 10, 1000, 1_000_000] {
                let shape = next(size, page, 224, live);
                let bytes = shape.bytes(unit);
                assert_eq!(bytes, shape.objects as usize * size + shape.tail_bytes);
                assert!(shape.objects > 0 && shape.tail_bytes < size);
                assert!(bytes <= page.block_bytes(Order::COSTLY));
                assert!(bytes <= page.block_bytes(shape.order));
            }
        }
    }
}

#[test]
fn an_object_larger_than_any_slab_gets_its_own_run() {
    let shape = next(40_960, PageSize::K4, 2, 5);
    assert_eq!((shape.pages.0, shape.objects, shape.tail_bytes), (10, 1, 0));
    assert_eq!(shape.order.get(), 4);
    let none = Population::default();
    assert_eq!(
        flagstone().next_slab(8 << 20, PageSize::K4, Cpus::new(2), &none),
        None
    );
}

#[test]
fn a_slab_taken_away_again_leaves_what_was() {
    let before = grown(640, PageSize::K4, 16, 100);
    let shape = next(640, PageSize::K4, 16, 100);
    let mut held = before;
    held.add(&shape, PageSize::K4, 1);
    assert_ne!(held, before);
    held.remove(&shape, PageSize::K4);
    assert_eq!(held, before);
}

#[test]
fn a_fixed_shape_costs_whole_slabs() {
    let policy = plain();
    let got = policy
        .population(1536, PageSize::K64, Cpus::new(160), 43)
        .unwrap();
    assert_eq!(
        got,
        Population {
            slabs: 2,
            bytes: 131_072,
            tail_bytes: 2048,
            objects: 84
        }
    );
    assert_eq!(
        policy.population(1536, PageSize::K64, Cpus::new(160), 0),
        Some(Population::default())
    );
    let spread = policy
        .population_spread(1536, PageSize::K64, Cpus::new(160), 43)
        .unwrap();
    assert_eq!(spread.slabs, 43, "every object on a CPU of its own");
}

#[test]
fn slack_stays_small_beside_a_large_cache() {
    for size in [24, 192, 640, 1536, 4096] {
        for objects in [5_000, 100_000, 3_000_000] {
            let got = grown(size, PageSize::K4, 16, objects);
            let needed = objects * size as u64;
            assert!(got.objects >= objects);
            assert!(
                got.bytes <= needed + needed / 32 + 65_536,
                "{size} x {objects}: {got:?}"
            );
        }
    }
}
