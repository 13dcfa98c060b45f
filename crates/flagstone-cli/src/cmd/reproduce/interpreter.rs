//! The interpreter of the documents: which runs they ask for, and what comes of them.
//!
//! ```text
//!   asks:  rows × policies × other runs × seeds                    fill:  Scope ──► cells, targets, extras
//!   Scope: document, table, row, policy ─► figure ─► formula over one record ─► Stat over its seeds
//! ```
//!
//! It knows no document. Whatever a cell lacks, a run or a figure, becomes its reason; a target or an extra that
//! lacks something is left out.

use super::ask::{Ask, Effort, Runs, Stat};
use super::documents::expression::{Expression, Names};
use super::documents::key::Key;
use super::documents::{self, Cell, Document, Extra, OWN, Other, Row, THIS, Table, Target};
use super::published::{self, Published};
use super::sheet::{self, Accuracy, Fill, Method, Setting, Sheet, Versus, tried};
use flagstone_lab::Record;
use flagstone_lab::fit::BaseRow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

/// Runs to make for a document.
pub(super) fn asks(document: &'static Document, effort: Effort) -> Vec<Ask> {
    let of = |table: &'static Table| table_asks(document, table, effort);
    document.tables.iter().flat_map(of).collect()
}

/// Those behind its published cells.
pub(super) fn asks_of_cells(document: &'static Document, effort: Effort) -> Vec<Ask> {
    let published = document
        .tables
        .iter()
        .filter(|table| !table.cells.is_empty());
    let of = |table: &'static Table| table_asks(document, table, effort);
    published.flat_map(of).collect()
}

fn table_asks(document: &'static Document, table: &'static Table, effort: Effort) -> Vec<Ask> {
    let mut asks = Vec::new();
    let others = table.other.values().map(Some);
    for other in [None].into_iter().chain(others) {
        for row in &table.rows {
            for policy in table.policies_of(row) {
                let policy = document.policy(policy);
                let ask = table.ask(row, other, policy, effort);
                let seeds = |run: &documents::Run| run.seeds.unwrap_or(effort.seeds());
                let seeds = table.run.as_ref().map_or(0, seeds);
                let seeds = if table.first_seed_only { 1 } else { seeds };
                asks.extend(ask.into_iter().flat_map(|ask| ask.seeds(seeds)));
            }
        }
    }
    asks
}

impl Document {
    /// A policy's full name.
    pub(super) fn policy<'a>(&'a self, name: &'a str) -> &'a str {
        self.policies.get(name).map_or(name, String::as_str)
    }
}

impl Table {
    /// Policies that run in a row: those of its cells and extras, and our own beside cells.
    fn policies_of<'a>(&'a self, row: &'a Row) -> Vec<&'a str> {
        let of_cells = self.cells.iter().filter_map(|cell| cell.policy.as_deref());
        let of_extras = self.extras.iter().flat_map(|extra| &extra.policies);
        let own = (!self.cells.is_empty()).then_some(OWN);
        let all = row.policy.as_deref().into_iter().chain(of_cells);
        all.chain(of_extras.map(String::as_str))
            .chain(own)
            .collect()
    }

    /// Those of all rows.
    pub(super) fn policies(&self) -> Vec<&str> {
        self.rows
            .iter()
            .flat_map(|row| self.policies_of(row))
            .collect()
    }

    /// The run behind a row under a policy, with seed 1.
    fn ask(
        &'static self,
        row: &Row,
        other: Option<&Other>,
        policy: &'static str,
        effort: Effort,
    ) -> Option<Ask> {
        let run = self.run.as_ref()?;
        let look = effort.pick(&run.look.quick, &run.look.full).as_deref()?;
        let tasks = other.map(|other| other.tasks);
        Some(Ask {
            workload: &run.workload,
            machine: &run.machine,
            page_size: run.page_size,
            policy,
            tasks: tasks.or(row.tasks).or(run.tasks)?,
            size: row.size.or(run.size),
            think_ns: run.think_ns,
            seed: 1,
            look,
        })
    }
}

