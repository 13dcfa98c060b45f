//! The five documents as data: what was run, what each cell is computed from and how it is judged.
//!
//! ```text
//!   data/documents/s0.toml ─► expand (for, sets) ─► Document { tables { run, rows, columns, targets, .. }, .. }
//!                                                      one interpreter: asks ─► runs ─► cells, targets
//! ```
//!
//! The format stands in docs/design/simulator.md. A mistake in a file is one line with file, table and key. What
//! a formula cannot say is a [`Computation`] with a name (ADR 0048).

mod check;
pub(super) mod computation;
mod expand;
pub(super) mod expression;
pub(super) mod key;
#[cfg(test)]
mod tests;

use super::published::Published;
use super::sheet::{Accuracy, Stated};
use computation::Computation;
use expression::{Expression, Text};
use key::Key;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use toml::Value;

/// The files, by the documents' names.
const FILES: [(&str, &str); 5] = [
    (
        "s0.toml",
        include_str!("../../../../data/documents/s0.toml"),
    ),
    (
        "s1.toml",
        include_str!("../../../../data/documents/s1.toml"),
    ),
    (
        "s2.toml",
        include_str!("../../../../data/documents/s2.toml"),
    ),
    (
        "s3.toml",
        include_str!("../../../../data/documents/s3.toml"),
    ),
    (
        "s4.toml",
        include_str!("../../../../data/documents/s4.toml"),
    ),
];

/// The policy whose figures stand beside every cell's.
pub(super) const OWN: &str = "own";

/// The policy a cell is about, in expressions and in `settles_under`.
pub(super) const THIS: &str = "this";

/// One document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    /// Its name: S0 to S4.
    pub(super) seed: String,
    /// What it is about.
    pub(super) title: String,
    /// Who wrote it and when.
    pub(super) source: String,
    /// Who, when, on what and why, in two sentences.
    pub(super) experiment: String,
    /// Where it can be read.
    pub(super) link: String,
    /// Policies by the names that this document has for them.
    pub(super) policies: BTreeMap<String, String>,
    /// Figures of one run, by name.
    pub(super) figures: BTreeMap<String, Expression>,
    /// Its tables, and runs without a published one.
    #[serde(skip)]
    pub(super) tables: Vec<Table>,
    /// What decides its figures.
    #[serde(default, rename = "setting")]
    pub(super) settings: Vec<Setting>,
    /// What there is to say about its rows.
    #[serde(default, rename = "reason")]
    pub(super) reasons: Vec<Reason>,
    /// Why cells are outside: the first that fits.
    #[serde(default, rename = "why")]
    pub(super) why: Vec<Why>,
    /// Lines over rows.
    #[serde(default, rename = "chart")]
    pub(super) charts: Vec<Chart>,
    /// Points in a plane.
    #[serde(default, rename = "plane")]
    pub(super) planes: Vec<Plane>,
    /// Rows and columns in colours.
    #[serde(default, rename = "map")]
    pub(super) maps: Vec<Map>,
}

/// A table: the run behind its rows, and what is computed from it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// As published, or what it is for.
    pub(super) name: String,
    /// Which of equal published ones.
    #[serde(default)]
    pub(super) nth: usize,
    /// What is simulated.
    pub(super) run: Option<Run>,
    /// Or what is computed.
    pub(super) computation: Option<Computation>,
    /// Runs that differ from the row's.
    #[serde(default)]
    pub(super) other: BTreeMap<String, Other>,
    /// Machine or population; the run's machine if absent.
    pub(super) profile: Option<Text>,
    /// A remark on all cells.
    #[serde(default)]
    note: String,
    /// Policies whose runs must have settled.
    #[serde(default)]
    pub(super) settles_under: Vec<String>,
    /// Figures are of the first seed, however many others need.
    #[serde(default)]
    pub(super) first_seed_only: bool,
    /// Which differences are claims, where their size does not say.
    pub(super) claims: Option<Claims>,
    /// The rows.
    pub(super) rows: Vec<Row>,
    /// What each published cell is computed from and how it is judged.
    #[serde(skip)]
    pub(super) cells: Vec<Cell>,
    /// What the default policy should reach.
    #[serde(default)]
    pub(super) targets: Vec<Target>,
    /// Figures without a published one.
    #[serde(default)]
    pub(super) extras: Vec<Extra>,
}

