//! The screen: 80 columns and 24 lines are enough; without colours nothing is lost.

use super::app::{App, Mode, Pane};
use crate::cmd::watch::stat;
use crate::terminal::{size, whole_percent};
use crate::watch::reading::Reading;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table};

/// The parts of the bar: name, sign, colour, lines of the ledger.
const PARTS: [(&str, &str, Color, &[&str]); 5] = [
    (
        "live",
        "█",
        Color::Green,
        &["live", "large_runs", "huge_blocks"],
    ),
    (
        "rounding",
        "▓",
        Color::Yellow,
        &[
            "rounding",
            "slab_tail",
            "large_run_rounding",
            "huge_block_rounding",
        ],
    ),
    (
        "free in slabs",
        "▒",
        Color::Red,
        &[
            "free_in_sheaves",
            "free_in_barns",
            "free_in_partial_slabs",
            "pinned_by_cached",
            "empty_slabs",
        ],
    ),
    (
        "free pages",
        "░",
        Color::Magenta,
        &["pagesets", "free_pages"],
    ),
    (
        "own",
        "o",
        Color::Cyan,
        &["descriptors", "sheaf_memory", "allocator_own", "unplaced"],
    ),
];

/// Whether styles are shown.
#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn colour(self, colour: Color) -> Style {
        if self.0 {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    fn bold() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn reversed() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Draws everything.
pub fn screen(frame: &mut Frame, app: &mut App, coloured: bool) {
    let [body, foot] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
    content(frame, app, body, Paint(coloured));
    frame.render_widget(Paragraph::new(foot_line(app)), foot);
    match &app.mode {
        Mode::Help => help(frame, app),
        Mode::Sort(line) => menu(frame, app, *line),
        _ => {}
    }
}

/// The same without keys and menus, for a page of text.
pub fn page(frame: &mut Frame, app: &mut App) {
    let area = frame.area();
    content(frame, app, area, Paint(false));
}

fn content(frame: &mut Frame, app: &mut App, area: Rect, paint: Paint) {
    if app.inside() {
        process(frame, app, area, paint);
    } else {
        processes(frame, app, area);
    }
}

fn title(text: String) -> Line<'static> {
    Line::from(Span::styled(text, Paint::bold()))
}

/// Bytes a second with a sign; nothing where nothing changes.
fn change(bytes: f64) -> String {
    let rounded = size(bytes.abs() as u64);
    match bytes {
        b if b >= 1.0 => format!("+{rounded}"),
        b if b <= -1.0 => format!("-{rounded}"),
        _ => "0".to_owned(),
    }
}

fn processes(frame: &mut Frame, app: &mut App, area: Rect) {
    let [head, body] = Layout::vertical([Constraint::Length(2), Constraint::Fill(1)]).areas(area);
    let rows = app.processes();
    let sum = |of: fn(&super::app::ProcessRow) -> u64| rows.iter().map(of).sum::<u64>();
    let text = match (app.known, rows.len()) {
        (false, _) => "flagstone top: reading ...".to_owned(),
        (true, 0) if app.filter.is_empty() => {
            "flagstone top: no process runs on Flagstone here, of those you may look at".to_owned()
        }
        (true, count) => {
            let noun = if count == 1 { "process" } else { "processes" };
            let (heap, live) = (sum(|row| row.heap), sum(|row| row.live));
            format!(
                "flagstone top: {count} {noun}, {} resident, {} heap, {} of it live",
                size(sum(|row| row.rss)),
                size(heap),
                whole_percent(live, heap)
            )
        }
    };
    let note = match app.unreadable {
        0 if app.known && rows.is_empty() && app.filter.is_empty() => {
            Line::from("`flagstone run` starts one; `flagstone ps` says who may look at the others")
        }
        0 => Line::default(),
        1 => Line::from("one more cannot be read; `flagstone ps` says why"),
        count => Line::from(format!(
            "{count} more cannot be read; `flagstone ps` says why"
        )),
    };
    frame.render_widget(Paragraph::new(vec![title(text), note]), head);
    let cells = rows.iter().map(|row| {
        [
            row.pid.to_string(),
            row.program.clone(),
            size(row.rss),
            size(row.heap),
            size(row.live),
            size(row.loss()),
            whole_percent(row.live, row.heap),
            change(row.growth),
        ]
    });
    let header = [
        "PID", "PROGRAM", "RSS", "HEAP", "LIVE", "LOSS", "LIVE%", "CHANGE/S",
    ];
    let widths = [8, 14, 9, 9, 9, 9, 5, 10];
    list(frame, app, body, &header, &widths, cells.collect(), &[1]);
}

