//! Allocator operations that the virtual machine simulates in a second of one core.
//!
//! ```text
//! cargo bench -p flagstone-sim --bench speed
//! ```

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flagstone_sim::machine::Machine;
use flagstone_sim::scenario::{NamedPolicy, Scenario};
use flagstone_sim::window::Plan;
use flagstone_sim::workload::{Params, Workload};
use std::hint::black_box;

/// Enough to see the speed of a steady run: two windows of 16 ms of virtual time at most.
const PLAN: Plan = Plan::QUICK;

fn run(machine: &Machine, workload: &str, policy: &NamedPolicy) -> u64 {
    let params = Params::default();
    let scenario = Scenario {
        machine,
        workload: Workload::named(workload).expect("a built-in workload"),
        policy,
        tasks: machine.cpus(),
        seed: 1,
        params: &params,
        plan: PLAN,
    };
    scenario.run().expect("a built-in scenario runs").simulated
}

fn speed(c: &mut Criterion) {
    let machine = Machine::named("spr-2s-224").expect("a built-in profile");
    let mut group = c.benchmark_group("224 virtual CPUs, allocator operations");
    group.sample_size(10);
    for workload in ["mmap1", "random-mix", "larson"] {
        for name in ["flagstone", "linux-6.5"] {
            let policy = NamedPolicy::parse(name).expect("a built-in policy");
            // The same seed does the same work every time.
            group.throughput(Throughput::Elements(run(&machine, workload, &policy)));
            group.bench_function(format!("{workload}, {name}"), |b| {
                b.iter(|| black_box(run(&machine, workload, &policy)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, speed);
criterion_main!(benches);
