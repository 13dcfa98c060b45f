//! The answer as tables: rows of one question together, what differs from its first row marked.

use super::rows::{Cost, PcpRow, Plan, Row, Total};
use crate::terminal::{Screen, unpadded, wrap};
use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};
use std::fmt::Write as _;

/// How a difference is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emphasis {
    /// Bold and coloured: a terminal without `NO_COLOR`.
    Colour,
    /// A star behind the value.
    Star,
}

impl Emphasis {
    fn on(screen: Screen) -> Self {
        match screen.styled {
            true => Self::Colour,
            false => Self::Star,
        }
    }
}

/// Columns of output that is no terminal, unless `COLUMNS` says otherwise.
pub const WIDTH_PIPE: u16 = 80;

/// Columns from which the table of a capture has room for every knob.
const WIDTH_KNOBS: u16 = 140;

/// Longest name of a cache in a table of 80 columns.
const NAME_MAX: usize = 20;

/// All tables of the answer; of a capture the totals first, then the `top` largest caches, 0 for all.
pub fn render(plan: &Plan, top: usize, screen: Screen) -> String {
    let emphasis = Emphasis::on(screen);
    let mut out = String::new();
    if !plan.totals.is_empty() {
        totals(&mut out, &plan.totals, emphasis);
        largest(&mut out, plan, top, screen);
    } else if !plan.rows.is_empty() {
        caches(&mut out, &plan.rows, emphasis);
    }
    if !plan.pcp.is_empty() {
        pagesets(&mut out, &plan.pcp, emphasis);
    }
    out
}

/// The largest caches of a capture that hold anything, each with all its policies.
fn largest(out: &mut String, plan: &Plan, top: usize, screen: Screen) {
    let together = |a: &Row, b: &Row| {
        (a.cache, a.size, a.cpus, a.page_size) == (b.cache, b.size, b.cpus, b.page_size)
    };
    let total = |group: &[Row]| {
        let costs = group.iter().filter_map(|row| row.cost);
        costs.map(|cost| cost.total_bytes).max().unwrap_or(0)
    };
    let held = |group: &&[Row]| {
        let mut costs = group.iter().filter_map(|row| row.cost);
        costs.any(|cost| cost.population > 0)
    };
    // A cache without an order under every policy has no cost, and is worth a look.
    let odd = |group: &&[Row]| group.iter().any(|row| row.cost.is_none());
    let all: Vec<&[Row]> = plan.rows.chunk_by(together).collect();
    let mut kept: Vec<&[Row]> = all
        .iter()
        .copied()
        .filter(|group| held(group) || odd(group))
        .collect();
    kept.sort_by_key(|group| std::cmp::Reverse(total(group)));
    let shown = if top == 0 {
        kept.len()
    } else {
        top.min(kept.len())
    };
    captured(out, &kept[..shown], screen);
    let empty = all.len() - kept.len();
    let hidden = kept.len() - shown;
    if hidden + empty > 0 {
        let _ = writeln!(
            out,
            "{hidden} smaller caches are not shown (--top 0 shows them), nor {empty} empty ones"
        );
    }
    first_slabs(out, &plan.rows, Source::Capture, screen.width);
}

