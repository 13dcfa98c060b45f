//! The report as one HTML file, in the shell of every report (`crate::html`): charts with words
//! beside them, and all figures as tables too.

mod chart;
mod charts;

use super::documents::{self, Document};
use super::measured;
use super::reasons;
use super::sheet::{Cell, Sheet};
use super::view;
use crate::html::{close, close_table, escape, header_ends, open, open_table};
use crate::source::machine;
use core::fmt::Write;

/// The page.
pub(super) fn page(sheet: &Sheet, quick: bool) -> String {
    let mut page = open(
        "Flagstone: five published trade-offs",
        "Five published trade-offs, regenerated",
    );
    let _ = write!(page, "<p class='sum'>{}.</p>", escape(&sheet.headline()));
    page.push_str(
        "<p>Figures called simulated come from the allocator itself on virtual CPUs in virtual time; \
         what was measured on real threads stands under its own \
         title. Dashed lines and round marks are published, drawn lines and square marks simulated; each kernel has one \
         colour, green is the flagstone policy. Scores count independent figures only, beside the score of predicting that \
         nothing changes.</p>",
    );
    let _ = write!(
        page,
        "<p class='note'>Written by flagstone reproduce on {}; simulated code {}; first seed {}.</p>",
        escape(&machine::processor()),
        env!("SIMULATED_CODE_DIGEST"),
        sheet.first_seed
    );
    if quick {
        page.push_str(
            "<p class='note'>This was a quick run: short windows and few seeds; many figures had \
             not settled.</p>",
        );
    }
    header_ends(&mut page);
    contents(&mut page, sheet);
    page.push_str("<main>");
    for Document {
        seed,
        title,
        experiment,
        link,
        ..
    } in present(sheet)
    {
        let _ = write!(
            page,
            "<section id='{seed}'><h2>{seed}: {title}</h2><p>{} <a href='{}'>The mail.</a></p>",
            escape(experiment),
            escape(link)
        );
        for figure in charts::of(seed, sheet) {
            page.push_str(&figure);
        }
        let _ = write!(
            page,
            "<details><summary>What misses, and why</summary><p class='note'>{}</p>",
            escape(&reasons::of(seed, sheet))
        );
        outside(&mut page, sheet, seed);
        page.push_str("</details>");
        cells(&mut page, sheet, seed);
        page.push_str("</section>");
    }
    scores(&mut page, sheet);
    targets(&mut page, sheet);
    measured_rows(&mut page, sheet);
    settings(&mut page, sheet);
    page.push_str("</main>");
    close(&mut page);
    page
}

fn present(sheet: &Sheet) -> impl Iterator<Item = &'static Document> + '_ {
    let there = |seed: &str| sheet.cells.iter().any(|cell| cell.published.seed == seed);
    let all = documents::all().iter();
    all.filter(move |document| there(&document.seed))
}

fn contents(page: &mut String, sheet: &Sheet) {
    page.push_str("<nav aria-label='Contents'><ul>");
    for Document { seed, title, .. } in present(sheet) {
        let _ = write!(page, "<li><a href='#{seed}'>{seed}: {title}</a></li>");
    }
    page.push_str(
        "<li><a href='#scores'>How good the simulation is</a></li><li><a href='#targets'>What flagstone should reach</a></li>\
         <li><a href='#measured'>Measured on real threads</a></li>\
         <li><a href='#settings'>Settings</a></li></ul></nav>",
    );
}

/// The cells that are outside, the farthest first, with the reason.
fn outside(page: &mut String, sheet: &Sheet, seed: &str) {
    let heads = ["cell", "published", "got", "in tolerances", "why"];
    open_table(page, &format!("Outside in {seed}"), &heads);
    for (cell, far) in reasons::cells_outside(seed, sheet) {
        let known = &cell.published;
        let _ = write!(
            page,
            "<tr><th scope='row'>{}, {}, {}</th><td>{}</td><td>{}</td><td>{far:.1}</td><td class='t'>{}</td></tr>",
            escape(&known.table),
            escape(&known.row),
            escape(&known.column),
            view::figure(known.value),
            view::maybe(cell.got),
            escape(reasons::why(cell))
        );
    }
    close_table(page);
}

