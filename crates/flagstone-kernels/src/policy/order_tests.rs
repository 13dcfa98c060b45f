use crate::policy::Named;
use flagstone_core::base::PageSize;
use flagstone_core::policy::{Cpus, OBJECTS_PER_SLAB_MAX, Policy};
use std::vec::Vec;

/// Orders for 1, 2, 16, 32, 64 and 160 CPUs as one string; `-` where the rule finds none.
fn orders(policy: &str, size: usize, page_size: PageSize) -> std::string::String {
    let policy = Policy::parse(policy).unwrap();
    [1, 2, 16, 32, 64, 160]
        .map(
            |cpus| match policy.slab_shape(size, page_size, Cpus::new(cpus)) {
                Some(shape) => char::from_digit(shape.order.get(), 11).unwrap(),
                None => '-',
            },
        )
        .iter()
        .collect()
}

const A: &str = "linux-6.5";
const B: &str = "linux-6.12";
const C: &str = "linux-6.5+order4";
const D: &str = "linux-6.5+least-waste";

/// docs: linux-policies 1.8, 4 KiB pages: size, rules a, b, c, d, then a0.
const TABLE_4K: &[(usize, [&str; 4], u32)] = &[
    (16, ["000000", "000000", "000000", "000000"], 0),
    (64, ["000000", "000000", "000001", "000000"], 0),
    (96, ["000000", "000000", "000111", "111111"], 0),
    (128, ["000001", "000001", "000112", "000001"], 0),
    (192, ["001111", "001111", "001222", "002222"], 0),
    (256, ["001112", "001112", "001223", "001112"], 0),
    (320, ["001222", "001222", "001333", "222222"], 0),
    (384, ["012222", "012222", "012333", "113333"], 0),
    (512, ["012223", "012223", "012334", "012223"], 0),
    (640, ["112333", "112333", "112444", "333333"], 0),
    (704, ["123333", "123333", "123444", "223333"], 1),
    (768, ["123333", "123333", "123444", "223333"], 0),
    (1024, ["123333", "123333", "123444", "123333"], 0),
    (1088, ["223333", "223333", "223444", "223333"], 1),
    (1280, ["223333", "223333", "223444", "333333"], 1),
    (1536, ["233333", "233333", "234444", "333333"], 1),
    (1600, ["233333", "233333", "234444", "233333"], 1),
    (2048, ["233333", "233333", "234444", "233333"], 1),
    (2304, ["333333", "333333", "334444", "333333"], 1),
    (3072, ["333333", "333333", "344444", "333333"], 1),
    (4096, ["333333", "333333", "344444", "333333"], 1),
    (6144, ["333333", "333333", "444444", "333333"], 1),
    (8192, ["333333", "333333", "444444", "333333"], 1),
    (11008, ["222222", "333333", "444444", "333333"], 2),
    (16384, ["333333", "333333", "444444", "333333"], 2),
    (32768, ["333333", "333333", "444444", "333333"], 3),
    (40960, ["444444", "444444", "444444", "------"], 4),
];

/// docs: linux-policies 1.8, 64 KiB pages.
const TABLE_64K: &[(usize, [&str; 4], u32)] = &[
    (96, ["000000", "000000", "000000", "111111"], 0),
    (192, ["000000", "000000", "000000", "000000"], 0),
    (256, ["000000", "000000", "000000", "000000"], 0),
    (640, ["000000", "000000", "000000", "333333"], 0),
    (704, ["000000", "000000", "000000", "000000"], 0),
    (768, ["000000", "000000", "000000", "000000"], 0),
    (1024, ["000000", "000000", "000001", "000000"], 0),
    (1088, ["000000", "000000", "000011", "000000"], 0),
    (1536, ["000000", "000000", "000111", "111111"], 0),
    (1600, ["000000", "000000", "000111", "333333"], 0),
    (2048, ["000001", "000001", "000112", "000001"], 0),
    (2304, ["000011", "000011", "000122", "000033"], 0),
    (3072, ["001111", "001111", "001222", "002222"], 0),
    (4096, ["001112", "001112", "001223", "001112"], 0),
    (6144, ["012222", "012222", "012333", "113333"], 0),
    (8192, ["012223", "012223", "012334", "012223"], 0),
    (12288, ["123333", "123333", "123444", "223333"], 1),
    (16384, ["123333", "123333", "123444", "123333"], 1),
    (32768, ["233333", "233333", "234444", "233333"], 2),
    (65536, ["333333", "333333", "344444", "333333"], 2),
    (131_072, ["333333", "333333", "444444", "333333"], 2),
    (196_544, ["222222", "333333", "444444", "333333"], 2),
    (262_144, ["333333", "333333", "444444", "333333"], 2),
];

#[test]
fn every_cell_of_the_result_tables_is_reproduced() {
    for (page_size, table) in [(PageSize::K4, TABLE_4K), (PageSize::K64, TABLE_64K)] {
        for &(size, expected, a0) in table {
            let got = [A, B, C, D].map(|policy| orders(policy, size, page_size));
            assert_eq!(got, expected, "size {size} on {page_size:?}");
            let first = orders("linux-2.6.24", size, page_size);
            assert_eq!(
                first,
                [char::from_digit(a0, 11).unwrap(); 6]
                    .iter()
                    .collect::<std::string::String>(),
                "a0 {size}"
            );
        }
    }
}

