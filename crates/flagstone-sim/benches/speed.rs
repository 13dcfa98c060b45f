//! Allocator operations that the virtual machine simulates in a second of one core.
//!
//! An operation is the same in every workload: one object or one block of pages that a program
//! takes or gives back, the machine's preparation included. It is not the harness's operation (an
//! mmap1 is 33 of these, a message of AF_UNIX 16), and not what the allocator does underneath.
//!
//! ```text
//! cargo bench -p flagstone-sim --bench speed
//! ```

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flagstone_sim::machine::Machine;
use flagstone_sim::scenario::{NamedPolicy, Scenario};
use flagstone_sim::window::Plan;
use flagstone_sim::workload::{Params, WORKLOADS, Workload};
use std::hint::black_box;

/// Enough to see the speed of a steady run: 16 ms of virtual time, whether figures are steady or not.
const PLAN: Plan = Plan {
    last: Plan::QUICK.first,
    ..Plan::QUICK
};

/// The product's own policy, and one under which locks are contended: each wait is two switches of
/// stack.
const POLICIES: [&str; 2] = ["flagstone", "linux-6.5"];

fn run(machine: &Machine, workload: &'static Workload, policy: &NamedPolicy) -> u64 {
    let params = Params::default();
    let scenario = Scenario {
        machine,
        workload,
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
    for workload in WORKLOADS {
        for name in POLICIES {
            let policy = NamedPolicy::parse(name).expect("a built-in policy");
            // The same seed does the same work every time.
            group.throughput(Throughput::Elements(run(&machine, workload, &policy)));
            group.bench_function(format!("{}, {name}", workload.name), |b| {
                b.iter(|| black_box(run(&machine, workload, &policy)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, speed);
criterion_main!(benches);
