//! A spec: everything that decides a run, as one value that can be kept, sent and compared.
//!
//! ```text
//!   names and numbers ─► Spec ─► canonical text ─► digest: the identity
//!                          └───► flagstone_sim::Scenario ─► Record
//! ```
//!
//! Equal digests mean equal figures. The canonical text holds the machine's figures, not only its name; a
//! policy stands by its name, because [`MODEL_VERSION`] changes when a name comes to mean something else.

use crate::names;
use crate::tape::Recorded;
use flagstone_core::policy::{Engine, KEYS, Policy};
use flagstone_kernels::Named;
use flagstone_sim::costs::MS;
use flagstone_sim::scenario::NamedPolicy;
use flagstone_sim::window::Plan;
use flagstone_sim::workload::{Params, Workload};
use flagstone_sim::{MODEL_VERSION, Machine, Placement};
use serde::{Deserialize, Serialize};

/// The value of a spec's `schema`.
pub const SCHEMA: &str = "flagstone.spec/1";

/// A workload and its parameters. What is absent is the workload's own.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// Bytes of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Nanoseconds outside the allocator for each operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think_ns: Option<f64>,
    /// Where tasks are put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Times a finite workload is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// What the workload `trace` plays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Recorded>,
}

/// A policy and the knobs set on it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Its name, `linux-6.5+order4`.
    pub name: String,
    /// Settings over it, `KEY=VALUE`, in the order of [`KEYS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knobs: Vec<String>,
}

/// How long to look, in picoseconds of virtual time (see [`Plan`]).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// T at the first decision.
    pub first_ps: u64,
    /// T at the last, for rows that are much work.
    pub last_ps: u64,
    /// T at the last, for rows that are little.
    pub patient_ps: u64,
    /// Operations beyond which a row is much work.
    pub work: u64,
    /// Largest drift that counts as steady.
    pub tolerance: f64,
}

impl Window {
    /// 64 to 512 ms, up to 4 s while that is cheap.
    pub const FULL: Self = Self::of(&Plan::FULL);
    /// 16 to 32 ms.
    pub const QUICK: Self = Self::of(&Plan::QUICK);

    const fn of(plan: &Plan) -> Self {
        Self {
            first_ps: plan.first,
            last_ps: plan.last,
            patient_ps: plan.patient,
            work: plan.work,
            tolerance: plan.tolerance,
        }
    }

    /// One look of `ms` milliseconds.
    #[must_use]
    pub const fn fixed(ms: u64) -> Self {
        Self {
            first_ps: ms * MS,
            last_ps: ms * MS,
            patient_ps: ms * MS,
            ..Self::FULL
        }
    }

    /// Looks of `first` milliseconds and twice as many until the halves agree: up to `last`, and longer while
    /// that is cheap, as [`Window::FULL`] does.
    #[must_use]
    pub const fn until(first: u64, last: u64) -> Self {
        Self {
            first_ps: first * MS,
            last_ps: last * MS,
            ..Self::FULL
        }
    }

    /// `full`, `quick`, milliseconds, or the first and the last length of a look that goes on until it settles.
    ///
    /// # Errors
    /// One line that says what works.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ms = |text: &str| {
            let ms = text.trim().parse().ok();
            ms.filter(|ms| (1..=60_000).contains(ms))
        };
        let span = text.strip_suffix("ms").unwrap_or(text);
        let looks = span.split_once("..").map(|(a, b)| (ms(a), ms(b)));
        match (text, looks, ms(span)) {
            ("full", ..) => Ok(Self::FULL),
            ("quick", ..) => Ok(Self::QUICK),
            (_, Some((Some(first), Some(last))), _) if first < last => Ok(Self::until(first, last)),
            (_, None, Some(ms)) => Ok(Self::fixed(ms)),
            _ => Err(format!(
                "window `{text}`: it is full, quick, 1ms to 60000ms of virtual time, or as 64..128ms"
            )),
        }
    }

    /// As [`Window::parse`] reads it.
    #[must_use]
    pub fn name(&self) -> String {
        match *self {
            Self::FULL => "full".into(),
            Self::QUICK => "quick".into(),
            Self {
                first_ps, last_ps, ..
            } if first_ps == last_ps => {
                format!("{}ms", first_ps / MS)
            }
            Self {
                first_ps, last_ps, ..
            } => format!("{}..{}ms", first_ps / MS, last_ps / MS),
        }
    }

    fn plan(self) -> Plan {
        Plan {
            first: self.first_ps,
            last: self.last_ps,
            patient: self.patient_ps,
            work: self.work,
            tolerance: self.tolerance,
        }
    }
}

