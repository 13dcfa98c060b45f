//! Every workload by name: what it does, in which unit, with how many threads, and how it is run.

use super::child::fixed::{self, FreeOrder};
use super::child::{Damage, Job, Sample, footprint, growth, larson, remote, spawn};

/// How a workload is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By this program itself, in a child with the allocator preloaded: [`Inner::named`].
    Inner,
    /// `/bin/true`, many times.
    Start,
    /// The Python program `python.py` with `PYTHONMALLOC=malloc`.
    Python,
}

/// The workloads this program runs itself, with their parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    /// malloc and free of one size.
    Pair(usize),
    /// A thousand objects of one size, freed in one order.
    Batch(FreeOrder, usize),
    /// Random sizes in a window.
    Mixed,
    /// One thread allocates, this many free.
    OneAlloc(usize),
    /// Larson's server.
    Larson,
    /// Short-lived threads.
    Threads,
    /// Growth by realloc.
    Realloc,
    /// Large zeroed blocks.
    Calloc,
    /// All freed.
    Giveback,
    /// 90 % freed at random.
    Scatter,
}

impl Inner {
    /// The workload of this full name, without making the whole list: what a measured process
    /// touches is resident in every row.
    pub fn named(name: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<usize>().ok();
        Some(match name {
            "mixed" => Self::Mixed,
            "larson" => Self::Larson,
            "threads" => Self::Threads,
            "realloc" => Self::Realloc,
            "calloc" => Self::Calloc,
            "giveback" => Self::Giveback,
            "scatter" => Self::Scatter,
            _ => {
                let (kind, rest) = name.split_once('-')?;
                match kind {
                    "pair" => Self::Pair(number(rest)?),
                    "batch" => {
                        let (order, size) = rest.split_once('-')?;
                        let (_, order) = ORDERS.into_iter().find(|known| known.0 == order)?;
                        Self::Batch(order, number(size)?)
                    }
                    "one" => {
                        let freeing = rest.strip_prefix("alloc-")?.strip_suffix("-free")?;
                        Self::OneAlloc(number(freeing)?)
                    }
                    _ => return None,
                }
            }
        })
    }

    /// Does the work in this process.
    pub fn run(self, job: Job) -> Result<Sample, Damage> {
        match self {
            Inner::Pair(size) => fixed::pair(job, size),
            Inner::Batch(order, size) => fixed::batch(job, size, order),
            Inner::Mixed => fixed::mixed(job),
            Inner::OneAlloc(freeing) => remote::one_alloc(job, freeing),
            Inner::Larson => larson::larson(job),
            Inner::Threads => spawn::threads(job),
            Inner::Realloc => growth::realloc(job),
            Inner::Calloc => growth::calloc(job),
            Inner::Giveback => footprint::giveback(job),
            Inner::Scatter => footprint::scatter(job),
        }
    }
}

/// One workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name on the command line and in the rows.
    pub name: String,
    /// One sentence for `--list` and the heading of its table.
    pub what: String,
    /// Unit of its figure.
    pub unit: &'static str,
    /// Thread counts it runs with unless `--threads` says otherwise.
    pub threads: usize,
    /// Whether `--threads` applies to it.
    pub scales: bool,
    /// How it is run.
    pub kind: Kind,
}

fn inner(name: &str, what: String, unit: &'static str) -> Workload {
    Workload {
        name: name.into(),
        what,
        unit,
        threads: 1,
        scales: false,
        kind: Kind::Inner,
    }
}

/// Sizes of the pair workloads, bytes.
pub const PAIR_SIZES: [usize; 5] = [16, 64, 256, 1024, 4096];
/// Sizes of the batch workloads, bytes.
pub const BATCH_SIZES: [usize; 3] = [64, 256, 4096];
/// The orders of the batch workloads, by name.
pub const ORDERS: [(&str, FreeOrder); 3] = [
    ("lifo", FreeOrder::Lifo),
    ("fifo", FreeOrder::Fifo),
    ("shuffle", FreeOrder::Shuffle),
];
/// Freeing threads of the one-alloc workloads.
pub const FREEING: [usize; 4] = [1, 2, 4, 7];

/// All workloads, in the order they run.
pub fn all() -> Vec<Workload> {
    let mut list = Vec::new();
    for size in PAIR_SIZES {
        let what = format!("malloc and free of {size} B, one after the other");
        list.push(Workload {
            scales: true,
            ..inner(&format!("pair-{size}"), what, "ns/op")
        });
    }
    for (name, order) in ORDERS {
        for size in BATCH_SIZES {
            let how = match order {
                FreeOrder::Lifo => "newest first",
                FreeOrder::Fifo => "oldest first",
                FreeOrder::Shuffle => "in random order",
            };
            let what = format!("1000 objects of {size} B allocated, then freed {how}");
            let name = format!("batch-{name}-{size}");
            let one = inner(&name, what, "ns/op");
            list.push(Workload {
                scales: true,
                ..one
            });
        }
    }
    let what = "a random one of 1000 live objects of 16..4096 B replaced by another";
    list.push(Workload {
        scales: true,
        ..inner("mixed", what.into(), "ns/op")
    });
    for freeing in FREEING {
        let what = format!(
            "one thread allocates, {freeing} free: CPU of both per object, geometric mean of 8..4096 B"
        );
        let name = format!("one-alloc-{freeing}-free");
        let one = inner(&name, what, "ns/op");
        list.push(Workload {
            threads: 1 + freeing,
            ..one
        });
    }
    let what = "random objects of 16..1024 B replaced; a new thread inherits each array";
    list.push(Workload {
        threads: 2,
        scales: true,
        ..inner("larson", what.into(), "ns/op")
    });
    let what = "10000 short threads one by one, each 1000 objects of 16..1024 B, 100 live";
    list.push(inner("threads", what.into(), "us/thread"));
    let what = "two buffers grown in turn from 16 B to 1 MiB by half, written, freed";
    list.push(inner("realloc", what.into(), "ns/op"));
    let what = "calloc of 1 MiB, a byte of each page read and written, free";
    list.push(inner("calloc", what.into(), "ns/op"));
    list.push(Workload {
        kind: Kind::Python,
        ..inner(
            "python",
            "a Python program, PYTHONMALLOC=malloc: CPU time".into(),
            "ms",
        )
    });
    list.push(Workload {
        kind: Kind::Start,
        ..inner(
            "true",
            "/bin/true from spawn to exit, wall time".into(),
            "us/start",
        )
    });
    let what = "2 GiB of 64 B..64 KiB blocks written, all freed in random order: RSS at once";
    list.push(inner("giveback", what.into(), "MiB"));
    let what = "a GiB of 16 B..32 KiB blocks, 90 % freed at random: RSS / live bytes, at once";
    list.push(inner("scatter", what.into(), "x live"));
    list
}

/// The workloads that the given names mean: a full name, the start of one (`pair`, `batch-lifo`),
/// or a pattern with `*` (`batch-*-4096`); no names mean all.
pub fn select(names: &[String]) -> Result<Vec<Workload>, String> {
    let list = all();
    if names.is_empty() {
        return Ok(list);
    }
    for name in names {
        if !list.iter().any(|workload| matches(name, &workload.name)) {
            let known: Vec<&str> = list.iter().map(|workload| workload.name.as_str()).collect();
            return Err(format!("no workload '{name}'; known: {}", known.join(", ")));
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
        assert_eq!(names(&[]).len(), all().len());
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
