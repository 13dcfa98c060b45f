//! What every report in HTML is made of: one file, no network, dark and light, for a phone and a
//! keyboard. Charts are drawn by the library inside the file and have words beside them.
//!
//! ```text
//!   open ── <head>, style ─► header ─► header_ends ─► what the command says ─► close ── library, script
//! ```
//!
//! The page forbids itself the network: a browser refuses whatever is not in the file.

pub(crate) mod chart;
#[cfg(test)]
pub(crate) mod check;

use core::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The chart library with its licence, as released (ADR 0016).
const VEGA: &str = include_str!("../../data/charts/vega.min.js");
const VEGA_LITE: &str = include_str!("../../data/charts/vega-lite.min.js");
const LICENCE: &str = include_str!("../../data/charts/LICENSE");
/// What a browser may do with the page: run and draw what is inside, fetch nothing.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; \
                      style-src 'unsafe-inline'; img-src data:";

/// A page up to the first heading of its header; both texts are plain.
pub(crate) fn open(title: &str, heading: &str) -> String {
    format!(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>\
         <meta http-equiv='Content-Security-Policy' content=\"{POLICY}\">\
         <meta name='viewport' content='width=device-width, initial-scale=1'>\
         <link rel='icon' href='data:,'><title>{}</title>\
         <style>{STYLE}</style></head><body><header><h1>{}</h1>",
        escape(title),
        escape(heading)
    )
}

/// The end of the header.
pub(crate) fn header_ends(page: &mut String) {
    page.push_str(
        "<noscript><p class='note'>Charts are drawn by a script in this file; without scripts every \
         figure is in the tables.</p></noscript></header>",
    );
}

/// The end of the page, with the library that draws.
pub(crate) fn close(page: &mut String) {
    let _ = write!(
        page,
        "<!--\n{LICENCE}\n--><script>{VEGA}</script><script>{VEGA_LITE}</script><script>{SCRIPT}</script>"
    );
    page.push_str("</body></html>\n");
}

/// Text that is safe inside elements and attributes.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// A table up to the end of its heads: in a region that scrolls sideways by itself, also by
/// keyboard.
pub(crate) fn open_table(page: &mut String, label: &str, heads: &[&str]) {
    let _ = write!(
        page,
        "<div class='wide' role='region' tabindex='0' aria-label='{}'><table><tr>",
        escape(label)
    );
    for head in heads {
        let _ = write!(page, "<th scope='col'>{}</th>", escape(head));
    }
    page.push_str("</tr>");
}

/// The end of the table.
pub(crate) fn close_table(page: &mut String) {
    page.push_str("</table></div>");
}
