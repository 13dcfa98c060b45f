//! How long `flagstone host` takes: the aim is under 200 ms on a host with 250 caches.
//!
//! `captured` reads an unpacked capture of 258 caches from a directory, computes the answer and
//! renders the text; `live` does the same on the running system with what is readable to the
//! user.

#[path = "../tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use flagstone_cli::cmd::host;
use flagstone_cli::source::Tree;
use std::hint::black_box;
use support::hosts::Files;

fn answer(tree: &Tree) -> String {
    host::text(tree, 120).unwrap_or_else(|failure| panic!("{failure:?}"))
}

fn host(c: &mut Criterion) {
    let root = tempfile::tempdir().unwrap();
    Files::of("amd64-7.0-debug").write(root.path());
    let captured = Tree::open(root.path()).unwrap();
    let mut group = c.benchmark_group("host");
    group.sample_size(20);
    group.bench_function("captured", |b| b.iter(|| black_box(answer(&captured))));
    let live = Tree::live();
    group.bench_function("live", |b| b.iter(|| black_box(answer(&live))));
    group.finish();
}

criterion_group!(benches, host);
criterion_main!(benches);
