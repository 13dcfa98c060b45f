//! A profile as text for a terminal, and as a document.

use super::raw::Mark;
use super::sites::{Site, Sites};
use super::symbols::Line;
use crate::terminal::{Screen, size, unpadded, wrap};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// Functions named of each place: the innermost ones.
const FUNCTIONS: usize = 4;
/// Letters of one function's name.
const NAME_MAX: usize = 46;
/// Places shown after a run.
const RUN_PLACES: usize = 8;
/// Bars of the line that shows live bytes over time.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of that line.
const COLUMNS: usize = 60;

/// The document `flagstone.profile/1`.
#[derive(Serialize)]
pub struct Document {
    schema: &'static str,
    processes: Vec<Process>,
}

#[derive(Serialize)]
struct Process {
    pid: u64,
    title: String,
    interval_bytes: u64,
    samples: u64,
    duration_s: f64,
    is_last: bool,
    allocated_bytes: u64,
    live_bytes: u64,
    peak_live_bytes: u64,
    account_bytes: Option<u64>,
    is_scaled: bool,
    sampled_live_bytes: u64,
    lost_samples: u64,
    lost_stacks: u64,
    cut_stacks: u64,
    sites: Vec<Place>,
    timeline: Vec<Mark>,
}

#[derive(Serialize)]
struct Place {
    allocated_objects: u64,
    allocated_bytes: u64,
    live_objects: u64,
    live_bytes: u64,
    oldest_s: Option<f64>,
    /// Innermost first.
    stack: Vec<String>,
}

/// The document of these processes.
pub fn document(all: &mut [Sites]) -> Document {
    let processes = all.iter_mut().map(|sites| {
        let (allocated, live) = sites.totals();
        let places = std::mem::take(&mut sites.all);
        let described = places.iter().map(|site| Place {
            allocated_objects: site.allocated.objects.round() as u64,
            allocated_bytes: site.allocated.bytes.round() as u64,
            live_objects: site.live.objects.round() as u64,
            live_bytes: site.live.bytes.round() as u64,
            oldest_s: site.oldest_ns.map(|ns| ns as f64 / 1e9),
            stack: sites
                .functions(site)
                .into_iter()
                .map(|l| l.function)
                .collect(),
        });
        let described = described.collect();
        sites.all = places;
        Process {
            pid: sites.raw.process,
            title: sites.title.clone(),
            interval_bytes: sites.mean,
            samples: sites.samples,
            duration_s: sites.duration_ns as f64 / 1e9,
            is_last: sites.raw.is_last,
            allocated_bytes: allocated.round() as u64,
            live_bytes: live.round() as u64,
            peak_live_bytes: sites.raw.peak_bytes,
            account_bytes: sites.account,
            is_scaled: sites.is_scaled,
            sampled_live_bytes: sites.sampled_live.round() as u64,
            lost_samples: sites.lost[0],
            lost_stacks: sites.lost[1],
            cut_stacks: sites.lost[2],
            sites: described,
            timeline: sites.raw.marks.clone(),
        }
    });
    Document {
        schema: "flagstone.profile/1",
        processes: processes.collect(),
    }
}

/// Prints to standard output.
pub fn print(all: &mut [Sites], notes: &[String], top: usize) {
    let stdout = std::io::stdout();
    let screen = Screen::of(&stdout, 100);
    let text = text(all, notes, top, screen);
    let _ = stdout.lock().write_all(text.as_bytes());
}

/// Prints to standard error, after a run.
pub fn print_run(all: &mut [Sites], file: &Path) {
    let stderr = std::io::stderr();
    let screen = Screen::of(&stderr, 100);
    let mut text = text(all, &[], RUN_PLACES, screen);
    if !text.is_empty() {
        let _ = writeln!(text, "Try: go tool pprof -top {}", file.display());
    }
    let _ = stderr.lock().write_all(text.as_bytes());
}

