//! Pairs of a sender and a receiver that stay near each other, as the scheduler's wake-ups do.

use super::Env;

/// The tasks' CPUs as pairs on one socket where possible.
pub(super) fn pairs(env: &Env<'_>) -> Vec<(u32, u32)> {
    let topology = &env.vm.topology;
    let mut cpus = env.cpus.to_vec();
    cpus.sort_by_key(|cpu| (topology.socket_of(*cpu), *cpu / topology.cores(), *cpu));
    cpus.chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect()
}
