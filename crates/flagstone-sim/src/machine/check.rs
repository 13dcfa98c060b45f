//! What a profile must be to be run: a shape that exists, figures a clock can be advanced by.

use flagstone_core::policy::OBJECTS_PER_SLAB_MAX;

use super::{MAX_CPUS, MAX_MEMORY_GIB, MAX_NODES, Machine};

/// The largest time a profile may name, in nanoseconds: a second.
const MAX_NS: f64 = 1e9;

/// Bytes in a page, from and to: in a larger one a slab of 8-byte objects would hold more of them than
/// a slab counts ([`OBJECTS_PER_SLAB_MAX`]).
const PAGE_BYTES: (usize, usize) = (512, 128 << 10);
const _: () = assert!(PAGE_BYTES.1 / 8 <= OBJECTS_PER_SLAB_MAX);
const _: () = assert!(2 * PAGE_BYTES.1 / 8 > OBJECTS_PER_SLAB_MAX);

/// The longest grace period in milliseconds: a look is four of them at least, and a kernel's is some
/// ten milliseconds.
const MAX_GRACE_MS: f64 = 1e3;

impl Machine {
    /// Whether its figures make a machine that can be simulated.
    ///
    /// # Errors
    /// One line naming the profile and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let found = self.check_shape().and_then(|()| self.check_figures());
        found.map_err(|what| format!("machine `{}`: {what}", self.name))
    }

    fn check_shape(&self) -> Result<(), String> {
        let shape = &self.topology;
        let parts = [
            shape.sockets,
            shape.cores_per_socket,
            shape.threads_per_core,
        ];
        let cpus = parts
            .iter()
            .map(|part| u64::from(*part))
            .try_fold(1, u64::checked_mul);
        if !cpus.is_some_and(|cpus| (1..=u64::from(MAX_CPUS)).contains(&cpus)) {
            return Err(format!(
                "sockets * cores_per_socket * threads_per_core must be 1 to {MAX_CPUS}"
            ));
        }
        if shape.sockets > MAX_NODES {
            return Err(format!("sockets must be 1 to {MAX_NODES}"));
        }
        if shape.threads_per_core > 8 {
            return Err("threads_per_core must be 1 to 8".into());
        }
        let cores = shape.sockets * shape.cores_per_socket;
        let nodes = u32::from(shape.nodes);
        if nodes == 0 || nodes > cores || nodes > MAX_NODES {
            return Err(format!(
                "nodes must be 1 to {MAX_NODES}, and no more than there are cores"
            ));
        }
        let (least, most) = PAGE_BYTES;
        if !shape.page_size.is_power_of_two() || !(least..=most).contains(&shape.page_size) {
            return Err(format!(
                "page_size must be a power of two from {least} to {most} bytes"
            ));
        }
        if shape.memory_gib == 0 || shape.memory_gib > MAX_MEMORY_GIB {
            return Err(format!("memory_gib must be 1 to {MAX_MEMORY_GIB}"));
        }
        if shape.page_size > shape.memory_gib << 20 {
            return Err("page_size must be at most a 1024th of the memory".into());
        }
        if self.cache.cluster_cores == 0 || self.cache.llc_kib > MAX_MEMORY_GIB << 20 {
            return Err(
                "cache.cluster_cores must be 1 or more, llc_kib no more than a memory".into(),
            );
        }
        Ok(())
    }

    /// Every figure is a number that a clock can be advanced by.
    fn check_figures(&self) -> Result<(), String> {
        let (line, work, locks) = (&self.latency_ns, &self.work_ns, &self.locks);
        let above_zero = [
            ("topology.ghz", self.topology.ghz, 1e3),
            ("latency_ns.l1", line.l1, MAX_NS),
            ("latency_ns.socket", line.socket, MAX_NS),
            ("latency_ns.remote", line.remote, MAX_NS),
        ];
        for (name, figure, most) in above_zero {
            if !(figure > 0.0 && figure <= most) {
                return Err(format!(
                    "{name} must be above 0 and at most {most}, not {figure}"
                ));
            }
        }
        let times = [
            ("latency_ns.sibling", line.sibling),
            ("latency_ns.cluster", line.cluster.unwrap_or(0.0)),
            ("latency_ns.dram", line.dram),
            ("latency_ns.atomic", line.atomic),
            ("locks.watched_ns", locks.watched_ns.unwrap_or(0.0)),
            ("work_ns.slot", work.slot),
            ("work_ns.fast", work.fast),
            ("work_ns.fast_free", work.fast_free.unwrap_or(0.0)),
            ("work_ns.slow", work.slow),
            ("work_ns.object", work.object),
            ("work_ns.slab", work.slab),
            ("work_ns.managed_slab", work.managed_slab.unwrap_or(0.0)),
            ("work_ns.slab_page", work.slab_page),
            ("work_ns.block", work.block),
            ("work_ns.page", work.page),
            ("work_ns.local", work.local),
            ("work_ns.pageset", work.pageset.unwrap_or(0.0)),
            ("work_ns.seize", work.seize),
            ("work_ns.wake", work.wake),
            ("work_ns.mispredict", work.mispredict.unwrap_or(0.0)),
            ("work_ns.pace", work.pace.unwrap_or(0.0)),
            ("cache.line_ns", self.cache.line_ns),
        ];
        for (name, figure) in times {
            if !(0.0..=MAX_NS).contains(&figure) {
                return Err(format!("{name} must be from 0 to {MAX_NS}, not {figure}"));
            }
        }
        let factors = [
            ("latency_ns.linger", line.linger.unwrap_or(0.0), 0.0..=1.0),
            ("latency_ns.overlap", line.overlap.unwrap_or(0.0), 0.0..=1.0),
            (
                "latency_ns.in_row",
                line.in_row.unwrap_or_default()[0],
                0.0..=1.0,
            ),
            (
                "latency_ns.in_row",
                line.in_row.unwrap_or_default()[1],
                0.0..=1.0,
            ),
            (
                "work_ns.pace_power",
                work.pace_power.unwrap_or(1.0),
                0.0..=1e1,
            ),
            ("locks.handoff", locks.handoff, 0.0..=1e3),
            ("locks.watched", locks.watched.unwrap_or(0.0), 0.0..=1e3),
            ("smt.slowdown", self.smt.slowdown, 1.0..=1e2),
            ("rcu.grace_ms", self.rcu.grace_ms, 1e-3..=MAX_GRACE_MS),
        ];
        for (name, figure, range) in factors {
            if !range.contains(&figure) {
                let (from, to) = range.into_inner();
                return Err(format!("{name} must be from {from} to {to}, not {figure}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_no_clock_can_be_advanced_by_is_refused_by_its_name() {
        let good = include_str!("../../machines/x86-16.toml");
        let figure = |key: &str, value: &str| {
            let changed: Vec<String> = good
                .lines()
                .map(|line| match line.split_once(" = ") {
                    Some((found, _)) if found == key => format!("{key} = {value}"),
                    _ => line.to_owned(),
                })
                .collect();
            Machine::parse("x", &changed.join("\n"))
        };
        for (key, value) in [
            ("dram", "-5.0"),
            ("fast", "nan"),
            ("slow", "inf"),
            ("atomic", "1e300"),
            ("slowdown", "0.5"),
            ("grace_ms", "0.0"),
            ("handoff", "-1.0"),
            ("memory_gib", "0"),
            ("memory_gib", "999999999999"),
            ("sockets", "4000000000"),
            ("nodes", "200"),
            ("page_size", "1000"),
            ("page_size", "256"),
            ("page_size", "262144"),
            ("grace_ms", "2000.0"),
            ("cluster_cores", "0"),
        ] {
            let line = figure(key, value).expect_err(key);
            assert!(line.contains(key), "{key} = {value}: {line}");
        }
        assert!(figure("dram", "0.0").is_ok(), "nothing else was changed");
    }
}
