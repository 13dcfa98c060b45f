//! A replay as one page: the memory of every allocator over the trace's time, and the table.

use super::figures::{Document, Row, live_at};
use super::view::{HEADS, mib, rows, sentence};
use crate::html::chart::{COLOURS, drawing, look};
use crate::html::{self, plain, table};
use maud::html;
use serde_json::{Value, json};

/// The colour of flagstone in every report.
const OWN: usize = 3;
/// Colours of the others, in order; the grey one last, for what is live is grey too.
const OTHERS: [usize; 5] = [1, 2, 4, 5, 0];

/// The page.
pub fn page(document: &Document) -> String {
    let of_each = |words: &dyn Fn(&Row) -> String| {
        let all: Vec<String> = document.rows.iter().map(words).collect();
        all.join(", ")
    };
    let peaks = of_each(&|row| {
        format!(
            "{} {:.1} MiB",
            row.allocator,
            mib(row.peak_rss_bytes.median)
        )
    });
    let means = of_each(&|row| format!("{} {:.2}", row.allocator, row.mean_rss_by_live.median));
    let header = html! {
        p class="sum" { (sentence(document)) }
        p {
            "Recorded: " (document.command.join(" ")) ". Replayed here, each allocator in a process of its own, "
            "medians of " (document.rows.first().map_or(0, |row| row.runs))
            " runs that took turns; memory is that of the allocator."
        }
    };
    let main = html! {
        main {
            section {
                h2 { "Resident memory over the program's time" }
                (drawing(
                    "rss",
                    "vega-lite",
                    "Resident memory over time",
                    &format!("Peaks: {peaks}"),
                    &chart(document),
                ))
            }
            section {
                h2 { "Fragmentation over the program's time" }
                p {
                    "Resident bytes for each byte that the program holds. Where it holds less than a twentieth of its "
                    "most, nothing is drawn."
                }
                (drawing(
                    "ratio",
                    "vega-lite",
                    "Resident bytes by live bytes over time",
                    &format!("Means by means: {means}"),
                    &ratios(document),
                ))
            }
            section {
                h2 { "Figures" }
                (table("Figures of every allocator", &HEADS, &plain(rows(document))))
            }
        }
    };
    html::page(
        "Flagstone replay",
        "One program on several allocators",
        &header,
        &main,
    )
}

/// What the dashed line is called.
const LIVE: &str = "live, as asked for";

fn chart(document: &Document) -> Value {
    let mut values = points(LIVE, &document.live);
    for row in &document.rows {
        values.extend(points(&row.allocator, &row.curve));
    }
    lines(document, &[LIVE], values, "MiB")
}

fn ratios(document: &Document) -> Value {
    let least = document.peak_live_bytes / 20;
    let mut values = Vec::new();
    for row in &document.rows {
        values.extend(row.curve.iter().filter_map(|&(ns, bytes)| {
            let live = live_at(&document.live, ns);
            let ratio = (live > least).then(|| bytes as f64 / live as f64)?;
            Some(json!({ "name": row.allocator, "s": ns as f64 / 1e9, "value": ratio }))
        }));
    }
    lines(document, &[], values, "resident / live")
}

/// Lines over the recorded run's time: some of the program's own, then one for each allocator.
fn lines(document: &Document, own: &[&str], values: Vec<Value>, title: &str) -> Value {
    let mut others = OTHERS.iter().cycle();
    let allocators = document.rows.iter().map(|row| row.allocator.as_str());
    let names: Vec<&str> = own.iter().copied().chain(allocators).collect();
    let colours: Vec<&str> = names
        .iter()
        .map(|name| match *name {
            LIVE => "var(--soft)",
            "flagstone" => COLOURS[OWN],
            _ => COLOURS[*others.next().expect("a cycle has no end")],
        })
        .collect();
    let dashes: Vec<Value> = names
        .iter()
        .map(|name| match *name {
            LIVE => json!([4, 3]),
            _ => json!([1, 0]),
        })
        .collect();
    let mut config = look();
    // Beside the lines it would take a third of a phone's width.
    config["legend"]["orient"] = "top".into();
    config["legend"]["columns"] = 2.into();
    json!({
        "config": config,
        "width": "container",
        "height": 320,
        "data": { "values": values },
        "mark": { "type": "line", "interpolate": "step-after", "strokeWidth": 2 },
        "encoding": {
            "x": { "field": "s", "type": "quantitative", "title": "seconds of the recorded run" },
            "y": { "field": "value", "type": "quantitative", "title": title },
            "color": { "field": "name", "type": "nominal", "title": null,
                       "scale": { "domain": names, "range": colours } },
            "strokeDash": { "field": "name", "type": "nominal", "title": null,
                            "scale": { "domain": names, "range": dashes } }
        }
    })
}

fn points(name: &str, curve: &[(u64, u64)]) -> Vec<Value> {
    curve
        .iter()
        .map(|&(ns, bytes)| json!({ "name": name, "s": ns as f64 / 1e9, "value": mib(bytes as f64) }))
        .collect()
}
