//! Charts as specifications (`crate::html::chart`), with the same figures in words and as a table.
//!
//! ```text
//!   Chart, Spots, Map ──► specification (JSON) ──► page.js ──► Vega ──► SVG in the page's colours
//!                    └──► description, table: for readers without a picture
//! ```
//!
//! Lines have their points on the ticks of their places. Points that no line joins stand a little beside
//! each other, so that error bars do not hide.

use crate::cmd::reproduce::view::figure;
use crate::html::chart::{COLOURS, drawing, legend_columns, look};
use core::fmt::Write;
use maud::{Markup, html};
use serde_json::{Value, json};

/// The colour of our own policy.
pub(super) const OWN: usize = 3;
/// Pixels of a chart's plane.
const HEIGHT: u32 = 300;

/// A line of a chart: one figure for each place, or none.
pub(super) struct Series {
    /// In the legend.
    pub(super) name: String,
    /// Colour: 0 to 6, one for each subject.
    pub(super) style: usize,
    /// Published figures are dashed, with round marks.
    pub(super) published: bool,
    /// Figure and deviation for each place.
    pub(super) points: Vec<Option<(f64, Option<f64>)>>,
    /// Whether neighbours are joined.
    pub(super) joined: bool,
}

/// A chart over named places.
pub(super) struct Chart {
    /// Names it among the charts of the page.
    pub(super) id: String,
    /// One line.
    pub(super) title: String,
    /// What the vertical axis says, in words.
    pub(super) unit: String,
    /// What the horizontal one says.
    pub(super) across: &'static str,
    /// The places.
    pub(super) places: Vec<String>,
    /// The lines.
    pub(super) series: Vec<Series>,
    /// Logarithmic vertical axis.
    pub(super) log: bool,
}

/// The mark of a line or a point.
fn shape(style: usize, published: bool) -> &'static str {
    match (published, style) {
        (true, _) => "circle",
        (false, OWN) => "triangle-up",
        (false, _) => "square",
    }
}

/// Least and most.
fn range(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    values.fold(None, |found, value| {
        let [least, most] = found.unwrap_or([value, value]);
        Some([least.min(value), most.max(value)])
    })
}