/// Everything that decides a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`MODEL_VERSION`] of the simulator that it was made for.
    pub model_version: u32,
    /// What runs.
    pub workload: Task,
    /// Under which policy.
    pub policy: Rules,
    /// Tasks, a CPU each.
    pub tasks: u32,
    /// How long to look.
    pub window: Window,
    /// Seed of everything random.
    pub seed: u64,
    /// On which machine: a built-in profile's name, or a profile.
    #[serde(with = "by_name")]
    pub machine: Machine,
}

/// Machines that are built in stand by their names.
mod by_name {
    use crate::names;
    use flagstone_sim::Machine;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Name(String),
        Profile(Box<Machine>),
    }

    pub(super) fn serialize<S: Serializer>(machine: &Machine, out: S) -> Result<S::Ok, S::Error> {
        // What decides no figure is not in the text.
        let text = |machine: &Machine| serde_json::to_string(machine).expect("plain data");
        match Machine::named(&machine.name) {
            Ok(known) if text(&known) == text(machine) => machine.name.serialize(out),
            _ => machine.serialize(out),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Machine, D::Error> {
        let machine = match Either::deserialize(from)? {
            Either::Name(name) => names::machine(&name).map_err(D::Error::custom)?,
            Either::Profile(machine) => *machine,
        };
        machine.check().map_err(D::Error::custom)?;
        Ok(machine)
    }
}

/// The first 128 bits of BLAKE3, as 32 hexadecimal digits.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

impl Spec {
    /// A run of `workload` under `policy` with one task, seed 1 and the full window.
    ///
    /// # Errors
    /// One line for an unknown workload or policy.
    pub fn new(workload: &str, machine: Machine, policy: &str) -> Result<Self, String> {
        Ok(Self {
            schema: SCHEMA.into(),
            model_version: MODEL_VERSION,
            workload: Task {
                name: names::workload(workload)?.name.into(),
                ..Task::default()
            },
            policy: Rules::parse(policy, &[])?,
            tasks: 1,
            window: Window::FULL,
            seed: 1,
            machine,
        })
    }

    /// A run that plays a trace, with a task for each of its streams and copies.
    #[must_use]
    pub fn played(machine: Machine, policy: Rules, trace: Recorded) -> Self {
        Self {
            schema: SCHEMA.into(),
            model_version: MODEL_VERSION,
            workload: Task {
                name: Workload::played().name.into(),
                trace: Some(trace),
                ..Task::default()
            },
            policy,
            tasks: 1,
            window: Window::FULL,
            seed: 1,
            machine,
        }
    }

    /// Whether it can be run at all.
    ///
    /// # Errors
    /// One line that says what cannot be.
    pub fn check(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!(
                "a spec's schema is {SCHEMA}, not `{}`",
                self.schema
            ));
        }
        let workload = self.known_workload()?;
        workload.check_tasks(self.tasks, self.machine.cpus(), &self.machine.name)?;
        if let Some(size) = self.workload.size {
            workload.check_size(size)?;
        }
        let least = workload.think_least_ns;
        let think = self.workload.think_ns.unwrap_or(0.0);
        if !(least..=1e9).contains(&think) {
            return Err(format!(
                "a think time of {think} ns: it is from {least} ns to 1s"
            ));
        }
        self.policy.policy().map(drop)
    }

    /// The text whose digest is the identity: the machine with all its figures.
    #[must_use]
    pub fn canonical(&self) -> String {
        #[derive(Serialize)]
        struct Canonical<'a> {
            schema: &'a str,
            model_version: u32,
            workload: &'a Task,
            policy: &'a Rules,
            tasks: u32,
            window: &'a Window,
            seed: u64,
            machine: &'a Machine,
        }
        let mut workload = self.workload.clone();
        if let Some(trace) = &mut workload.trace {
            trace.file.clear();
        }
        serde_json::to_string(&Canonical {
            schema: &self.schema,
            model_version: self.model_version,
            workload: &workload,
            policy: &self.policy,
            tasks: self.tasks,
            window: &self.window,
            seed: self.seed,
            machine: &self.machine,
        })
        .expect("plain data")
    }

    /// The identity.
    #[must_use]
    pub fn digest(&self) -> String {
        digest(self.canonical().as_bytes())
    }

    /// As one line of JSON, from which [`Spec::from_json`] makes it again.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// From JSON.
    ///
    /// # Errors
    /// One line.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let spec: Self = serde_json::from_str(text).map_err(|error| format!("spec: {error}"))?;
        spec.check()?;
        Ok(spec)
    }

    /// The parameters as the simulator takes them.
    pub(crate) fn params(&self) -> Result<Params, String> {
        let tape = match self.workload.trace {
            Some(_) => Some(crate::tape::tape(self)?.0),
            None => None,
        };
        Ok(Params {
            tape,
            size: self.workload.size,
            think_ns: self.workload.think_ns,
            placement: self.workload.placement,
            rounds: self.workload.rounds,
            ..Params::default()
        })
    }

    pub(crate) fn plan(&self) -> Plan {
        self.window.plan()
    }

    pub(crate) fn known_workload(&self) -> Result<&'static Workload, String> {
        match self.workload.trace {
            Some(_) => Ok(Workload::played()),
            None => names::workload(&self.workload.name),
        }
    }

    /// About how much work the run is, in no unit.
    #[must_use]
    pub fn weight(&self) -> u64 {
        u64::from(self.tasks) * (self.window.first_ps / MS).max(1)
    }
}

