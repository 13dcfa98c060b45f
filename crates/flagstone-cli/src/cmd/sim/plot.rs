//! `--plot`: throughput over tasks and bytes over time, as SVG or as bars in the terminal.

use super::run::Request;
use crate::exit::Failure;
use crate::outfile;
use flagstone_lab::Row;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 40.0;
/// Line colours that stay apart for colour-blind readers and in print.
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];

/// A plot is SVG: a file that is called something else would not be what its name says.
pub(super) fn is_svg(path: &Path) -> Result<(), String> {
    let ending = path.extension().and_then(|ending| ending.to_str());
    match ending {
        Some(other) if !other.eq_ignore_ascii_case("svg") && path != Path::new("-") => {
            Err(format!(
                "--plot {}: plots are SVG; name the file {}",
                path.display(),
                path.with_extension("svg").display()
            ))
        }
        _ => Ok(()),
    }
}

pub(super) fn draw(path: &Path, request: &Request, rows: &[Row]) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        print!("{}", bars(rows));
        return Ok(());
    }
    outfile::write("sim: --plot", path, &svg(request, rows))
}

fn bars(rows: &[Row]) -> String {
    let most = rows
        .iter()
        .map(|row| row.ops_per_task_per_s)
        .fold(1.0, f64::max);
    let name = rows.iter().map(|row| row.policy.len()).max().unwrap_or(0);
    let mut out = String::new();
    for row in rows {
        let bar = "█".repeat((row.ops_per_task_per_s / most * 50.0).round() as usize);
        let doubt = if row.settled.ops { "" } else { UNSETTLED };
        let _ = writeln!(
            out,
            "{:>5} {:<name$} {bar} {:.0} ops/task/s{doubt}",
            row.tasks, row.policy, row.ops_per_task_per_s
        );
    }
    out
}

/// What stands beside a figure that did not settle.
const UNSETTLED: &str = " (did not settle)";

/// One line of a chart: its name, whether its figures settled, and its points.
struct Series {
    name: String,
    settled: bool,
    points: Vec<(f64, f64)>,
}

impl Series {
    /// Its name in the legend.
    fn title(&self) -> String {
        let doubt = if self.settled { "" } else { UNSETTLED };
        format!("{}{doubt}", self.name)
    }
}

/// Height of a chart with its title, axis and legend.
fn height(series: &[Series]) -> f64 {
    TOP + HEIGHT + 34.0 + 14.0 * series.len().div_ceil(3) as f64
}

fn svg(request: &Request, rows: &[Row]) -> String {
    let mut seen = BTreeSet::new();
    let names = rows
        .iter()
        .map(|row| &row.policy)
        .filter(|name| seen.insert(*name));
    let policies = names.map(|name| {
        let mine = || rows.iter().filter(|row| row.policy == *name);
        let points = mine().map(|row| (f64::from(row.tasks), row.ops_per_task_per_s));
        Series {
            name: name.clone(),
            settled: mine().all(|row| row.settled.ops),
            points: points.collect(),
        }
    });
    let throughput: Vec<Series> = policies.collect();
    // One line for each policy: its bytes with the most tasks.
    let most = rows.iter().map(|row| row.tasks).max().unwrap_or(0);
    let crowded = rows.iter().filter(|row| row.tasks == most);
    let bytes: Vec<Series> = crowded
        .map(|row| {
            let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
            let points = row.bytes_over_time.iter();
            let points = points.map(|(at, bytes)| (*at, mib(*bytes)));
            Series {
                name: row.policy.clone(),
                settled: row.settled.bytes,
                points: points.collect(),
            }
        })
        .collect();
    let title = format!(
        "{} on {} (simulated)",
        request.first().workload.name,
        request.first().machine.name
    );
    let mut out = String::new();
    let (upper, lower) = (height(&throughput), height(&bytes));
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">",
        WIDTH + LEFT + 40.0,
        upper + lower + 20.0
    );
    let _ = writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>");
    let above = format!("{title}: operations per task and second over tasks");
    chart(&mut out, TOP, &above, &throughput);
    let below = format!("{title}: MiB in use over milliseconds, {most} tasks");
    chart(&mut out, upper + TOP, &below, &bytes);
    out.push_str("</svg>\n");
    out
}

