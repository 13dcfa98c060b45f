//! Machine profiles: what a step costs on which machine, as data.
//!
//! ```text
//!   machines/NAME.toml ──► Machine ──► Topology  who sits near whom        (topology.rs)
//!                                 └──► Costs     picoseconds, ready to add (costs.rs)
//! ```
//!
//! Every figure in a profile carries its source as a comment in the file: a document's own
//! words, a fit on a base row, or an estimate that says so. A profile is never fitted to the
//! patched side of a published pair. `NAME@CPUS` scales a profile to another CPU count by giving
//! each socket more cores, everything else unchanged.

use serde::Deserialize;

/// The largest machine the simulator runs: line directories keep sharers as bitmaps of this size.
pub const MAX_CPUS: u32 = 1024;

/// The most packages and memory nodes a machine has.
pub const MAX_NODES: u32 = 64;

/// The largest memory of a machine, in GiB: what the tables of its host have address space for.
pub const MAX_MEMORY_GIB: usize = 4 << 10;

/// The largest time a profile may name, in nanoseconds: a second.
const MAX_NS: f64 = 1e9;

/// How many CPUs there are and how they hang together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Packages.
    pub sockets: u32,
    /// Cores in one package.
    pub cores_per_socket: u32,
    /// Hardware threads of one core.
    pub threads_per_core: u32,
    /// Memory nodes.
    pub nodes: u8,
    /// Bytes in a page.
    pub page_size: usize,
    /// Physical memory in GiB.
    pub memory_gib: usize,
    /// Clock in GHz, to state times in cycles.
    pub ghz: f64,
}

/// Moving a cache line, in nanoseconds, by where it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// It is in this CPU's own cache.
    pub l1: f64,
    /// The other thread of this core has it.
    pub sibling: f64,
    /// Another core of the same last-level cache has it; absent: as `socket`.
    pub cluster: Option<f64>,
    /// Another core of the same package has it.
    pub socket: f64,
    /// Another package has it.
    pub remote: f64,
    /// Nobody has it.
    pub dram: f64,
    /// What a locked instruction costs beyond the access.
    pub atomic: f64,
    /// The part of a line's journey during which its last owner still has it: until the request
    /// has reached it. Absent: none.
    pub linger: Option<f64>,
    /// The part of an object line's journey that its user waits for: loads and stores to several
    /// are under way at once. Absent: all of it.
    pub overlap: Option<f64>,
}

/// Who gets a contended lock next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queueing {
    /// First come, first served; each waits on a line of its own.
    Queued,
    /// All waiters hammer one line; who wins is chance, and every waiter makes it slower.
    TestAndSet,
    /// As `TestAndSet`, but a release gives the lock to nobody: a waiter notices it only after a
    /// while, and whoever asks meanwhile (mostly the last holder) has it again.
    Spinning,
}

/// Lock behaviour of the machine's kernel.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locks {
    /// All locks not named otherwise.
    pub default: Queueing,
    /// The lock of a single slab, if it differs.
    pub slab: Option<Queueing>,
    /// Hand-off over a plain line transfer between the same two CPUs.
    pub handoff: f64,
    /// Added to a test-and-set hand-off for each waiter, in nanoseconds.
    pub per_waiter_ns: f64,
    /// What a holder's store to its lock's line costs while somebody spins on that line, over a
    /// plain line transfer between the two. Absent: the line stays with its holder.
    pub watched: Option<f64>,
    /// Added to that for each CPU that spins, in nanoseconds. Absent: nothing.
    pub watched_ns: Option<f64>,
}

/// Simultaneous threads of one core.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smt {
    /// How much longer private work takes for each further running thread of the core.
    pub slowdown: f64,
    /// The same for each thread of the core that spins on a lock. Absent: no longer at all.
    pub spinning: Option<f64>,
    /// Lines at hand and locked instructions are private work too: threads of a core share its
    /// load and store ports. Absent: they take the same time however many run.
    pub at_hand: Option<bool>,
}

/// Private work in nanoseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkNs {
    /// One step on a per-CPU slot.
    pub slot: f64,
    /// A fast path around it.
    pub fast: f64,
    /// Entering a slow path.
    pub slow: f64,
    /// One object handled.
    pub object: f64,
    /// Setting up a fresh slab, whatever its size.
    pub slab: f64,
    /// For each of its pages.
    pub slab_page: f64,
    /// The array-cache engine's management of a fresh slab. Absent: nothing.
    pub managed_slab: Option<f64>,
    /// One buddy block moved.
    pub block: f64,
    /// One page cleared and mapped.
    pub page: f64,
    /// A lock that only this CPU takes.
    pub local: f64,
    /// Stopping another CPU to take its slots.
    pub seize: f64,
    /// Waking a sleeping task.
    pub wake: f64,
}

