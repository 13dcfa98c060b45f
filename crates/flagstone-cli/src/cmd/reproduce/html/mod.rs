//! The report as one HTML file, in the shell of every report (`crate::html`): charts with words
//! beside them, and all figures as tables too.

mod chart;
mod charts;

use super::documents::{self, Document};
use super::measured;
use super::reasons;
use super::sheet::{Cell, Sheet};
use super::view;
use crate::html::{self, table};
use crate::source::machine;
use maud::{Markup, html};

/// The page.
pub(super) fn page(sheet: &Sheet, quick: bool) -> String {
    let header = html! {
        p class="sum" { (sheet.headline()) "." }
        p {
            "Figures called simulated come from the allocator itself on virtual CPUs in virtual time; what was "
            "measured on real threads stands under its own title. Dashed lines and round marks are published, drawn "
            "lines and square marks simulated; each kernel has one colour, green is the flagstone policy. Scores "
            "count independent figures only, beside the score of predicting that nothing changes."
        }
        p class="note" {
            "Written by flagstone reproduce on " (machine::processor()) "; simulated code "
            (env!("SIMULATED_CODE_DIGEST")) "; first seed " (sheet.first_seed) "."
        }
        @if quick {
            p class="note" {
                "This was a quick run: short windows and few seeds; many figures had not settled."
            }
        }
    };
    let rest = html! {
        (contents(sheet))
        main {
            @for document in present(sheet) { (section(document, sheet)) }
            (scores(sheet))
            (targets(sheet))
            (measured_rows(sheet))
            (settings(sheet))
        }
    };
    let title = "Flagstone: five published trade-offs";
    html::page(
        title,
        "Five published trade-offs, regenerated",
        &header,
        &rest,
    )
}

fn section(document: &Document, sheet: &Sheet) -> Markup {
    let seed = &document.seed;
    html! {
        section id=(seed) {
            h2 { (seed) ": " (document.title) }
            p { (document.experiment) " " a href=(document.link) { "The mail." } }
            @for figure in charts::of(seed, sheet) { (figure) }
            details {
                summary { "What misses, and why" }
                p class="note" { (reasons::of(seed, sheet)) }
                (outside(sheet, seed))
            }
            (cells(sheet, seed))
        }
    }
}

fn present(sheet: &Sheet) -> impl Iterator<Item = &'static Document> + '_ {
    let there = |seed: &str| sheet.cells.iter().any(|cell| cell.published.seed == seed);
    let all = documents::all().iter();
    all.filter(move |document| there(&document.seed))
}

fn contents(sheet: &Sheet) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                @for Document { seed, title, .. } in present(sheet) {
                    li { a href={ "#" (seed) } { (seed) ": " (title) } }
                }
                li { a href="#scores" { "How good the simulation is" } }
                li { a href="#targets" { "What flagstone should reach" } }
                li { a href="#measured" { "Measured on real threads" } }
                li { a href="#settings" { "Settings" } }
            }
        }
    }
}

/// The cells that are outside, the farthest first, with the reason.
fn outside(sheet: &Sheet, seed: &str) -> Markup {
    let rows = html! {
        @for (cell, far) in reasons::cells_outside(seed, sheet) {
            @let known = &cell.published;
            tr {
                th scope="row" { (known.table) ", " (known.row) ", " (known.column) }
                td { (view::figure(known.value)) }
                td { (view::maybe(cell.got)) }
                td { (format!("{far:.1}")) }
                td class="t" { (reasons::why(cell)) }
            }
        }
    };
    let heads = ["cell", "published", "got", "in tolerances", "why"];
    table(&format!("Outside in {seed}"), &heads, &rows)
}

/// Every cell of a document, folded away.
fn cells(sheet: &Sheet, seed: &str) -> Markup {
    let cells: Vec<&Cell> = sheet
        .cells
        .iter()
        .filter(|cell| cell.published.seed == seed)
        .collect();
    let how = |cell: &Cell| match &cell.profile {
        Some(profile) => format!("{:?}, {profile}", cell.method).to_lowercase(),
        None => format!("{:?}", cell.method).to_lowercase(),
    };
    let accuracy = |cell: &Cell| {
        cell.accuracy
            .map_or_else(String::new, |stated| stated.words())
    };
    let heads = [
        "table",
        "row",
        "column",
        "published",
        "got",
        "± seeds",
        "error",
        "stated accuracy",
        "verdict",
        "flagstone",
        "how",
        "remark",
    ];
    let rows = html! {
        @for cell in &cells {
            @let known = &cell.published;
            tr {
                td class="t" { (known.table) }
                th scope="row" { (known.row) }
                td class="t" { (known.column) }
                td { (view::figure(known.value)) }
                td { (view::maybe(cell.got)) }
                td { (view::maybe(cell.spread)) }
                td { (view::error(cell)) }
                td class="t" { (accuracy(cell)) }
                td class="t" { (view::verdict(cell)) }
                td { (view::maybe(cell.own)) }
                td class="t" { (how(cell)) }
                td class="t" { (cell.reason.as_deref().unwrap_or("")) }
            }
        }
    };
    html! {
        details {
            summary { "All " (cells.len()) " cells of " (seed) }
            (table(&format!("All cells of {seed}"), &heads, &rows))
        }
    }
}

/// Rows that begin with their head; the other cells are of class `kind`.
fn headed<const N: usize>(
    rows: impl IntoIterator<Item = [String; N]>,
    kind: Option<&str>,
) -> Markup {
    html! {
        @for row in rows {
            tr {
                th scope="row" { (row[0]) }
                @for word in &row[1..] { td class=[kind] { (word) } }
            }
        }
    }
}

/// Scores beside those of doing nothing.
fn scores(sheet: &Sheet) -> Markup {
    let rows = headed(view::score_rows(sheet), None);
    html! {
        section id="scores" {
            h2 { "How good the simulation is" }
            (table("Scores beside doing nothing", &view::SCORE_HEADS, &rows))
        }
    }
}

fn targets(sheet: &Sheet) -> Markup {
    let rows = html! {
        @for target in &sheet.targets {
            tr {
                td class="t" { (target.verdict()) }
                th scope="row" { (target.seed) " " (target.wanted) }
                td class="t" { (target.found) }
            }
        }
    };
    html! {
        section id="targets" {
            h2 { "What the flagstone policy should reach" }
            (table("Targets", &["reached", "wanted", "found"], &rows))
        }
    }
}

fn measured_rows(sheet: &Sheet) -> Markup {
    let rows = measured::comparisons(sheet);
    let heads = ["row", "figure", "flagstone", "others", "flagstone is"];
    html! {
        section id="measured" {
            h2 { "Measured on real threads" }
            p { (measured::summary(sheet)) }
            @if !rows.is_empty() {
                p class="note" {
                    "Medians of runs taken in turns, with their range. Less is better; ranges that overlap are a tie."
                }
                (table("Measured rows", &heads, &headed(rows.iter().map(view::measured_words), Some("t"))))
            }
        }
    }
}

fn settings(sheet: &Sheet) -> Markup {
    html! {
        section id="settings" {
            h2 { "Settings, frozen for base, patched and own rows" }
            ul {
                @for setting in &sheet.settings {
                    li {
                        (setting.seed) ": " (setting.what) ". " (setting.source) ". Values tried: "
                        (setting.tried) "."
                    }
                }
            }
        }
    }
}
