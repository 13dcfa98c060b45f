//! The run as one HTML file: the answer, memory over time, the ledger, caches, processes.
//!
//! The shell of the page is that of every report (`crate::html`). Sections are functions of their
//! own in the order of the page: a profile's call sites belong behind the timeline.

use super::advice::Try;
use super::answer::Shares;
use super::document::{Outcome, Process, State};
use super::reports::Cache;
use super::timeline::{Sampled, Timeline};
use super::trial::Measured;
use crate::html;
use crate::html::chart::{COLOURS, drawing, legend_columns, look};
use crate::terminal::{size, whole_percent};
use flagstone_core::stats::Line;
use maud::{Markup, html};
use serde_json::{Value, json};

/// Height of the timeline in pixels.
const CHART_HEIGHT: u32 = 260;

/// The page.
pub fn page(outcome: &Outcome) -> String {
    let heading = format!("Where the memory of {} was", outcome.command.join(" "));
    let rest = html! {
        (contents(outcome))
        main {
            (tries(&outcome.tries))
            (timeline(&outcome.timeline))
            (ledger(outcome))
            (processes(&outcome.processes))
            (caches(&outcome.caches))
        }
    };
    html::page("Flagstone run", &heading, &header(outcome), &rest)
}

fn contents(outcome: &Outcome) -> Markup {
    let all = [
        ("try", "Try", !outcome.tries.is_empty()),
        (
            "timeline",
            "Memory over time",
            !outcome.timeline.samples.is_empty(),
        ),
        ("ledger", "Ledger", true),
        ("processes", "Processes", !outcome.processes.is_empty()),
        ("caches", "Caches", true),
    ];
    html! {
        nav aria-label="Contents" {
            ul {
                @for (id, title, there) in all {
                    @if there { li { a href={ "#" (id) } { (title) } } }
                }
            }
        }
    }
}

fn header(outcome: &Outcome) -> Markup {
    let kib = |kib: Option<u64>| kib.map(|kib| size(kib * 1024));
    let ended = match outcome.signal {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("exit {}", outcome.exit),
    };
    html! {
        @if let Some(answer) = &outcome.answer {
            p class="sum" { (answer.text) }
        } @else {
            p class="sum" { "The command left no figures: it ran without the library." }
        }
        @if let Some(why) = &outcome.unserved { p { (why) } }
        p {
            (ended) " after " (format!("{:.2}", outcome.wall_s)) " s; CPU: "
            (format!("{:.2}", outcome.user_s)) " s user, "
            (format!("{:.2}", outcome.system_s)) " s system; policy " (outcome.policy) "."
            @if let Some(own) = kib(outcome.own_peak_rss_kib) { " Peak " (own) "." }
            @if let Some(children) = kib(outcome.children_peak_rss_kib) {
                " Largest child " (children) "."
            }
        }
        p class="note" {
            "Written by flagstone run " (env!("CARGO_PKG_VERSION")) ". "
            "The library inside it is of " (env!("LIBRARY_COMMIT")) "."
        }
    }
}

fn tries(tries: &[Try]) -> Markup {
    html! {
        @if !tries.is_empty() {
            section id="try" {
                h2 { "Try" }
                p class="note" {
                    "Gains are upper bounds, computed from this run; "
                    code { "flagstone run --try" } " measures those of settings."
                }
                (table("What to try", &["change", "why", "gain", "cost", "seen"], tries.iter().map(|one| {
                    let seen = one.measured.as_ref().map_or("not tried".to_owned(), Measured::words);
                    [&one.change, &one.because, &one.gain, &one.cost, &seen].map(|text| Cell::Words(text.clone()))
                })))
            }
        }
    }
}

/// A cell of a table.
enum Cell {
    Words(String),
    Figure(String),
}

fn figure(bytes: u64) -> Cell {
    Cell::Figure(size(bytes))
}

