//! One bar for each allocator: its median, the range of its runs, Flagstone's in a colour of its own.

use crate::cmd::bench::allocators::FLAGSTONE;
use crate::cmd::bench::figures::Summary;
use crate::cmd::bench::report::figure;
use crate::cmd::bench::runner::{Measured, Outcome};
use crate::html::chart::{COLOURS, drawing, look};
use maud::Markup;
use serde_json::{Value, json};

/// Pixels from one bar to the next.
const STEP: usize = 26;
/// How far the axis goes beyond the longest line: room for its figure on a phone. Less cuts
/// figures of five digits off, more shortens the bars.
const ROOM: f64 = 1.3;
/// The same where a line is cut and the figure of its end stands there too.
const ROOM_CUT: f64 = 1.7;
/// Where a line is cut, in longest bars: one hindered run must not make slivers of all medians.
const CUT: f64 = 1.5;

struct Bar {
    name: String,
    own: bool,
    summary: Summary,
    words: String,
}

impl Bar {
    fn of(result: &Measured, outcome: &Outcome) -> Option<Bar> {
        let summary = outcome.summary()?;
        let name = format!("{} {}", outcome.allocator.name, outcome.allocator.version);
        let name = name.trim_end().to_owned();
        let standing = match crate::cmd::bench::report::word(result.standing(outcome)) {
            "" => String::new(),
            word => format!(", {word}"),
        };
        let words = format!(
            "{name}: {} {}, from {} to {}{standing}",
            figure(summary.median),
            result.workload.unit,
            figure(summary.min),
            figure(summary.max)
        );
        Some(Bar {
            name,
            own: outcome.allocator.name == FLAGSTONE,
            summary,
            words,
        })
    }

    /// What is drawn, on a picture that ends at `end`.
    fn row(&self, end: f64) -> Value {
        let Summary { median, max, .. } = self.summary;
        let said = match max > end {
            true => format!("{} → {}", figure(median), figure(max)),
            false => figure(median),
        };
        json!({
            "name": self.name, "own": self.own, "value": self.summary.median,
            "low": self.summary.min, "high": max, "drawn_to": max.min(end),
            "figure": said, "words": self.words
        })
    }
}

/// The picture of a workload, the best on top; none where nothing has a figure.
pub(super) fn picture(result: &Measured, id: &str, title: &str, better: &str) -> Option<Markup> {
    let bars = result.outcomes.iter();
    let mut bars: Vec<Bar> = bars.filter_map(|one| Bar::of(result, one)).collect();
    bars.sort_by(|a, b| a.summary.median.total_cmp(&b.summary.median));
    let of = |part: fn(&Summary) -> f64| bars.iter().map(|bar| part(&bar.summary)).reduce(f64::max);
    let (longest, furthest) = (of(|own| own.median)?, of(|own| own.max)?);
    let said: Vec<&str> = bars.iter().map(|bar| bar.words.as_str()).collect();
    let title = format!("{title}: {}", result.workload.what);
    let axis = format!("{}, {better}", result.workload.unit);
    let words = format!("{axis}. {}", said.join("; "));
    let spec = specification(
        &bars,
        &axis,
        [longest * CUT, furthest],
        &format!("{title}. {words}"),
    );
    Some(drawing(id, "vega-lite", &title, &words, &spec))
}

/// `ends`: where lines are cut, and where the longest ends.
fn specification(bars: &[Bar], axis: &str, ends: [f64; 2], description: &str) -> Value {
    let [cut, furthest] = ends;
    let most = match furthest > cut {
        true => cut * ROOM_CUT,
        false => furthest * ROOM,
    };
    let rows: Vec<Value> = bars.iter().map(|bar| bar.row(cut)).collect();
    let own: Vec<&String> = bars.iter().filter(|b| b.own).map(|b| &b.name).collect();
    let by_name = |own_value: &str, other: &str| json!({ "condition": { "test": { "field": "value", "oneOf": own }, "value": own_value }, "value": other });
    let down = json!({
        "field": "name", "type": "nominal", "sort": null,
        "axis": {
            "title": null, "ticks": false, "domain": false, "labelLimit": 130, "labelPadding": 6,
            "labelColor": "var(--ink)", "labelFontWeight": by_name("bold", "normal")
        }
    });
    let across = |field: &str| {
        json!({
            "field": field, "type": "quantitative",
            "scale": { "domain": [0, most], "nice": false, "zero": true },
            "axis": { "title": axis, "tickCount": 5, "format": ",.12~g", "labelOverlap": true }
        })
    };
    let colour = json!({
        "condition": { "test": "datum.own", "value": COLOURS[3] }, "value": COLOURS[0]
    });
    json!({
        "width": "container", "height": STEP * bars.len(),
        "autosize": { "type": "fit-x", "contains": "padding" },
        "description": description,
        "config": look(),
        "data": { "values": rows },
        "layer": [
            {
                "mark": { "type": "bar", "height": { "band": 0.6 } },
                "encoding": {
                    "y": down, "x": across("value"), "color": colour,
                    "description": { "field": "words", "type": "nominal" },
                    "tooltip": { "field": "words", "type": "nominal" }
                }
            },
            {
                "mark": { "type": "rule", "strokeWidth": 2, "stroke": "var(--ink)", "aria": false },
                "encoding": { "y": down, "x": across("low"), "x2": { "field": "drawn_to" } }
            },
            {
                "mark": {
                    "type": "text", "align": "left", "dx": 6, "fill": "var(--ink)",
                    "fontSize": 12, "aria": false
                },
                "encoding": {
                    "y": down, "x": across("drawn_to"), "text": { "field": "figure", "type": "nominal" }
                }
            }
        ]
    })
}
