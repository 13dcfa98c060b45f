//! The answer as tables: rows of one question together, what differs from its first row marked.

use super::rows::{Cost, PcpRow, Plan, Row, Total};
use crate::terminal::unpadded;
use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};
use std::fmt::Write as _;
use std::io::IsTerminal as _;

/// How a difference is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emphasis {
    /// Bold and coloured: a terminal without `NO_COLOR`.
    Colour,
    /// A star behind the value.
    Star,
}

impl Emphasis {
    /// What standard output can show.
    pub fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !refused {
            Self::Colour
        } else {
            Self::Star
        }
    }
}

/// All tables of the answer.
pub fn render(plan: &Plan, emphasis: Emphasis) -> String {
    let mut out = String::new();
    if !plan.rows.is_empty() {
        caches(&mut out, &plan.rows, emphasis);
    }
    if !plan.totals.is_empty() {
        totals(&mut out, &plan.totals, emphasis);
    }
    if !plan.pcp.is_empty() {
        pagesets(&mut out, &plan.pcp, emphasis);
    }
    out
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
    let from = rows[0].cache.is_some();
    let derived = rows.iter().any(|row| row.object_size.is_some());
    let mut header = vec!["size"];
    if from {
        header.insert(0, "cache");
    }
    header.extend(["cpus", "page", "policy"]);
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
    if from {
        header.extend(["population", "slabs used", "waste KiB", "total KiB"]);
    }
    let mut table = Compared::new(&header, emphasis);
    for row in rows {
        let mut group = vec![row.object_size.unwrap_or(row.size).to_string()];
        if let Some(cache) = row.cache {
            group.insert(0, cache.into());
        }
        group.extend([row.cpus.to_string(), row.page_size.to_string()]);
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
        if from {
            let cost = row.cost.unwrap_or_default();
            values.extend([
                cost.population.to_string(),
                cost.slabs.to_string(),
                kib(cost.waste_bytes),
                kib(cost.total_bytes),
            ]);
        }
        table.row(group, row.policy, values);
    }
    table.write(
        out,
        "Caches (sizes and tails in bytes; - where a policy has no such knob)",
    );
    let by_population = |row: &&Row| row.first_slab_bytes.is_some();
    if let Some(row) = rows.iter().find(by_population) {
        let told = if from {
            "'slabs used', waste and total are of such slabs"
        } else {
            "--from tells what such slabs cost for a population"
        };
        let _ = writeln!(
            out,
            "{}: slabs follow the population, at first {} B for size {}; order and objects are of the slab \
             they\nnever exceed for the same objects (but by a credit of 4 pages); {told}",
            row.policy,
            row.first_slab_bytes.unwrap_or(0),
            row.size
        );
    }
}

fn totals(out: &mut String, totals: &[Total], emphasis: Emphasis) {
    let header = [
        "cpus",
        "policy",
        "caches",
        "slabs",
        "waste",
        "total",
        "waste, spread",
        "total, spread",
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
        "Totals in KiB (waste: behind the last object of each slab; spread: slabs of each CPU's own)",
    );
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