impl Chart {
    /// Whether there is anything to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.series
            .iter()
            .all(|line| line.points.iter().all(Option::is_none))
    }

    /// The figures in words.
    fn description(&self) -> String {
        let mut words = format!("{}. ", self.unit);
        for line in &self.series {
            let _ = write!(words, "{}: ", line.name);
            let each = self.places.iter().zip(&line.points);
            let each = each.filter_map(|(place, point)| {
                let (value, _) = (*point)?;
                Some(format!("{place} {}", figure(value)))
            });
            let _ = write!(words, "{}. ", each.collect::<Vec<_>>().join(", "));
        }
        words
    }

    /// One row for each point: where, how much, from where to where, and all of it in words.
    fn rows(&self) -> Vec<Value> {
        let middle = (self.series.len() as f64 - 1.0) / 2.0;
        let mut rows = Vec::new();
        for (index, line) in self.series.iter().enumerate() {
            for (at, (place, point)) in self.places.iter().zip(&line.points).enumerate() {
                let Some((value, sd)) = point else { continue };
                let bar = sd.filter(|sd| *sd > 0.0);
                let spread = bar.map_or(String::new(), |sd| format!(" ± {}", figure(sd)));
                let aside = if line.joined {
                    0.0
                } else {
                    (index as f64 - middle) * 0.06
                };
                rows.push(json!({
                    "at": at as f64 + aside,
                    "value": value,
                    "low": bar.map(|sd| if self.log { (value - sd).max(value / 10.0) } else { value - sd }),
                    "high": bar.map(|sd| value + sd),
                    "series": line.name,
                    "words": format!("{}, {place}: {}{spread} {}", line.name, figure(*value), self.unit),
                }));
            }
        }
        rows
    }

    /// Whether the vertical axis begins at zero: not where all figures are far from it.
    fn starts_at_zero(&self) -> bool {
        let points = self.series.iter().flat_map(|line| &line.points);
        let values: Vec<f64> = points.flatten().map(|(value, _)| *value).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        least <= 0.5 * most
    }

    /// The specification (Vega-Lite).
    fn specification(&self) -> Value {
        let series: Vec<&String> = self.series.iter().map(|line| &line.name).collect();
        let lines = || self.series.iter();
        let colours: Vec<&str> = lines().map(|line| COLOURS[line.style % 7]).collect();
        let shapes: Vec<&str> = lines()
            .map(|line| shape(line.style, line.published))
            .collect();
        let dash = |line: &Series| {
            if line.published {
                json!([6, 4])
            } else {
                json!([1, 0])
            }
        };
        let dashes: Vec<Value> = lines().map(dash).collect();
        let joined: Vec<&String> = self
            .series
            .iter()
            .filter(|l| l.joined)
            .map(|l| &l.name)
            .collect();
        // Names that would not fit side by side on a phone lean; none is left out.
        let longest = self.places.iter().map(String::len).max().unwrap_or(0);
        let lean = match longest {
            _ if longest * self.places.len() <= 40 => 0,
            0..=8 => -40,
            _ => -60,
        };
        let across = json!({
            "field": "at", "type": "quantitative",
            "scale": { "domain": [-0.5, self.places.len() as f64 - 0.5], "nice": false, "zero": false },
            "axis": {
                "title": self.across, "grid": false, "values": (0..self.places.len()).collect::<Vec<_>>(),
                "labelExpr": format!("{}[datum.value]", json!(self.places)),
                "labelAngle": lean, "labelOverlap": false
            }
        });
        let scale = if self.log {
            json!({ "type": "log", "nice": false, "padding": 10 })
        } else {
            json!({ "zero": self.starts_at_zero(), "nice": true })
        };
        let up = |field: &str| {
            json!({
                "field": field, "type": "quantitative", "scale": scale,
                "axis": { "title": self.unit, "tickCount": 5, "format": "~s", "labelLimit": 60 }
            })
        };
        let colour = json!({
            "field": "series", "type": "nominal",
            "scale": { "domain": series, "range": colours },
            "legend": {
                "title": null, "orient": "bottom", "symbolStrokeWidth": 0,
                "columns": legend_columns()
            }
        });
        let shape = json!({
            "field": "series", "type": "nominal",
            "scale": { "domain": series, "range": shapes }
        });
        let dash = json!({
            "field": "series", "type": "nominal",
            "scale": { "domain": series, "range": dashes }
        });
        json!({
            "width": "container", "height": HEIGHT,
            "autosize": { "type": "fit-x", "contains": "padding" },
            "description": format!("{}. {}", self.title, self.description()),
            "config": look(),
            "data": { "values": self.rows() },
            "layer": [
                {
                    "transform": [{ "filter": { "field": "series", "oneOf": joined } }],
                    "mark": { "type": "line", "strokeWidth": 2, "aria": false },
                    "encoding": { "x": across, "y": up("value"), "color": colour, "strokeDash": dash }
                },
                {
                    "transform": [{ "filter": "isValid(datum.low)" }],
                    "mark": { "type": "rule", "strokeWidth": 1.5, "aria": false },
                    "encoding": { "x": across, "y": up("low"), "y2": { "field": "high" }, "color": colour }
                },
                {
                    "mark": { "type": "point", "filled": true, "size": 60, "opacity": 1 },
                    "encoding": {
                        "x": across, "y": up("value"), "color": colour, "shape": shape,
                        "description": { "field": "words", "type": "nominal" },
                        "tooltip": { "field": "words", "type": "nominal" }
                    }
                }
            ]
        })
    }

    /// What the picture says: how far simulated lines are from published ones, and our own from the last
    /// simulated one. Shares and changes differ by points, other figures by a factor.
    pub(super) fn reading(&self) -> String {
        let in_points = self.unit.starts_with('%');
        let beside = |one: &Series, other: &Series| {
            let pairs = one.points.iter().zip(&other.points);
            range(pairs.filter_map(|(one, other)| {
                let (one, other) = ((*one)?.0, (*other)?.0);
                Some(if in_points {
                    one - other
                } else {
                    one / other * 100.0
                })
            }))
        };
        let words = |what: &str, [least, most]: [f64; 2], than: &str| match in_points {
            true => format!("{what} differs from {than} by {least:+.0} to {most:+.0} points. "),
            false => format!("{what} is {least:.0} to {most:.0} % of {than}. "),
        };
        let mut text = String::new();
        let mut last = None;
        for line in self.series.iter().filter(|line| line.published) {
            let twin = |other: &&Series| !other.published && other.style == line.style;
            if let Some(got) = self.series.iter().find(twin)
                && let Some(found) = beside(got, line)
            {
                text += &words(
                    &format!("“{}”", got.name),
                    found,
                    &format!("“{}”", line.name),
                );
                last = Some(got);
            }
        }
        let own = self.series.iter().find(|line| line.style == OWN);
        if let (Some(own), Some(last)) = (own, last)
            && let Some(found) = beside(own, last)
        {
            text += &words(
                &format!("“{}”", own.name),
                found,
                &format!("“{}”", last.name),
            );
        }
        text
    }

    /// The picture.
    pub(super) fn picture(&self) -> Markup {
        let words = self.description();
        drawing(
            &self.id,
            "vega-lite",
            &self.title,
            &words,
            &self.specification(),
        )
    }

    /// The figures as a table.
    pub(super) fn table(&self) -> Markup {
        let cell = |point: &Option<(f64, Option<f64>)>| match *point {
            None => "–".into(),
            Some((value, None)) => figure(value),
            Some((value, Some(sd))) => format!("{} ± {}", figure(value), figure(sd)),
        };
        html! {
            div class="wide" role="region" tabindex="0" aria-label=(self.title) {
                table {
                    caption { (self.title) ", " (self.unit) }
                    tr {
                        td {}
                        @for line in &self.series { th scope="col" { (line.name) } }
                    }
                    @for (place, name) in self.places.iter().enumerate() {
                        tr {
                            th scope="row" { (name) }
                            @for line in &self.series { td { (cell(&line.points[place])) } }
                        }
                    }
                }
            }
        }
    }
}

