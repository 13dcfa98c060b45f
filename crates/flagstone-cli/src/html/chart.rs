//! Charts as specifications for the chart library that the page carries, with words beside them.
//!
//! Colours are the page's own variables, so that light and dark need no second drawing.

use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

/// Colours by style: 0 and 2 are published, 1 and 6 simulated, 3 our own.
pub(crate) const COLOURS: [&str; 7] = [
    "var(--c0)",
    "var(--c1)",
    "var(--c2)",
    "var(--c3)",
    "var(--c4)",
    "var(--c5)",
    "var(--c6)",
];

/// A place for a drawing, and what is to be drawn there: `language` is the grammar it is in.
pub(crate) fn drawing(id: &str, language: &str, title: &str, words: &str, spec: &Value) -> Markup {
    // `</` would end the element that carries the specification.
    let text = spec.to_string().replace("</", "<\\/");
    html! {
        div class="chart" id=(id) role="img" aria-label={ (title) ". " (words) } {}
        script type="application/json" data-chart=(id) data-language=(language) { (PreEscaped(text)) }
    }
}

/// Columns of a legend below a chart, by its width: a phone has room for one.
pub(crate) fn legend_columns() -> Value {
    json!({ "expr": "containerSize()[0] < 480 ? 1 : containerSize()[0] < 720 ? 2 : 3" })
}

/// How everything looks, in the page's variables.
pub(crate) fn look() -> Value {
    let axis = json!({
        "labelColor": "var(--soft)", "titleColor": "var(--soft)", "gridColor": "var(--line)",
        "domainColor": "var(--line)", "tickColor": "var(--line)", "labelFontSize": 12,
        "titleFontSize": 12, "titleFontWeight": "normal"
    });
    json!({
        "background": null,
        "font": "system-ui, sans-serif",
        "axis": axis,
        "legend": { "labelColor": "var(--ink)", "labelFontSize": 13, "labelLimit": 300 },
        "view": { "stroke": null }
    })
}
