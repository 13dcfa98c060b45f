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

mod check;
mod figures;

pub use figures::{CacheShape, Latency, Locks, Queueing, RcuShape, Shape, Smt, WorkNs};
use serde::{Deserialize, Serialize};

/// The largest machine the simulator runs: line directories keep sharers as bitmaps of this size.
pub const MAX_CPUS: u32 = 1024;

/// The most packages and memory nodes a machine has.
pub const MAX_NODES: u32 = 64;

/// The largest memory of a machine, in GiB: what the tables of its host have address space for.
pub const MAX_MEMORY_GIB: usize = 4 << 10;

/// A machine profile.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The name it is asked for by.
    #[serde(default)]
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Values tried while this profile was fitted to published rows; decides no figure.
    #[serde(default, skip_serializing)]
    pub settings_tried: u32,
    /// The published cells it was fitted to, as `table/row/column`; decides no figure.
    #[serde(default, skip_serializing)]
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
const BUILT_IN: [(&str, &str); 10] = [
    ("spr-2s-224", include_str!("../../machines/spr-2s-224.toml")),
    (
        "intel-2s-224",
        include_str!("../../machines/intel-2s-224.toml"),
    ),
    (
        "intel-2s-128",
        include_str!("../../machines/intel-2s-128.toml"),
    ),
    (
        "xeon-2007-8",
        include_str!("../../machines/xeon-2007-8.toml"),
    ),
    (
        "x86-2way-2008",
        include_str!("../../machines/x86-2way-2008.toml"),
    ),
    ("power-160", include_str!("../../machines/power-160.toml")),
    ("x86-16", include_str!("../../machines/x86-16.toml")),
    (
        "epyc-2s-192",
        include_str!("../../machines/epyc-2s-192.toml"),
    ),
    (
        "epyc-2s-256",
        include_str!("../../machines/epyc-2s-256.toml"),
    ),
    (
        "this-machine",
        include_str!("../../machines/this-machine.toml"),
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
                "unknown machine `{base}`; known: {} (NAME@CPUS scales one; a file of one's own ends in .toml)",
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
            let first = first.replace("expected f64", "expected a number");
            let first = ["u8", "u32", "usize"].iter().fold(first, |said, kind| {
                said.replace(&format!("expected {kind}"), "expected a whole number")
            });
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            let there = text.lines().nth(line - 1).unwrap_or_default();
            let there = there.split('#').next().unwrap_or_default().trim();
            let there = match there {
                "" => String::new(),
                text => format!(", `{text}`"),
            };
            format!("machine `{name}`, line {line}{there}: {first}")
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

    /// The same machine at another pace: everything a CPU does on its own takes as much longer as a
    /// step of the pace loop, which takes `step_ns` now, or that power of it. The ways of lines, faults and wake-ups
    /// are not a CPU's own. Without a pace of its own the machine stays as it is.
    #[must_use]
    pub fn at_pace(&self, step_ns: f64) -> Self {
        let mut machine = self.clone();
        let Some(before) = self.work_ns.pace.filter(|pace| *pace > 0.0) else {
            return machine;
        };
        let power = self.work_ns.pace_power.unwrap_or(1.0);
        let (line, work) = (&mut machine.latency_ns, &mut machine.work_ns);
        let own = [&mut line.l1, &mut line.atomic];
        let steps = [&mut work.slot, &mut work.fast, &mut work.slow];
        let parts = [&mut work.object, &mut work.slab, &mut work.slab_page];
        let pages = [&mut work.block, &mut work.local];
        let absent = [&mut work.fast_free, &mut work.pageset, &mut work.mispredict];
        let figures = own.into_iter().chain(steps).chain(parts).chain(pages);
        figures
            .chain(absent.into_iter().flatten())
            .for_each(|figure| *figure *= (step_ns / before).powf(power));
        machine.work_ns.pace = Some(step_ns);
        machine
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
    fn at_a_slower_pace_a_cpus_own_work_takes_longer_and_ways_of_lines_do_not() {
        let mut machine = Machine::named("this-machine").unwrap();
        assert_eq!(machine.at_pace(3.0), machine, "its pace is not known");
        machine.work_ns.pace = Some(2.0);
        let slow = machine.at_pace(3.0);
        let (work, before) = (&slow.work_ns, &machine.work_ns);
        assert!((work.fast - before.fast * 1.5).abs() < 1e-9);
        assert!((slow.latency_ns.l1 - machine.latency_ns.l1 * 1.5).abs() < 1e-9);
        assert_eq!((work.page, work.wake), (before.page, before.wake));
        assert_eq!(slow.latency_ns.socket, machine.latency_ns.socket);
        assert_eq!(slow.at_pace(3.0), slow, "it has that pace");
        machine.work_ns.pace_power = Some(2.0);
        let slower = machine.at_pace(3.0);
        assert!((slower.work_ns.fast - machine.work_ns.fast * 2.25).abs() < 1e-9);
        assert!((slower.at_pace(2.0).work_ns.fast - machine.work_ns.fast).abs() < 1e-9);
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
    fn a_word_where_a_number_belongs_is_told_with_its_line_in_words_of_a_profile() {
        let text =
            include_str!("../../machines/x86-16.toml").replace("sockets = 1", "sockets = \"one\"");
        let line = Machine::parse("x", &text).unwrap_err();
        assert!(line.contains("`sockets = \"one\"`"), "{line}");
        assert!(line.ends_with("expected a whole number"), "{line}");
    }

    #[test]
    fn a_profile_with_an_unknown_word_is_refused_in_one_line() {
        let text = include_str!("../../machines/x86-16.toml").replace("handoff", "handof");
        let line = Machine::parse("x", &text).unwrap_err();
        assert!(
            line.starts_with("machine `x`, line ") && line.contains(", `handof = "),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}