/// Deferred frees.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RcuShape {
    /// Length of a grace period in milliseconds.
    pub grace_ms: f64,
    /// Callbacks run in one pass, at least.
    pub batch: u32,
}

/// Data caches.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheShape {
    /// Size of one last-level cache in KiB.
    pub llc_kib: usize,
    /// Cores that share it.
    pub cluster_cores: u32,
    /// A data line that missed it, in nanoseconds, overlap included.
    pub line_ns: f64,
}

/// A machine profile.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The name it is asked for by.
    #[serde(default)]
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Values tried while this profile was fitted to published rows; decides no figure.
    #[serde(default)]
    pub settings_tried: u32,
    /// The published cells it was fitted to, as `table/row/column`; decides no figure.
    #[serde(default)]
    pub fitted_to: Vec<String>,
    /// CPUs, nodes, page size, memory.
    pub topology: Shape,
    /// Line transfers.
    pub latency_ns: Latency,
    /// Locks.
    pub locks: Locks,
    /// Sibling threads.
    pub smt: Smt,
    /// Private work.
    pub work_ns: WorkNs,
    /// Grace periods.
    pub rcu: RcuShape,
    /// Data caches.
    pub cache: CacheShape,
}

/// The profiles that come with the program: name and text.
const BUILT_IN: [(&str, &str); 9] = [
    ("spr-2s-224", include_str!("../machines/spr-2s-224.toml")),
    (
        "intel-2s-224",
        include_str!("../machines/intel-2s-224.toml"),
    ),
    (
        "intel-2s-128",
        include_str!("../machines/intel-2s-128.toml"),
    ),
    ("xeon-2007-8", include_str!("../machines/xeon-2007-8.toml")),
    (
        "x86-2way-2008",
        include_str!("../machines/x86-2way-2008.toml"),
    ),
    ("power-160", include_str!("../machines/power-160.toml")),
    ("x86-16", include_str!("../machines/x86-16.toml")),
    ("epyc-2s-256", include_str!("../machines/epyc-2s-256.toml")),
    (
        "this-machine",
        include_str!("../machines/this-machine.toml"),
    ),
];

/// The names of the built-in profiles, in the order in which they are listed.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

