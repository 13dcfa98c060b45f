//! The run as one HTML file: machine, programs, a chart and the table of every workload, targets.
//!
//! The shell of the page is that of every report (`crate::html`); the words in the tables are those
//! of the terminal.

mod bars;
mod plane;

use super::allocators::{Allocator, FLAGSTONE};
use super::figures::Standing;
use super::means::{self, Place};
use super::report::{self, figure};
use super::runner::{Measured, Outcome};
use super::targets::{self, Target};
use crate::html::{self, table};
use core::fmt::Write;
use maud::{Markup, html};

/// Which way every figure of a workload is to be read.
const BETTER: &str = "less is better";
/// Columns of a workload's table that hold figures.
const FIGURES: [usize; 7] = [2, 3, 4, 6, 7, 8, 9];
/// The column that has no head in the terminal.
const STANDING: usize = 5;
/// The column of further figures, the last; columns that only the page has stand before it.
const ALSO: usize = 8;
/// What the row of the allocator under test looks like.
const OWN_ROW: &str = "background:var(--card)";

/// What a reader must know of the run besides its figures.
pub struct About {
    /// Processor, memory, kernel.
    pub machine: String,
    /// What the library inside this program was built from.
    pub commit: &'static str,
    /// Where the library measured as flagstone comes from.
    pub library: String,
    /// Runs of each allocator.
    pub runs: usize,
    /// Whether sizes were those of a result.
    pub full: bool,
}

/// The page; `list` holds the targets, if the command speaks of them.
pub fn page(results: &[Measured], on: &[Allocator], list: &[Target], about: &About) -> String {
    let header = html! {
        p class="sum" { (sum(results, list)) }
        p {
            "Medians of " (about.runs) " runs of each allocator, each run a process of its own, all in turns. Lines "
            "across the bars and “min..max” go from the smallest to the largest run; an arrow names the end of a line "
            "that would leave the picture. In every workload " (BETTER) ". “tie”: the distance to the best is "
            "smaller than the distance between the quartiles of either, so no difference was shown."
        }
        p class="note" {
            "Written by flagstone bench " (env!("CARGO_PKG_VERSION")) " on " (about.machine)
            ". The library inside it is of " (about.commit) "."
        }
        @if !about.full {
            p class="note" {
                "This was a quick run: small sizes and few runs, a first look and no result."
            }
        }
    };
    let rest = html! {
        (contents(results, list))
        main {
            (programs(on, about))
            @if results.len() > 1 { (overall(&means::places(results))) }
            @for (index, result) in results.iter().enumerate() { (workload(result, &id(result, index))) }
            @if !list.is_empty() { (judged(list)) }
        }
    };
    html::page(
        "Flagstone bench",
        "Flagstone beside the allocators of this machine",
        &header,
        &rest,
    )
}

/// How flagstone came out, in one line.
fn sum(results: &[Measured], list: &[Target]) -> String {
    let (mut ahead, mut tied, mut behind) = (0, 0, 0);
    for result in results {
        let own = result.of(FLAGSTONE).filter(|own| own.summary().is_some());
        let peers = result.best(|outcome| outcome.allocator.name != FLAGSTONE);
        let (Some(own), Some(_)) = (own, peers) else {
            continue;
        };
        let shared = result
            .outcomes
            .iter()
            .any(|outcome| result.standing(outcome) == Standing::Tie);
        match result.standing(own) {
            Standing::Best if !shared => ahead += 1,
            Standing::Best | Standing::Tie => tied += 1,
            Standing::Behind | Standing::Failed => behind += 1,
        }
    }
    let all = ahead + tied + behind;
    if all == 0 {
        return "Flagstone was not compared with a peer in this run.".into();
    }
    let mut line = format!(
        "Of {all} comparisons Flagstone is ahead of every peer in {ahead}, shares the best place (a tie) \
         in {tied} and is behind in {behind}."
    );
    let judged: Vec<bool> = list.iter().filter_map(|target| target.reached).collect();
    if !judged.is_empty() {
        let reached = judged.iter().filter(|reached| **reached).count();
        let _ = write!(
            line,
            " Targets reached: {reached} of {} measured.",
            judged.len()
        );
    }
    line
}

fn contents(results: &[Measured], list: &[Target]) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                li { a href="#programs" { "Programs" } }
                @if results.len() > 1 { li { a href="#means" { "Time against memory" } } }
                @for (index, result) in results.iter().enumerate() {
                    li { a href={ "#" (id(result, index)) } { (report::title(result)) } }
                }
                @if !list.is_empty() { li { a href="#targets" { "Targets" } } }
            }
        }
    }
}

/// Names the section of a workload: the place keeps names apart that were asked for twice.
fn id(result: &Measured, index: usize) -> String {
    format!("{}-at-{index}", result.workload.name)
}

