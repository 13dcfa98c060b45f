//! Orders of the tables, and the letters that choose them: slabtop's where it has one.

use super::app::{CacheRow, ProcessRow};
use std::cmp::Ordering;

/// An order: its letter, its name, and who comes first.
pub struct Order<T> {
    pub key: char,
    pub name: &'static str,
    pub of: fn(&T, &T) -> Ordering,
}

impl<T> Order<T> {
    const fn new(key: char, name: &'static str, of: fn(&T, &T) -> Ordering) -> Self {
        Self { key, name, of }
    }
}

/// Largest first.
fn down<K: PartialOrd>(one: K, other: K) -> Ordering {
    other.partial_cmp(&one).unwrap_or(Ordering::Equal)
}

/// Of caches.
pub const CACHES: [Order<CacheRow>; 11] = [
    Order::new('c', "size: resident bytes", |a, b| down(a.size, b.size)),
    Order::new('w', "loss: bytes nobody asked for", |a, b| {
        down(a.loss, b.loss)
    }),
    Order::new('g', "growth: bytes a second", |a, b| {
        down(a.growth, b.growth)
    }),
    Order::new('a', "active objects", |a, b| down(a.active, b.active)),
    Order::new('o', "objects", |a, b| down(a.objects, b.objects)),
    Order::new('s', "object size", |a, b| {
        down(a.object_size, b.object_size)
    }),
    Order::new('u', "use of objects", |a, b| {
        down(a.utilisation(), b.utilisation())
    }),
    Order::new('l', "slabs", |a, b| down(a.slabs, b.slabs)),
    Order::new('b', "objects in a slab", |a, b| {
        down(a.per_slab, b.per_slab)
    }),
    Order::new('p', "pages in a slab", |a, b| down(a.pages, b.pages)),
    Order::new('n', "name", |a, b| a.name.cmp(&b.name)),
];

/// Of processes.
pub const PROCESSES: [Order<ProcessRow>; 7] = [
    Order::new('m', "resident size", |a, b| down(a.rss, b.rss)),
    Order::new('c', "heap", |a, b| down(a.heap, b.heap)),
    Order::new('a', "live bytes", |a, b| down(a.live, b.live)),
    Order::new('w', "loss: heap that is not live", |a, b| {
        down(a.loss(), b.loss())
    }),
    Order::new('g', "growth: bytes a second", |a, b| {
        down(a.growth, b.growth)
    }),
    Order::new('n', "name", |a, b| a.program.cmp(&b.program)),
    Order::new('i', "number", |a, b| a.pid.cmp(&b.pid)),
];