fn text(all: &mut [Sites], notes: &[String], top: usize, screen: Screen) -> String {
    let mut out = String::new();
    for sites in all {
        let (allocated, live) = sites.totals();
        let held = match sites.raw.is_last {
            true => "still held at its end",
            false => "live",
        };
        let head = format!(
            "Heap profile of {}: {} {held}, {} allocated in {:.1} s, {} samples of {}",
            sites.title,
            size(live as u64),
            size(allocated as u64),
            sites.duration_ns as f64 / 1e9,
            sites.samples,
            size(sites.mean),
        );
        out.push_str(&screen.heading(wrap(&head, screen.width, 2).trim_end()));
        out.push('\n');
        if let Some(line) = over_time(&sites.raw.marks) {
            let _ = writeln!(out, "{line}");
        }
        table(&mut out, sites, top, screen);
        for note in sites.notes().iter().chain(notes) {
            out.push_str(&wrap(&format!("note: {note}"), screen.width, 6));
        }
    }
    out
}

/// Live bytes over time as a line of bars.
fn over_time(marks: &[Mark]) -> Option<String> {
    let (first, last) = (marks.first()?, marks.last()?);
    let time = last.at_ns.saturating_sub(first.at_ns);
    let peak = marks.iter().map(|mark| mark.live_bytes).max()?;
    if time == 0 || peak == 0 || marks.len() < 3 {
        return None;
    }
    let mut columns = [0; COLUMNS];
    let mut before = 0;
    for mark in marks {
        let at = (mark.at_ns - first.at_ns) as u128 * (COLUMNS as u128 - 1) / u128::from(time);
        let at = at as usize;
        // Where no mark was taken nothing changed by a sample.
        for column in &mut columns[before..=at] {
            *column = mark.live_bytes.max(*column);
        }
        before = at;
    }
    let bar = |&bytes: &u64| {
        let level = u128::from(bytes) * (BARS.len() as u128 - 1) / u128::from(peak);
        BARS[level as usize]
    };
    let bars: String = columns.iter().map(bar).collect();
    Some(format!("live {bars} {}", size(peak)))
}

fn table(out: &mut String, sites: &mut Sites, top: usize, screen: Screen) {
    let places = std::mem::take(&mut sites.all);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(screen.width);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    table.set_header([
        right("live".into()),
        right("allocated".into()),
        right("objects".into()),
        Cell::new("allocated by, called by"),
    ]);
    for site in places.iter().take(top) {
        let functions = sites.functions(site);
        table.add_row([
            right(size(site.live.bytes as u64)),
            right(size(site.allocated.bytes as u64)),
            right(format!("{:.0}", site.allocated.objects)),
            Cell::new(named(&functions)),
        ]);
    }
    if !places.is_empty() {
        out.push_str(&unpadded(&table));
        out.push('\n');
    }
    if places.len() > top {
        let rest = &places[top..];
        let sum = |of: fn(&Site) -> f64| rest.iter().map(of).sum::<f64>() as u64;
        let _ = writeln!(
            out,
            "{} more places: {} live, {} allocated",
            rest.len(),
            size(sum(|site| site.live.bytes)),
            size(sum(|site| site.allocated.bytes)),
        );
    }
    sites.all = places;
}

/// The innermost functions of a place, and the line of the first.
fn named(functions: &[Line]) -> String {
    let mut text = String::new();
    for (depth, line) in functions.iter().take(FUNCTIONS).enumerate() {
        if depth > 0 {
            text.push_str(" < ");
        }
        match line.function.char_indices().nth(NAME_MAX) {
            Some((end, _)) => {
                text.push_str(&line.function[..end]);
                text.push('…');
            }
            None => text.push_str(&line.function),
        }
        if depth == 0 && line.line != 0 {
            let file = line.file.rsplit('/').next().unwrap_or(&line.file);
            let _ = write!(text, " ({file}:{})", line.line);
        }
        // What calls that is the same for every place.
        if line.function == "main" {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_bytes_over_time_rise_and_fall_with_the_marks() {
        let mark = |at_ns, live_bytes| Mark {
            at_ns,
            live_bytes,
            allocated_bytes: 0,
        };
        let line = over_time(&[mark(0, 1), mark(50, 800), mark(100, 100)]).unwrap();
        assert!(line.contains('█') && line.ends_with("800 B"), "{line}");
        assert_eq!(over_time(&[mark(0, 1)]), None);
    }

    #[test]
    fn a_place_is_named_by_its_innermost_functions() {
        let line = |function: &str, line| Line {
            function: function.into(),
            file: "/a/b.c".into(),
            line,
        };
        let long = "x".repeat(60);
        let text = named(&[line("f", 7), line(&long, 0)]);
        assert!(text.starts_with("f (b.c:7) < xxx") && text.ends_with('…'));
    }
}