/// The rows of a capture's caches. In 80 columns order, objects and cost; wider, every knob.
fn captured(out: &mut String, groups: &[&[Row]], screen: Screen) {
    let rows = || groups.iter().copied().flatten();
    let Some(first) = rows().next() else { return };
    let many_cpus = rows().any(|row| row.cpus != first.cpus);
    let knobs = screen.width >= WIDTH_KNOBS;
    let mut header = vec!["cache", "size"];
    if many_cpus {
        header.push("cpus");
    }
    header.extend(["policy", "order", "objs"]);
    if knobs {
        header.extend(["tail", "cpu_partial", "min_partial", "sheaf", "population"]);
    }
    header.extend(["slabs", "waste", "total"]);
    let mut table = Compared::new(&header, Emphasis::on(screen));
    for row in rows() {
        let name = row.cache.unwrap_or_default();
        let name = if knobs {
            name.to_owned()
        } else {
            fit(name, NAME_MAX)
        };
        let mut group = vec![name, row.size.to_string()];
        if many_cpus {
            group.push(row.cpus.to_string());
        }
        let cost = row.cost;
        let mut values = vec![maybe(row.order), maybe(row.objects)];
        if knobs {
            values.extend([
                maybe(row.tail_bytes),
                maybe(row.cpu_partial),
                maybe(row.min_partial),
                maybe(row.sheaf_capacity),
                maybe(cost.map(|cost| cost.population)),
            ]);
        }
        values.extend([
            maybe(cost.map(|cost| cost.slabs)),
            maybe(cost.map(|cost| kib(cost.waste_bytes))),
            maybe(cost.map(|cost| kib(cost.total_bytes))),
        ]);
        table.row(group, row.policy, values);
    }
    table.write(
        out,
        "Largest caches (size in bytes, waste and total in KiB)",
    );
}

/// A name in at most `room` columns, its middle cut out if it is longer.
fn fit(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let head: String = name.chars().take(room - room / 3 - 1).collect();
    let tail: String = name.chars().skip(length - room / 3).collect();
    format!("{head}~{tail}")
}

/// Where a plan's populations come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Sizes,
    Capture,
}

/// What rows say whose slabs follow the population.
fn first_slabs(out: &mut String, rows: &[Row], source: Source, width: u16) {
    let by_population = |row: &&Row| row.first_slab_bytes.is_some();
    let Some(row) = rows.iter().find(by_population) else {
        return;
    };
    let told = match source {
        Source::Capture => "slabs, waste and total are of such slabs",
        Source::Sizes => "--from tells what such slabs cost for a population",
    };
    let line = format!(
        "{}: slabs follow the population, at first {} B for size {}; order and objects are of the \
         slab they never exceed for the same objects (but by a credit of 4 pages); {told}",
        row.policy,
        row.first_slab_bytes.unwrap_or(0),
        row.size
    );
    out.push_str(&wrap(&line, width, 0));
}

/// A table whose rows are compared with the first row of their group.
struct Compared {
    table: Table,
    emphasis: Emphasis,
    group: Option<Vec<String>>,
    first: Vec<String>,
    starred: bool,
}

