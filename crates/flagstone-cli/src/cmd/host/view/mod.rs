//! The answer as text: first screen the summary, the largest caches and the advice; then the
//! details, each under a heading that says what to look for.

mod details;
mod overview;

use crate::terminal::{unpadded, wrap};
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

use super::report::Report;

pub use crate::terminal::Screen;

/// Columns of output that is not a terminal, unless `COLUMNS` says otherwise.
pub const WIDTH_PIPE: u16 = 100;

/// Whether tables have room for their further columns.
fn wide(screen: Screen) -> bool {
    screen.width >= 110
}

/// The whole text; `top` caches are listed, 0 for all.
#[must_use]
pub fn render(report: &Report, top: usize, screen: &Screen) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = overview::summary(&mut out, report, *screen);
    overview::largest(&mut out, report, top, *screen);
    overview::advice(&mut out, report, *screen);
    details::what_if(&mut out, report, *screen);
    details::deviations(&mut out, report, *screen);
    details::pagesets(&mut out, report, *screen);
    details::considered(&mut out, report, *screen);
    details::unread(&mut out, report, *screen);
    out
}

/// Builds a table whose columns keep their width, except one that takes the words.
///
/// `words` is that column's index, aligned left as the first one is; all others hold numbers.
fn table(screen: Screen, head: &[&str], words: Option<usize>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(screen.width - 1)
        .set_header(head.iter().copied().map(Cell::new));
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if Some(index) != words {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        if index > 0 && Some(index) != words {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut out = String::new();
    for line in unpadded(&table).lines() {
        out.push(' ');
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// A name in at most `room` columns, its middle cut out if it is longer.
fn fit(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let head: String = name.chars().take(room - room / 3 - 1).collect();
    let tail: String = name.chars().skip(length - room / 3).collect();
    format!("{head}~{tail}")
}

fn title(out: &mut String, screen: Screen, heading: &str, rest: &str) {
    out.push('\n');
    out.push_str(&screen.heading(heading));
    let line = if rest.is_empty() {
        String::new()
    } else {
        format!(": {rest}")
    };
    // The heading is counted without its escape codes.
    let text = wrap(&format!("{heading}{line}"), screen.width, 0);
    out.push_str(&text[heading.len()..]);
}