fn programs(on: &[Allocator], about: &About) -> Markup {
    let from = |one: &Allocator| match (&one.unusable, &one.library) {
        (Some(why), _) => why.clone(),
        _ if one.name == FLAGSTONE => about.library.clone(),
        (None, Some(library)) => library.display().to_string(),
        (None, None) => "the C library".into(),
    };
    let rows = html! {
        @for one in on { (row(&[one.name.clone(), one.version.clone(), from(one)], &[])) }
    };
    html! {
        section id="programs" {
            h2 { "Programs compared" }
            (table("Programs compared", &["allocator", "version", "from"], &rows))
        }
    }
}

/// One row: the first cell is its head, those in `figures` stand to the right.
fn row(cells: &[String], figures: &[usize]) -> Markup {
    html! {
        tr style=[(cells[0] == FLAGSTONE).then_some(OWN_ROW)] {
            th scope="row" { (cells[0]) }
            @for (at, cell) in cells.iter().enumerate().skip(1) {
                @if figures.contains(&at) {
                    td { (cell) }
                } @else {
                    // Long lists must not become a word wide on a phone.
                    td class="t" style=[(cell.len() > 40).then_some("min-width:18rem")] { (cell) }
                }
            }
        }
    }
}

/// The title of a picture of the plane.
fn against(what: &str) -> String {
    format!("{what}: time against memory; down and left is better")
}

/// A picture with what it is called.
fn figured(caption: &str, picture: Option<Markup>) -> Markup {
    html! {
        @if let Some(picture) = picture {
            figure { figcaption { (caption) } (picture) }
        }
    }
}

/// Time against memory over all rows, and over each group of them.
fn overall(places: &[Place]) -> Markup {
    let mut heads = means::HEADS;
    heads[7] = "front";
    html! {
        section id="means" {
            h2 { "Time against memory" }
            p {
                "Geometric means over rows: of an allocator’s time ÷ the best time of the row, and of its peak resident "
                "size ÷ glibc’s in the row. Lines through a point go from the best to the worst pass of interleaved "
                "runs; the broken line is the front: allocators that no other beats in both. Rows whose figure is no "
                "time count in neither."
            }
            @for (at, (name, places)) in means::groups(places).into_iter().enumerate() {
                @let title = means::heading(name, &places);
                @let places = places.iter().copied();
                h3 { (title) }
                (figured(
                    "Down and left is better",
                    plane::picture(&format!("means-{at}"), &against(&title), places.clone()),
                ))
                (table(&title, &heads, &html! {
                    @for place in places { (row(&means::cells(place), &[2, 3, 4, 5, 6])) }
                }))
            }
        }
    }
}

fn workload(result: &Measured, id: &str) -> Markup {
    let (title, unit) = (report::title(result), result.workload.unit);
    let caption = against(&title);
    let mut heads = report::heads(unit).to_vec();
    heads[STANDING] = "standing";
    heads.splice(ALSO..ALSO, ["quartiles apart", "runs"]);
    let rows = html! {
        @for outcome in &result.outcomes { (row(&cells(result, outcome), &FIGURES)) }
    };
    html! {
        section id=(id) {
            h2 { (title) }
            p { (result.workload.what) }
            (figured(
                &format!("{title}: {unit}, {BETTER}"),
                bars::picture(result, &format!("{id}-chart"), &title, BETTER),
            ))
            (figured(
                &caption,
                plane::picture(&format!("{id}-plane"), &caption, &means::of_row(result)),
            ))
            (table(&format!("{title}, all figures"), &heads, &rows))
            @for note in report::notes(result) { p class="note" { (note) } }
        }
    }
}

/// The cells of an allocator's row in a workload.
fn cells(result: &Measured, outcome: &Outcome) -> Vec<String> {
    let one = report::row(result, outcome);
    let mut cells = report::cells(&one).to_vec();
    // Elsewhere the figure itself is this one.
    if let Some(each) = one.ns_per_op.filter(|_| result.workload.unit != "ns/op") {
        let also = cells.last_mut().expect("a table has columns");
        *also = format!("{also} ns_per_op={}", figure(each))
            .trim()
            .to_owned();
    }
    cells.splice(
        ALSO..ALSO,
        [report::shown(one.spread), one.runs.to_string()],
    );
    cells
}

fn judged(list: &[Target]) -> Markup {
    let rows = html! {
        @for target in list {
            @let [got, limit, verdict, against] = targets::words(target);
            (row(&[target.what.clone(), got, limit, verdict, against], &[1, 2]))
        }
    };
    let heads = ["target", "got", "wanted", "verdict", "against"];
    html! {
        section id="targets" {
            h2 { "What Flagstone set itself to reach" }
            (table("Targets", &heads, &rows))
        }
    }
}

#[cfg(test)]
mod tests;
