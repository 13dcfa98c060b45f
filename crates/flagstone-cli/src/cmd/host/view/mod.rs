//! The answer as text: first screen the summary, the largest caches and the advice; then the
//! details, each under a heading that says what to look for.

mod details;
mod overview;

use crate::terminal::unpadded;
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use std::io::IsTerminal;

use super::report::Report;

/// How wide and how colourful the output may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: u16,
    /// Whether headings may be bold.
    pub styled: bool,
}

/// Columns of output that is not a terminal, unless `COLUMNS` says otherwise.
const WIDTH_PIPE: u16 = 100;

impl Screen {
    /// What stdout is: its width, and styled if it is a terminal and `NO_COLOR` is not set.
    #[must_use]
    pub fn of_stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
        let width = if terminal { Table::new().width() } else { None };
        Self {
            width: width.or_else(columns).unwrap_or(WIDTH_PIPE).clamp(60, 400),
            styled: terminal && !no_color && !dumb,
        }
    }

    fn heading(self, text: &str) -> String {
        if self.styled {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn strong(self, text: &str) -> String {
        if self.styled {
            format!("\x1b[36m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn wide(self) -> bool {
        self.width >= 110
    }
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

/// Breaks a line at spaces so that it fits `width`, further lines indented.
fn wrap(text: &str, width: u16, indent: usize) -> String {
    let mut out = String::new();
    let mut line = String::new();
    let lead = text.len() - text.trim_start().len();
    line.push_str(&text[..lead]);
    let mut first = true;
    for word in text.trim_start().split(' ') {
        if !first && line.chars().count() + 1 + word.chars().count() > usize::from(width) {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
        } else if !first {
            line.push(' ');
        }
        line.push_str(word);
        first = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}
