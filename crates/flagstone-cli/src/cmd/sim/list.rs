//! `flagstone sim list`: the names that `sim run` takes.

use crate::args::Json;
use crate::exit::Outcome;
use crate::terminal::size;
use flagstone_kernels::{BASES, MODIFIERS};

use flagstone_sim::Vm;
use flagstone_sim::machine::{self, Machine};
use flagstone_sim::workload::{WORKLOADS, Workload};
use serde::Serialize;
use std::process::ExitCode;

/// List workloads, machines and policies.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub(super) json: Json,
}

/// Subcommands that run something else than a workload.
const INSTEAD: [(&str, &str); 2] = [
    (
        "interleave",
        "random programs, interleaved at every access, all invariants checked",
    ),
    (
        "validate",
        "larson, random-mix and one-alloc-n-free on real threads here, and simulated",
    ),
];

/// A name and what it stands for.
#[derive(Serialize)]
struct Known<'a> {
    name: &'a str,
    about: String,
}

/// The document of `--list --json`.
#[derive(Serialize)]
struct Names<'a> {
    schema: &'static str,
    workloads: Vec<Known<'a>>,
    /// Names that stand in a workload's place.
    instead: Vec<Known<'a>>,
    machines: Vec<Known<'a>>,
    policies: Vec<Known<'a>>,
    /// What may follow a policy's name, each with a `+` before it.
    modifiers: Vec<Known<'a>>,
}

/// A machine in a line, with what a run on it takes of this host.
fn about(machine: &Machine) -> String {
    let space = size(Vm::address_bytes(machine) as u64);
    format!("{}; a run reserves {space} of address space", machine.about)
}

impl Names<'static> {
    fn all() -> Self {
        let known = |&(name, about): &(&'static str, &str)| Known {
            name,
            about: about.to_owned(),
        };
        let workload = |workload: &'static Workload| known(&(workload.name, workload.about));
        let machine = |name| Known {
            name,
            about: Machine::named(name).map_or_else(|line| line, |found| about(&found)),
        };
        Self {
            schema: "flagstone.sim-names/1",
            workloads: WORKLOADS.iter().map(workload).collect(),
            instead: INSTEAD.iter().map(known).collect(),
            machines: machine::names().map(machine).collect(),
            policies: BASES.iter().map(known).collect(),
            modifiers: MODIFIERS.iter().map(known).collect(),
        }
    }
}

pub(super) fn run(json: &Json) -> Outcome {
    let names = Names::all();
    if json.path().is_some() {
        return super::write_json(json, &names);
    }
    let parts = [
        ("workloads", &names.workloads, ""),
        ("in a workload's place", &names.instead, ""),
        ("machines", &names.machines, ""),
        ("policies", &names.policies, ""),
        ("and after a policy", &names.modifiers, "+"),
    ];
    for (title, known, before) in parts {
        println!("{title}");
        for Known { name, about } in known {
            println!("  {:<24} {about}", format!("{before}{name}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