#[test]
fn the_repaired_least_waste_rule_serves_large_objects_and_changes_nothing_else() {
    assert_eq!(
        orders("linux-6.5+least-waste-repaired", 40_960, PageSize::K4),
        "444444"
    );
    for size in (8..=32_768).step_by(8) {
        assert_eq!(
            orders(D, size, PageSize::K4),
            orders("linux-6.5+least-waste-repaired", size, PageSize::K4)
        );
    }
}

fn sizes_that_differ(left: &str, right: &str, cpus: u32, page: PageSize, max: usize) -> Vec<usize> {
    let [left, right] = [left, right].map(|name| Policy::parse(name).unwrap());
    let shape = |p: &Policy, size| p.slab_shape(size, page, Cpus::new(cpus));
    (8..=max)
        .step_by(8)
        .filter(|&s| shape(&left, s) != shape(&right, s))
        .collect()
}

#[test]
fn order4_moves_the_published_number_of_sizes() {
    assert_eq!(sizes_that_differ(A, C, 1, PageSize::K4, 8192).len(), 580);
    assert_eq!(sizes_that_differ(A, C, 2, PageSize::K4, 8192).len(), 691);
    for cpus in [32, 64, 224] {
        let moved = sizes_that_differ(A, C, cpus, PageSize::K4, 8192).len();
        assert!(
            (1005..=1024).contains(&moved),
            "{moved} sizes move on {cpus} CPUs"
        );
    }
}

#[test]
fn the_clean_up_of_6_7_differs_only_between_eight_thirds_and_three_pages() {
    for (page, lowest, highest, count) in [
        (PageSize::K4, 10_928, 12_280, 170),
        (PageSize::K64, 174_768, 196_600, 2730),
    ] {
        for cpus in [1, 2, 16, 64, 256] {
            let moved = sizes_that_differ(A, B, cpus, page, 8 * page.bytes());
            assert_eq!(
                (moved.first(), moved.last(), moved.len()),
                (Some(&lowest), Some(&highest), count),
                "{cpus} CPUs"
            );
        }
    }
}

#[test]
fn one_wanted_object_separates_rule_a_from_rule_b() {
    let with = |name: &str, size| {
        let mut policy = Policy::parse(name).unwrap();
        policy.set("slab_min_objects", "1").unwrap();
        policy
            .slab_shape(size, PageSize::K4, Cpus::new(2))
            .unwrap()
            .order
            .get()
    };
    let got = [704, 1536, 3072].map(|size| (with(A, size), with(B, size)));
    assert_eq!(got, [(0, 1), (0, 1), (0, 2)]);
}

#[test]
fn least_waste_moves_as_many_sizes_as_the_sheet_says() {
    for cpus in [1, 2, 16, 32, 64, 160] {
        let small = sizes_that_differ(A, D, cpus, PageSize::K4, 8192).len();
        let large = sizes_that_differ(A, D, cpus, PageSize::K64, 8192).len();
        assert!((35..=97).contains(&small), "4K: {small} on {cpus} CPUs");
        assert!((482..=618).contains(&large), "64K: {large} on {cpus} CPUs");
    }
}

#[test]
fn the_mm_struct_example_of_the_least_waste_patch() {
    let shape = |name: &str| {
        Policy::parse(name)
            .unwrap()
            .slab_shape(1536, PageSize::K64, Cpus::new(160))
            .unwrap()
    };
    let (base, patched) = (shape(A), shape(D));
    assert_eq!(
        (base.order.get(), base.objects, base.tail_bytes),
        (0, 42, 1024)
    );
    assert_eq!(
        (patched.order.get(), patched.objects, patched.tail_bytes),
        (1, 85, 512)
    );
}

#[test]
fn mean_orders_over_a_sweep_match_the_sheet() {
    let mean = |name: &str, cpus, page| {
        let policy = Policy::parse(name).unwrap();
        let total: u32 = (8..=8192)
            .step_by(8)
            .map(|size| {
                policy
                    .slab_shape(size, page, Cpus::new(cpus))
                    .unwrap()
                    .order
                    .get()
            })
            .sum();
        // Thousandths, rounded to nearest.
        (total * 1000 + 512) / 1024
    };
    let rows = [
        (PageSize::K4, 2, [2715, 3390, 2843]),
        (PageSize::K4, 16, [2855, 3689, 2923]),
        (PageSize::K4, 160, [2904, 3897, 2950]),
        (PageSize::K64, 2, [350, 350, 1451]),
        (PageSize::K64, 16, [1001, 1001, 1843]),
        (PageSize::K64, 160, [1445, 2335, 2101]),
    ];
    for (page, cpus, expected) in rows {
        assert_eq!(
            [A, C, D].map(|name| mean(name, cpus, page)),
            expected,
            "{page:?} {cpus}"
        );
    }
}

#[test]
fn a_slab_never_holds_more_objects_than_its_counter_can_say() {
    for name in ["linux-6.1", "linux-7.0"] {
        let mut policy = Policy::parse(name).unwrap();
        policy.set("slab_min_order", "3").unwrap();
        let shape = policy.slab_shape(8, PageSize::K64, Cpus::new(1)).unwrap();
        assert!(
            shape.objects as usize <= OBJECTS_PER_SLAB_MAX,
            "{name}: {shape:?}"
        );
    }
}
