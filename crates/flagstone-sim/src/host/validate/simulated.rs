//! The same programs on the virtual machine.

use crate::costs::MS;
use crate::machine::Machine;
use crate::scenario::{NamedPolicy, Scenario};
use crate::window::Plan;
use crate::workload::one_alloc_n_free::COUNT;
use crate::workload::{Params, Workload};

/// Rounds of one-alloc-n-free, of which the last one counts: for more than a hundred, the page layer
/// hands out memory that nobody has touched yet.
const ROUNDS: u32 = 240;

/// How long to look at the others, for the same reason longer than at first.
const PLAN: Plan = Plan::of(64 * MS, 256 * MS);

/// The workload with two sides.
pub(super) const ONE_ALLOC: &str = "one-alloc-n-free";

/// Nanoseconds of an operation on the virtual machine, of each side; `think_ns` is what the program
/// costs outside the allocator.
pub(super) fn simulate(
    machine: &Machine,
    workload: &str,
    policy: &NamedPolicy,
    tasks: usize,
    think_ns: f64,
) -> Result<[f64; 2], String> {
    let params = Params {
        think_ns: Some(think_ns),
        rounds: Some(ROUNDS),
        letters: true,
        ..Params::default()
    };
    let scenario = Scenario {
        machine,
        workload: Workload::named(workload)?,
        policy,
        tasks: tasks as u32,
        seed: 1,
        params: &params,
        plan: PLAN,
    };
    let outcome = scenario.run()?;
    let totals = &outcome.totals;
    if workload != ONE_ALLOC {
        let ns = outcome.span as f64 / 1e3 * tasks as f64 / totals.ops.max(1) as f64;
        return Ok([ns; 2]);
    }
    // Details are a loop's cycles over COUNT, whatever the loop's length.
    let ns = |name: &str, length: u64| {
        let found = outcome.details.iter().find(|(known, _)| known == name);
        found.map_or(0.0, |(_, cycles)| {
            cycles / machine.topology.ghz * COUNT as f64 / length as f64
        })
    };
    let other = if tasks == 1 {
        "cpu0_free_cycles"
    } else {
        "cpu1_cycles"
    };
    Ok([ns("cpu0_cycles", COUNT), ns(other, COUNT / tasks as u64)])
}