impl Rules {
    /// A policy by name, with settings over it.
    ///
    /// # Errors
    /// One line that says what is wrong and what was probably meant.
    pub fn parse(name: &str, settings: &[String]) -> Result<Self, String> {
        let (name, _) = names::policy(name)?;
        let mut knobs: Vec<(usize, String)> = Vec::new();
        for setting in settings {
            let mut policy = Policy::parse(&name).map_err(|error| error.to_string())?;
            let (key, value) = names::set(&mut policy, setting)?;
            knobs.retain(|(_, known)| known.split('=').next() != Some(&key));
            knobs.push((rank(&key), format!("{key}={value}")));
        }
        // Smallest and largest order bound each other: between them the order given decides.
        knobs.sort_by_key(|(rank, _)| *rank);
        let knobs = knobs.into_iter().map(|(_, text)| text).collect();
        Ok(Self { name, knobs })
    }

    /// The policy itself.
    ///
    /// # Errors
    /// One line, if a name or a setting is not known any more.
    pub fn policy(&self) -> Result<Policy, String> {
        let mut policy = Policy::parse(&self.name).map_err(|error| error.to_string())?;
        for setting in &self.knobs {
            names::set(&mut policy, setting)?;
        }
        Ok(policy)
    }

    /// The settings that change nothing: the policy has that value by itself, or its engine does not look at it.
    ///
    /// # Errors
    /// As for [`Rules::policy`].
    pub fn without_effect(&self) -> Result<Vec<&str>, String> {
        let whole = self.policy()?;
        let mut useless = Vec::new();
        for (at, knob) in self.knobs.iter().enumerate() {
            let mut others = self.clone();
            others.knobs.remove(at);
            let unused = matches!(whole.engine, Engine::Sheaf | Engine::KernelSheaf)
                && knob.starts_with("cpu_partial=");
            if unused || others.policy()? == whole {
                useless.push(&**knob);
            }
        }
        Ok(useless)
    }

    /// For people: the name, then the settings.
    #[must_use]
    pub fn label(&self) -> String {
        let mut label = self.name.clone();
        for knob in &self.knobs {
            label.push(' ');
            label.push_str(knob);
        }
        label
    }