/// A simulated run. What rows say of themselves is absent here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) workload: String,
    pub(super) machine: String,
    /// Bytes in a page, if not the machine's.
    pub(super) page_size: Option<usize>,
    pub(super) look: Looks,
    pub(super) tasks: Option<u32>,
    /// Bytes of an object.
    pub(super) size: Option<usize>,
    /// Nanoseconds outside the allocator; zero leaves the workload's own.
    #[serde(default)]
    pub(super) think_ns: i64,
    /// Seeds, if not as many as a row needs.
    pub(super) seeds: Option<u64>,
}

/// How long to look, by effort; not at all where there is none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Looks {
    pub(super) quick: Option<String>,
    pub(super) full: Option<String>,
}

/// What another run has instead of the row's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Other {
    pub(super) tasks: u32,
}

/// A row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    /// Its policy, where rows are policies.
    pub(super) policy: Option<String>,
    pub(super) tasks: Option<u32>,
    pub(super) size: Option<usize>,
    /// A number of its own.
    pub(super) x: Option<f64>,
}

/// How differences are no claims, apart from their size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub(super) enum Claims {
    /// Counters go with the speed: a row that did the base's work makes none.
    #[serde(rename = "not of the same work")]
    NotOfTheSameWork,
}

/// A cell: a column in one row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cell {
    /// The column.
    pub(super) name: String,
    /// Its policy, if not the row's.
    pub(super) policy: Option<String>,
    /// What it is computed from.
    pub(super) got: Expression,
    /// Whether the default policy has such a figure.
    #[serde(default = "yes")]
    pub(super) own: bool,
    /// What is promised.
    pub(super) tolerance: Option<Tolerance>,
    /// What was fitted to it: it is not judged.
    pub(super) fitted_by: Option<String>,
    /// What its direction is judged against.
    pub(super) versus: Option<Versus>,
    /// What doing nothing says; absent where it has no answer.
    pub(super) nothing: Option<Expression>,
    /// Its published figure's standard error, where the document lets one tell.
    pub(super) error: Option<Expression>,
    /// What other figure it repeats: it does not count by itself.
    pub(super) same_as: Option<String>,
    /// A remark.
    pub(super) note: Option<String>,
    /// What must have settled: ops, waits, pages, bytes.
    #[serde(default)]
    pub(super) settles: String,
    /// What did not, in a remark; the column if absent.
    pub(super) settles_as: Option<String>,
    /// Its row's place.
    #[serde(skip)]
    pub(super) row: usize,
}

fn yes() -> bool {
    true
}

/// What a direction is judged against.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Versus {
    /// The figure is a change: its own sign counts.
    Zero,
    /// Another cell.
    Cell(Key),
}

impl TryFrom<String> for Versus {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "0" => Ok(Self::Zero),
            _ => Key::try_from(text).map(Self::Cell),
        }
    }
}

/// Something the default policy should reach: each first value at most the second.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    pub(super) wanted: Text,
    pub(super) found: Text,
    pub(super) at_most: Vec<[Expression; 2]>,
    /// For the whole table, not for each row.
    #[serde(default)]
    pub(super) once: bool,
}

/// A figure beside the published ones.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Extra {
    /// The table's name if absent.
    pub(super) table: Option<String>,
    /// The row's if absent.
    pub(super) row: Option<String>,
    /// The policy's if absent.
    pub(super) column: Option<String>,
    /// The row's alone if there are none.
    #[serde(default)]
    pub(super) policies: Vec<String>,
    pub(super) got: Expression,
    pub(super) unit: String,
    /// For the whole table, not for each row.
    #[serde(default)]
    pub(super) once: bool,
}

