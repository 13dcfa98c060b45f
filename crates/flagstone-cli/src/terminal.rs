//! What the commands print to a terminal: what their tables have in common.

use comfy_table::Table;

/// A table's lines without the blanks that fill its last column.
#[must_use]
pub(crate) fn unpadded(table: &Table) -> String {
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}