/// The columns that fit, from the left: half a number would be another number.
fn fitting(widths: &[u16], area: u16) -> usize {
    let ends = widths.iter().scan(0, |end, width| {
        *end += width + u16::from(*end > 0);
        Some(*end)
    });
    ends.take_while(|&end| end <= area).count().max(1)
}

/// A table of which one row is chosen. Columns but those in `left` are numbers; a last column in `left` may be cut.
fn list<const N: usize>(
    frame: &mut Frame,
    app: &mut App,
    area: Rect,
    header: &[&str; N],
    widths: &[u16; N],
    rows: Vec<[String; N]>,
    left: &[usize],
) {
    let mut columns = fitting(widths, area.width);
    if columns < N && left.contains(&columns) {
        columns += 1;
    }
    let shown = usize::from(area.height.saturating_sub(1)).max(1);
    app.rows_shown = shown;
    app.selected = app.selected.min(rows.len().saturating_sub(1));
    app.offset = app
        .offset
        .min(app.selected)
        .max((app.selected + 1).saturating_sub(shown));
    let line = |cells: Vec<String>| {
        let cells = cells.into_iter().take(columns);
        let aligned = cells.enumerate().map(|(at, text)| {
            let line = Line::from(text);
            if left.contains(&at) {
                line
            } else {
                line.right_aligned()
            }
        });
        Row::new(aligned.collect::<Vec<_>>())
    };
    let body = rows
        .into_iter()
        .enumerate()
        .skip(app.offset)
        .take(shown)
        .map(|(at, cells)| {
            let row = line(cells.to_vec());
            if at == app.selected {
                row.style(Paint::reversed())
            } else {
                row
            }
        });
    let head = line(header.iter().map(|&name| name.to_owned()).collect());
    let lengths = widths.iter().take(columns).copied();
    let table = Table::new(body, lengths.map(Constraint::Length))
        .header(head.style(Paint::bold()))
        .column_spacing(1);
    frame.render_widget(table, area);
}

fn process(frame: &mut Frame, app: &mut App, area: Rect, paint: Paint) {
    let parts = [Constraint::Length(5), Constraint::Fill(1)];
    let [head, body] = Layout::vertical(parts).areas(area);
    let Some(reading) = app.process().cloned() else {
        let text = app
            .refused
            .clone()
            .unwrap_or_else(|| "reading ...".to_owned());
        frame.render_widget(
            Paragraph::new(title(format!("flagstone top: {text}"))),
            head,
        );
        return;
    };
    let heap = reading.heap_bytes();
    let growth = app.rate(reading.pid, "");
    let first = format!(
        "{} {}: {} resident, {} heap, {} live, {}/s",
        reading.program,
        reading.pid,
        size(reading.rss_bytes.unwrap_or(reading.sum_bytes)),
        size(heap),
        whole_percent(reading.live_bytes(), heap),
        change(growth)
    );
    let last = match &app.refused {
        Some(line) => Line::from(Span::styled(line.clone(), Paint::reversed())),
        None => tabs(app.pane),
    };
    let lines = vec![
        title(first),
        bar(&reading, usize::from(area.width), paint),
        legend(&reading, paint),
        Line::default(),
        last,
    ];
    frame.render_widget(Paragraph::new(lines), head);
    match app.pane {
        Pane::Caches => caches(frame, app, body),
        Pane::Ledger => ledger(frame, app, &reading, body),
        Pane::Pages => pages(frame, app, &reading, body),
    }
}