    pub(crate) fn named(&self) -> Result<NamedPolicy, String> {
        Ok(NamedPolicy {
            name: self.label(),
            policy: self.policy()?,
        })
    }
}

/// The place of a knob in the canonical order.
fn rank(key: &str) -> usize {
    match key {
        "slab_max_order" | "slub_max_order" | "slab_min_order" | "slub_min_order" => 0,
        _ => {
            1 + KEYS
                .iter()
                .position(|(known, _)| *known == key)
                .unwrap_or(KEYS.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        Spec::new("larson", names::machine("x86-16").unwrap(), "linux-7.0").unwrap()
    }

    #[test]
    fn the_identity_depends_on_what_decides_figures_and_on_nothing_else() {
        let spec = spec();
        assert_eq!(spec.digest(), spec.clone().digest());
        let mut documented = spec.clone();
        documented.machine.settings_tried += 1;
        documented.machine.fitted_to.push("a row".into());
        assert_eq!(documented.digest(), spec.digest(), "what decides no figure");
        let others = [
            Spec {
                seed: 2,
                ..spec.clone()
            },
            Spec {
                tasks: 2,
                ..spec.clone()
            },
            Spec {
                model_version: MODEL_VERSION + 1,
                ..spec.clone()
            },
            Spec {
                window: Window::QUICK,
                ..spec.clone()
            },
            Spec {
                machine: names::machine("x86-16@8").unwrap(),
                ..spec.clone()
            },
            Spec {
                policy: Rules::parse("linux-6.5", &[]).unwrap(),
                ..spec.clone()
            },
        ];
        for other in others {
            assert_ne!(other.digest(), spec.digest(), "{}", other.to_json());
        }
        let mut slower = spec.clone();
        slower.machine.latency_ns.remote += 1.0;
        assert_ne!(slower.digest(), spec.digest(), "one figure of the profile");
    }

    #[test]
    fn a_spec_survives_its_own_text_with_a_built_in_machine_and_with_another() {
        let mut spec = spec();
        spec.policy = Rules::parse("7.0", &["barn_bytes_max=8M".into()]).unwrap();
        assert_eq!(spec.policy.knobs, ["barn_bytes_max=8388608"]);
        assert!(
            spec.to_json().contains("\"machine\":\"x86-16\""),
            "{}",
            spec.to_json()
        );
        assert_eq!(Spec::from_json(&spec.to_json()).unwrap(), spec);
        spec.machine.latency_ns.l1 = 0.1 + 0.2;
        spec.machine.name = "mine".into();
        let again = Spec::from_json(&spec.to_json()).unwrap();
        assert_eq!(again.digest(), spec.digest());
    }

    #[test]
    fn settings_in_another_order_are_the_same_policy_unless_order_decides() {
        let of = |all: &[&str]| {
            let all: Vec<String> = all.iter().map(|one| (*one).to_owned()).collect();
            Rules::parse("linux-6.5", &all).unwrap()
        };
        assert_eq!(
            of(&["cpu_partial=3", "min_partial=9"]),
            of(&["min_partial=9", "cpu_partial=3"])
        );
        assert_eq!(
            of(&["cpu_partial=3", "cpu_partial=4"]),
            of(&["cpu_partial=4"])
        );
        assert_ne!(
            of(&["slab_min_order=4", "slab_max_order=2"]),
            of(&["slab_max_order=2", "slab_min_order=4"])
        );
    }

    #[test]
    fn windows_are_named_as_they_are_read() {
        for name in ["full", "quick", "40ms", "64..128ms"] {
            assert_eq!(Window::parse(name).unwrap().name(), name);
        }
        assert_eq!(Window::parse("64..512ms").unwrap(), Window::FULL);
        for wrong in [
            "2 weeks",
            "64..",
            "..64ms",
            "64..64ms",
            "128..64ms",
            "0..9ms",
            "1..60001ms",
        ] {
            let line = Window::parse(wrong).unwrap_err();
            assert!(
                line.contains("full, quick") && line.contains(wrong),
                "{line}"
            );
        }
    }
}