/// Every cell of a document, folded away.
fn cells(page: &mut String, sheet: &Sheet, seed: &str) {
    let cells: Vec<&Cell> = sheet
        .cells
        .iter()
        .filter(|cell| cell.published.seed == seed)
        .collect();
    let _ = write!(
        page,
        "<details><summary>All {} cells of {seed}</summary>",
        cells.len()
    );
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
    open_table(page, &format!("All cells of {seed}"), &heads);
    for cell in cells {
        let known = &cell.published;
        let how = match &cell.profile {
            Some(profile) => format!("{:?}, {profile}", cell.method).to_lowercase(),
            None => format!("{:?}", cell.method).to_lowercase(),
        };
        let _ = write!(
            page,
            "<tr><td class='t'>{}</td><th scope='row'>{}</th><td class='t'>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td class='t'>{}</td><td class='t'>{}</td><td>{}</td><td class='t'>{}</td>\
             <td class='t'>{}</td></tr>",
            escape(&known.table),
            escape(&known.row),
            escape(&known.column),
            view::figure(known.value),
            view::maybe(cell.got),
            view::maybe(cell.spread),
            view::error(cell),
            cell.accuracy
                .map_or_else(String::new, |stated| stated.words()),
            view::verdict(cell),
            view::maybe(cell.own),
            escape(&how),
            escape(cell.reason.as_deref().unwrap_or(""))
        );
    }
    close_table(page);
    page.push_str("</details>");
}

/// Scores beside those of doing nothing.
fn scores(page: &mut String, sheet: &Sheet) {
    page.push_str("<section id='scores'><h2>How good the simulation is</h2>");
    open_table(page, "Scores beside doing nothing", &view::SCORE_HEADS);
    for [name, rest @ ..] in view::score_rows(sheet) {
        let _ = write!(page, "<tr><th scope='row'>{name}</th>");
        for word in rest {
            let _ = write!(page, "<td>{word}</td>");
        }
        page.push_str("</tr>");
    }
    close_table(page);
    page.push_str("</section>");
}

fn targets(page: &mut String, sheet: &Sheet) {
    page.push_str("<section id='targets'><h2>What the flagstone policy should reach</h2>");
    open_table(page, "Targets", &["reached", "wanted", "found"]);
    for target in &sheet.targets {
        let _ = write!(
            page,
            "<tr><td class='t'>{}</td><th scope='row'>{} {}</th><td class='t'>{}</td></tr>",
            target.verdict(),
            target.seed,
            escape(&target.wanted),
            escape(&target.found)
        );
    }
    close_table(page);
    page.push_str("</section>");
}

fn measured_rows(page: &mut String, sheet: &Sheet) {
    let _ = write!(
        page,
        "<section id='measured'><h2>Measured on real threads</h2><p>{}</p>",
        escape(&measured::summary(sheet))
    );
    let rows = measured::comparisons(sheet);
    if !rows.is_empty() {
        page.push_str(
            "<p class='note'>Medians of runs taken in turns, with their range. Less is better; ranges \
             that overlap are a tie.</p>",
        );
        open_table(
            page,
            "Measured rows",
            &["row", "figure", "flagstone", "others", "flagstone is"],
        );
        for row in &rows {
            let [name, rest @ ..] = view::measured_words(row);
            let _ = write!(page, "<tr><th scope='row'>{}</th>", escape(&name));
            for word in rest {
                let _ = write!(page, "<td class='t'>{}</td>", escape(&word));
            }
            page.push_str("</tr>");
        }
        close_table(page);
    }
    page.push_str("</section>");
}

fn settings(page: &mut String, sheet: &Sheet) {
    page.push_str(
        "<section id='settings'><h2>Settings, frozen for base, patched and own rows</h2><ul>",
    );
    for setting in &sheet.settings {
        let _ = write!(
            page,
            "<li>{}: {}. {}. Values tried: {}.</li>",
            setting.seed,
            escape(&setting.what),
            escape(&setting.source),
            setting.tried
        );
    }
    page.push_str("</ul></section>");
}
