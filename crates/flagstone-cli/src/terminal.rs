//! What the commands print to a terminal: its width, its styles, and what their texts have in common.
//!
//! Escape codes are in the text only where the stream shows them: a terminal, without `NO_COLOR`, not
//! `dumb` (`anstream` decides).

use anstream::{AutoStream, ColorChoice, stream::RawStream};
use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, Table};
use std::os::fd::AsFd;
use terminal_size::{Width, terminal_size_of};

/// How wide and how colourful a text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: u16,
    /// Whether headings may be bold.
    pub styled: bool,
}

impl Screen {
    /// What `stream` shows; `pipe` columns where it is no terminal and `COLUMNS` is not set.
    pub fn of<S: RawStream + AsFd>(stream: &S, pipe: u16) -> Self {
        let terminal = terminal_size_of(stream).map(|(Width(columns), _)| columns);
        let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
        let width = terminal.filter(|&columns| columns > 0);
        Self {
            width: width.or_else(columns).unwrap_or(pipe).clamp(60, 400),
            styled: AutoStream::choice(stream) != ColorChoice::Never,
        }
    }

    /// A heading.
    pub(crate) fn heading(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// Something to act on.
    pub(crate) fn strong(self, text: &str) -> String {
        self.paint(AnsiColor::Cyan.on_default(), text)
    }

    fn paint(self, style: Style, text: &str) -> String {
        if self.styled {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// A table's lines with two blanks between columns; those that `right` names by their number are aligned to the right.
#[must_use]
pub(crate) fn spaced(mut table: Table, right: impl Fn(usize) -> bool) -> String {
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    unpadded(&table)
}

/// A table's lines without the blanks that fill its last column.
#[must_use]
pub(crate) fn unpadded(table: &Table) -> String {
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// Breaks a line at spaces so that it fits `width`, further lines indented.
pub(crate) fn wrap(text: &str, width: u16, indent: usize) -> String {
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

/// Bytes in the unit that keeps the number short.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A share in percent with one decimal; a dash where there is nothing to share.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "–".to_owned(),
        _ => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

/// A share in whole percent.
pub(crate) fn whole_percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "–".to_owned(),
        _ => format!("{:.0} %", part as f64 * 100.0 / whole as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_to_four_digits() {
        let sizes = [0, 1023, 1024, 1_048_000, 1 << 20, 1 << 40, u64::MAX].map(size);
        assert_eq!(
            sizes,
            [
                "0 B",
                "1023 B",
                "1.0 KiB",
                "1.0 MiB",
                "1.0 MiB",
                "1.0 TiB",
                "16384.0 PiB"
            ]
        );
        assert_eq!([percent(1, 8), percent(0, 0)], ["12.5 %", "–"]);
    }

    #[test]
    fn long_lines_break_at_spaces_and_keep_their_indent() {
        assert_eq!(wrap("  one two three", 9, 4), "  one two\n    three\n");
        assert_eq!(wrap("unbreakable", 4, 2), "unbreakable\n");
    }

    #[test]
    fn styles_are_in_the_text_only_where_they_are_shown() {
        let plain = Screen {
            width: 80,
            styled: false,
        };
        assert_eq!(plain.heading("a") + &plain.strong("b"), "ab");
        let styled = Screen {
            styled: true,
            ..plain
        };
        assert!(styled.heading("a").starts_with("\u{1b}[1m"));
    }
}
