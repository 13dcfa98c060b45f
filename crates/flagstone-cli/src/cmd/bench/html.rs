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
use super::runner::Measured;
use super::targets::{self, Target};
use crate::html::{close, close_table, escape, header_ends, open, open_table};
use core::fmt::Write;

/// Which way every figure of a workload is to be read.
const BETTER: &str = "less is better";
/// Columns of a workload's table that hold figures.
const FIGURES: [usize; 7] = [2, 3, 4, 6, 7, 8, 9];
/// The column that has no head in the terminal.
const STANDING: usize = 5;
/// The column of further figures, the last; columns that only the page has stand before it.
const ALSO: usize = 8;
/// How the row of the allocator under test begins.
const OWN_ROW: &str = "<tr style='background:var(--card)'>";

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
    let mut page = open(
        "Flagstone bench",
        "Flagstone beside the allocators of this machine",
    );
    let _ = write!(page, "<p class='sum'>{}</p>", escape(&sum(results, list)));
    let _ = write!(
        page,
        "<p>Medians of {} runs of each allocator, each run a process of its own, all in turns. Lines \
         across the bars and “min..max” go from the smallest to the largest run; an arrow names the end of a line that would leave the picture. In every workload {BETTER}. “tie”: the distance to the best is \
         smaller than the distance between the quartiles of either, so no difference was shown.</p>\
         <p class='note'>Written by flagstone bench {} on {}. The library inside it is of {}.</p>",
        about.runs,
        env!("CARGO_PKG_VERSION"),
        escape(&about.machine),
        escape(about.commit)
    );
    if !about.full {
        page.push_str(
            "<p class='note'>This was a quick run: small sizes and few runs, a first look and no \
             result.</p>",
        );
    }
    header_ends(&mut page);
    contents(&mut page, results, list);
    page.push_str("<main>");
    programs(&mut page, on, about);
    let places = means::places(results);
    if results.len() > 1 {
        overall(&mut page, &places);
    }
    for (index, result) in results.iter().enumerate() {
        workload(&mut page, result, &id(result, index));
    }
    if !list.is_empty() {
        judged(&mut page, list);
    }
    page.push_str("</main>");
    close(&mut page);
    page
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

fn contents(page: &mut String, results: &[Measured], list: &[Target]) {
    page.push_str("<nav aria-label='Contents'><ul><li><a href='#programs'>Programs</a></li>");
    if results.len() > 1 {
        page.push_str("<li><a href='#means'>Time against memory</a></li>");
    }
    for (index, result) in results.iter().enumerate() {
        let _ = write!(
            page,
            "<li><a href='#{}'>{}</a></li>",
            id(result, index),
            escape(&report::title(result))
        );
    }
    if !list.is_empty() {
        page.push_str("<li><a href='#targets'>Targets</a></li>");
    }
    page.push_str("</ul></nav>");
}

/// Names the section of a workload: the place keeps names apart that were asked for twice.
fn id(result: &Measured, index: usize) -> String {
    format!("{}-at-{index}", result.workload.name)
}

fn programs(page: &mut String, on: &[Allocator], about: &About) {
    page.push_str("<section id='programs'><h2>Programs compared</h2>");
    open_table(page, "Programs compared", &["allocator", "version", "from"]);
    for one in on {
        let from = match (&one.unusable, &one.library) {
            (Some(why), _) => why.clone(),
            _ if one.name == FLAGSTONE => about.library.clone(),
            (None, Some(library)) => library.display().to_string(),
            (None, None) => "the C library".into(),
        };
        row(page, &[one.name.clone(), one.version.clone(), from], &[]);
    }
    close_table(page);
    page.push_str("</section>");
}

/// One row: the first cell is its head, those in `figures` stand to the right.
fn row(page: &mut String, cells: &[String], figures: &[usize]) {
    page.push_str(if cells[0] == FLAGSTONE {
        OWN_ROW
    } else {
        "<tr>"
    });
    let _ = write!(page, "<th scope='row'>{}</th>", escape(&cells[0]));
    for (at, cell) in cells.iter().enumerate().skip(1) {
        let kind = match cell.len() {
            _ if figures.contains(&at) => "",
            // Long lists must not become a word wide on a phone.
            41.. => " class='t' style='min-width:18rem'",
            _ => " class='t'",
        };
        let _ = write!(page, "<td{kind}>{}</td>", escape(cell));
    }
    page.push_str("</tr>");
}

