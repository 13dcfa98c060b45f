//! How this host is built, from `/sys` and `/proc`.

use super::threads::allowed;
use crate::topology::Distance;
use std::fs::read_to_string;

/// What could be found out; plain values where the system does not say.
#[derive(Clone, Debug)]
pub struct Found {
    pub sockets: u32,
    pub cores_per_socket: u32,
    pub threads_per_core: u32,
    pub nodes: u8,
    pub page_size: usize,
    pub memory_gib: usize,
    pub ghz: f64,
    pub llc_kib: usize,
    pub cluster_cores: u32,
    pub model: String,
    seats: Vec<Seat>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seat {
    cpu: usize,
    socket: i64,
    core: i64,
    /// The CPUs of its last-level cache, as the system prints them.
    cluster: String,
}

fn number<T: core::str::FromStr>(path: &str) -> Option<T> {
    read_to_string(path).ok()?.trim().parse().ok()
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The deepest cache of a CPU: its size in KiB and who shares it.
fn last_cache(cpu: usize) -> Option<(usize, String)> {
    let base = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    (0..8)
        .rev()
        .find_map(|index| {
            let size = read_to_string(format!("{base}/index{index}/size")).ok()?;
            let kib = size.trim().strip_suffix('K')?.parse().ok()?;
            let shared = read_to_string(format!("{base}/index{index}/shared_cpu_list")).ok()?;
            Some((kib, shared.trim().to_owned()))
        })
        .filter(|(kib, _)| *kib > 0)
}

fn seat(cpu: usize) -> Seat {
    let base = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
    Seat {
        cpu,
        socket: number(&format!("{base}/physical_package_id")).unwrap_or(0),
        core: number(&format!("{base}/core_id")).unwrap_or(cpu as i64),
        cluster: last_cache(cpu).map(|found| found.1).unwrap_or_default(),
    }
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> u32 {
    let mut seen: Vec<T> = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen.len() as u32
}

/// Looks at the host, as far as this process may use it.
pub fn look() -> Found {
    let seats: Vec<Seat> = allowed().into_iter().map(seat).collect();
    let cpus = seats.len() as u32;
    let sockets = distinct(seats.iter().map(|seat| seat.socket));
    let cores = distinct(seats.iter().map(|seat| (seat.socket, seat.core)));
    let clusters = distinct(seats.iter().map(|seat| seat.cluster.clone()));
    // A shape must be regular; what is not is seen as cores of one package.
    let regular = cpus.is_multiple_of(cores) && cores.is_multiple_of(sockets);
    let (sockets, cores_per_socket, threads_per_core) = if regular {
        (sockets, cores / sockets, cpus / cores)
    } else {
        (1, cpus, 1)
    };
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = field(&memory, "MemTotal").and_then(|text| {
        let word = text.split_whitespace().next()?.to_owned();
        word.parse::<usize>().ok()
    });
    let nodes = (0..64)
        .filter(|n| std::path::Path::new(&format!("/sys/devices/system/node/node{n}")).exists())
        .count();
    let core_total = sockets * cores_per_socket;
    Found {
        sockets,
        cores_per_socket,
        threads_per_core,
        nodes: nodes.clamp(1, core_total.min(64) as usize) as u8,
        page_size: {
            use flagstone_core::platform::Platform;
            flagstone_linux::Linux::page_size().bytes()
        },
        memory_gib: (kib.unwrap_or(8 << 20) >> 20).max(1),
        ghz: field(&info, "cpu MHz")
            .and_then(|mhz| mhz.parse::<f64>().ok())
            .map_or(2.5, |mhz| mhz / 1000.0),
        llc_kib: last_cache(seats[0].cpu).map_or(32 << 10, |found| found.0),
        cluster_cores: (core_total / clusters.max(1)).clamp(1, cores_per_socket),
        model: field(&info, "model name").unwrap_or_else(|| "unknown CPU".into()),
        seats,
    }
}

impl Found {
    /// Two CPUs this far apart, if there are.
    pub fn pair(&self, distance: Distance) -> Option<(usize, usize)> {
        let first = &self.seats[0];
        let fits = |other: &&Seat| {
            let here = if other.socket != first.socket {
                Distance::Remote
            } else if other.core == first.core {
                Distance::Sibling
            } else if other.cluster == first.cluster {
                Distance::Cluster
            } else {
                Distance::Socket
            };
            here == distance
        };
        let other = self.seats[1..].iter().find(fits)?;
        Some((first.cpu, other.cpu))
    }

    /// The nearest two different cores, if there are two.
    pub fn any_pair(&self) -> Option<(usize, usize)> {
        [
            Distance::Cluster,
            Distance::Socket,
            Distance::Remote,
            Distance::Sibling,
        ]
        .into_iter()
        .find_map(|distance| self.pair(distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_found_has_the_cpus_this_process_may_use() {
        let found = look();
        let cpus = found.sockets * found.cores_per_socket * found.threads_per_core;
        assert_eq!(cpus as usize, allowed().len());
        assert!(found.llc_kib > 0 && found.cluster_cores >= 1);
        assert_eq!(found.any_pair().is_some(), cpus > 1);
    }
}