/// A point in the plane of [`plane`].
pub(super) struct Spot {
    /// Its name.
    pub(super) name: String,
    /// To the right.
    pub(super) x: f64,
    /// Up.
    pub(super) y: f64,
    /// Colour and mark.
    pub(super) style: usize,
}

impl Spot {
    fn words(&self, units: [&str; 2]) -> String {
        format!(
            "{}: {} {}, {} {}",
            self.name,
            figure(self.y),
            units[1],
            figure(self.x),
            units[0]
        )
    }
}

/// Numbers in order, neighbours as a range: `1–3, 7`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let words = runs.map(|run| match run {
        [one] => one.to_string(),
        [one, .., last] => format!("{one}–{last}"),
        [] => String::new(),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The places of spots and who is there: policies that are the same in a plane share a point.
fn shared(spots: &[Spot]) -> Vec<Vec<usize>> {
    let mut places: Vec<Vec<usize>> = Vec::new();
    for (index, spot) in spots.iter().enumerate() {
        let here = |place: &&mut Vec<usize>| {
            let first = &spots[place[0]];
            first.x == spot.x && first.y == spot.y
        };
        match places.iter_mut().find(here) {
            Some(place) => place.push(index),
            None => places.push(vec![index]),
        }
    }
    places
}

/// Points in a plane, each with its number beside it where there is room, or with all numbers of those that
/// share it; [`numbered`] says which is which. In Vega itself, whose labels keep out of each other's way.
pub(super) fn plane(id: &str, title: &str, units: [&str; 2], spots: &[Spot]) -> Markup {
    let words: Vec<String> = spots.iter().map(|spot| spot.words(units)).collect();
    let words = words.join("; ");
    let point = |who: Vec<usize>| {
        let numbers: Vec<usize> = who.iter().map(|index| index + 1).collect();
        let words: Vec<String> = who.iter().map(|index| spots[*index].words(units)).collect();
        let own = who.iter().find(|index| spots[**index].style == OWN);
        let spot = &spots[*own.unwrap_or(&who[0])];
        json!({
            "x": spot.x, "y": spot.y, "number": ranges(&numbers),
            "colour": COLOURS[spot.style % 7], "shape": shape(spot.style, false),
            "words": words.join("; ")
        })
    };
    let rows: Vec<Value> = shared(spots).into_iter().map(point).collect();
    let scale = |name: &str, range: &str| {
        let domain = json!({ "data": "spots", "field": name });
        json!({ "name": name, "type": "linear", "domain": domain, "range": range, "nice": true,
                "zero": false, "padding": 12 })
    };
    let axis = |name: &str, orient: &str, title: &str| {
        json!({ "scale": name, "orient": orient, "grid": true, "title": title, "tickCount": 6,
                "format": "~s", "labelOverlap": true })
    };
    let spec = json!({
        "description": format!("{title}. {words}"),
        "config": look(),
        "autosize": { "type": "fit-x", "contains": "padding" },
        "height": 360,
        "signals": [{
            "name": "width", "init": "containerSize()[0]",
            "on": [{ "events": "window:resize", "update": "containerSize()[0]" }]
        }],
        "data": [{ "name": "spots", "values": rows }],
        "scales": [scale("x", "width"), scale("y", "height")],
        "axes": [axis("x", "bottom", units[0]), axis("y", "left", units[1])],
        "marks": [
            {
                "name": "points", "type": "symbol", "from": { "data": "spots" },
                "encode": {
                    "enter": {
                        "size": { "value": 90 }, "fill": { "field": "colour" },
                        "shape": { "field": "shape" }, "tooltip": { "field": "words" },
                        "description": { "field": "words" }
                    },
                    "update": {
                        "x": { "scale": "x", "field": "x" }, "y": { "scale": "y", "field": "y" }
                    }
                }
            },
            {
                "type": "text", "from": { "data": "points" }, "aria": false,
                "encode": {
                    "enter": {
                        "text": { "field": "datum.number" }, "fontSize": { "value": 12 },
                        "fill": { "value": "var(--ink)" }
                    }
                },
                "transform": [{
                    "type": "label", "size": { "signal": "[width, height]" }, "offset": [3],
                    "anchor": ["right", "top", "bottom", "left", "top-right", "bottom-right",
                               "top-left", "bottom-left"]
                }]
            }
        ]
    });
    drawing(id, "vega", title, &words, &spec)
}