/// A table; the first of a row's words is its head.
fn table<const N: usize>(
    label: &str,
    heads: &[&str; N],
    rows: impl Iterator<Item = [Cell; N]>,
) -> Markup {
    let rows = html! {
        @for row in rows {
            tr {
                @for (at, cell) in row.iter().enumerate() {
                    @match cell {
                        Cell::Words(text) if at == 0 => th scope="row" { (text) },
                        Cell::Words(text) => td class="t" { (text) },
                        Cell::Figure(text) => td { (text) },
                    }
                }
            }
        }
    };
    html::table(label, heads, &rows)
}

/// The parts of the picture, from its ground up.
const PARTS: [&str; 6] = [
    "outside the heap",
    "held by the program",
    "rounding",
    "free between used",
    "caching, free pages",
    "allocator's own",
];

fn parts(shares: &Shares) -> [u64; 6] {
    [
        shares.outside_bytes,
        shares.held_bytes,
        shares.rounding_bytes,
        shares.fragmented_bytes,
        shares.cached_bytes,
        shares.allocator_bytes,
    ]
}

fn shares(sample: &Sampled) -> Shares {
    let lines = Line::ALL.iter().zip(&sample.ledger);
    Shares::of_lines(lines.map(|(&line, &bytes)| (line, bytes)))
}

fn timeline(timeline: &Timeline) -> Markup {
    if timeline.samples.is_empty() {
        return html! {};
    }
    let largest = timeline
        .samples
        .iter()
        .max_by_key(|sample| sample.rss_bytes);
    let words = largest.map_or(String::new(), |sample| {
        let told = PARTS.iter().zip(parts(&shares(sample)));
        let told: Vec<String> = told
            .map(|(part, b)| format!("{part} {}", size(b)))
            .collect();
        format!("Largest at {:.2} s: {}", sample.at_s, told.join(", "))
    });
    let title = "Memory over time";
    html! {
        section id="timeline" {
            h2 { (title) }
            figure {
                figcaption { "Resident MiB by second" }
                (drawing("timeline-chart", "vega-lite", title, &words, &picture(timeline, &format!("{title}. {words}"))))
            }
            p class="note" {
                "Areas: the ledger at each sample, which the program's own slow paths take when its "
                "resident size has changed by a sixteenth; an area keeps its height until the next. "
                "Line: the resident size, read from outside. " (words) "."
            }
        }
    }
}

fn picture(timeline: &Timeline, description: &str) -> Value {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let end = timeline.resident.last().map_or(0.0, |point| point.at_s);
    let mut areas: Vec<Value> = Vec::new();
    // The clock is coarse: of samples at one moment the last counts, or they would be stacked.
    let moments = timeline.samples.chunk_by(|a, b| a.at_s == b.at_s);
    let all: Vec<_> = moments
        .filter_map(|samples| samples.last())
        .map(|sample| (sample, sample.at_s))
        .collect();
    let last = all.last().filter(|(_, at_s)| *at_s < end);
    let last: Vec<_> = last.iter().map(|&&(sample, _)| (sample, end)).collect();
    for (sample, at_s) in all.into_iter().chain(last) {
        for (index, (part, bytes)) in PARTS.iter().zip(parts(&shares(sample))).enumerate() {
            areas.push(json!({ "at": at_s, "part": part, "order": index, "mib": mib(bytes) }));
        }
    }
    let line = timeline.resident.iter();
    let line: Vec<Value> = line
        .map(|point| json!({ "at": point.at_s, "mib": mib(point.rss_bytes) }))
        .collect();
    let x = json!({
        "field": "at", "type": "quantitative",
        "axis": { "title": "seconds", "tickCount": 6, "grid": false }, "scale": { "nice": false }
    });
    let y = |stack: Value| {
        json!({
            "field": "mib", "type": "quantitative", "stack": stack,
            "axis": { "title": "MiB", "tickCount": 5 }
        })
    };
    let colours = [0, 3, 2, 6, 5, 4].map(|index| COLOURS[index]);
    json!({
        "width": "container", "height": CHART_HEIGHT,
        "autosize": { "type": "fit-x", "contains": "padding" },
        "description": description,
        "config": look(),
        "layer": [
            {
                "data": { "values": areas },
                "mark": { "type": "area", "interpolate": "step-after", "opacity": 0.75 },
                "encoding": {
                    "x": x, "y": y(json!("zero")),
                    "order": { "field": "order", "type": "quantitative" },
                    "color": {
                        "field": "part", "type": "nominal",
                        "scale": { "domain": PARTS, "range": colours },
                        "legend": { "title": null, "orient": "bottom", "columns": legend_columns() }
                    }
                }
            },
            {
                "data": { "values": line },
                "mark": { "type": "line", "stroke": "var(--ink)", "strokeWidth": 1.5 },
                "encoding": { "x": x, "y": y(Value::Null) }
            }
        ]
    })
}

