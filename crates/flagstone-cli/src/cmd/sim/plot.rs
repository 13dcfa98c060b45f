//! `--plot`: throughput over tasks and bytes over time, as SVG or as bars in the terminal.

use super::Request;
use flagstone_sim::report::Row;
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

/// Whether `path` can be written, before anything is run.
pub(super) fn check(path: &Path) -> Result<(), String> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    std::fs::File::create(path)
        .map(drop)
        .map_err(|error| format!("--plot {}: {error}", path.display()))
}

pub(super) fn draw(path: &Path, request: &Request, rows: &[Row]) -> Result<(), String> {
    if path.as_os_str() == "-" {
        print!("{}", bars(rows));
        return Ok(());
    }
    std::fs::write(path, svg(request, rows))
        .map_err(|error| format!("--plot {}: {error}", path.display()))
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
        let _ = writeln!(
            out,
            "{:>5} {:<name$} {bar} {:.0} ops/task/s",
            row.tasks, row.policy, row.ops_per_task_per_s
        );
    }
    out
}

/// One line of a chart: its name and points.
type Series = (String, Vec<(f64, f64)>);

fn svg(request: &Request, rows: &[Row]) -> String {
    let policies = request.policies.iter().map(|policy| {
        let mine = rows.iter().filter(|row| row.policy == policy.name);
        let points = mine.map(|row| (f64::from(row.tasks), row.ops_per_task_per_s));
        (policy.name.clone(), points.collect())
    });
    let throughput: Vec<Series> = policies.collect();
    let bytes: Vec<Series> = rows
        .iter()
        .map(|row| {
            let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
            let points = row
                .bytes_over_time
                .iter()
                .map(|(at, bytes)| (*at, mib(*bytes)));
            (format!("{} × {}", row.policy, row.tasks), points.collect())
        })
        .collect();
    let title = format!(
        "{} on {} (simulated)",
        request.workload.name, request.machine.name
    );
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">",
        WIDTH + LEFT + 40.0,
        2.0 * (HEIGHT + 110.0)
    );
    let _ = writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>");
    let above = format!("{title}: operations per task and second over tasks");
    chart(&mut out, TOP, &above, &throughput);
    let below = format!("{title}: MiB in use over milliseconds");
    chart(&mut out, TOP + HEIGHT + 110.0, &below, &bytes);
    out.push_str("</svg>\n");
    out
}

fn chart(out: &mut String, top: f64, title: &str, series: &[Series]) {
    let points = || series.iter().flat_map(|(_, points)| points.iter());
    let right = points().map(|point| point.0).fold(1e-9, f64::max);
    let most = points().map(|point| point.1).fold(1e-9, f64::max) * 1.05;
    let at = |x: f64, y: f64| (LEFT + x / right * WIDTH, top + HEIGHT - y / most * HEIGHT);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\">{}</text>",
        top - 12.0,
        escape(title)
    );
    for step in 0..=4 {
        let value = most * f64::from(step) / 4.0;
        let (_, y) = at(0.0, value);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            y + 4.0
        );
        let mark = right * f64::from(step) / 4.0;
        let (x, _) = at(mark, 0.0);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark:.0}</text>",
            top + HEIGHT + 16.0
        );
    }
    for (index, (name, points)) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let mut path = String::new();
        for (x, y) in points {
            let (x, y) = at(*x, *y);
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(
            out,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
        if let [(x, y)] = points[..] {
            let (x, y) = at(x, y);
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
            );
        }
        let line = top + HEIGHT + 34.0 + 14.0 * (index / 3) as f64;
        let column = LEFT + 250.0 * (index % 3) as f64;
        let _ = writeln!(
            out,
            "<text x=\"{column}\" y=\"{line}\" fill=\"{colour}\">{}</text>",
            escape(name)
        );
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