fn part(reading: &Reading, lines: &[&str]) -> u64 {
    lines.iter().map(|line| reading.line(line)).sum()
}

/// The heap as a bar: every part with bytes in it has a sign at least.
fn bar(reading: &Reading, width: usize, paint: Paint) -> Line<'static> {
    let heap = reading.heap_bytes().max(1);
    let columns = PARTS.map(|(.., lines)| {
        let bytes = part(reading, lines);
        let columns = (bytes as f64 / heap as f64 * width as f64).round() as usize;
        columns.max(usize::from(bytes > 0))
    });
    // The first part takes what the others leave.
    let others: usize = columns[1..].iter().sum();
    let mut left = width;
    let spans = PARTS.iter().enumerate().map(|(at, (_, sign, colour, _))| {
        let wanted = if at == 0 {
            width.saturating_sub(others)
        } else {
            columns[at]
        };
        let columns = wanted.min(left);
        left -= columns;
        Span::styled(sign.repeat(columns), paint.colour(*colour))
    });
    Line::from(spans.collect::<Vec<_>>())
}

fn legend(reading: &Reading, paint: Paint) -> Line<'static> {
    let mut spans = Vec::new();
    for (name, sign, colour, lines) in PARTS {
        spans.push(Span::styled(sign, paint.colour(colour)));
        let share = whole_percent(part(reading, lines), reading.heap_bytes());
        spans.push(Span::raw(format!(" {name} {share}  ").replace(" %", "%")));
    }
    Line::from(spans)
}

fn tabs(own: Pane) -> Line<'static> {
    let names = ["Caches", "Ledger", "Pages"];
    let tabs = Pane::ALL.into_iter().zip(names).flat_map(|(pane, name)| {
        let style = if pane == own {
            Paint::reversed()
        } else {
            Style::new()
        };
        let shown = if pane == own {
            format!("[{name}]")
        } else {
            format!(" {name} ")
        };
        [Span::styled(shown, style), Span::raw(" ")]
    });
    Line::from(tabs.collect::<Vec<_>>())
}

fn caches(frame: &mut Frame, app: &mut App, area: Rect) {
    let rows = app.caches();
    let cells = rows.iter().map(|row| {
        [
            row.name.clone(),
            row.active.to_string(),
            row.objects.to_string(),
            row.object_size.to_string(),
            format!("{:.0}%", row.utilisation() * 100.0),
            row.slabs.to_string(),
            size(row.size),
            size(row.loss),
            change(row.growth),
        ]
    });
    let header = [
        "NAME", "ACTIVE", "OBJS", "OBJSZ", "USE", "SLABS", "SIZE", "LOSS", "CHANGE/S",
    ];
    let widths = [13, 8, 8, 5, 4, 6, 9, 9, 10];
    list(frame, app, area, &header, &widths, cells.collect(), &[0]);
}

fn ledger(frame: &mut Frame, app: &mut App, reading: &Reading, area: Rect) {
    let rows = stat::rows(reading)
        .into_iter()
        .filter(|(_, bytes, _)| *bytes > 0);
    let cells = rows.map(|(name, bytes, sentence)| {
        [
            name,
            size(bytes),
            whole_percent(bytes, reading.sum_bytes),
            sentence.to_owned(),
        ]
    });
    let header = ["LINE", "BYTES", "SHARE", "WHAT IT IS"];
    list(
        frame,
        app,
        area,
        &header,
        &[25, 10, 6, 36],
        cells.collect(),
        &[0, 3],
    );
}