impl Machine {
    /// The profile called `name`, or `NAME@CPUS`: that profile scaled to `CPUS` logical CPUs.
    ///
    /// # Errors
    /// One line: what is wrong and what is known, when the name is unknown or the CPU count
    /// cannot be made of whole cores.
    pub fn named(name: &str) -> Result<Self, String> {
        let (base, cpus) = match name.split_once('@') {
            Some((base, cpus)) => (base, Some(cpus)),
            None => (name, None),
        };
        let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == base) else {
            let known: Vec<_> = names().collect();
            return Err(format!(
                "unknown machine `{base}`; known: {} (NAME@CPUS scales one)",
                known.join(", ")
            ));
        };
        let machine = Self::parse(base, text)?;
        match cpus {
            None => Ok(machine),
            Some(cpus) => {
                let count = cpus
                    .parse()
                    .map_err(|_| format!("machine `{name}`: `{cpus}` is not a CPU count"))?;
                machine.scaled(count)
            }
        }
    }

    /// A profile from TOML text, called `name`.
    ///
    /// # Errors
    /// One line naming the profile and what is wrong with it.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut machine: Self = toml::from_str(text).map_err(|error| {
            let first = error.message().lines().next().unwrap_or("not readable");
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            format!("machine `{name}`, line {line}: {first}")
        })?;
        machine.name = name.to_owned();
        machine.check()?;
        Ok(machine)
    }

    /// Logical CPUs.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        let shape = &self.topology;
        shape.sockets * shape.cores_per_socket * shape.threads_per_core
    }

    /// The same machine with `cpus` logical CPUs: more or fewer cores in each socket, and last-level
    /// caches that serve as many cores as before.
    ///
    /// # Errors
    /// When `cpus` is not a multiple of sockets times threads, or beyond [`MAX_CPUS`].
    pub fn scaled(&self, cpus: u32) -> Result<Self, String> {
        let shape = &self.topology;
        let step = shape.sockets * shape.threads_per_core;
        if cpus == 0 || cpus > MAX_CPUS || !cpus.is_multiple_of(step) {
            return Err(format!(
                "machine `{}` scales to multiples of {step} CPUs from {step} to {MAX_CPUS}, not to {cpus}",
                self.name
            ));
        }
        let mut machine = self.clone();
        machine.topology.cores_per_socket = cpus / step;
        machine.name = format!("{}@{cpus}", self.name);
        machine.cache.cluster_cores = machine.cache.cluster_cores.min(cpus / step);
        Ok(machine)
    }

    fn check(&self) -> Result<(), String> {
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
        if flagstone_core::base::PageSize::new(shape.page_size).is_none() {
            return Err("page_size must be a power of two from 512 bytes up".into());
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
            ("locks.per_waiter_ns", locks.per_waiter_ns),
            ("locks.watched_ns", locks.watched_ns.unwrap_or(0.0)),
            ("work_ns.slot", work.slot),
            ("work_ns.fast", work.fast),
            ("work_ns.slow", work.slow),
            ("work_ns.object", work.object),
            ("work_ns.slab", work.slab),
            ("work_ns.managed_slab", work.managed_slab.unwrap_or(0.0)),
            ("work_ns.slab_page", work.slab_page),
            ("work_ns.block", work.block),
            ("work_ns.page", work.page),
            ("work_ns.local", work.local),
            ("work_ns.seize", work.seize),
            ("work_ns.wake", work.wake),
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
            ("locks.handoff", locks.handoff, 0.0..=1e3),
            ("locks.watched", locks.watched.unwrap_or(0.0), 0.0..=1e3),
            ("smt.slowdown", self.smt.slowdown, 1.0..=1e2),
            ("smt.spinning", self.smt.spinning.unwrap_or(1.0), 1.0..=1e2),
            ("rcu.grace_ms", self.rcu.grace_ms, 1e-3..=1e4),
        ];
        for (name, figure, range) in factors {
            if !range.contains(&figure) {
                let (from, to) = range.into_inner();
                return Err(format!("{name} must be from {from} to {to}, not {figure}"));
            }
        }
        if self.rcu.batch == 0 {
            return Err("rcu.batch must be at least 1".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_reads_and_has_the_cpus_its_name_says() {
        for name in names() {
            let machine = Machine::named(name).unwrap();
            let said: Option<u32> = name.rsplit('-').next().and_then(|n| n.parse().ok());
            if let Some(said) = said.filter(|n| *n < 2000) {
                assert_eq!(machine.cpus(), said, "{name}");
            }
        }
    }

    #[test]
    fn every_figure_of_every_profile_has_a_source() {
        for (name, text) in BUILT_IN {
            for line in text.lines().filter(|line| line.contains(" = ")) {
                // Texts are no figures.
                let text = line.starts_with("about") || line.starts_with("fitted_to");
                let figure = !text && !line.starts_with('#');
                assert!(!figure || line.contains("# "), "{name}: no source: {line}");
            }
        }
    }

    #[test]
    fn an_unknown_machine_lists_the_known_ones() {
        let line = Machine::named("cray-1").unwrap_err();
        assert!(line.contains("cray-1") && names().all(|name| line.contains(name)));
    }

    #[test]
    fn a_profile_scales_to_1024_cpus_and_not_to_odd_counts() {
        assert_eq!(Machine::named("spr-2s-224@1024").unwrap().cpus(), 1024);
        for wrong in [
            "spr-2s-224@0",
            "spr-2s-224@1028",
            "spr-2s-224@7",
            "spr-2s-224@x",
        ] {
            assert!(Machine::named(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_profile_with_an_unknown_word_is_refused_in_one_line() {
        let text = include_str!("../machines/x86-16.toml").replace("handoff", "handof");
        let line = Machine::parse("x", &text).unwrap_err();
        assert!(
            line.starts_with("machine `x`, line ") && line.contains("handof"),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1, "{line}");
    }

    #[test]
    fn a_figure_no_clock_can_be_advanced_by_is_refused_by_its_name() {
        let good = include_str!("../machines/x86-16.toml");
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
            ("batch", "0"),
            ("memory_gib", "0"),
            ("memory_gib", "999999999999"),
            ("sockets", "4000000000"),
            ("nodes", "200"),
            ("page_size", "1000"),
            ("cluster_cores", "0"),
        ] {
            let line = figure(key, value).expect_err(key);
            assert!(line.contains(key), "{key} = {value}: {line}");
        }
        assert!(figure("dram", "0.0").is_ok(), "nothing else was changed");
    }
}
