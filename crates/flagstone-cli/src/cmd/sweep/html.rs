//! The page of a sweep: for each workload and machine its curves, heat maps and front.

use super::report::{Group, Point, front};
use crate::html::chart::{COLOURS, drawing, look};
use crate::html::{self, plain};
use flagstone_lab::Record;
use maud::{Markup, html};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The colour of the default policy in every report.
const OWN: usize = 3;
/// Colours of the others, in order.
const OTHERS: [usize; 6] = [0, 1, 2, 4, 5, 6];

/// The page.
pub(super) fn page(groups: &[Group], records: &[Record]) -> String {
    let seeds: BTreeSet<u64> = records.iter().map(|record| record.seed).collect();
    let versions: BTreeSet<String> = records
        .iter()
        .map(|r| r.model_version.to_string())
        .collect();
    let versions: Vec<String> = versions.into_iter().collect();
    let unsettled = records.iter().filter(|record| !record.converged).count();
    let header = html! {
        p class="sum" {
            (records.len()) " runs, " (seeds.len()) " seeds, model version " (versions.join(", ")) "."
        }
        p {
            "All figures are simulated. Points are means over seeds; bands and bars are one standard deviation."
            @if unsettled > 0 {
                " " (unsettled) " runs did not settle within their window; their points are hollow."
            }
        }
    };
    let main = html! {
        main { @for (index, group) in groups.iter().enumerate() { (section(index, group)) } }
    };
    html::page("Flagstone sweep", "A sweep on virtual CPUs", &header, &main)
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// A colour for each policy, the same in every picture of a group.
fn scale(points: &[Point]) -> Value {
    let names: BTreeSet<&str> = points.iter().map(|point| point.policy.as_str()).collect();
    let mut others = OTHERS.iter().cycle();
    let colour = |name: &&str| match *name {
        "flagstone" => COLOURS[OWN],
        _ => COLOURS[*others.next().expect("a cycle has no end")],
    };
    let range: Vec<&str> = names.iter().map(colour).collect();
    json!({ "domain": names, "range": range })
}

fn section(index: usize, group: &Group) -> Markup {
    let tasks: BTreeSet<u32> = group.points.iter().map(|point| point.row.tasks).collect();
    let most = tasks.last().copied().unwrap_or(0);
    let crowded: Vec<&Point> = group
        .points
        .iter()
        .filter(|point| point.row.tasks == most)
        .collect();
    html! {
        section {
            h2 { (group.title) }
            @if tasks.len() > 1 {
                h3 { "Throughput over tasks" }
                (drawing(
                    &format!("tasks{index}"),
                    "vega-lite",
                    "Throughput over tasks",
                    "Operations per task and second over the number of tasks, a line for each policy",
                    &curves(group),
                ))
            }
            (heat_maps(index, most, &crowded))
            @if crowded.len() > 1 {
                h3 { "Throughput against memory, " (most) " tasks" }
                p { "Nothing on the line is beaten by another point in both; up and left is better." }
                (drawing(
                    &format!("front{index}"),
                    "vega-lite",
                    "Throughput against memory",
                    &format!("The front: {}", on_front(&crowded)),
                    &pareto(group, &crowded),
                ))
            }
            (table(group))
        }
    }
}

fn label(point: &Point) -> String {
    point.row.policy.clone()
}

/// One line for each policy with its knobs.
fn curves(group: &Group) -> Value {
    let values: Vec<Value> = group.points.iter().map(|point| {
        let (ops, spread) = (point.row.ops_per_task_per_s, point.row.ops_spread / 100.0);
        json!({ "tasks": point.row.tasks, "ops": ops, "low": ops * (1.0 - spread), "high": ops * (1.0 + spread),
                "policy": point.policy, "label": label(point), "settled": point.row.settled.ops })
    }).collect();
    let x = json!({ "field": "tasks", "type": "quantitative", "title": "tasks",
                    "axis": { "tickMinStep": 1, "format": "d" } });
    let colour = json!({ "field": "policy", "type": "nominal", "title": null, "scale": scale(&group.points) });
    let detail = json!({ "field": "label", "type": "nominal" });
    json!({
        "config": look(), "width": "container", "height": 320, "data": { "values": values },
        "layer": [
            { "mark": { "type": "area", "opacity": 0.2 },
              "encoding": { "x": x, "y": { "field": "low", "type": "quantitative", "title": "operations per task and second" },
                            "y2": { "field": "high" }, "color": colour, "detail": detail } },
            { "mark": { "type": "line", "strokeWidth": 2 },
              "encoding": { "x": x, "y": { "field": "ops", "type": "quantitative" }, "color": colour, "detail": detail } },
            { "mark": { "type": "point", "size": 45 },
              "encoding": { "x": x, "y": { "field": "ops", "type": "quantitative" }, "color": colour, "detail": detail,
                            "fillOpacity": { "condition": { "test": "datum.settled", "value": 1 }, "value": 0 },
                            "fill": colour,
                            "tooltip": [{ "field": "label" }, { "field": "tasks" }, { "field": "ops", "format": ",.0f" }] } }
        ]
    })
}

/// Knobs that take more than one value.
fn varied(points: &[&Point]) -> Vec<String> {
    let mut values: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for point in points {
        for (knob, value) in &point.knobs {
            values.entry(knob).or_default().insert(value.to_bits());
        }
    }
    let several = values.into_iter().filter(|(_, values)| values.len() > 1);
    several.map(|(knob, _)| knob.to_owned()).collect()
}

/// A heat map for each policy over the first two knobs that vary; of others, the best value is shown.
fn heat_maps(index: usize, tasks: u32, points: &[&Point]) -> Markup {
    let knobs = varied(points);
    let [first, second, others @ ..] = &knobs[..] else {
        return html! {};
    };
    let policies: BTreeSet<&str> = points.iter().map(|point| point.policy.as_str()).collect();
    html! {
        h3 { "Throughput over " (first) " and " (second) ", " (tasks) " tasks" }
        @if !others.is_empty() {
            p { "Of " (others.join(", ")) " each square shows the best." }
        }
        @for (number, policy) in policies.into_iter().enumerate() {
            (drawing(
                &format!("heat{index}x{number}"),
                "vega-lite",
                "Heat map",
                &format!("Operations per task and second of {policy} over {first} and {second}"),
                &heat_map(policy, [first, second], points),
            ))
        }
    }
}

/// The map of one policy.
fn heat_map(policy: &str, [first, second]: [&String; 2], points: &[&Point]) -> Value {
    let mut best: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    for point in points.iter().filter(|point| point.policy == policy) {
        let (Some(a), Some(b)) = (point.knobs.get(first), point.knobs.get(second)) else {
            continue;
        };
        let cell = best.entry((*a as u64, *b as u64)).or_default();
        *cell = cell.max(point.row.ops_per_task_per_s);
    }
    let values: Vec<Value> = best
        .iter()
        .map(|((a, b), ops)| json!({ "a": a, "b": b, "ops": ops }))
        .collect();
    json!({
        "config": look(), "width": "container", "height": { "step": 26 }, "data": { "values": values },
        "title": { "text": policy, "color": "var(--ink)", "fontWeight": "normal" },
        "mark": "rect",
        "encoding": {
            "x": { "field": "a", "type": "ordinal", "title": first },
            "y": { "field": "b", "type": "ordinal", "title": second, "sort": "descending" },
            "color": { "field": "ops", "type": "quantitative", "title": "operations per task and second",
                       "scale": { "scheme": "viridis", "zero": false }, "legend": { "titleColor": "var(--soft)", "format": ".3s" } },
            "tooltip": [{ "field": "a", "title": first }, { "field": "b", "title": second }, { "field": "ops", "format": ",.0f" }]
        }
    })
}

fn on_front(points: &[&Point]) -> String {
    let marks = front(points);
    let names = points
        .iter()
        .zip(marks)
        .filter(|(_, on)| *on)
        .map(|(point, _)| label(point));
    names.collect::<Vec<_>>().join("; ")
}

fn pareto(group: &Group, points: &[&Point]) -> Value {
    let marks = front(points);
    let values: Vec<Value> = points.iter().zip(&marks).map(|(point, on)| {
        let (ops, memory) = (point.row.ops_per_task_per_s, mib(point.row.mean_bytes));
        let (dy, dx) = (ops * point.row.ops_spread / 100.0, mib(point.bytes_spread));
        json!({ "ops": ops, "mib": memory, "y0": ops - dy, "y1": ops + dy, "x0": memory - dx, "x1": memory + dx,
                "policy": point.policy, "label": label(point), "front": on, "settled": point.row.converged })
    }).collect();
    let x = json!({ "field": "mib", "type": "quantitative", "title": "mean MiB in use", "scale": { "zero": false } });
    let y = json!({ "field": "ops", "type": "quantitative", "title": "operations per task and second", "scale": { "zero": false } });
    let colour = json!({ "field": "policy", "type": "nominal", "title": null, "scale": scale(&group.points) });
    let place = |field: &str| json!({ "field": field, "type": "quantitative" });
    json!({
        "config": look(), "width": "container", "height": 340, "data": { "values": values },
        "layer": [
            { "transform": [{ "filter": "datum.front" }],
              "mark": { "type": "line", "interpolate": "step-after", "color": "var(--soft)", "strokeDash": [4, 3] },
              "encoding": { "x": x, "y": y } },
            { "mark": { "type": "rule", "opacity": 0.5 },
              "encoding": { "x": x, "y": place("y0"), "y2": { "field": "y1" }, "color": colour } },
            { "mark": { "type": "rule", "opacity": 0.5 },
              "encoding": { "x": place("x0"), "x2": { "field": "x1" }, "y": y, "color": colour } },
            { "mark": { "type": "point", "size": 70 },
              "encoding": { "x": x, "y": y, "color": colour, "fill": colour,
                            "fillOpacity": { "condition": { "test": "datum.settled", "value": 1 }, "value": 0 },
                            "tooltip": [{ "field": "label" }, { "field": "ops", "format": ",.0f" }, { "field": "mib", "format": ".1f" }] } }
        ]
    })
}

fn table(group: &Group) -> Markup {
    let heads = [
        "policy",
        "tasks",
        "seeds",
        "ops/task/s",
        "± %",
        "lock %",
        "mean MiB",
        "peak MiB",
        "settled",
    ];
    let rows = group.points.iter().map(|point| {
        let row = &point.row;
        [
            row.policy.clone(),
            row.tasks.to_string(),
            row.seeds.to_string(),
            format!("{:.0}", row.ops_per_task_per_s),
            format!("{:.1}", row.ops_spread),
            format!("{:.1}", row.lock_share),
            format!("{:.1}", mib(row.mean_bytes)),
            format!("{:.1}", mib(row.peak_bytes)),
            if row.converged { "yes" } else { "no" }.to_owned(),
        ]
    });
    html! {
        details {
            summary { "All figures" }
            (html::table(&format!("Figures of {}", group.title), &heads, &plain(rows)))
        }
    }
}