fn ledger(outcome: &Outcome) -> Markup {
    let mut rows: Vec<(String, u64, u64, &str)> = Vec::new();
    for (at, entry) in outcome.ledger.iter().enumerate() {
        let peak = outcome.ledger_at_peak.get(at).map_or(0, |peak| peak.bytes);
        let title = Line::ALL[at].title().to_owned();
        rows.push((title, peak, entry.bytes, entry.sentence));
    }
    for (kind, now) in outcome.outside_at_peak.iter().zip(&outcome.outside) {
        let (name, what) = kind.words();
        rows.push((format!("outside: {name}"), kind.bytes, now.bytes, what));
    }
    rows.retain(|row| row.1 > 0 || row.2 > 0);
    rows.sort_by_key(|row| std::cmp::Reverse((row.1, row.2)));
    let now = if outcome.at_exit {
        "at exit"
    } else {
        "last sample"
    };
    html! {
        section id="ledger" {
            h2 { "Where its memory was" }
            (table("Ledger", &["line", "at peak", now, "what it is"], rows.into_iter().map(
                |(name, peak, now, what)| {
                    [Cell::Words(name), figure(peak), figure(now), Cell::Words(what.to_owned())]
                }
            )))
            p class="note" {
                "Lines named “outside:” divide the line “outside the heap”; all others add up to the "
                "resident size."
            }
        }
    }
}

fn processes(processes: &[Process]) -> Markup {
    let heads = [
        "program", "pid", "state", "peak", "held", "rounding", "between", "cached", "outside",
    ];
    html! {
        @if !processes.is_empty() {
            section id="processes" {
                h2 { "Every process, at its peak" }
                (table("Processes", &heads, processes.iter().map(|one| {
                    let at_peak = &one.answer.at_peak;
                    let state = match one.state {
                        State::Ended => "ended",
                        State::Killed => "killed",
                        State::Alive => "alive",
                    };
                    [
                        Cell::Words(one.program.clone()),
                        Cell::Figure(one.pid.to_string()),
                        Cell::Words(state.to_owned()),
                        figure(one.peak_rss_kib * 1024),
                        figure(at_peak.held_bytes),
                        figure(at_peak.rounding_bytes),
                        figure(at_peak.fragmented_bytes),
                        figure(at_peak.cached_bytes),
                        figure(at_peak.outside_bytes),
                    ]
                })))
                p class="note" { "Pages that forked processes share count in each of them." }
            }
        }
    }
}

fn caches(caches: &[Cache]) -> Markup {
    let heads = [
        "name",
        "active",
        "objects",
        "object size",
        "slabs",
        "pinned slabs",
        "size",
        "waste",
    ];
    html! {
        section id="caches" {
            h2 { "Caches at the end" }
            (table("Caches", &heads, caches.iter().map(|cache| [
                Cell::Words(cache.name.clone()),
                Cell::Figure(cache.active.to_string()),
                Cell::Figure(cache.objects.to_string()),
                Cell::Figure(cache.object_size.to_string()),
                Cell::Figure(cache.slabs.to_string()),
                Cell::Figure(cache.pinned_slabs.to_string()),
                figure(cache.resident_bytes),
                Cell::Figure(whole_percent(cache.waste_bytes, cache.resident_bytes)),
            ])))
        }
    }
}