/// What was computed already: by run or computation, and name.
#[derive(Default)]
struct Memory {
    stats: RefCell<HashMap<Asked, Result<Stat, String>>>,
    computed: RefCell<HashMap<(String, String), Computed>>,
}

/// A run, a figure, and the row's own number.
type Asked = (Ask, String, Option<u64>);

type Computed = Result<BTreeMap<&'static str, f64>, String>;

/// Where names are looked up.
#[derive(Clone, Copy)]
struct Scope<'a> {
    document: &'static Document,
    table: &'static Table,
    row: &'static Row,
    column: &'a str,
    policy: &'static str,
    other: Option<&'static Other>,
    /// The run whose figures are looked at; all seeds' otherwise.
    record: Option<&'a Record>,
    sheet: &'a Sheet,
    runs: &'a Runs,
    memory: &'a Memory,
    effort: Effort,
}

impl<'a> Scope<'a> {
    fn under(self, policy: &'static str) -> Self {
        let policy = match policy {
            THIS => self.policy,
            name => self.document.policy(name),
        };
        Self {
            policy,
            record: None,
            ..self
        }
    }

    fn ask(&self) -> Result<Ask, String> {
        let ask = self
            .table
            .ask(self.row, self.other, self.policy, self.effort);
        ask.ok_or_else(|| "left out of quick runs".into())
    }

    /// A figure of one run.
    fn of_record(&self, record: &Record, name: &str) -> Result<Stat, String> {
        match self.document.figures.get(name) {
            Some(formula) => formula.value(self),
            None => record.figure(name).map(Stat::exact).ok_or_else(|| {
                format!("{} under {} shows no {name}", record.workload, self.policy)
            }),
        }
    }

    /// A figure over seeds.
    fn over_seeds(&self, name: &str) -> Result<Stat, String> {
        let ask = self.ask()?;
        let key = (ask, name.to_owned(), self.row.x.map(f64::to_bits));
        if let Some(known) = self.memory.stats.borrow().get(&key) {
            return known.clone();
        }
        let own = self.table.run.as_ref().and_then(|run| run.seeds);
        let most = if self.table.first_seed_only {
            Some(1)
        } else {
            own
        };
        let found = self
            .runs
            .seeds(&ask, most.unwrap_or(u64::MAX))
            .and_then(|records| {
                let one = |record: &'a Record| {
                    let scope = Self {
                        record: Some(record),
                        ..*self
                    };
                    scope.of_record(record, name).map(|value| value.mean)
                };
                let values: Result<Vec<f64>, String> = records.into_iter().map(one).collect();
                values.map(|values| Stat::of(&values))
            });
        self.memory.stats.borrow_mut().insert(key, found.clone());
        found
    }

    fn computed(
        &self,
        of: &documents::computation::Computation,
        name: &str,
    ) -> Result<Stat, String> {
        let key = (format!("{of:?}"), self.policy.to_owned());
        let known = self.memory.computed.borrow().get(&key).cloned();
        let found = known.unwrap_or_else(|| of.run(self.policy, self));
        self.memory.computed.borrow_mut().insert(key, found.clone());
        let value = found?.get(name).copied();
        value
            .map(Stat::exact)
            .ok_or_else(|| format!("no figure {name}"))
    }

    fn parameter(&self, name: &str) -> Option<f64> {
        let ask = || self.ask().ok();
        match name {
            "tasks" => ask().map(|ask| f64::from(ask.tasks)),
            "size" => ask()?.size.map(|size| size as f64),
            "think_ns" => ask().map(|ask| ask.think_ns as f64),
            "x" => self.row.x,
            _ => None,
        }
    }
}

