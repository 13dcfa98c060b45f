//! What every report in HTML is made of: one file, no network, dark and light, for a phone and a
//! keyboard. Charts are drawn by the library inside the file and have words beside them.
//!
//! ```text
//!   page ── <head>, style ─► header ─► what the command says ─► library, script
//! ```
//!
//! The page forbids itself the network: a browser refuses whatever is not in the file.

pub(crate) mod chart;
#[cfg(test)]
pub(crate) mod check;

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The chart library with its licence, as released (ADR 0016).
const VEGA: &str = include_str!("../../data/charts/vega.min.js");
const VEGA_LITE: &str = include_str!("../../data/charts/vega-lite.min.js");
const LICENCE: &str = include_str!("../../data/charts/LICENSE");
/// What a browser may do with the page: run and draw what is inside, fetch nothing.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; \
                      style-src 'unsafe-inline'; img-src data:";

/// A page: its header below the heading, and all that follows it.
pub(crate) fn page(title: &str, heading: &str, header: &Markup, rest: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (heading) }
                    (header)
                    noscript {
                        p class="note" {
                            "Charts are drawn by a script in this file; without scripts every figure is in the tables."
                        }
                    }
                }
                (rest)
                (PreEscaped(format!("<!--\n{LICENCE}\n-->")))
                script { (PreEscaped(VEGA)) }
                script { (PreEscaped(VEGA_LITE)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string() + "\n"
}

/// A table with rows that are there already, in a region that scrolls sideways by itself, also by keyboard.
pub(crate) fn table(label: &str, heads: &[&str], rows: &Markup) -> Markup {
    html! {
        div class="wide" role="region" tabindex="0" aria-label=(label) {
            table {
                tr { @for head in heads { th scope="col" { (head) } } }
                (rows)
            }
        }
    }
}

/// Rows of plain cells.
pub(crate) fn plain<Row: IntoIterator<Item = String>>(
    rows: impl IntoIterator<Item = Row>,
) -> Markup {
    html! {
        @for row in rows {
            tr { @for cell in row { td { (cell) } } }
        }
    }
}
