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

/// Nanoseconds of an operation on the virtual machine; `program_ns` is what the program costs
/// outside the allocator on one real CPU.
pub(super) fn simulate(
    machine: &Machine,
    workload: &str,
    policy: &NamedPolicy,
    tasks: usize,
    program_ns: f64,
) -> Result<f64, String> {
    // What the program's own lines cost is in its time already, on either side.
    let [lines_ns, _] = run(machine, workload, policy, 1, bare())?;
    let rest = Params {
        think_ns: Some((program_ns - lines_ns).max(0.0)),
        ..Params::default()
    };
    Ok(run(machine, workload, policy, tasks, rest)?[0])
}

/// The same of both sides of one-alloc-n-free, with one task the mailbox's steps as `mail_ns` says:
/// they overlap with each other, which here they do not.
pub(super) fn one_alloc(
    machine: &Machine,
    policy: &NamedPolicy,
    tasks: usize,
    mail_ns: [f64; 2],
) -> Result<[f64; 2], String> {
    let whole = run(machine, ONE_ALLOC, policy, tasks, Params::default())?;
    if tasks > 1 {
        return Ok(whole);
    }
    let here = run(machine, ONE_ALLOC, policy, tasks, bare())?;
    Ok([0, 1].map(|side| whole[side] - here[side] + mail_ns[side]))
}

/// The program with no allocator under it.
fn bare() -> Params {
    Params {
        think_ns: Some(0.0),
        bare: true,
        ..Params::default()
    }
}

fn run(
    machine: &Machine,
    workload: &str,
    policy: &NamedPolicy,
    tasks: usize,
    params: Params,
) -> Result<[f64; 2], String> {
    let params = Params {
        think_ns: params.think_ns.or(Some(0.0)),
        rounds: Some(ROUNDS),
        letters: true,
        ..params
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mispredicted_branches_cost_a_random_program_something_and_a_regular_one_hardly_anything() {
        let mut machine = Machine::named("this-machine").unwrap();
        let policy = NamedPolicy::parse("linux-6.12").unwrap();
        let mut both = |price: f64| {
            machine.work_ns.mispredict = Some(price);
            let mix = simulate(&machine, "random-mix", &policy, 1, 0.0).unwrap();
            let [alloc, _] = one_alloc(&machine, &policy, 1, [0.0; 2]).unwrap();
            [mix, alloc]
        };
        let (without, with) = (both(0.0), both(100.0));
        let [mix, alloc] = [0, 1].map(|row| (with[row] - without[row]) / 100.0);
        assert!(mix > 0.8, "{mix} of an operation's branches");
        assert!(alloc < 0.2, "{alloc} of an allocation's branches");
    }
}