impl Names for Scope<'_> {
    fn name(&self, name: &str) -> Result<Stat, String> {
        if let Some(parameter) = self.parameter(name) {
            return Ok(Stat::exact(parameter));
        }
        if let Some((head, rest)) = name.split_once('.') {
            if let Some(policy) = self.document.policies.get(head) {
                return self.under(policy).name(rest);
            }
            if let Some(other) = self.table.other.get(head) {
                let other = Self {
                    other: Some(other),
                    record: None,
                    ..*self
                };
                return other.name(rest);
            }
        }
        match (&self.table.computation, self.record) {
            (Some(of), _) => self.computed(of, name),
            (None, Some(record)) => self.of_record(record, name),
            (None, None) => self.over_seeds(name),
        }
    }

    fn published(&self, key: &Key) -> Result<f64, String> {
        let at = [&self.table.name, &self.row.name, self.column];
        let ([table, row, column], nth) = key.from(at, self.table.nth);
        let cell = self.sheet.cell(&table, &row, &column, nth);
        let cell = cell.ok_or_else(|| format!("no published cell {table}/{row}/{column}"))?;
        Ok(cell.published.value)
    }

    fn row(&self) -> &str {
        &self.row.name
    }

    fn rows(&self) -> Vec<Self> {
        let rows = self.table.rows.iter();
        rows.map(|row| Self { row, ..*self }).collect()
    }
}

/// A published cell, `document | table | row | column`, as a row that a policy is fitted to.
///
/// # Errors
/// One line: there is no such cell, or it is not of this policy.
pub(in crate::cmd) fn base_row(name: &str, policy: &str) -> Result<BaseRow, String> {
    let words: Vec<&str> = name.split(" | ").collect();
    let is = |known: &Published| {
        let key = [&known.seed, &known.table, &known.row, &known.column].map(String::as_str);
        known.nth == 0 && words == key
    };
    let known = published::cells().into_iter().find(is);
    let known = known.ok_or_else(|| format!("no cell `{name}`"))?;
    let (document, table, cell) = documents::of(&known).ok_or("no document has it")?;
    let row = &table.rows[cell.row];
    let own = cell.policy.as_ref().or(row.policy.as_ref());
    if own.map(|own| document.policy(own)) != Some(policy) {
        return Err(format!("`{name}` is no row of the base"));
    }
    let mut figure = &cell.got;
    while let Expression::Name(name) = figure
        && let Some(formula) = document.figures.get(name)
    {
        figure = formula;
    }
    let unit = match cell.tolerance.map(|tolerance| tolerance.0.accuracy) {
        Some(Accuracy::Percent(percent)) => percent / 100.0 * known.value,
        Some(Accuracy::Points(points)) => points,
        _ => return Err(format!("`{name}`: its tolerance has no unit")),
    };
    let (Expression::Name(figure), Some(run)) = (figure, &table.run) else {
        return Err(format!("`{name}` is no figure of a run"));
    };
    Ok(BaseRow {
        cell: name.to_owned(),
        tasks: row.tasks.or(run.tasks).unwrap_or(1),
        size: row.size.or(run.size),
        figure: figure.clone(),
        published: known.value,
        unit,
    })
}

/// The value of an expression about a published cell that needs no run.
pub(super) fn from_published(
    sheet: &Sheet,
    (document, table, cell): (&'static Document, &'static Table, &'static Cell),
    expression: &Expression,
) -> Option<f64> {
    let (runs, memory) = (Runs::default(), Memory::default());
    let scope = Scope {
        document,
        table,
        row: &table.rows[cell.row],
        column: &cell.name,
        policy: "",
        other: None,
        record: None,
        sheet,
        runs: &runs,
        memory: &memory,
        effort: Effort::Full,
    };
    expression.value(&scope).ok().map(|value| value.mean)
}

/// Fills a document's part of the sheet.
pub(super) fn fill(document: &'static Document, sheet: &mut Sheet, runs: &Runs, effort: Effort) {
    let before = sheet.clone();
    let memory = Memory::default();
    for table in &document.tables {
        let scope = |row: &'static Row| Scope {
            document,
            table,
            row,
            column: "",
            policy: row
                .policy
                .as_deref()
                .map_or("", |name| document.policy(name)),
            other: None,
            record: None,
            sheet: &before,
            runs,
            memory: &memory,
            effort,
        };
        for cell in &table.cells {
            let row = &table.rows[cell.row];
            let scope = Scope {
                column: &cell.name,
                ..scope(row)
            };
            let at = [table.name.as_str(), &row.name, &cell.name];
            sheet.fill(table.method(), at, table.nth, scope.cell(cell));
        }
        for (place, row) in table.rows.iter().enumerate() {
            let scope = scope(row);
            let targets = table
                .targets
                .iter()
                .filter(|target| place == 0 || !target.once);
            sheet
                .targets
                .extend(targets.filter_map(|target| scope.target(target)));
            for extra in table
                .extras
                .iter()
                .filter(|extra| place == 0 || !extra.once)
            {
                sheet.extras.extend(scope.extra(extra));
            }
        }
    }
    sheet
        .settings
        .extend(document.settings.iter().map(|setting| Setting {
            seed: &document.seed,
            what: setting.what.clone(),
            source: setting.source.clone(),
            tried: setting.tried + setting.machines.iter().map(|name| tried(name)).sum::<u32>(),
        }));
}