/// The title of a picture of the plane.
fn against(what: &str) -> String {
    format!("{what}: time against memory; down and left is better")
}

/// Time against memory over all rows, and over each group of them.
fn overall(page: &mut String, places: &[Place]) {
    page.push_str(
        "<section id='means'><h2>Time against memory</h2><p>Geometric means over rows: of an allocator’s time \
         ÷ the best time of the row, and of its peak resident size ÷ glibc’s in the row. Lines through a point go \
         from the best to the worst pass of interleaved runs; the broken line is the front: allocators that no other \
         beats in both. Rows whose figure is no time count in neither.</p>",
    );
    for (at, (name, places)) in means::groups(places).into_iter().enumerate() {
        let title = means::heading(name, &places);
        let _ = write!(page, "<h3>{}</h3>", escape(&title));
        let picture = plane::picture(
            &format!("means-{at}"),
            &against(&title),
            places.iter().copied(),
        );
        if let Some(picture) = picture {
            let _ = write!(
                page,
                "<figure><figcaption>Down and left is better</figcaption>{picture}</figure>"
            );
        }
        let mut heads = means::HEADS;
        heads[7] = "front";
        open_table(page, &title, &heads);
        for place in places {
            row(page, &means::cells(place), &[2, 3, 4, 5, 6]);
        }
        close_table(page);
    }
    page.push_str("</section>");
}

fn workload(page: &mut String, result: &Measured, id: &str) {
    let (title, unit) = (report::title(result), result.workload.unit);
    let _ = write!(
        page,
        "<section id='{id}'><h2>{}</h2><p>{}</p>",
        escape(&title),
        escape(&result.workload.what)
    );
    if let Some(picture) = bars::picture(result, &format!("{id}-chart"), &title, BETTER) {
        let _ = write!(
            page,
            "<figure><figcaption>{}: {unit}, {BETTER}</figcaption>{picture}</figure>",
            escape(&title)
        );
    }
    let places = means::of_row(result);
    let caption = against(&title);
    if let Some(picture) = plane::picture(&format!("{id}-plane"), &caption, &places) {
        let _ = write!(
            page,
            "<figure><figcaption>{}</figcaption>{picture}</figure>",
            escape(&caption)
        );
    }
    let mut heads = report::heads(unit).to_vec();
    heads[STANDING] = "standing";
    heads.splice(ALSO..ALSO, ["quartiles apart", "runs"]);
    open_table(page, &format!("{title}, all figures"), &heads);
    for outcome in &result.outcomes {
        let one = report::row(result, outcome);
        let mut cells = report::cells(&one).to_vec();
        // Elsewhere the figure itself is this one.
        if let Some(each) = one.ns_per_op.filter(|_| unit != "ns/op") {
            let also = cells.last_mut().expect("a table has columns");
            *also = format!("{also} ns_per_op={}", figure(each))
                .trim()
                .to_owned();
        }
        cells.splice(
            ALSO..ALSO,
            [report::shown(one.spread), one.runs.to_string()],
        );
        row(page, &cells, &FIGURES);
    }
    close_table(page);
    for note in report::notes(result) {
        let _ = write!(page, "<p class='note'>{}</p>", escape(&note));
    }
    page.push_str("</section>");
}

fn judged(page: &mut String, list: &[Target]) {
    page.push_str("<section id='targets'><h2>What Flagstone set itself to reach</h2>");
    open_table(
        page,
        "Targets",
        &["target", "got", "wanted", "verdict", "against"],
    );
    for target in list {
        let [got, limit, verdict, against] = targets::words(target);
        row(
            page,
            &[target.what.clone(), got, limit, verdict, against],
            &[1, 2],
        );
    }
    close_table(page);
    page.push_str("</section>");
}

#[cfg(test)]
mod tests;