/// A value that decides figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    pub(super) what: String,
    pub(super) source: String,
    /// Values tried, those of the machines apart.
    #[serde(default)]
    pub(super) tried: u32,
    /// Machines whose profiles say how many were tried for them.
    #[serde(default)]
    pub(super) machines: Vec<String>,
}

/// A sentence, and when it is so: always, if nothing is said.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reason {
    /// While one of these cells is outside; `{}` is what they got in percent of the published.
    pub(super) outside: Option<Key>,
    /// While one of these moves the wrong way.
    pub(super) wrong: Option<Key>,
    /// While these two came out the same.
    pub(super) same: Option<[Key; 2]>,
    /// While the target in which these words are is missed.
    pub(super) missed: Option<String>,
    pub(super) text: String,
}

/// Why cells of a pattern are outside.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Why {
    pub(super) of: Key,
    pub(super) text: String,
}

/// A chart over the rows of a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chart {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) across: String,
    /// The table whose rows are the places.
    pub(super) places: String,
    /// What is written instead of what in a row's name.
    pub(super) renamed: Option<[String; 2]>,
    /// One place more: the default policy's figures of a row.
    pub(super) own_place: Option<OwnPlace>,
    #[serde(default)]
    pub(super) log: bool,
    #[serde(default = "yes")]
    pub(super) joined: bool,
    pub(super) lines: Vec<Line>,
}

/// See [`Chart::own_place`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnPlace {
    pub(super) name: String,
    pub(super) row: String,
}

/// A line of a chart.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    /// The table, if not that of the places.
    pub(super) table: Option<String>,
    pub(super) column: String,
    /// The column of its deviation, if that has one of its own.
    pub(super) spread: Option<String>,
    pub(super) part: Part,
    /// 0 to 6, one for each subject.
    pub(super) colour: usize,
    pub(super) name: String,
}

/// What of a cell a line shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    Published,
    Got,
    Own,
}

/// Extras of a table as points.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plane {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) table: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
}

/// A column of extras and what it says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Axis {
    pub(super) column: String,
    pub(super) unit: String,
}

/// Extras of a table in colours.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Map {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) table: String,
    pub(super) columns: Vec<String>,
    pub(super) note: String,
}

/// What is promised, and since when.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Tolerance(pub(super) Stated);

/// A tolerance as written: one kind, one day.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    percent: Option<f64>,
    points: Option<f64>,
    factor: Option<f64>,
    exact: Option<bool>,
    blind: Option<String>,
    seen: Option<String>,
}

impl TryFrom<Written> for Tolerance {
    type Error = String;

    fn try_from(of: Written) -> Result<Self, String> {
        let kinds = [
            of.percent.map(Accuracy::Percent),
            of.points.map(Accuracy::Points),
            of.factor.map(Accuracy::Factor),
            of.exact.map(|_| Accuracy::Exact),
        ];
        let mut kinds = kinds.into_iter().flatten();
        match (kinds.next(), kinds.next(), of.blind, of.seen) {
            (Some(kind), None, Some(on), None) => Ok(Self(kind.blind(on.leak()))),
            (Some(kind), None, None, Some(on)) => Ok(Self(kind.seen(on.leak()))),
            _ => Err(
                "a tolerance is one of percent, points, factor and exact, and blind or seen on a day"
                    .into(),
            ),
        }
    }
}

/// All five, in their order.
///
/// # Panics
/// If a file in the program is wrong, which a test would have told.
pub(super) fn all() -> &'static [Document] {
    static ALL: OnceLock<Vec<Document>> = OnceLock::new();
    ALL.get_or_init(|| {
        let files = FILES.iter();
        let read = files.map(|(file, text)| parse(file, text));
        read.map(|document| document.unwrap_or_else(|line| panic!("{line}")))
            .collect()
    })
}

