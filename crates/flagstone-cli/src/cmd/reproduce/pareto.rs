//! Throughput against memory for every named kernel and patch of S0 and S3, and our own policy:
//! mmap1 on 112 of 224 CPUs, simulated with one seed.

use super::ask::{Ask, Effort, Look, Runs};
use super::sheet::{Extra, Method, Sheet};
use flagstone_core::policy::BASES;

/// The table of extras the picture is drawn from.
pub(super) const TABLE: &str = "throughput against memory, mmap1 on 112 of 224 CPUs";
/// Its columns.
pub(super) const COLUMNS: [&str; 2] = ["operations per task and second", "memory in use"];

fn policies() -> impl Iterator<Item = &'static str> {
    let bases = BASES.iter().map(|(name, _)| *name);
    bases.chain(["linux-6.5+order4", "linux-6.5+least-waste-repaired"])
}

fn mmap1(effort: Effort) -> Ask {
    let look = effort.pick(Look::ms(4, 4), Look::ms(32, 32));
    Ask::new("mmap1", "spr-2s-224", 112, look)
}

/// Runs to make.
pub(super) fn asks(effort: Effort) -> Vec<Ask> {
    policies()
        .map(|policy| mmap1(effort).under(policy))
        .collect()
}

/// Adds the figures.
pub(super) fn fill(sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    for policy in policies() {
        let Ok(figures) = runs.get(&mmap1(effort).under(policy)) else {
            continue;
        };
        let values = [figures.ops, figures.mean_bytes / 1048576.0];
        for ((column, got), unit) in COLUMNS.into_iter().zip(values).zip(["1/s", "MiB"]) {
            sheet.extras.push(Extra {
                seed: "S0",
                table: TABLE.into(),
                row: policy.into(),
                column: column.into(),
                got,
                method: Method::Simulated,
                unit,
            });
        }
    }
}
