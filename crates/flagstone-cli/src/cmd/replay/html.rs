//! A replay as one page: the memory of every allocator over the trace's time, and the table.

use super::figures::Document;
use super::view::{HEADS, mib, rows, sentence};
use crate::html::chart::{COLOURS, drawing, look};
use crate::html::{close, close_table, escape, header_ends, open, open_table};
use core::fmt::Write;
use serde_json::{Value, json};

/// The colour of flagstone in every report.
const OWN: usize = 3;
/// Colours of the others, in order.
const OTHERS: [usize; 5] = [0, 1, 2, 4, 5];

/// The page.
pub fn page(document: &Document) -> String {
    let mut page = open("Flagstone replay", "One program on several allocators");
    let _ = write!(
        page,
        "<p class='sum'>{}</p><p>Recorded: {}. Replayed here, each allocator in a process of its own, \
         medians of {} runs that took turns; memory is that of the allocator.</p>",
        escape(&sentence(document)),
        escape(&document.command.join(" ")),
        document.rows.first().map_or(0, |row| row.runs)
    );
    header_ends(&mut page);
    page.push_str("<main><section><h2>Resident memory over the program's time</h2>");
    let words = document
        .rows
        .iter()
        .map(|row| {
            format!(
                "{} {:.1} MiB",
                row.allocator,
                mib(row.peak_rss_bytes.median)
            )
        })
        .collect::<Vec<_>>()
        .join(", ");
    page.push_str(&drawing(
        "rss",
        "vega-lite",
        "Resident memory over time",
        &format!("Peaks: {words}"),
        &chart(document),
    ));
    page.push_str("</section><section><h2>Figures</h2>");
    open_table(&mut page, "Figures of every allocator", &HEADS);
    for row in rows(document) {
        page.push_str("<tr>");
        for cell in row {
            let _ = write!(page, "<td>{}</td>", escape(&cell));
        }
        page.push_str("</tr>");
    }
    close_table(&mut page);
    page.push_str("</section></main>");
    close(&mut page);
    page
}

fn chart(document: &Document) -> Value {
    let mut values = points("live, as asked for", &document.live);
    for row in &document.rows {
        values.extend(points(&row.allocator, &row.curve));
    }
    let mut others = OTHERS.iter().cycle();
    let names: Vec<&str> = std::iter::once("live, as asked for")
        .chain(document.rows.iter().map(|row| row.allocator.as_str()))
        .collect();
    let colours: Vec<&str> = names
        .iter()
        .map(|name| match *name {
            "live, as asked for" => "var(--soft)",
            "flagstone" => COLOURS[OWN],
            _ => COLOURS[*others.next().expect("a cycle has no end")],
        })
        .collect();
    let dashes: Vec<Value> = names
        .iter()
        .map(|name| match *name {
            "live, as asked for" => json!([4, 3]),
            _ => json!([1, 0]),
        })
        .collect();
    json!({
        "config": look(),
        "width": "container",
        "height": 320,
        "data": { "values": values },
        "mark": { "type": "line", "interpolate": "step-after", "strokeWidth": 2 },
        "encoding": {
            "x": { "field": "s", "type": "quantitative", "title": "seconds of the recorded run" },
            "y": { "field": "mib", "type": "quantitative", "title": "MiB" },
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
        .map(|&(ns, bytes)| json!({ "name": name, "s": ns as f64 / 1e9, "mib": mib(bytes as f64) }))
        .collect()
}
