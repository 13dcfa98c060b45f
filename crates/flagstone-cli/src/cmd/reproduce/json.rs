//! The JSON document.

use super::claim;
use super::documents;
use super::measured::Measured;
use super::runner::Cost;
use super::score::{self, Score};
use super::sheet::{Cell, Extra, Goal, Method, Setting, Sheet, Summary, Target};
use serde::Serialize;
use std::collections::BTreeMap;

/// One published cell. The first eight fields are the contract.
#[derive(Serialize)]
struct Row<'a> {
    seed: &'a str,
    table: &'a str,
    row: &'a str,
    column: &'a str,
    published: f64,
    got: Option<f64>,
    method: Method,
    unit: &'a str,
    own: Option<f64>,
    spread: Option<f64>,
    error: Option<f64>,
    error_unit: &'a str,
    accuracy: Option<String>,
    /// The day the accuracy was set.
    accuracy_set: Option<&'static str>,
    /// Whether it was set before the first result.
    accuracy_blind: Option<bool>,
    inside: Option<bool>,
    /// What doing nothing says, and whether that is inside.
    nothing: Option<f64>,
    nothing_inside: Option<bool>,
    /// Whether it counts in the scores.
    counts: bool,
    /// What other figure it repeats.
    same_as: Option<&'static str>,
    sign_right: Option<bool>,
    claimed_sign_right: Option<bool>,
    no_claim: Option<String>,
    fitted: bool,
    /// What was fitted to it, where its document says so.
    fitted_by: Option<&'static str>,
    reason: Option<&'a str>,
    profile: Option<&'a str>,
}

/// The document.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    quick: bool,
    /// The first of the simulated runs; not to be taken for a row's `seed`, which is a document.
    first_seed: u64,
    summary: Summary,
    scores: BTreeMap<&'static str, Score>,
    goals: Vec<Goal>,
    rows: Vec<Row<'a>>,
    extras: &'a [Extra],
    targets: &'a [Target],
    settings: &'a [Setting],
    measured: &'a [Measured],
    measured_reason: Option<&'a str>,
    simulated_operations: u64,
}

fn row<'a>(sheet: &Sheet, cell: &'a Cell) -> Row<'a> {
    let known = &cell.published;
    let nothing = score::nothing(sheet, known);
    Row {
        seed: &known.seed,
        table: &known.table,
        row: &known.row,
        column: &known.column,
        published: known.value,
        got: cell.got,
        method: cell.method,
        unit: &known.unit,
        own: cell.own,
        spread: cell.spread,
        error: cell.error(),
        error_unit: cell.error_unit(),
        accuracy: cell.accuracy.map(|accuracy| accuracy.words()),
        accuracy_set: cell.accuracy.map(|accuracy| accuracy.on),
        accuracy_blind: cell.accuracy.map(|accuracy| accuracy.blind),
        inside: cell.inside(),
        nothing,
        nothing_inside: nothing.and_then(|nothing| cell.judge(nothing)),
        counts: score::counted(sheet, cell).is_some(),
        same_as: score::same_as(known),
        sign_right: sheet.sign(cell),
        claimed_sign_right: sheet.claimed_sign(cell),
        no_claim: sheet.sign(cell).and_then(|_| claim::none(sheet, cell)),
        fitted: cell.fitted,
        fitted_by: documents::of(known).and_then(|(.., cell)| cell.fitted_by.as_deref()),
        reason: cell.reason.as_deref(),
        profile: cell.profile.as_deref(),
    }
}

/// The document as text.
pub(super) fn json(sheet: &Sheet, quick: bool, cost: Cost) -> String {
    let document = Document {
        schema: "flagstone.reproduce/1",
        quick,
        first_seed: sheet.first_seed,
        summary: sheet.summary(),
        scores: score::by_document(sheet).into_iter().collect(),
        goals: sheet.goals(),
        rows: sheet.cells.iter().map(|cell| row(sheet, cell)).collect(),
        extras: &sheet.extras,
        targets: &sheet.targets,
        settings: &sheet.settings,
        measured: sheet.measured.as_deref().unwrap_or(&[]),
        measured_reason: sheet.measured.as_ref().err().map(String::as_str),
        simulated_operations: cost.operations,
    };
    serde_json::to_string_pretty(&document).expect("a sheet is plain data")
}
