//! Who sits near whom: distances between CPUs, siblings, nodes, and where tasks are put.
//!
//! CPUs are numbered as Linux does on such servers: first one thread of every core, socket by
//! socket, then the second threads in the same order.
//!
//! ```text
//!   cpu = thread * cores + core        core = socket * cores_per_socket + i
//! ```

use crate::machine::Machine;
use serde::{Deserialize, Serialize};

/// How far a line travels between two CPUs, nearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Distance {
    /// The same CPU.
    Same,
    /// Two threads of one core.
    Sibling,
    /// Two cores of one last-level cache.
    Cluster,
    /// Two cores of one package.
    Socket,
    /// Two packages.
    Remote,
}

/// Which CPUs a workload's tasks are put on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Alternating between sockets, first threads first.
    #[default]
    Spread,
    /// In CPU order: one socket fills before the next.
    Compact,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    core: u16,
    cluster: u16,
    socket: u8,
    node: u8,
}

/// The seats of all CPUs.
#[derive(Clone, Debug)]
pub struct Topology {
    seats: Vec<Seat>,
    cores: u32,
    sockets: u32,
    clusters: u32,
}

impl Topology {
    /// The seats of `machine`.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let shape = &machine.topology;
        let cores = shape.sockets * shape.cores_per_socket;
        let clusters_per_socket = shape.cores_per_socket.div_ceil(machine.cache.cluster_cores);
        let seats = (0..machine.cpus())
            .map(|cpu| {
                let core = cpu % cores;
                let socket = core / shape.cores_per_socket;
                let inside = core % shape.cores_per_socket;
                Seat {
                    core: core as u16,
                    cluster: (socket * clusters_per_socket + inside / machine.cache.cluster_cores)
                        as u16,
                    socket: socket as u8,
                    node: (core * u32::from(shape.nodes) / cores) as u8,
                }
            })
            .collect();
        Self {
            seats,
            cores,
            sockets: shape.sockets,
            clusters: clusters_per_socket * shape.sockets,
        }
    }

    /// Logical CPUs.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.seats.len() as u32
    }

    /// Cores.
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// Last-level caches.
    #[must_use]
    pub fn clusters(&self) -> u32 {
        self.clusters
    }

    /// The core of a CPU.
    #[inline]
    #[must_use]
    pub fn core_of(&self, cpu: u32) -> usize {
        usize::from(self.seats[cpu as usize].core)
    }

    /// The last-level cache of a CPU.
    #[inline]
    #[must_use]
    pub fn cluster_of(&self, cpu: u32) -> usize {
        usize::from(self.seats[cpu as usize].cluster)
    }

    /// The socket of a CPU.
    #[inline]
    #[must_use]
    pub fn socket_of(&self, cpu: u32) -> u8 {
        self.seats[cpu as usize].socket
    }

    /// The memory node of a CPU.
    #[inline]
    #[must_use]
    pub fn node_of(&self, cpu: u32) -> u8 {
        self.seats[cpu as usize].node
    }

    /// How far apart two CPUs are.
    #[inline]
    #[must_use]
    pub fn distance(&self, a: u32, b: u32) -> Distance {
        /// By how many of CPU, core, cluster and socket two CPUs share. Counting them takes no
        /// branch, which nobody could predict: who had a line last is as good as random.
        const BY_SHARED: [Distance; 8] = [
            Distance::Remote,
            Distance::Socket,
            Distance::Cluster,
            Distance::Sibling,
            Distance::Same,
            Distance::Same,
            Distance::Same,
            Distance::Same,
        ];
        let (one, other) = (self.seats[a as usize], self.seats[b as usize]);
        let shared = usize::from(one.socket == other.socket)
            + usize::from(one.cluster == other.cluster)
            + usize::from(one.core == other.core)
            + usize::from(a == b);
        BY_SHARED[shared % 8]
    }

    /// The CPUs of `tasks` tasks, one each.
    ///
    /// # Panics
    /// If there are more tasks than CPUs: callers check that and say so first.
    #[must_use]
    pub fn place(&self, tasks: u32, placement: Placement) -> Vec<u32> {
        assert!(tasks <= self.cpus(), "more tasks than CPUs");
        let per_socket = self.cores / self.sockets;
        let mut order: Vec<u32> = (0..self.cpus()).collect();
        if placement == Placement::Spread {
            order.sort_by_key(|cpu| {
                let (thread, core) = (cpu / self.cores, cpu % self.cores);
                (thread, core % per_socket, core / per_socket)
            });
        }
        order.truncate(tasks as usize);
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spr() -> Topology {
        Topology::new(&Machine::named("spr-2s-224").unwrap())
    }

    #[test]
    fn distances_follow_core_socket_and_package() {
        let topology = spr();
        assert_eq!(topology.distance(3, 3), Distance::Same);
        assert_eq!(topology.distance(3, 3 + 112), Distance::Sibling);
        assert_eq!(topology.distance(3, 55), Distance::Cluster);
        assert_eq!(topology.distance(3, 56), Distance::Remote);
        let epyc = Topology::new(&Machine::named("epyc-2s-256").unwrap());
        assert_eq!(epyc.distance(0, 7), Distance::Cluster);
        assert_eq!(epyc.distance(0, 8), Distance::Socket);
    }

    #[test]
    fn spread_tasks_alternate_between_sockets_and_leave_siblings_for_last() {
        let topology = spr();
        let half = topology.place(112, Placement::Spread);
        assert!(
            half.iter().all(|cpu| *cpu < 112),
            "no sibling pair at half load"
        );
        let quarter = topology.place(56, Placement::Spread);
        let first = quarter.iter().filter(|cpu| topology.socket_of(**cpu) == 0);
        assert_eq!(first.count(), 28);
        assert_eq!(topology.place(3, Placement::Compact), [0, 1, 2]);
    }
}