fn pages(frame: &mut Frame, app: &mut App, reading: &Reading, area: Rect) {
    let page = reading.pages.page_bytes;
    let mut cells = Vec::new();
    for zone in &reading.pages.zones {
        let mut push = |name: &str, value: String| {
            cells.push([format!("node {}", zone.node), name.to_owned(), value]);
        };
        push("pages in use", size(zone.in_use_pages * page));
        push(
            "free pages, resident",
            size(zone.free_resident_pages * page),
        );
        push(
            "free pages it may keep",
            size(zone.keep_pages.saturating_mul(page)),
        );
        push("in pagesets of CPUs", size(zone.pageset_pages * page));
        push("handed out so far", size(zone.alloc_pages * page));
        push("taken for the first time", size(zone.fresh_pages * page));
        push("given back to the system", size(zone.released_pages * page));
        push("lock taken", zone.lock_takes.to_string());
        push("lock waited for", zone.lock_waits.to_string());
    }
    for set in &reading.pages.pagesets {
        let value = format!("{} of {} pages, batch {}", set.count, set.high, set.batch);
        cells.push([format!("cpu {}", set.cpu), "pageset".to_owned(), value]);
    }
    let header = ["WHERE", "WHAT", "VALUE"];
    let value = area.width.saturating_sub(34).clamp(10, 40);
    list(frame, app, area, &header, &[8, 24, value], cells, &[0, 1]);
}

fn foot_line(app: &App) -> Line<'static> {
    let input =
        |name: &str, text: &str| Line::from(format!("{name}: {text}_   Enter keeps, Esc ends"));
    match &app.mode {
        Mode::Search(text) => input("search", text),
        Mode::Filter(text) => input("only names with", text),
        Mode::Delay(text) => input("seconds between readings", text),
        _ => {
            let back = if app.inside() {
                "Tab pane  Esc back"
            } else {
                "Enter look inside"
            };
            let (order, reversed) = app.order();
            let (key, _) = app.orders()[order];
            let sign = if reversed { "-" } else { "" };
            let filter = match app.filter.as_str() {
                "" => String::new(),
                text => format!("  only '{text}'"),
            };
            Line::from(format!(
                "h help  {back}  F6 sort ({sign}{key})  / search  f filter  q quit{filter}"
            ))
        }
    }
}

/// A box in the middle.
fn over(frame: &mut Frame, title: &str, lines: Vec<Line<'_>>) {
    let area = frame.area();
    let width = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 4;
    let (width, height) = (
        width.min(area.width),
        (lines.len() as u16 + 2).min(area.height),
    );
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(format!(" {title} "));
    frame.render_widget(Paragraph::new(lines).block(block), place);
}

fn menu(frame: &mut Frame, app: &App, chosen: usize) {
    let lines = app
        .orders()
        .into_iter()
        .enumerate()
        .map(|(at, (key, name))| {
            let style = if at == chosen {
                Paint::reversed()
            } else {
                Style::new()
            };
            Line::from(Span::styled(format!(" {key}  {name} "), style))
        });
    over(frame, "Sort by", lines.collect());
}

fn help(frame: &mut Frame, app: &App) {
    let keys = [
        ("Up Down PgUp PgDn", "choose a row"),
        ("Enter", "look into the process"),
        ("Tab  Right Left", "caches, ledger, page layer"),
        ("Esc", "drop the filter; back to the list"),
        ("F6  >", "sort menu"),
        ("r", "reverse"),
        ("/  F3", "search; F3 or Down again: the next"),
        ("f  \\  F4", "only names that contain ..."),
        ("d", "seconds between readings"),
        ("Space  F5", "read now"),
        ("q  F10  Ctrl-C", "quit"),
    ];
    let mut lines: Vec<Line<'_>> = keys
        .iter()
        .map(|(key, does)| Line::from(format!(" {key:<18} {does}")))
        .collect();
    let letters: String = app
        .orders()
        .iter()
        .map(|(key, _)| format!("{key} "))
        .collect();
    lines.push(Line::from(format!(
        " {:<18} sort at once, as slabtop does",
        letters.trim_end()
    )));
    lines.push(Line::default());
    lines.push(Line::from(
        " LOSS is memory nobody asked for; CHANGE/S of resident bytes.",
    ));
    lines.push(Line::from(
        " Nothing is changed from here: see set and trim.",
    ));
    over(frame, "Keys", lines);
}
