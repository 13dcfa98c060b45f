//! Time against memory: a point for each allocator with the range of its passes, and the front of those
//! that nobody beats in both. Down and left is better.

use super::super::means::{Mean, Place};
use crate::cmd::bench::report::ratio;
use crate::html::chart::{COLOURS, drawing, look};
use maud::Markup;
use serde_json::{Value, json};

/// Pixels of the plane's height.
const HEIGHT: usize = 340;
/// Ratios at which an axis may have a line; those that fit are thinned to at most [`LINES`].
const TICKS: [f64; 32] = [
    0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0,
    5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0,
];
/// Lines of an axis at most: more touch on a phone.
const LINES: usize = 7;

/// The axes, as they are called.
pub(super) const AXES: [&str; 2] = ["peak RSS ÷ glibc", "time ÷ best of the row"];

/// A place with both figures.
struct Spot<'a> {
    place: &'a Place,
    time: Mean,
    size: Mean,
}

impl Spot<'_> {
    fn words(&self) -> String {
        let with = |mean: Mean| match ratio(mean.min) == ratio(mean.max) {
            true => ratio(mean.mean),
            false => format!(
                "{} ({}..{})",
                ratio(mean.mean),
                ratio(mean.min),
                ratio(mean.max)
            ),
        };
        let front = if self.place.on_front {
            ", on the front"
        } else {
            ""
        };
        format!(
            "{}: time {}, memory {}{front}",
            self.place.name(),
            with(self.time),
            with(self.size)
        )
    }

    fn row(&self) -> Value {
        json!({
            "name": self.place.allocator, "own": self.place.own(),
            "x": self.size.mean, "x_low": self.size.min, "x_high": self.size.max,
            "y": self.time.mean, "y_low": self.time.min, "y_high": self.time.max,
            "words": self.words()
        })
    }
}

/// The picture; none where fewer than two allocators have both figures.
pub(super) fn picture<'a>(
    id: &str,
    title: &str,
    places: impl IntoIterator<Item = &'a Place>,
) -> Option<Markup> {
    let mut spots: Vec<Spot> = places
        .into_iter()
        .filter_map(|place| {
            let (time, size) = place.time_to_best.zip(place.peak_rss_to_glibc)?;
            Some(Spot { place, time, size })
        })
        .collect();
    if spots.len() < 2 {
        return None;
    }
    spots.sort_by(|a, b| a.size.mean.total_cmp(&b.size.mean));
    let said: Vec<String> = spots.iter().map(Spot::words).collect();
    let words = format!(
        "{} across, {} up; down and left is better. {}",
        AXES[0],
        AXES[1],
        said.join("; ")
    );
    let spec = specification(&spots, &format!("{title}. {words}"));
    Some(drawing(id, "vega", title, &words, &spec))
}

/// The smallest and the largest value, and the lines between.
fn axis_of(values: impl Iterator<Item = Mean>) -> ([f64; 2], Vec<f64>) {
    let (mut low, mut high) = (1.0f64, 1.0f64);
    for mean in values {
        low = low.min(mean.min);
        high = high.max(mean.max);
    }
    let (low, high) = (low / 1.04, (high * 1.06).max(low * 1.1));
    let inside = |tick: &f64| (low..=high).contains(tick);
    let all: Vec<f64> = TICKS.into_iter().filter(inside).collect();
    // One always has a line: it is what both axes are about.
    let one = all.iter().position(|tick| *tick == 1.0).unwrap_or(0);
    let step = all.len().div_ceil(LINES).max(1);
    let kept = all
        .iter()
        .enumerate()
        .filter(|(at, _)| at % step == one % step);
    ([low, high], kept.map(|(_, tick)| *tick).collect())
}

