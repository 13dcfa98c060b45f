//! Throughput against memory for every named kernel and patch of S0 and S3, and our own policy:
//! mmap1 on 112 of 224 CPUs, simulated with one seed.
//!
//! From 6.18 a mapping allocates other things than before, so that one picture has the kernels that do as 6.5
//! does, and a second one all of them doing as 6.18 does.

use super::ask::{Ask, Effort, Look, Runs};
use super::sheet::{Extra, Method, Sheet};
use flagstone_core::policy::{Policy, SheafRule};
use flagstone_kernels::{BASES, Named};

/// A picture: the table of extras that it is drawn from, the workload, and whether kernels from 6.18 are in it.
pub(super) struct Picture {
    /// The table of extras.
    pub(super) table: &'static str,
    /// Under the picture.
    pub(super) about: &'static str,
    /// What runs.
    pub(super) workload: &'static str,
    from_6_18: bool,
}

/// The pictures.
pub(super) const PICTURES: [Picture; 2] = [
    Picture {
        table: "throughput against memory, mmap1 on 112 of 224 CPUs",
        about: "mmap1 as Linux 6.5 does it, on 112 of 224 CPUs, simulated",
        workload: "mmap1",
        from_6_18: false,
    },
    Picture {
        table: "throughput against memory, mmap1 of 6.18 on 112 of 224 CPUs",
        about: "mmap1 as Linux 6.18 does it, under every policy, on 112 of 224 CPUs, simulated",
        workload: "mmap1-6.18",
        from_6_18: true,
    },
];
/// Its columns.
pub(super) const COLUMNS: [&str; 2] = ["operations per task and second", "memory in use"];

/// Policies of a picture.
fn policies(picture: &Picture) -> impl Iterator<Item = &'static str> {
    let all = picture.from_6_18;
    let bases = BASES.iter().map(|(name, _)| *name);
    let does = move |name: &&str| all || !is_from_6_18(name);
    bases
        .filter(does)
        .chain(["linux-6.5+order4", "linux-6.5+least-waste-repaired"])
}

/// Whether it is a kernel whose mappings take 6.18's steps: kernels have sheaves from then on.
fn is_from_6_18(name: &str) -> bool {
    let rule = Policy::parse(name).map(|policy| policy.sheaf_rule);
    matches!(rule, Ok(SheafRule::OptIn | SheafRule::BySize(..)))
}

fn run(picture: &Picture, effort: Effort) -> Ask {
    let look = effort.pick(Look::ms(4, 4), Look::ms(32, 32));
    Ask::new(picture.workload, "spr-2s-224", 112, look)
}

/// Runs to make.
pub(super) fn asks(effort: Effort) -> Vec<Ask> {
    let of = |picture| policies(picture).map(move |policy| run(picture, effort).under(policy));
    PICTURES.iter().flat_map(of).collect()
}

/// Adds the figures.
pub(super) fn fill(sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    for picture in &PICTURES {
        for policy in policies(picture) {
            let Ok(figures) = runs.get(&run(picture, effort).under(policy)) else {
                continue;
            };
            let values = [figures.ops, figures.mean_bytes / 1048576.0];
            for ((column, got), unit) in COLUMNS.into_iter().zip(values).zip(["1/s", "MiB"]) {
                sheet.extras.push(Extra {
                    seed: "S0",
                    table: picture.table.into(),
                    row: policy.into(),
                    column: column.into(),
                    got,
                    method: Method::Simulated,
                    unit,
                });
            }
        }
    }
}
