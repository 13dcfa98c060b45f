//! The caches, as `/proc/slabinfo` names things.

use super::{number, push_table, table};
use crate::cmd::run::reports::Cache;
use crate::terminal::{Screen, size, whole_percent};
use comfy_table::Cell;
use std::fmt::Write as _;

/// Caches listed one by one.
const CACHES_MAX: usize = 12;

pub(crate) fn table_of(out: &mut String, caches: &[Cache], screen: Screen) {
    let _ = writeln!(
        out,
        "{}",
        screen.heading("Caches, as /proc/slabinfo names things")
    );
    let mut table = table(
        &[
            "name", "active", "objs", "objsize", "obj/slab", "pg/slab", "slabs", "size", "waste",
        ],
        screen,
    );
    let (shown, rest) = caches.split_at(caches.len().min(CACHES_MAX));
    let named = shown.iter().map(|cache| (cache.name.clone(), vec![cache]));
    let rest = (!rest.is_empty()).then(|| {
        (
            format!("{} more", rest.len()),
            rest.iter().collect::<Vec<_>>(),
        )
    });
    let all = (caches.len() > 1).then(|| ("all".to_owned(), caches.iter().collect()));
    for (name, group) in named.chain(rest).chain(all) {
        let sum = |of: fn(&Cache) -> u64| group.iter().map(|&cache| of(cache)).sum::<u64>();
        let resident = sum(|c| c.resident_bytes);
        let single = |of: fn(&Cache) -> u64| match group[..] {
            [one] => number(of(one)),
            _ => number(""),
        };
        table.add_row([
            Cell::new(name),
            number(sum(|c| c.active)),
            number(sum(|c| c.objects)),
            single(|c| c.object_size),
            single(|c| c.objects_per_slab),
            single(|c| c.pages),
            number(sum(|c| c.slabs)),
            number(size(resident)),
            number(whole_percent(sum(|c| c.waste_bytes), resident)),
        ]);
    }
    push_table(out, &mut table);
}