fn specification(spots: &[Spot], description: &str) -> Value {
    let rows: Vec<Value> = spots.iter().map(Spot::row).collect();
    let front: Vec<Value> = spots
        .iter()
        .filter(|spot| spot.place.on_front)
        .map(|spot| json!({ "x": spot.size.mean, "y": spot.time.mean }))
        .collect();
    let (across, across_lines) = axis_of(spots.iter().map(|spot| spot.size));
    let (up, up_lines) = axis_of(spots.iter().map(|spot| spot.time));
    let scale = |name: &str, domain: [f64; 2], range: &str| json!({ "name": name, "type": "log", "domain": domain, "range": range, "nice": false });
    let axis = |name: &str, orient: &str, title: &str, lines: &[f64]| {
        json!({ "scale": name, "orient": orient, "grid": true, "title": title, "values": lines,
                "format": "~g", "labelOverlap": true })
    };
    let at = |scale: &str, field: &str| json!({ "scale": scale, "field": field });
    let colour = json!([
        { "test": "datum.own", "value": COLOURS[3] }, { "value": COLOURS[1] }
    ]);
    let range = |name: &str, x: [&str; 2], y: [&str; 2]| {
        json!({
            "name": name, "type": "rule", "from": { "data": "spots" }, "aria": false,
            "encode": {
                "enter": { "stroke": colour, "strokeWidth": { "value": 1.5 }, "strokeOpacity": { "value": 0.6 } },
                "update": { "x": at("x", x[0]), "x2": at("x", x[1]), "y": at("y", y[0]), "y2": at("y", y[1]) }
            }
        })
    };
    json!({
        "description": description,
        "config": look(),
        "autosize": { "type": "fit-x", "contains": "padding" },
        "padding": { "left": 4, "right": 8, "top": 4, "bottom": 12 },
        "height": HEIGHT,
        "signals": [{
            "name": "width", "init": "containerSize()[0]",
            "on": [{ "events": "window:resize", "update": "containerSize()[0]" }]
        }],
        "data": [{ "name": "spots", "values": rows }, { "name": "front", "values": front }],
        "scales": [scale("x", across, "width"), scale("y", up, "height")],
        "axes": [axis("x", "bottom", AXES[0], &across_lines), axis("y", "left", AXES[1], &up_lines)],
        "marks": [
            {
                "name": "step", "type": "line", "from": { "data": "front" }, "aria": false,
                "encode": {
                    "enter": {
                        "stroke": { "value": "var(--c0)" }, "strokeDash": { "value": [5, 4] },
                        "strokeWidth": { "value": 1.5 }, "interpolate": { "value": "step-after" }
                    },
                    "update": { "x": at("x", "x"), "y": at("y", "y") }
                }
            },
            range("across", ["x_low", "x_high"], ["y", "y"]),
            range("up", ["x", "x"], ["y_low", "y_high"]),
            {
                "name": "points", "type": "symbol", "from": { "data": "spots" },
                "encode": {
                    "enter": {
                        "size": [{ "test": "datum.own", "value": 150 }, { "value": 80 }],
                        "shape": [{ "test": "datum.own", "value": "triangle-up" }, { "value": "circle" }],
                        "fill": colour, "tooltip": { "field": "words" }, "description": { "field": "words" }
                    },
                    "update": { "x": at("x", "x"), "y": at("y", "y") }
                }
            },
            {
                "type": "text", "from": { "data": "points" }, "aria": false,
                "encode": {
                    "enter": {
                        "text": { "field": "datum.name" }, "fontSize": { "value": 12 },
                        "fontWeight": [{ "test": "datum.datum.own", "value": "bold" }, { "value": "normal" }],
                        "fill": { "value": "var(--ink)" }
                    }
                },
                "transform": [{
                    "type": "label", "size": { "signal": "[width, height]" }, "offset": [4],
                    "avoidMarks": ["step", "across", "up"],
                    "anchor": ["right", "top", "bottom", "left", "top-right", "bottom-right",
                               "top-left", "bottom-left"]
                }]
            }
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_a_line_at_one_and_few_others() {
        let mean = |mean: f64| Mean {
            mean,
            min: mean * 0.9,
            max: mean * 1.2,
        };
        for most in [1.0, 1.4, 3.0, 40.0] {
            let (domain, lines) = axis_of([mean(1.0), mean(most)].into_iter());
            assert!(lines.contains(&1.0) && lines.len() <= LINES, "{lines:?}");
            assert!(domain[0] < 0.9 && domain[1] > most * 1.2, "{domain:?}");
        }
    }
}
