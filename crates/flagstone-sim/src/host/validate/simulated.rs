//! The same programs on the virtual machine.

use super::super::threads::lower_quartile;
use crate::costs::MS;
use crate::machine::Machine;
use crate::scenario::{NamedPolicy, Scenario};
use crate::window::Plan;
use crate::workload::one_alloc_n_free::COUNT;
use crate::workload::{Params, Workload};

/// Rounds of one-alloc-n-free, of which the later half counts: for more than a hundred, the page layer
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
    Ok(run(machine, workload, policy, tasks, [program_ns; 2])?[0])
}

/// The same of both sides of one-alloc-n-free.
pub(super) fn one_alloc(
    machine: &Machine,
    policy: &NamedPolicy,
    tasks: usize,
    program_ns: [f64; 2],
) -> Result<[f64; 2], String> {
    run(machine, ONE_ALLOC, policy, tasks, program_ns)
}

fn run(
    machine: &Machine,
    workload: &str,
    policy: &NamedPolicy,
    tasks: usize,
    program_ns: [f64; 2],
) -> Result<[f64; 2], String> {
    let params = Params {
        rounds: Some(ROUNDS),
        program_ns: Some(program_ns),
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
        let rounds = outcome.details.iter().filter(|(known, _)| known == name);
        let cycles: Vec<f64> = rounds.map(|(_, cycles)| *cycles).collect();
        // As of real rounds: the later half.
        let later = cycles[cycles.len() / 2..].to_vec();
        lower_quartile(later) / machine.topology.ghz * COUNT as f64 / length as f64
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
    fn a_programs_own_time_is_what_was_measured_and_its_letters_cost_their_ways() {
        let mut machine = Machine::named("this-machine").unwrap();
        let policy = NamedPolicy::parse("flagstone").unwrap();
        let [alone, longer] =
            [[0.0; 2], [10.0, 20.0]].map(|own| one_alloc(&machine, &policy, 1, own).unwrap());
        let more = [longer[0] - alone[0], longer[1] - alone[1]];
        assert!((more[0] - 10.0).abs() < 0.5, "{more:?}");
        assert!((more[1] - 20.0).abs() < 0.5, "{more:?}");
        // Objects' lines cost nothing here.
        machine.latency_ns.overlap = Some(0.0);
        let mut on_way = |ns: f64| {
            let latency = &mut machine.latency_ns;
            (latency.socket, latency.cluster) = (ns, Some(ns));
            one_alloc(&machine, &policy, 2, [5.0; 2]).unwrap()[0]
        };
        // Eight to a line, all of which the consumer read, and forty with one step at the counter.
        let ways = (on_way(300.0) - on_way(100.0)) / 200.0;
        assert!((0.12..0.2).contains(&ways), "{ways}");
    }

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
