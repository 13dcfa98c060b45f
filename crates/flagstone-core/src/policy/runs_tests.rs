use super::*;

fn flagstone() -> Policy {
    Policy::parse("flagstone").unwrap()
}

#[test]
fn a_first_slab_is_short_and_grows_with_its_cache() {
    let policy = flagstone();
    let pages = |live| {
        policy
            .next_slab(200, PageSize::K4, Cpus::new(64), live)
            .unwrap()
            .pages
            .0
    };
    assert!(pages(0) <= 2, "{}", pages(0));
    assert!(pages(100_000) >= 4, "{}", pages(100_000));
}

#[test]
fn five_units_of_640_byte_objects_have_no_tail() {
    let shape = flagstone()
        .next_slab(640, PageSize::K4, Cpus::new(16), 1000)
        .unwrap();
    assert_eq!((shape.pages.0, shape.objects, shape.tail_bytes), (5, 32, 0));
    assert_eq!(shape.order.get(), 3, "the block it is cut from");
}

#[test]
fn large_pages_are_shared_by_small_caches() {
    let policy = flagstone();
    assert_eq!(policy.slab_unit(PageSize::K64), PageSize::K4);
    assert_eq!(policy.slab_unit(PageSize::K4), PageSize::K4);
    let three = policy
        .population(256, PageSize::K64, Cpus::new(160), 3)
        .unwrap();
    assert_eq!((three.bytes, three.tail_bytes), (4096, 0));
}

#[test]
fn every_run_holds_its_objects_and_stays_within_a_block_of_order_three() {
    let policy = flagstone();
    for page in [PageSize::K4, PageSize::K16, PageSize::K64] {
        let unit = policy.slab_unit(page);
        for size in (8..=2 * page.bytes()).step_by(40) {
            for live in [0, 10, 1000, 1_000_000] {
                let shape = policy.next_slab(size, page, Cpus::new(224), live).unwrap();
                let bytes = shape.bytes(unit);
                assert_eq!(bytes, shape.objects as usize * size + shape.tail_bytes);
                assert!(shape.objects > 0 && shape.tail_bytes < size);
                assert!(bytes <= page.block_bytes(Order::COSTLY));
                assert!(shape.pages.0 <= shape.order.pages().0);
            }
        }
    }
}

#[test]
fn an_object_larger_than_any_slab_gets_its_own_run() {
    let policy = flagstone();
    let shape = policy
        .next_slab(40_960, PageSize::K4, Cpus::new(2), 5)
        .unwrap();
    assert_eq!((shape.pages.0, shape.objects, shape.tail_bytes), (10, 1, 0));
    assert_eq!(shape.order.get(), 4);
    assert_eq!(
        policy.next_slab(8 << 20, PageSize::K4, Cpus::new(2), 0),
        None
    );
}

#[test]
fn a_fixed_shape_costs_whole_slabs() {
    let policy = Policy::parse("linux-6.5").unwrap();
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
    let policy = flagstone();
    for size in [24, 192, 640, 1536, 4096] {
        for objects in [5_000, 100_000, 3_000_000] {
            let got = policy
                .population(size, PageSize::K4, Cpus::new(16), objects)
                .unwrap();
            let needed = objects * size as u64;
            assert!(got.objects >= objects);
            assert!(
                got.bytes <= needed + needed / 32 + 65_536,
                "{size} x {objects}: {got:?}"
            );
        }
    }
}