impl Table {
    fn method(&self) -> Method {
        match self.computation {
            Some(_) => Method::Computed,
            None => Method::Simulated,
        }
    }
}

impl Scope<'_> {
    fn cell(&self, cell: &'static Cell) -> Fill {
        let scope = cell
            .policy
            .as_deref()
            .map_or(*self, |name| self.under(name));
        let own = || Some(cell.got.value(&scope.under(OWN)).ok()?.mean);
        let versus = cell.versus.as_ref().map(|versus| match versus {
            documents::Versus::Zero => Versus::Zero,
            documents::Versus::Cell(key) => {
                let at = [self.table.name.as_str(), &self.row.name, &cell.name];
                let (key, nth) = key.from(at, self.table.nth);
                Versus::Cell(key, nth)
            }
        });
        Fill {
            got: Some(cell.got.value(&scope).map(|got| (got.mean, got.sd))),
            own: cell.own.then(own).flatten(),
            fitted: cell.fitted_by.is_some(),
            accuracy: cell.tolerance.map(|tolerance| tolerance.0),
            versus,
            profile: scope.profile(),
            note: scope.unsettled(cell).or_else(|| cell.note.clone()),
        }
    }

    fn profile(&self) -> Option<String> {
        match (&self.table.profile, &self.table.run) {
            (Some(text), _) => text.filled(self).ok(),
            (None, run) => run.as_ref().map(|run| run.machine.clone()),
        }
    }

    /// Which run behind a cell did not settle, if it matters there.
    fn unsettled(&self, cell: &Cell) -> Option<String> {
        let policies = or_this(&self.table.settles_under).into_iter();
        let asks: Vec<Ask> = policies
            .filter_map(|name| self.under(name).ask().ok())
            .collect();
        let what = cell.settles_as.as_ref().unwrap_or(&cell.name);
        self.runs.note(&asks, what, &cell.settles)
    }

    fn target(&self, target: &Target) -> Option<sheet::Target> {
        let pair =
            |[less, more]: &[Expression; 2]| Some((less.value(self).ok()?, more.value(self).ok()?));
        let pairs: Option<Vec<(Stat, Stat)>> = target.at_most.iter().map(pair).collect();
        let wanted = target.wanted.filled(self).ok()?;
        let found = target.found.filled(self).ok()?;
        Some(sheet::Target::at_most(
            &self.document.seed,
            wanted,
            found,
            &pairs?,
        ))
    }

    fn extra(&self, extra: &'static Extra) -> Vec<sheet::Extra> {
        let one = |name: &'static str| {
            let scope = self.under(name);
            let text =
                |said: &Option<String>, other: &str| said.clone().unwrap_or(other.to_owned());
            Some(sheet::Extra {
                seed: &self.document.seed,
                table: text(&extra.table, &self.table.name),
                row: text(&extra.row, &self.row.name),
                column: text(&extra.column, scope.policy),
                got: extra.got.value(&scope).ok()?.mean,
                method: self.table.method(),
                unit: &extra.unit,
            })
        };
        or_this(&extra.policies)
            .into_iter()
            .filter_map(one)
            .collect()
    }
}

/// The policies named, or the row's alone.
fn or_this(names: &'static [String]) -> Vec<&'static str> {
    match names.is_empty() {
        true => vec![THIS],
        false => names.iter().map(String::as_str).collect(),
    }
}
