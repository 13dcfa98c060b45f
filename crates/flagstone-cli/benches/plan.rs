//! `plan` for 10,000 sizes under 12 policies: 120,000 rows. Goal: under 50 ms, on small and large pages.

use criterion::{Criterion, criterion_group, criterion_main};
use flagstone_cli::cmd::plan::rows::{Machine, NamedPolicy, Object, Row, row};
use flagstone_core::base::PageSize;
use flagstone_core::policy::{Cpus, Policy};
use flagstone_kernels::Named;
use std::hint::black_box;

const NAMES: [&str; 12] = [
    "linux-2.6.24",
    "slab-2.6.24",
    "linux-2.6.26",
    "linux-2.6.26+dynamic-min-partial",
    "linux-6.1",
    "linux-6.5+order4",
    "linux-6.5+least-waste",
    "linux-6.7",
    "linux-6.12",
    "linux-6.18",
    "linux-7.0",
    "flagstone",
];

fn plan(criterion: &mut Criterion) {
    let policies = NAMES.map(|name| NamedPolicy {
        name: name.into(),
        policy: Policy::parse(name).expect("a listed policy"),
    });
    for (pages, page_size) in [("4K", PageSize::K4), ("64K", PageSize::K64)] {
        let machine = Machine {
            page_size,
            cpus: Cpus::new(224),
        };
        criterion.bench_function(
            &format!("plan 10000 sizes x 12 policies, {pages}"),
            |bench| {
                bench.iter(|| {
                    let mut rows: Vec<Row> = Vec::with_capacity(120_000);
                    for size in 1..=10_000 {
                        let object = Object::Stride(black_box(size * 8));
                        rows.extend(policies.iter().map(|named| row(named, &machine, &object)));
                    }
                    rows
                });
            },
        );
    }
}

criterion_group!(benches, plan);
criterion_main!(benches);
