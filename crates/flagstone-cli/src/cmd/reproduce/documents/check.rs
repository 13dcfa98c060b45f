//! What can be wrong in a document beside its form: names that nobody knows.

use super::computation::Computation;
use super::expression::{Expression, ROW};
use super::{Cell, Document, Row, Run, THIS, Table, Versus};
use crate::cmd::reproduce::published::{self, Published};
use flagstone_lab::table::is_column;
use flagstone_lab::{Rules, Window, names};
use std::sync::OnceLock;
use toml::Value;

/// Parameters of a row that expressions may name.
const PARAMETERS: [&str; 5] = ["tasks", "size", "think_ns", "x", ROW];

/// Words of `settles`.
const SETTLING: [&str; 4] = ["ops", "waits", "pages", "bytes"];

/// Every name in a document is known.
///
/// # Errors
/// One line: the table, the key, and what is wrong there.
pub(super) fn check(document: &Document) -> Result<(), String> {
    for (name, policy) in &document.policies {
        let known = Rules::parse(policy, &[]).map(drop);
        known.map_err(|why| format!("policies: `{name}`: {why}"))?;
    }
    for (name, figure) in &document.figures {
        let checked = document.expression(None, ["", "", ""], figure);
        checked.map_err(|why| format!("figures: `{name}`: {why}"))?;
    }
    for table in &document.tables {
        let checked = document.table(table);
        checked.map_err(|why| format!("table `{}`: {why}", table.name))?;
    }
    Ok(())
}

/// Rows and columns that rules are about exist.
pub(super) fn rules(table: &Table, rules: &[toml::Table]) -> Result<(), String> {
    for rule in rules {
        for key in ["rows", "columns"] {
            let names = rule.get(key).and_then(Value::as_array);
            for name in names.into_iter().flatten() {
                let name = name.as_str().unwrap_or_default();
                let known = match key {
                    "rows" => table.rows.iter().any(|row| row.name == name),
                    _ => table.cells.iter().any(|cell| cell.name == name),
                };
                if !known {
                    return Err(format!("rules: {key}: there is no `{name}`"));
                }
            }
        }
    }
    Ok(())
}

/// A run has a workload, a machine, looks and tasks.
fn run(run: &Run, rows: &[Row]) -> Result<(), String> {
    names::workload(&run.workload).map_err(|why| format!("run: workload: {why}"))?;
    names::machine(&run.machine).map_err(|why| format!("run: machine: {why}"))?;
    for look in [&run.look.quick, &run.look.full].into_iter().flatten() {
        Window::parse(look).map_err(|why| format!("run: look: {why}"))?;
    }
    let without = rows.iter().find(|row| row.tasks.or(run.tasks).is_none());
    without.map_or(Ok(()), |row| {
        Err(format!(
            "row `{}`: tasks: neither it nor the run has some",
            row.name
        ))
    })
}

/// The published cells.
fn cells() -> &'static [Published] {
    static CELLS: OnceLock<Vec<Published>> = OnceLock::new();
    CELLS.get_or_init(published::cells)
}

impl Document {
    /// Whether a name in an expression stands for something.
    fn knows(&self, table: Option<&Table>, name: &str) -> bool {
        if let Some((head, rest)) = name.split_once('.') {
            let other = table.is_some_and(|table| table.other.contains_key(head));
            if self.policies.contains_key(head) || other {
                return self.knows(table, rest);
            }
        }
        let computed = table.and_then(|table| table.computation.as_ref());
        PARAMETERS.contains(&name)
            || self.figures.contains_key(name)
            || computed.map_or(is_column(name), |one| one.figures().contains(&name))
    }

    /// All names and published cells in an expression exist.
    fn expression(
        &self,
        table: Option<&Table>,
        at: [&str; 3],
        expression: &Expression,
    ) -> Result<(), String> {
        for leaf in expression.leaves() {
            match leaf {
                Expression::Name(name) if !self.knows(table, name) => {
                    return Err(format!("unknown figure `{name}`"));
                }
                Expression::Published(key) => {
                    let (found, nth) = key.from(at, table.map_or(0, |table| table.nth));
                    self.exists(found.each_ref().map(String::as_str), nth)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn exists(&self, at: [&str; 3], nth: usize) -> Result<(), String> {
        let is = |known: &&Published| {
            let words = [&known.table, &known.row, &known.column].map(String::as_str);
            known.seed == self.seed && words == at && known.nth == nth
        };
        let found = cells().iter().find(is);
        found
            .map(drop)
            .ok_or_else(|| format!("no published cell `{}`", at.join(" | ")))
    }

    fn table(&self, table: &Table) -> Result<(), String> {
        match (&table.run, &table.computation) {
            (Some(of), None) => run(of, &table.rows)?,
            (None, Some(_)) => {}
            _ => return Err("run, computation: it has either one or the other".into()),
        }
        let of_rows = table.policies().into_iter();
        let others = table.settles_under.iter().map(String::as_str);
        for policy in of_rows.chain(others.filter(|name| *name != THIS)) {
            Rules::parse(self.policy(policy), &[]).map_err(|why| format!("policy: {why}"))?;
        }
        let first = table.rows.first().ok_or("rows: there is none")?;
        let known = |key: &str, expression: &Expression| {
            let checked = self.expression(Some(table), [&table.name, &first.name, ""], expression);
            checked.map_err(|why| format!("{key}: {why}"))
        };
        if let Some(Computation::Population { total_kib, .. }) = &table.computation {
            known("computation: total_kib", total_kib)?;
        }
        for target in &table.targets {
            let texts = target.wanted.values().chain(target.found.values());
            for expression in texts.chain(target.at_most.iter().flatten()) {
                known("targets", expression)?;
            }
        }
        for extra in &table.extras {
            known("extras: got", &extra.got)?;
        }
        for cell in &table.cells {
            let row = &table.rows[cell.row];
            let checked = self.cell(table, row, cell);
            checked.map_err(|why| format!("row `{}`, column `{}`: {why}", row.name, cell.name))?;
        }
        Ok(())
    }

    fn cell(&self, table: &Table, row: &Row, cell: &Cell) -> Result<(), String> {
        let at = [table.name.as_str(), &row.name, &cell.name];
        self.exists(at, table.nth)?;
        if cell.policy.is_none() && row.policy.is_none() {
            return Err("policy: neither the column nor the row has one".into());
        }
        let mut words = cell.settles.split_whitespace();
        if let Some(word) = words.find(|word| !SETTLING.contains(word)) {
            let known = SETTLING.join(", ");
            return Err(format!("settles: unknown `{word}`; known: {known}"));
        }
        let versus = match &cell.versus {
            Some(Versus::Cell(key)) => Some(Expression::Published(key.clone())),
            _ => None,
        };
        let parts = [
            ("got", Some(&cell.got)),
            ("nothing", cell.nothing.as_ref()),
            ("error", cell.error.as_ref()),
            ("versus", versus.as_ref()),
        ];
        for (key, expression) in parts {
            let checked = expression.map(|one| self.expression(Some(table), at, one));
            checked
                .unwrap_or(Ok(()))
                .map_err(|why| format!("{key}: {why}"))?;
        }
        Ok(())
    }
}
