//! The same seed gives the same digest on every machine: digests noted down, not only compared.
//!
//! A digest here changes when a cost, a workload or the order of the core's accesses does. If that
//! was meant, note the new one and bump `MODEL_VERSION`; if nothing of the kind was changed, something of the host (an
//! address, the order of a hash table, a library's float) has found its way into a run.

use flagstone_kernels::BASES;
use flagstone_sim::machine::Machine;
use flagstone_sim::scenario::{NamedPolicy, Scenario};
use flagstone_sim::window::Plan;
use flagstone_sim::workload::{Params, WORKLOADS, Workload};
use flagstone_sim::{Deferred, MODEL_VERSION, Options, Program, Vm};

fn digest(workload: &str, machine: &str, policy: &str, tasks: u32) -> u64 {
    let machine = Machine::named(machine).unwrap();
    let policy = NamedPolicy::parse(policy).unwrap();
    let scenario = Scenario {
        machine: &machine,
        workload: Workload::named(workload).unwrap(),
        policy: &policy,
        tasks,
        seed: 7,
        params: &Params::default(),
        plan: Plan::QUICK,
    };
    scenario.run().unwrap().digest
}

#[test]
fn a_machine_without_the_core_gives_the_noted_digest() {
    let vm = Vm::new(Machine::named("spr-2s-224@16").unwrap(), Options::default());
    let counter =
        flagstone_core::platform::Lock::new(flagstone_core::platform::LockKind::List, 0u64);
    let programs: Vec<(u32, Program<'_>)> = (0..16u32)
        .map(|cpu| {
            let counter = &counter;
            let program: Program<'_> = Box::new(move |vm: &Vm| {
                for round in 0..500 {
                    vm.spend(vm.chance.exponential(40_000.0) + u64::from(vm.chance.below(9)));
                    *counter.lock::<flagstone_sim::Virtual>().unwrap() += 1;
                    vm.defer(Deferred {
                        kind: cpu as u16,
                        address: round,
                    });
                    vm.run_deferred(|item| vm.spend(item.address as u64));
                }
            });
            (cpu, program)
        })
        .collect();
    vm.run(programs, 1_000_000, |vm| Some(vm.now() + 1_000_000))
        .unwrap();
    assert_eq!(
        (vm.digest(), vm.latest()),
        (0x02fd_1ee8_ec36_957e, 3_070_810_466)
    );
}

#[test]
fn runs_of_the_core_give_the_noted_digests() {
    let found = [
        digest("mmap1", "spr-2s-224@16", "linux-6.5", 16),
        digest("one-alloc-n-free", "xeon-2007-8", "linux-2.6.24", 8),
        digest("one-alloc-n-free", "xeon-2007-8", "slab-2.6.24", 8),
        digest("random-mix", "x86-16", "linux-6.12", 8),
        digest("random-mix", "x86-16", "flagstone", 4),
        digest("one-alloc-flow", "intel-2s-128@16", "flagstone", 16),
        // A heap that owes for pages it gave back and wants again.
        digest("sctp-stream-many", "intel-2s-128", "flagstone", 128),
    ];
    let noted = [
        0x545b_5d08_d98c_27dd,
        0x3d6e_38d5_f522_3aa8,
        0xeaaf_eb10_0699_0318,
        0x4725_85e7_235f_2120,
        0x7a59_2687_c1e7_0389,
        0x44de_99d9_bd96_9057,
        0xf348_70dc_d564_5bde,
    ];
    assert_eq!(found, noted, "{found:#x?}");
}

/// What every workload and every policy does, in a few milliseconds of a small machine.
fn model() -> String {
    let machine = Machine::named("x86-16").unwrap();
    let plan = Plan::of(flagstone_sim::costs::MS, flagstone_sim::costs::MS);
    let plan = Plan {
        patient: plan.last,
        ..plan
    };
    let workloads = WORKLOADS
        .iter()
        .map(|workload| (workload.name, "flagstone"));
    let policies = BASES.iter().map(|(policy, _)| ("random-mix", *policy));
    let mut text = format!("model version {MODEL_VERSION}\n");
    // Policies whose kernels do an operation in other steps.
    let steps = ["linux-6.18", "linux-7.0"].map(|policy| ("mmap1", policy));
    for (workload, policy) in workloads.chain(policies).chain(steps) {
        let named = NamedPolicy::parse(policy).unwrap();
        let scenario = Scenario {
            machine: &machine,
            workload: Workload::named(workload).unwrap(),
            policy: &named,
            tasks: 4,
            seed: 3,
            params: &Params::default(),
            plan,
        };
        let digest = scenario.run().unwrap().digest;
        text += &format!("{workload} {policy} {digest:016x}\n");
    }
    text
}

/// Kept runs are found by the model version: it must change when behaviour does.
#[test]
fn the_model_version_is_of_this_behaviour() {
    let noted = include_str!("golden.txt");
    let found = model();
    assert!(
        found == noted,
        "simulated behaviour is not that of the noted model version: bump it \
         (flagstone_sim::MODEL_VERSION) and note in tests/golden.txt, with the new number:\n{found}"
    );
}

#[test]
fn a_machine_that_does_not_fit_the_host_is_refused_and_not_made_smaller() {
    let mut machine = Machine::named("x86-16").unwrap();
    // More than an x86-64 process can address.
    machine.topology.memory_gib = 1 << 20;
    let error = Vm::try_new(machine, Options::default()).map(drop);
    let line = error.expect_err("no such address space");
    assert!(
        line.contains("ulimit -v") && line.lines().count() == 1,
        "{line}"
    );
}