/// Round values from zero to `most`, four to seven of them.
fn marks(most: f64) -> Vec<f64> {
    let rough = most / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let fits = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let step = fits.into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(most).max(f64::MIN_POSITIVE);
    let count = (most / step * (1.0 + 1e-9)).floor() as u32;
    (0..=count).map(|index| f64::from(index) * step).collect()
}

/// A mark as people read it: 25 M, 400 k, 1.5.
fn label(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e4 => (v / 1e3, " k"),
        v => (v, ""),
    };
    let rounded = (value * 100.0).round() / 100.0;
    format!("{rounded}{unit}")
}

fn chart(out: &mut String, top: f64, title: &str, series: &[Series]) {
    let points = || series.iter().flat_map(|line| line.points.iter());
    let right = points().map(|point| point.0).fold(1e-9, f64::max);
    let most = points().map(|point| point.1).fold(1e-9, f64::max) * 1.05;
    let at = |x: f64, y: f64| (LEFT + x / right * WIDTH, top + HEIGHT - y / most * HEIGHT);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\">{}</text>",
        top - 12.0,
        escape(title)
    );
    for value in marks(most) {
        let (_, y) = at(0.0, value);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            y + 4.0,
            label(value)
        );
    }
    for mark in marks(right) {
        let (x, _) = at(mark, 0.0);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            top + HEIGHT + 16.0,
            label(mark)
        );
    }
    for (index, one) in series.iter().enumerate() {
        line(out, index, &one.points, at);
        let below = top + HEIGHT + 34.0 + 14.0 * (index / 3) as f64;
        let column = LEFT + 250.0 * (index % 3) as f64;
        let _ = writeln!(
            out,
            "<text x=\"{column}\" y=\"{below}\" fill=\"{}\">{}</text>",
            COLOURS[index % COLOURS.len()],
            escape(&one.title())
        );
    }
}

/// Points up to which each is marked: more are a curve.
const DOTS: usize = 16;

/// Draws one series; where colours begin anew, with another dash.
fn line(
    out: &mut String,
    index: usize,
    points: &[(f64, f64)],
    at: impl Fn(f64, f64) -> (f64, f64),
) {
    let colour = COLOURS[index % COLOURS.len()];
    let dash = match index / COLOURS.len() {
        0 => String::new(),
        round => format!(" stroke-dasharray=\"{} 4\"", 10 / round.min(5)),
    };
    let mut path = String::new();
    for (x, y) in points {
        let (x, y) = at(*x, *y);
        let _ = write!(path, "{x:.1},{y:.1} ");
    }
    let _ = writeln!(
        out,
        "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>"
    );
    for (x, y) in points.iter().filter(|_| points.len() <= DOTS) {
        let (x, y) = at(*x, *y);
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
        );
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_did_not_settle_says_so_in_the_legend() {
        let line = |settled| Series {
            name: "linux-6.5".into(),
            settled,
            points: vec![(1.0, 2.0)],
        };
        let mut drawn = String::new();
        chart(&mut drawn, TOP, "two", &[line(true), line(false)]);
        assert_eq!(drawn.matches("linux-6.5").count(), 2);
        assert_eq!(drawn.matches("linux-6.5 (did not settle)").count(), 1);
    }

    #[test]
    fn marks_are_round_and_reach_as_far_as_the_axis() {
        assert_eq!(marks(54.1), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(marks(16.0), [0.0, 5.0, 10.0, 15.0]);
        assert_eq!(marks(1024.0).last(), Some(&1000.0));
        let labels: Vec<String> = marks(54_144_398.0).into_iter().map(label).collect();
        assert_eq!(labels, ["0", "10 M", "20 M", "30 M", "40 M", "50 M"]);
        assert_eq!(label(12_500.0), "12.5 k");
        assert_eq!(label(0.25), "0.25");
    }
}
