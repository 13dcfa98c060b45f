use super::*;
use flagstone_core::base::PageSize;
use flagstone_core::policy::Cpus;
use std::string::ToString;
use std::vec::Vec;

#[test]
fn every_listed_name_parses_and_every_modifier_composes_with_every_base() {
    for (base, _) in BASES {
        for (modifier, _) in MODIFIERS {
            let name = std::format!("{base}+{modifier}");
            let policy = Policy::parse(&name).unwrap();
            assert!(
                policy.slab_shape(256, PageSize::K4, Cpus::new(8)).is_some(),
                "{name} has no slab for 256 bytes"
            );
        }
    }
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let text = Policy::parse("linux-9.9").unwrap_err().to_string();
    assert!(text.starts_with("unknown policy 'linux-9.9'; known: linux-2.6.24, slab-2.6.24"));
    for (name, _) in BASES.iter().chain(MODIFIERS) {
        assert!(text.contains(name), "{name} is not listed");
    }
    assert_eq!(
        Policy::parse("linux-6.5+order5"),
        Err(NameError::Modifier("order5"))
    );
    assert_eq!(Policy::parse("linux-6.5+"), Err(NameError::Modifier("")));
    assert_eq!(
        Policy::parse("linux-6.5+pcp10"),
        Err(NameError::Modifier("pcp10"))
    );
    assert_eq!(Policy::parse(""), Err(NameError::Base("")));
    let text = Policy::parse("flagstone+turbo").unwrap_err().to_string();
    assert!(text.starts_with("unknown policy modifier 'turbo'; known: +dynamic-min-partial"));
}

#[test]
fn the_nine_patches_end_where_6_7_begins() {
    let last = Policy::parse("linux-6.6+pcp9").unwrap();
    let merged = Policy::parse("linux-6.7").unwrap();
    assert_eq!(last.pcp_rule, merged.pcp_rule);
    assert_eq!(last.pcp_batch_scale_max, merged.pcp_batch_scale_max);
    let rules: Vec<_> = (1..=9)
        .map(|n| {
            Policy::parse(&std::format!("linux-6.6+pcp{n}"))
                .unwrap()
                .pcp_rule
                .id
        })
        .collect();
    assert!(rules.is_sorted() && rules.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn order4_doubles_on_32_cpus_and_not_on_31() {
    let base = Policy::parse("linux-6.5").unwrap();
    let patched = Policy::parse("linux-6.5+order4").unwrap();
    let wanted = |policy: &Policy, cpus| policy.min_objects(PageSize::K4, Cpus::new(cpus));
    assert_eq!(
        [31, 32, 64, 160].map(|cpus| wanted(&base, cpus)),
        [24, 28, 32, 36]
    );
    assert_eq!(
        [31, 32, 64, 160].map(|cpus| wanted(&patched, cpus)),
        [24, 56, 64, 72]
    );
}

#[test]
fn the_order4_examples_of_kmalloc_256_and_maple_node_on_224_cpus() {
    let cpus = Cpus::new(224);
    let shape = |name| {
        Policy::parse(name)
            .unwrap()
            .slab_shape(256, PageSize::K4, cpus)
            .unwrap()
    };
    let (base, patched) = (shape("linux-6.5"), shape("linux-6.5+order4"));
    assert_eq!((base.order.get(), base.objects), (2, 64));
    assert_eq!((patched.order.get(), patched.objects), (3, 128));
}

#[test]
fn wanted_objects_follow_the_table_of_cpu_counts() {
    let policy = Policy::parse("linux-6.18").unwrap();
    let got = [1, 2, 3, 4, 8, 16, 32, 64, 128, 255, 256, 511]
        .map(|cpus| policy.min_objects(PageSize::K4, Cpus::new(cpus)));
    assert_eq!(got, [8, 12, 12, 16, 20, 24, 28, 32, 36, 36, 40, 40]);
    let old = Policy::parse("linux-2.6.24").unwrap();
    assert_eq!(old.min_objects(PageSize::K4, Cpus::new(64)), 4);
    assert_eq!(old.min_objects(PageSize::K64, Cpus::new(64)), 8);
}

#[test]
fn knobs_a_policy_does_not_have_are_absent() {
    let old = Policy::parse("linux-2.6.24").unwrap();
    assert_eq!(old.sheaf_capacity(64, PageSize::K4), None);
    let new = Policy::parse("linux-7.0").unwrap();
    assert_eq!(new.sheaf_capacity(64, PageSize::K4), Some(60));
    let opt_in = Policy::parse("linux-6.18").unwrap();
    assert_eq!(opt_in.sheaf_capacity(256, PageSize::K4), Some(0));
    assert_eq!(
        opt_in.sheaf_capacity_requested(256, PageSize::K4, 32),
        Some(32)
    );
}

#[test]
fn the_default_policy_never_asks_for_more_than_order_three_to_share_a_slab() {
    let policy = Policy::default();
    for page in [PageSize::K4, PageSize::K64] {
        for size in (8..=8 * page.bytes()).step_by(8) {
            for cpus in [1, 16, 224] {
                let shape = policy.slab_shape(size, page, Cpus::new(cpus)).unwrap();
                assert!(shape.order <= Order::COSTLY, "{size}");
            }
        }
    }
    let capacity = |size| policy.sheaf_capacity(size, PageSize::K4).unwrap();
    assert!(capacity(64) > capacity(1024) && capacity(1024) > capacity(8192));
    assert!(capacity(1 << 20) >= 1);
}

#[test]
fn the_default_policy_has_the_shape_of_7_0_but_for_what_it_bounds() {
    let (own, kernel) = (Policy::flagstone(), Policy::parse("linux-7.0").unwrap());
    let expected = Policy {
        engine: own.engine,
        runs: own.runs,
        sheaf_rule: own.sheaf_rule,
        pcp_rule: own.pcp_rule,
        pcp_batch_scale_max: own.pcp_batch_scale_max,
        size_classes: own.size_classes,
        limits: own.limits,
        ..kernel
    };
    assert_eq!(own, expected);
}
