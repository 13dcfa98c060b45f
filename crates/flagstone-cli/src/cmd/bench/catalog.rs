//! Every workload by name: what it does, in which unit, with how many threads, and how it is run.

mod inner;
mod list;

use crate::cmd::bench::real::Program;
use crate::suggest;
pub use inner::Inner;
pub use list::{BATCH_SIZES, FREEING, ORDERS, PAIR_SIZES, all};

/// How a workload is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By this program itself, in a child with the allocator preloaded: [`Inner::named`].
    Inner,
    /// `/bin/true`, many times.
    Start,
    /// The Python program `python.py` with `PYTHONMALLOC=malloc`.
    Python,
    /// A program as it is installed, on an input made here.
    Real(Program),
}

/// One workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name on the command line and in the rows.
    pub name: String,
    /// One sentence for `--list` and the heading of its table.
    pub what: String,
    /// Real programs that behave so; empty for a loop that isolates one thing.
    pub like: &'static str,
    /// Unit of its figure.
    pub unit: &'static str,
    /// Thread counts it runs with, one after the other, unless `--threads` says otherwise.
    pub threads: Vec<usize>,
    /// The fewest it makes sense with.
    pub least: usize,
    /// Whether `--threads` applies to it.
    pub scales: bool,
    /// How it is run.
    pub kind: Kind,
}

/// The workloads that the given names mean: a full name, the start of one (`pair`, `batch-lifo`),
/// or a pattern with `*` (`batch-*-4096`); no names mean all but the real programs, which take long.
pub fn select(names: &[String]) -> Result<Vec<Workload>, String> {
    let mut list = all();
    if names.is_empty() {
        list.retain(|workload| !matches!(workload.kind, Kind::Real(_)));
        return Ok(list);
    }
    for name in names {
        if !list.iter().any(|workload| matches(name, &workload.name)) {
            let known: Vec<&str> = list.iter().map(|workload| workload.name.as_str()).collect();
            let meant = suggest::question(name, known.iter().copied());
            return Err(format!(
                "no workload '{name}'; {meant}known: {}",
                known.join(", ")
            ));
        }
    }
    let chosen = |workload: &Workload| names.iter().any(|name| matches(name, &workload.name));
    Ok(list.into_iter().filter(chosen).collect())
}

fn matches(pattern: &str, name: &str) -> bool {
    if let Some((head, tail)) = pattern.split_once('*') {
        return name.len() >= head.len() + tail.len()
            && name.starts_with(head)
            && name.ends_with(tail);
    }
    name == pattern
        || name
            .strip_prefix(pattern)
            .is_some_and(|rest| rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::bench::child::fixed::FreeOrder;

    fn names(patterns: &[&str]) -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(|&p| p.to_owned()).collect();
        select(&patterns)
            .unwrap()
            .into_iter()
            .map(|workload| workload.name)
            .collect()
    }

    #[test]
    fn a_name_a_start_and_a_pattern_choose_workloads() {
        assert_eq!(names(&["larson"]), ["larson"]);
        assert_eq!(
            names(&["batch-lifo"]),
            ["batch-lifo-64", "batch-lifo-256", "batch-lifo-4096"]
        );
        assert_eq!(names(&["batch-*-4096"]).len(), 3);
        assert_eq!(names(&["real"]).len(), 15);
        assert_eq!(names(&[]).len() + 15, all().len());
    }

    #[test]
    fn a_measured_process_knows_every_workload_it_runs_by_its_name() {
        for workload in all() {
            let known = Inner::named(&workload.name).is_some();
            assert_eq!(known, workload.kind == Kind::Inner, "{}", workload.name);
        }
        let batch = Inner::Batch(FreeOrder::Fifo, 256);
        assert_eq!(Inner::named("batch-fifo-256"), Some(batch));
        assert_eq!(Inner::named("pair-16"), Some(Inner::Pair(16)));
        assert_eq!(Inner::named("one-alloc-4-free"), Some(Inner::OneAlloc(4)));
        assert_eq!(Inner::named("batch-sideways-64"), None);
        assert_eq!(Inner::named("pair"), None);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let line = select(&["pear".to_owned()]).unwrap_err();
        assert!(
            line.contains("no workload 'pear'") && line.contains("giveback"),
            "{line}"
        );
    }

    #[test]
    fn no_two_workloads_share_a_name() {
        let mut all: Vec<String> = all().into_iter().map(|workload| workload.name).collect();
        let before = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), before);
    }
}
