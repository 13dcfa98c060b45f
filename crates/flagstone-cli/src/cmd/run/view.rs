//! The figures as text on standard error: what matters first, 80 columns are enough.

use super::document::{Entry, NotResident, Outcome};
use super::reports::{Cache, Found, Pageset, Zone};
use crate::terminal::unpadded;
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use flagstone_core::stats::Line;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

/// Caches listed one by one.
const CACHES_MAX: usize = 12;
/// Pagesets listed one by one.
const PAGESETS_MAX: usize = 4;
/// Columns where standard error is no terminal and `COLUMNS` is not set.
const WIDTH_PIPE: u16 = 80;

/// How wide and how bold the text may be.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    width: u16,
    bold: bool,
}

impl Screen {
    fn of_stderr() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
        Self {
            width: columns_of_stderr()
                .or_else(columns)
                .unwrap_or(WIDTH_PIPE)
                .clamp(60, 200),
            bold: terminal && !set("NO_COLOR") && !dumb,
        }
    }

    fn heading(self, text: &str) -> String {
        if self.bold {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

fn columns_of_stderr() -> Option<u16> {
    // SAFETY: plain integers; all zeroes is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the request fills a structure of this type.
    let result = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_col > 0).then_some(size.ws_col)
}

/// Prints the outcome on standard error.
pub fn print(outcome: &Outcome, found: &Found) {
    let text = render(outcome, found, Screen::of_stderr());
    // Nothing sensible is left to do if nobody reads it.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn render(outcome: &Outcome, found: &Found, screen: Screen) -> String {
    let mut out = String::from("\n");
    summary(&mut out, outcome, screen);
    if found.main.is_some() {
        ledger(&mut out, outcome, screen);
        caches(&mut out, &outcome.caches, screen);
        pages(&mut out, outcome, screen);
    } else {
        out.push_str(
            "It left no figures: it ran without the library (an environment cleared on the\n\
             way, a static program started by it) or had no right to write them.\n",
        );
    }
    others(&mut out, outcome);
    for why in &found.damaged {
        let _ = writeln!(out, "A report could not be read: {why}");
    }
    out
}

fn summary(out: &mut String, outcome: &Outcome, screen: Screen) {
    let program = outcome.command.first().map_or("", String::as_str);
    let ended = match outcome.signal {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("exit {}", outcome.exit),
    };
    let line = format!(
        "flagstone: {program}: {ended}, {:.2} s, peak {}",
        outcome.wall_s,
        size(outcome.peak_rss_kib * 1024)
    );
    let _ = writeln!(out, "{}", screen.heading(&line));
    let _ = writeln!(
        out,
        "policy {}; {:.2} s of processor for the program, {:.2} s for the system",
        outcome.policy, outcome.user_s, outcome.system_s
    );
    if outcome.restartable_sequences == Some(false) {
        out.push_str("without restartable sequences: a lock per CPU served, which is slower\n");
    }
    out.push('\n');
}

fn table(header: &[&str], screen: Screen) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(screen.width);
    table.set_header(header.iter().enumerate().map(|(at, name)| {
        Cell::new(name).set_alignment(if at == 0 || *name == "what it is" {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        })
    }));
    table
}

fn number(value: impl ToString) -> Cell {
    Cell::new(value.to_string()).set_alignment(CellAlignment::Right)
}

fn push_table(out: &mut String, table: &mut Table) {
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if at == 0 { 0 } else { 1 }, 0));
        if at == 0 {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    out.push_str(&unpadded(table));
    out.push_str("\n\n");
}