impl Compared {
    fn new(header: &[&str], emphasis: Emphasis) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(header.iter().map(|name| match emphasis {
            Emphasis::Colour => Cell::new(name).add_attribute(Attribute::Bold),
            Emphasis::Star => Cell::new(name),
        }));
        match emphasis {
            Emphasis::Colour => table.enforce_styling(),
            Emphasis::Star => table.force_no_tty(),
        };
        Self {
            table,
            emphasis,
            group: None,
            first: Vec::new(),
            starred: false,
        }
    }

    /// Adds a row: what it is about, whose it is, and the values to compare.
    fn row(&mut self, group: Vec<String>, name: &str, values: Vec<String>) {
        let is_first = self.group.as_ref() != Some(&group);
        if is_first {
            self.first = values.clone();
        }
        let mut cells: Vec<Cell> = group
            .iter()
            // A group's own words are said once.
            .map(|text| Cell::new(if is_first { text } else { "" }))
            .collect();
        cells.push(Cell::new(name));
        for (value, first) in values.iter().zip(&self.first) {
            let differs = value != first;
            self.starred |= differs && self.emphasis == Emphasis::Star;
            cells.push(Self::value(value, differs, self.emphasis));
        }
        self.table.add_row(cells);
        self.group = Some(group);
    }

    fn value(value: &str, differs: bool, emphasis: Emphasis) -> Cell {
        let cell = match (differs, emphasis) {
            (false, Emphasis::Colour) => Cell::new(value),
            // Room for the star keeps the digits of a column in line.
            (false, Emphasis::Star) => Cell::new(format!("{value} ")),
            (true, Emphasis::Colour) => Cell::new(value)
                .fg(Color::Yellow)
                .add_attribute(Attribute::Bold),
            (true, Emphasis::Star) => Cell::new(format!("{value}*")),
        };
        cell.set_alignment(CellAlignment::Right)
    }

    fn write(mut self, out: &mut String, title: &str) {
        let group = self.group.as_ref().map_or(0, Vec::len);
        for (index, column) in self.table.column_iter_mut().enumerate() {
            if index > group {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = writeln!(out, "{title}");
        let _ = writeln!(out, "{}", unpadded(&self.table));
        if self.starred {
            let _ = writeln!(out, "* differs from the first policy");
        }
    }
}

fn maybe<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

fn kib(bytes: u64) -> String {
    bytes.div_ceil(1024).to_string()
}

fn caches(out: &mut String, rows: &[Row], emphasis: Emphasis) {
    let derived = rows.iter().any(|row| row.object_size.is_some());
    let mut header = vec!["size", "cpus", "page", "policy"];
    if derived {
        header[0] = "object";
        header.push("size");
    }
    header.extend([
        "order",
        "objects",
        "tail",
        "cpu_partial",
        "slabs",
        "min_partial",
        "sheaf",
    ]);
    let mut table = Compared::new(&header, emphasis);
    for row in rows {
        let group = vec![
            row.object_size.unwrap_or(row.size).to_string(),
            row.cpus.to_string(),
            row.page_size.to_string(),
        ];
        let mut values = Vec::new();
        if derived {
            values.push(row.size.to_string());
        }
        values.extend([
            maybe(row.order),
            maybe(row.objects),
            maybe(row.tail_bytes),
            maybe(row.cpu_partial),
            maybe(row.cpu_partial_slabs),
            maybe(row.min_partial),
            maybe(row.sheaf_capacity),
        ]);
        table.row(group, row.policy, values);
    }
    table.write(
        out,
        "Caches (sizes and tails in bytes; - where a policy has no such knob)",
    );
    first_slabs(out, rows, Source::Sizes, 100);
}

fn totals(out: &mut String, totals: &[Total], emphasis: Emphasis) {
    let header = [
        "cpus", "policy", "caches", "slabs", "waste", "total", "waste+", "total+",
    ];
    let mut table = Compared::new(&header, emphasis);
    for total in totals {
        let Cost {
            slabs,
            waste_bytes,
            total_bytes,
            waste_bytes_spread,
            total_bytes_spread,
            ..
        } = total.cost;
        let mut name = total.policy.to_owned();
        if total.caches_without_order > 0 {
            let _ = write!(name, " (no order for {})", total.caches_without_order);
        }
        let values = vec![
            total.caches.to_string(),
            slabs.to_string(),
            kib(waste_bytes),
            kib(total_bytes),
            maybe(waste_bytes_spread.map(kib)),
            maybe(total_bytes_spread.map(kib)),
        ];
        table.row(vec![total.cpus.to_string()], &name, values);
    }
    table.write(
        out,
        "Totals in KiB (waste: behind the last object of each slab)",
    );
    out.push_str("+ if each CPU also keeps a slab\n");
}

fn pagesets(out: &mut String, rows: &[PcpRow], emphasis: Emphasis) {
    let header = [
        "zone pages",
        "low",
        "high",
        "cpus",
        "page",
        "policy",
        "batch",
        "high_min",
        "high_max",
    ];
    let mut table = Compared::new(&header, emphasis);
    for row in rows {
        let group = vec![
            row.zone_pages.to_string(),
            row.wmark_low.to_string(),
            row.wmark_high.to_string(),
            row.cpus.to_string(),
            row.page_size.to_string(),
        ];
        let values = vec![
            row.batch.to_string(),
            row.high_min.to_string(),
            row.high_max.to_string(),
        ];
        table.row(group, row.policy, values);
    }
    table.write(out, "Pagesets, per CPU and zone (pages)");
}