/// The points of [`plane`] as a numbered list with their figures.
pub(super) fn numbered(units: [&str; 2], spots: &[Spot]) -> Markup {
    html! { ol { @for spot in spots { li { (spot.words(units)) } } } }
}

/// Shaded cells: rows by columns, darker is more; every cell says its figure.
pub(super) fn map(
    id: &str,
    title: &str,
    rows: &[String],
    columns: &[String],
    values: &[Vec<Option<f64>>],
) -> Markup {
    let mut cells = Vec::new();
    let mut lines = Vec::new();
    for (row, line) in rows.iter().zip(values) {
        let mut words = Vec::new();
        for (column, value) in columns.iter().zip(line) {
            let Some(value) = value else { continue };
            words.push(format!("{column} {}", figure(*value)));
            cells.push(json!({
                "row": row, "column": column, "value": value.max(1.0), "text": format!("{value:.0}"),
                "words": format!("{row}, {column}: {}", figure(*value))
            }));
        }
        lines.push(format!("{row}: {}", words.join(", ")));
    }
    let words = lines.join("; ");
    let x = json!({ "field": "column", "type": "nominal", "sort": columns,
                    "axis": { "title": null, "labelAngle": 0, "labelOverlap": true } });
    let y = json!({ "field": "row", "type": "nominal", "sort": rows, "axis": { "title": null } });
    let spec = json!({
        "width": "container", "height": HEIGHT,
        "autosize": { "type": "fit-x", "contains": "padding" },
        "description": format!("{title}. {words}"),
        "config": look(),
        "data": { "values": cells },
        "layer": [
            {
                "mark": { "type": "rect", "fill": "var(--c2)", "stroke": "var(--card)" },
                "encoding": {
                    "x": x, "y": y,
                    "fillOpacity": {
                        "field": "value", "type": "quantitative", "legend": null,
                        "scale": { "type": "log", "range": [0.08, 0.8], "nice": false }
                    },
                    "description": { "field": "words", "type": "nominal" },
                    "tooltip": { "field": "words", "type": "nominal" }
                }
            },
            {
                "mark": { "type": "text", "fill": "var(--ink)", "fontSize": 11, "aria": false },
                "encoding": { "x": x, "y": y, "text": { "field": "text", "type": "nominal" } }
            }
        ]
    });
    drawing(id, "vega-lite", title, &words, &spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(joined: bool) -> Chart {
        let series = |name: &str| Series {
            name: name.into(),
            style: 1,
            published: false,
            points: vec![Some((1.0, Some(0.5))), None, Some((3.0, None))],
            joined,
        };
        Chart {
            id: "x".into(),
            title: "x".into(),
            unit: "x".into(),
            across: "x",
            places: ["a", "b", "c"].map(String::from).to_vec(),
            series: vec![series("one"), series("other")],
            log: false,
        }
    }

    #[test]
    fn points_of_lines_stand_on_the_ticks_of_their_places_and_single_ones_beside_each_other() {
        let at = |joined| -> Vec<f64> {
            let rows = chart(joined).rows();
            rows.iter().map(|row| row["at"].as_f64().unwrap()).collect()
        };
        assert_eq!(at(true), [0.0, 2.0, 0.0, 2.0]);
        let aside = at(false);
        assert!(aside[0] < 0.0 && aside[2] > 0.0, "{aside:?}");
    }

    #[test]
    fn policies_that_are_the_same_share_a_point_and_its_number() {
        let spot = |x, style| Spot {
            name: format!("policy {x}"),
            x,
            y: 1.0,
            style,
        };
        let spots = [1.0, 2.0, 2.0, 2.0, 1.0].map(|x| spot(x, if x > 1.0 { 1 } else { OWN }));
        assert_eq!(shared(&spots), [vec![0, 4], vec![1, 2, 3]]);
        assert_eq!(ranges(&[1, 5]), "1, 5");
        assert_eq!(ranges(&[2, 3, 4]), "2–4");
        let drawn = plane("x", "x", ["MiB", "1/s"], &spots).into_string();
        let number = |text: &str| drawn.contains(&format!("\"number\":\"{text}\""));
        assert!(number("1, 5") && number("2–4") && !number("3"), "{drawn}");
    }
}
