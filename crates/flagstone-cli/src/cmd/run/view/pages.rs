//! The page layer: zones and pagesets.

use super::{number, push_table, table};
use crate::cmd::run::document::Outcome;
use crate::cmd::run::reports::{Pageset, Zone};
use crate::terminal::{Screen, percent, size, wrap};
use comfy_table::Cell;
use std::fmt::Write as _;

/// Pagesets listed one by one.
const PAGESETS_MAX: usize = 4;

pub(super) fn layer(out: &mut String, outcome: &Outcome, screen: Screen) {
    let pages = &outcome.pages;
    let _ = writeln!(out, "{}", screen.heading("Pages"));
    for zone in &pages.zones {
        zone_lines(out, zone, pages.page_bytes, screen);
    }
    pagesets(out, &pages.pagesets, screen);
}

fn zone_lines(out: &mut String, zone: &Zone, page: u64, screen: Screen) {
    let bytes = |pages: u64| size(pages * page);
    let line = format!(
        "node {}: {} pages in use; {} free, of which {} resident (at most {} kept)",
        zone.node,
        zone.in_use_pages,
        zone.free_pages,
        bytes(zone.free_resident_pages),
        match zone.keep_pages.checked_mul(page) {
            Some(keep) if keep < 1 << 50 => size(keep),
            _ => "all".to_owned(),
        },
    );
    out.push_str(&wrap(&line, screen.width, 2));
    let _ = writeln!(
        out,
        "  given back {} in {} calls; watermarks {} / {} / {} pages",
        bytes(zone.released_pages),
        zone.release_calls,
        zone.watermarks.min,
        zone.watermarks.low,
        zone.watermarks.high
    );
    let _ = writeln!(
        out,
        "  zone lock taken {} times, {} waits ({})",
        zone.lock_takes,
        zone.lock_waits,
        percent(zone.lock_waits, zone.lock_takes)
    );
    let orders: Vec<String> = (0..zone.resident_blocks.len())
        .map(|o| o.to_string())
        .collect();
    let mut header = vec!["free blocks by order"];
    header.extend(orders.iter().map(String::as_str));
    let mut table = table(&header, screen);
    for (name, blocks) in [
        ("resident", &zone.resident_blocks),
        ("not resident", &zone.released_blocks),
    ] {
        let cells = blocks.iter().map(number);
        table.add_row(std::iter::once(Cell::new(name)).chain(cells));
    }
    push_table(out, &mut table);
}

fn pagesets(out: &mut String, pagesets: &[Pageset], screen: Screen) {
    if pagesets.is_empty() {
        return;
    }
    let mut sorted: Vec<&Pageset> = pagesets.iter().collect();
    sorted.sort_by_key(|set| std::cmp::Reverse((set.count, set.allocs)));
    let mut table = table(
        &[
            "pageset", "pages", "high", "from", "to", "batch", "allocs", "frees", "refills",
            "drains",
        ],
        screen,
    );
    let (shown, rest) = sorted.split_at(sorted.len().min(PAGESETS_MAX));
    for set in shown {
        table.add_row([
            Cell::new(format!("node {} cpu {}", set.node, set.cpu)),
            number(set.count),
            number(set.high),
            number(set.high_min),
            number(set.high_max),
            number(set.batch),
            number(set.allocs),
            number(set.frees),
            number(set.refills),
            number(set.drains),
        ]);
    }
    if !rest.is_empty() {
        let sum = |of: fn(&Pageset) -> u64| number(rest.iter().map(|&set| of(set)).sum::<u64>());
        table.add_row([
            Cell::new(format!("{} more", rest.len())),
            sum(|s| s.count),
            number(""),
            number(""),
            number(""),
            number(""),
            sum(|s| s.allocs),
            sum(|s| s.frees),
            sum(|s| s.refills),
            sum(|s| s.drains),
        ]);
    }
    push_table(out, &mut table);
}
