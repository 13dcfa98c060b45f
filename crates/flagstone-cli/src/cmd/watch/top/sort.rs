//! Orders of the tables, and the letters that choose them: slabtop's where it has one.

use super::app::{CacheRow, ProcessRow};
use std::cmp::Ordering;

/// An order: its letter, its name, and who comes first.
pub struct Order<T> {
    pub key: char,
    pub name: &'static str,
    pub of: fn(&T, &T) -> Ordering,
}

/// Largest first.
fn down<K: PartialOrd>(one: K, other: K) -> Ordering {
    other.partial_cmp(&one).unwrap_or(Ordering::Equal)
}

/// Of caches.
pub const CACHES: [Order<CacheRow>; 11] = [
    Order {
        key: 'c',
        name: "size: resident bytes",
        of: |a, b| down(a.size, b.size),
    },
    Order {
        key: 'w',
        name: "loss: bytes nobody asked for",
        of: |a, b| down(a.loss, b.loss),
    },
    Order {
        key: 'g',
        name: "growth: bytes a second",
        of: |a, b| down(a.growth, b.growth),
    },
    Order {
        key: 'a',
        name: "active objects",
        of: |a, b| down(a.active, b.active),
    },
    Order {
        key: 'o',
        name: "objects",
        of: |a, b| down(a.objects, b.objects),
    },
    Order {
        key: 's',
        name: "object size",
        of: |a, b| down(a.object_size, b.object_size),
    },
    Order {
        key: 'u',
        name: "use of objects",
        of: |a, b| down(a.utilisation(), b.utilisation()),
    },
    Order {
        key: 'l',
        name: "slabs",
        of: |a, b| down(a.slabs, b.slabs),
    },
    Order {
        key: 'b',
        name: "objects in a slab",
        of: |a, b| down(a.per_slab, b.per_slab),
    },
    Order {
        key: 'p',
        name: "pages in a slab",
        of: |a, b| down(a.pages, b.pages),
    },
    Order {
        key: 'n',
        name: "name",
        of: |a, b| a.name.cmp(&b.name),
    },
];

/// Of processes.
pub const PROCESSES: [Order<ProcessRow>; 7] = [
    Order {
        key: 'm',
        name: "resident size",
        of: |a, b| down(a.rss, b.rss),
    },
    Order {
        key: 'c',
        name: "heap",
        of: |a, b| down(a.heap, b.heap),
    },
    Order {
        key: 'a',
        name: "live bytes",
        of: |a, b| down(a.live, b.live),
    },
    Order {
        key: 'w',
        name: "loss: heap that is not live",
        of: |a, b| down(a.loss(), b.loss()),
    },
    Order {
        key: 'g',
        name: "growth: bytes a second",
        of: |a, b| down(a.growth, b.growth),
    },
    Order {
        key: 'n',
        name: "name",
        of: |a, b| a.program.cmp(&b.program),
    },
    Order {
        key: 'i',
        name: "number",
        of: |a, b| a.pid.cmp(&b.pid),
    },
];
