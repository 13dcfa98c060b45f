//! Concrete changes, each with what it should bring and what it costs.
//!
//! Nothing is changed: the answer holds commands to copy. Every rule computes its change; one
//! whose gain passes a threshold is advised, the others are told as weighed and left.
//!
//! ```text
//!   slabs   boot parameters: order limits, debugging, merging
//!   lists   sysfs writes: empty slabs, per-CPU partial lists; compaction
//!   pages   sysctls: pageset marks
//! ```

mod lists;
mod pages;
mod slabs;

use serde::Serialize;

use super::formula::Formula;
use super::gather::Host;
use super::population::Ledger;

/// How a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// On the kernel command line, from the next boot on.
    BootParameter,
    /// A write below `/sys`, at once, until the next boot.
    SysfsWrite,
    /// A `sysctl`, at once, until the next boot.
    Sysctl,
}

/// A value written to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Write {
    /// Absolute path below `/sys` or `/proc/sys`.
    pub file: String,
    /// What is written.
    pub value: String,
}

impl Write {
    fn cache(cache: &str, file: &str, value: u64) -> Self {
        Self {
            file: format!("/sys/kernel/slab/{cache}/{file}"),
            value: value.to_string(),
        }
    }

    fn vm(name: &str, value: u64) -> Self {
        Self {
            file: format!("/proc/sys/vm/{name}"),
            value: value.to_string(),
        }
    }

    /// What a person would type.
    fn command(&self) -> String {
        match self.file.strip_prefix("/proc/sys/vm/") {
            Some(name) => format!("sysctl -w vm.{name}={}", self.value),
            None => format!("echo {} > {}", self.value, self.file),
        }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// How the change is made.
    pub kind: Kind,
    /// What to type, or to add to the kernel command line.
    pub commands: Vec<String>,
    /// The same as files and values; empty for a boot parameter.
    pub writes: Vec<Write>,
    /// What is seen here that calls for it.
    pub because: String,
    /// What it should bring.
    pub gain: String,
    /// The gain in bytes where it is memory; the cautious end of the range.
    pub gain_bytes: Option<u64>,
    /// What it costs.
    pub cost: String,
    /// Whether the gain is worth the change; if not, it was only weighed.
    #[serde(skip)]
    pub worth: bool,
}

/// Gains below this share of slab memory are not worth a change.
const WORTH_SHARE: u64 = 50;

/// Gains below this many bytes are not worth a change on any machine.
const WORTH_BYTES: u64 = 4 << 20;

fn worth(gain: u64, of: u64) -> bool {
    gain >= WORTH_BYTES && gain >= of / WORTH_SHARE
}

/// What to do here, and what was weighed and left, each in order of reach: boot, lists, pages.
#[must_use]
pub fn give(host: &Host, formula: Option<&Formula>, total: &Ledger) -> (Vec<Advice>, Vec<Advice>) {
    let mut all: Vec<Option<Advice>> = Vec::new();
    if let Some(formula) = formula {
        if !host.caches.is_empty() {
            all.push(slabs::undebug(host, formula, total));
            all.push(slabs::smaller(host, formula, total));
            all.push(slabs::larger(host, formula));
            all.push(slabs::unmerge(host, formula, total));
        }
        all.push(pages::larger(host, formula));
        all.push(pages::smaller(host, formula));
    }
    all.push(lists::shorter_per_cpu(host, total));
    all.push(lists::shrink(host, total));
    all.push(lists::compact(host));
    all.into_iter().flatten().partition(|advice| advice.worth)
}