fn ledger(out: &mut String, outcome: &Outcome, screen: Screen) {
    let now = if outcome.at_exit {
        "at exit"
    } else {
        "last sample"
    };
    let _ = writeln!(out, "{}", screen.heading("Where its memory was"));
    let mut table = table(&["line", now, "at peak", "what it is"], screen);
    let peak = |at: usize| {
        outcome
            .ledger_at_peak
            .get(at)
            .map_or(0, |entry| entry.bytes)
    };
    for (at, entry) in outcome.ledger.iter().enumerate() {
        if entry.bytes == 0 && peak(at) == 0 {
            continue;
        }
        let title = Line::ALL[at].title();
        let mark = if entry.sampled { " ~" } else { "" };
        table.add_row([
            Cell::new(format!("{title}{mark}")),
            number(size(entry.bytes)),
            number(size(peak(at))),
            Cell::new(entry.sentence),
        ]);
    }
    let sum = |entries: &[Entry]| entries.iter().map(|entry| entry.bytes).sum::<u64>();
    let (exit, peak) = (sum(&outcome.ledger), sum(&outcome.ledger_at_peak));
    table.add_row([
        Cell::new("sum"),
        number(size(exit)),
        number(size(peak)),
        Cell::new(closing(exit, outcome.rss_bytes)),
    ]);
    for column in 1..3 {
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    push_table(out, &mut table);
    if outcome.resident_pages_told == Some(false) {
        out.push_str(NOT_COMPARABLE);
    }
    memo(
        out,
        &outcome.not_resident,
        outcome.ledger.iter().any(|e| e.sampled),
    );
}

/// Said where the sum cannot meet the kernel's figure.
const NOT_COMPARABLE: &str = "\
This kernel does not tell which pages are resident (gVisor does not), so the
lines count all that is mapped; the sum cannot be compared with its figure.
";

/// How the sum compares with what the kernel counts.
fn closing(sum: u64, resident: Option<u64>) -> String {
    match resident {
        Some(resident) if resident > 0 => {
            let off = (sum as f64 - resident as f64) * 100.0 / resident as f64;
            format!("The kernel counts {} ({off:+.2} %).", size(resident))
        }
        _ => "The kernel's count could not be read.".to_owned(),
    }
}

fn memo(out: &mut String, beside: &NotResident, sampled: bool) {
    if sampled {
        out.push_str("~ divided by the sizes of sampled requests.\n");
    }
    let _ = writeln!(
        out,
        "Not resident, so in no line: {} of free blocks given back or never used,\n{} of blocks in \
         use that were never touched or given back.\n",
        size(beside.released_bytes),
        size(beside.untouched_bytes)
    );
}

fn caches(out: &mut String, caches: &[Cache], screen: Screen) {
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

fn pages(out: &mut String, outcome: &Outcome, screen: Screen) {
    let pages = &outcome.pages;
    let _ = writeln!(out, "{}", screen.heading("Pages"));
    for zone in &pages.zones {
        zone_lines(out, zone, pages.page_bytes, screen);
    }
    pagesets(out, &pages.pagesets, screen);
}

fn zone_lines(out: &mut String, zone: &Zone, page: u64, screen: Screen) {
    let bytes = |pages: u64| size(pages * page);
    let _ = writeln!(
        out,
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

fn others(out: &mut String, outcome: &Outcome) {
    let others = &outcome.other_processes;
    let Some(largest) = others.first() else {
        return;
    };
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for other in others {
        *names.entry(&other.program).or_default() += 1;
    }
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    let rest = names.len().saturating_sub(6);
    let mut list: Vec<String> = names
        .iter()
        .take(6)
        .map(|&(name, count)| match count {
            1 => name.to_owned(),
            _ => format!("{name} ×{count}"),
        })
        .collect();
    if rest > 0 {
        list.push(format!("{rest} more programs"));
    }
    let noun = if others.len() == 1 {
        "process"
    } else {
        "processes"
    };
    let _ = writeln!(
        out,
        "And {} more {noun}: {}; the largest peak was {} ({}).",
        others.len(),
        list.join(", "),
        size(largest.peak_rss_kib * 1024),
        largest.program
    );
}

/// Bytes in the unit that keeps the number short.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "–".to_owned(),
        _ => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

fn whole_percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "–".to_owned(),
        _ => format!("{:.0} %", part as f64 * 100.0 / whole as f64),
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
