//! The list of all workloads.

use super::{Kind, Workload};
use crate::cmd::bench::child::fixed::FreeOrder;
use crate::cmd::bench::real::PROGRAMS;

fn inner(name: &str, what: String, unit: &'static str) -> Workload {
    Workload {
        name: name.into(),
        what,
        unit,
        threads: vec![1],
        least: 1,
        like: "",
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
            threads: vec![1 + freeing],
            ..one
        });
    }
    let what = "random objects of 16..1024 B replaced; a new thread inherits each array";
    list.push(Workload {
        threads: vec![2],
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
    list.extend(lives());
    list.extend(PROGRAMS.map(|(name, program, what)| Workload {
        kind: Kind::Real(program),
        ..inner(&format!("real-{name}"), what.into(), "ms")
    }));
    list
}

/// Threads of the workloads that are about several.
const SEVERAL: [usize; 3] = [2, 4, 8];

/// Fixed work in the manner of a kind of program.
fn lives() -> Vec<Workload> {
    let alone = |name: &str, what: &str, like| Workload {
        like,
        ..inner(name, what.into(), "ms")
    };
    let several = |name: &str, what: &str, like| Workload {
        threads: SEVERAL.into(),
        scales: true,
        ..alone(name, what, like)
    };
    let two = |name: &str, what: &str| Workload {
        threads: vec![2],
        scales: true,
        ..alone(
            name,
            what,
            "workers that count or accumulate in small objects of their own",
        )
    };
    vec![
        several(
            "churn",
            "4000 live blocks of 16..1023 B per thread replaced at random, inherited by the next thread",
            "servers that give each connection or request a short-lived thread over sessions that outlive it",
        ),
        several(
            "churn-sized",
            "churn with frees that are told the size (C++ operator delete, else C23 free_sized), where there are",
            "C++ servers of that kind, whose containers know the sizes of what they free",
        ),
        Workload {
            least: 2,
            ..several(
                "queue",
                "batches of 100 blocks of 16..1024 B from producers to consumers through bounded queues",
                "pipelines, loggers and message brokers, where one thread parses and another writes",
            )
        },
        several(
            "phases",
            "ten phases of fresh threads: trees of mixed sizes built, dropped, a quarter by other threads",
            "compilers, map-reduce jobs and test runners, whose stages build structures and hand results on",
        ),
        several(
            "deferred",
            "blocks of 16 B..16 KiB in rounds, a third of them freed by another thread a round later",
            "games and simulations, where jobs of a frame leave results that others free in the next",
        ),
        Workload {
            threads: vec![8],
            ..several(
                "leavers",
                "12000 threads in groups of eight, 24 blocks of 16..1024 B each, one of them left behind",
                "pools that start and end workers with the load, whose results outlive them",
            )
        },
        alone(
            "large",
            "fifteen blocks of 5..25 MiB alive, a random one replaced by another and filled",
            "image and video editors, numeric code with temporary matrices",
        ),
        alone(
            "lifo-tables",
            "tables of up to 400 blocks of 8..256 B, made one inside the other, freed newest first",
            "compilers and interpreters, whose scopes open and close like brackets",
        ),
        alone(
            "algebra",
            "numbers of a few words multiplied, added and reduced: most die at once, some stay long",
            "computer algebra, provers, big-number arithmetic",
        ),
        alone(
            "logic",
            "covers of small bit sets split, copied, minimised and merged; some results stay long",
            "logic minimisers, SAT solvers, planners",
        ),
        alone(
            "script",
            "strings, growing tables and closures under a collector; 6 to 48 MiB live, up and down",
            "games, editors and web servers with Lua, Ruby or JavaScript inside",
        ),
        two(
            "sharing-passive",
            "neighbours of 8 B handed to several threads, which free them and write what they get instead",
        ),
        two(
            "sharing-active",
            "blocks of 8 B that each thread allocates itself and writes 100,000 times",
        ),
    ]
}
