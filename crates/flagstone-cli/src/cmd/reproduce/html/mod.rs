//! The report as one HTML file: no network, dark and light, for a phone and a keyboard. Charts are
//! drawn by the library inside the file and have words beside them; all figures are tables too.
//!
//! The page forbids itself the network: a browser refuses whatever is not in the file.

mod chart;
mod charts;

use super::measured;
use super::reasons;
use super::results;
use super::sheet::{Cell, Sheet};
use super::view;
use chart::escape;
use core::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The chart library with its licence, as released (ADR 0016).
const VEGA: &str = include_str!("../../../../data/charts/vega.min.js");
const VEGA_LITE: &str = include_str!("../../../../data/charts/vega-lite.min.js");
const LICENCE: &str = include_str!("../../../../data/charts/LICENSE");
/// What a browser may do with the page: run and draw what is inside, fetch nothing.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; \
                      style-src 'unsafe-inline'; img-src data:";

/// What the documents are, in their order.
const TITLES: [(&str, &str); 5] = [
    ("S0", "Max slab order 4 on big systems (2023)"),
    ("S1", "One CPU allocates, seven free (2007)"),
    ("S2", "The order of least waste (2023)"),
    ("S3", "Pagesets that tune themselves (2023)"),
    ("S4", "min_partial by object size (2008)"),
];

/// The page.
pub(super) fn page(sheet: &Sheet, quick: bool) -> String {
    let mut page = format!(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>\
         <meta http-equiv='Content-Security-Policy' content=\"{POLICY}\">\
         <meta name='viewport' content='width=device-width, initial-scale=1'>\
         <link rel='icon' href='data:,'><title>Flagstone: five published trade-offs</title>\
         <style>{STYLE}</style></head><body><header><h1>Five published trade-offs, regenerated</h1>"
    );
    let _ = write!(
        page,
        "<p class='sum'>{}</p>",
        escape(&sheet.summary().line())
    );
    page.push_str(
        "<p>Figures called simulated come from the allocator itself on virtual CPUs in virtual time; \
         what was measured on real threads stands under its own \
         title. Dashed lines and grey are published, drawn lines and blue ours in their place, green \
         the flagstone policy. Accuracies of S2, S4 and of the counters of S3 were chosen with first \
         results in view; cells of one run are not independent of each other.</p>",
    );
    let _ = write!(
        page,
        "<p class='note'>Written by flagstone reproduce on {}; simulated code {}; first seed {}.</p>",
        escape(&results::host()),
        env!("SIMULATED_CODE_DIGEST"),
        sheet.first_seed
    );
    if quick {
        page.push_str(
            "<p class='note'>This was a quick run: short windows and few seeds; many figures had \
             not settled.</p>",
        );
    }
    page.push_str(
        "<noscript><p class='note'>Charts are drawn by a script in this file; without scripts every \
         figure is in the tables.</p></noscript></header>",
    );
    contents(&mut page, sheet);
    page.push_str("<main>");
    for (seed, title) in present(sheet) {
        let _ = write!(
            page,
            "<section id='{seed}'><h2>{seed}: {title}</h2><p class='note'>{}</p>",
            escape(&reasons::of(seed, sheet))
        );
        for figure in charts::of(seed, sheet) {
            page.push_str(&figure);
        }
        cells(&mut page, sheet, seed);
        page.push_str("</section>");
    }
    targets(&mut page, sheet);
    measured_rows(&mut page, sheet);
    settings(&mut page, sheet);
    page.push_str("</main>");
    let _ = write!(
        page,
        "<!--\n{LICENCE}\n--><script>{VEGA}</script><script>{VEGA_LITE}</script><script>{SCRIPT}</script>"
    );
    page.push_str("</body></html>\n");
    page
}

fn present(sheet: &Sheet) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
    let there = |seed: &str| sheet.cells.iter().any(|cell| cell.published.seed == seed);
    TITLES.into_iter().filter(move |(seed, _)| there(seed))
}

fn contents(page: &mut String, sheet: &Sheet) {
    page.push_str("<nav aria-label='Contents'><ul>");
    for (seed, title) in present(sheet) {
        let _ = write!(page, "<li><a href='#{seed}'>{seed}: {title}</a></li>");
    }
    page.push_str(
        "<li><a href='#targets'>What flagstone should reach</a></li>\
         <li><a href='#measured'>Measured on real threads</a></li>\
         <li><a href='#settings'>Settings</a></li></ul></nav>",
    );
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
        "<details><summary>All {} cells of {seed}</summary><div class='wide' role='region' \
         tabindex='0' aria-label='All cells of {seed}'><table><tr>",
        cells.len()
    );
    for head in [
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
    ] {
        let _ = write!(page, "<th scope='col'>{head}</th>");
    }
    page.push_str("</tr>");
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
    page.push_str("</table></div></details>");
}

fn targets(page: &mut String, sheet: &Sheet) {
    page.push_str(
        "<section id='targets'><h2>What the flagstone policy should reach</h2><div class='wide' \
         role='region' tabindex='0' aria-label='Targets'><table><tr><th scope='col'>reached</th>\
         <th scope='col'>wanted</th><th scope='col'>found</th></tr>",
    );
    for target in &sheet.targets {
        let reached = match target.reached {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not judged",
        };
        let _ = write!(
            page,
            "<tr><td class='t'>{reached}</td><th scope='row'>{} {}</th><td class='t'>{}</td></tr>",
            target.seed,
            escape(&target.wanted),
            escape(&target.found)
        );
    }
    page.push_str("</table></div></section>");
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
             that overlap are a tie.</p><div class='wide' role='region' tabindex='0' \
             aria-label='Measured rows'><table><tr><th scope='col'>row</th><th scope='col'>figure</th>\
             <th scope='col'>flagstone</th><th scope='col'>others</th><th scope='col'>flagstone is</th></tr>",
        );
        for row in &rows {
            let [name, rest @ ..] = view::measured_words(row);
            let _ = write!(page, "<tr><th scope='row'>{}</th>", escape(&name));
            for word in rest {
                let _ = write!(page, "<td class='t'>{}</td>", escape(&word));
            }
            page.push_str("</tr>");
        }
        page.push_str("</table></div>");
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