/// The document called `seed`.
pub(super) fn named(seed: &str) -> Option<&'static Document> {
    all().iter().find(|document| document.seed == seed)
}

/// What the documents say of a published cell.
pub(super) fn of(known: &Published) -> Option<(&'static Document, &'static Table, &'static Cell)> {
    let document = named(&known.seed)?;
    let same = |table: &&Table| table.name == known.table && table.nth == known.nth;
    document.tables.iter().filter(same).find_map(|table| {
        let is = |cell: &&Cell| cell.name == known.column && table.rows[cell.row].name == known.row;
        Some((document, table, table.cells.iter().find(is)?))
    })
}

/// Reads a document.
///
/// # Errors
/// One line: the file, the table and the key that is wrong.
pub(super) fn parse(file: &str, text: &str) -> Result<Document, String> {
    let wrong = |why: String| format!("documents/{file}: {why}");
    let tree = toml::from_str::<toml::Table>(text);
    let mut tree = tree.map_err(|error| wrong(one_line(&error)))?;
    let sets = match tree.remove("sets") {
        Some(Value::Table(sets)) => sets,
        _ => toml::Table::new(),
    };
    let list = match tree.remove("table") {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    for key in ["chart", "setting"] {
        if let Some(Value::Array(list)) = tree.get_mut(key) {
            let each = list.iter().filter_map(Value::as_table);
            let all: Result<Vec<_>, _> = each.map(|one| expand::repeated(one, &vec![])).collect();
            *list = all
                .map_err(wrong)?
                .into_iter()
                .flatten()
                .map(Value::Table)
                .collect();
        }
    }
    let mut document: Document = read(tree).map_err(wrong)?;
    for table in expand::tables(&list, &sets).map_err(wrong)? {
        let name = table
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("?")
            .to_owned();
        let table = table_of(table).map_err(|why| wrong(format!("table `{name}`: {why}")))?;
        document.tables.push(table);
    }
    check::check(&document).map_err(wrong)?;
    Ok(document)
}

/// A part of a file as what it means.
fn read<T: DeserializeOwned>(tree: toml::Table) -> Result<T, String> {
    tree.try_into().map_err(|error| one_line(&error))
}

/// What is wrong and, where it is told, under which key.
fn one_line(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

/// A table with its cells: every column in every row, as the rules that fit say.
fn table_of(mut tree: toml::Table) -> Result<Table, String> {
    let mut list = |key: &str| match tree.remove(key) {
        Some(Value::Array(list)) => list
            .into_iter()
            .filter_map(|one| one.try_into().ok())
            .collect(),
        _ => Vec::new(),
    };
    let (columns, rules): (Vec<toml::Table>, Vec<toml::Table>) = (list("columns"), list("rules"));
    let mut table: Table = read(tree)?;
    for (row, of) in table.rows.iter().enumerate() {
        for column in &columns {
            let mut column = column.clone();
            let name = column
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or("?")
                .to_owned();
            if !table.note.is_empty() {
                let note = Value::String(table.note.clone());
                column.entry("note").or_insert(note);
            }
            for rule in &rules {
                let fits = |key: &str, name: &str| {
                    let names = rule.get(key).and_then(Value::as_array);
                    names.is_none_or(|all| all.iter().any(|one| one.as_str() == Some(name)))
                };
                if fits("rows", &of.name) && fits("columns", &name) {
                    let said = rule
                        .iter()
                        .filter(|(key, _)| !["rows", "columns"].contains(&key.as_str()));
                    column.extend(said.map(|(key, value)| (key.clone(), value.clone())));
                }
            }
            column.retain(|_, value| value.as_str() != Some(""));
            let cell = read::<Cell>(column);
            let cell = cell.map_err(|why| format!("row `{}`, column `{name}`: {why}", of.name))?;
            table.cells.push(Cell { row, ..cell });
        }
    }
    check::rules(&table, &rules)?;
    Ok(table)
}
