//! A capture of a real kernel, replayed, beside what that kernel's /proc/slabinfo and /proc/zoneinfo said.

use flagstone_lab::pagesets::held;
use flagstone_lab::tape::Recorded;
use flagstone_lab::{Rules, Spec, names};
use std::path::Path;

/// Linux 6.18 on two CPUs; data/README.md says how it was made.
const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/capture-6.18.fst");

#[test]
fn a_capture_ends_with_the_slabs_that_its_kernel_had() {
    let (recorded, about) = Recorded::of(Path::new(CAPTURE), 1, false).unwrap();
    assert!(about.kernel && about.streams == 2);
    let machine = names::machine("x86-16@2").unwrap();
    let spec = Spec {
        tasks: 2,
        ..Spec::played(machine, Rules::parse("linux-6.18", &[]).unwrap(), recorded)
    };
    let record = spec.run().unwrap().record;
    let figure = |what: &str, cache: &str| record.more[&format!("detail.{what} {cache}")];
    let (mut within, mut changed) = (Vec::new(), 0);
    let compared = about
        .caches
        .iter()
        .filter_map(|cache| Some((&cache.name, cache.before?, cache.after?)));
    for (name, before, after) in compared.clone() {
        let off = |ours: f64, theirs: u64| (ours / theirs as f64 - 1.0).abs();
        changed += u32::from(before.slabs != after.slabs);
        if off(figure("slabs", name), after.slabs) <= 0.05
            && off(figure("objects", name), after.objects) <= 0.05
        {
            within.push(name);
        }
    }
    // anon_vma is two slabs off, maple_node a quarter: the kernel frees its nodes in bulk.
    assert_eq!(compared.count(), 37);
    assert!(changed >= 4, "{changed} caches changed");
    assert!(within.len() >= 35, "{} caches: {within:?}", within.len());
}

#[test]
fn a_part_of_a_capture_begins_with_its_slabs() {
    let (mut recorded, about) = Recorded::of(Path::new(CAPTURE), 1, false).unwrap();
    recorded.part = Some((99, 100));
    let machine = names::machine("x86-16@2").unwrap();
    let spec = Spec {
        tasks: 2,
        ..Spec::played(machine, Rules::parse("linux-6.18", &[]).unwrap(), recorded)
    };
    let record = spec.run().unwrap().record;
    let caches = about.caches.iter();
    let pid = caches.filter(|cache| cache.name == "pid");
    let level = pid.filter_map(|cache| cache.before).next().unwrap();
    let objects = record.more["detail.objects pid"];
    let off = objects / level.objects as f64 - 1.0;
    assert!(
        off.abs() < 0.2,
        "{objects} objects, {} at the beginning",
        level.objects
    );
}

#[test]
fn a_capture_ends_with_the_pagesets_that_its_kernel_had() {
    let (_, policy) = names::policy("linux-6.18").unwrap();
    let held = held(Path::new(CAPTURE), &[policy]).unwrap();
    let [held] = &held[..] else {
        panic!("one policy: {held:?}");
    };
    assert_eq!(
        (held.report.refills.matched, held.report.refills.all),
        (18, 18)
    );
    assert_eq!(held.sets.len(), 6);
    for set in &held.sets {
        let (zone, cpu, after, (pages, high)) = (&set.zone, set.cpu, &set.after, set.replayed);
        let near = |ours: u32, theirs: u32| ours.abs_diff(theirs) * 20 <= theirs;
        assert!(
            near(pages, after.count) && near(high, after.high),
            "{zone}, CPU {cpu}: {pages} of {}, high {high} of {}",
            after.count,
            after.high
        );
    }
}

#[test]
fn a_kernel_with_other_rules_has_other_pagesets() {
    let (_, policy) = names::policy("linux-6.1").unwrap();
    let held = held(Path::new(CAPTURE), &[policy]).unwrap();
    let refills = held[0].report.refills;
    assert!(refills.matched < refills.all, "{refills:?}");
}
