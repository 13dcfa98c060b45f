//! The sheet as tables for people.

use super::measured;
use super::score;
use super::sheet::{Cell, Sheet};
use comfy_table::{CellAlignment, Table};

/// A figure with about four digits.
pub(super) fn figure(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && size < 0.1 {
        format!("{value:.3}")
    } else if size < 10.0 {
        format!("{value:.2}")
    } else if size < 1000.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A figure, or nothing.
pub(super) fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), figure)
}

/// A cell's error in words.
pub(super) fn error(cell: &Cell) -> String {
    match cell.error() {
        None => "–".into(),
        Some(error) if cell.error_unit() == "points" => format!("{error:+.1} pt"),
        Some(error) => format!("{error:+.1} %"),
    }
}

/// How a cell is judged, in a word.
pub(super) fn verdict(cell: &Cell) -> &'static str {
    match cell.inside() {
        _ if cell.got.is_none() => "no figure",
        _ if cell.fitted => "fitted",
        Some(true) => "inside",
        Some(false) => "outside",
        None => "not judged",
    }
}

/// Prints every table, what is missing and why, the targets and the summary.
pub(super) fn print(sheet: &Sheet) {
    let mut rest = &sheet.cells[..];
    while let Some(first) = rest.first() {
        let same = |cell: &&Cell| {
            cell.published.seed == first.published.seed
                && cell.published.table == first.published.table
        };
        let count = rest.iter().take_while(same).count();
        let (table, later) = rest.split_at(count);
        print_table(table);
        rest = later;
    }
    reasons(sheet);
    targets(sheet);
    measured_rows(sheet);
    scores(sheet);
    println!("{}.", sheet.headline());
}

/// Scores beside those of doing nothing, and the goals.
fn scores(sheet: &Sheet) {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(SCORE_HEADS);
    for row in score_rows(sheet) {
        table.add_row(row);
    }
    println!("{table}");
    for goal in sheet.goals() {
        let reached = match goal.reached {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not told",
        };
        println!("{reached:<8} {}: {}", goal.wanted, goal.found);
    }
}

/// Heads of [`score_rows`].
pub(super) const SCORE_HEADS: [&str; 5] = [
    "document",
    "independent figures",
    "inside",
    "inside by doing nothing",
    "skill",
];

/// The score of each document and of all, beside doing nothing.
pub(super) fn score_rows(sheet: &Sheet) -> Vec<[String; 5]> {
    let all = ("all", sheet.summary().score);
    let rows = score::by_document(sheet).into_iter().chain([all]);
    rows.map(|(name, score)| {
        let counts = [score.cells, score.inside, score.nothing_inside].map(|n| n.to_string());
        let [cells, inside, nothing] = counts;
        [name.to_owned(), cells, inside, nothing, score.skill_words()]
    })
    .collect()
}

fn print_table(cells: &[Cell]) {
    let known = &cells[0].published;
    println!("{} {} ({})", known.seed, known.table, methods(cells));
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "row",
        "column",
        "published",
        "got",
        "error",
        "stated",
        "",
        "flagstone",
    ]);
    for cell in cells {
        table.add_row([
            cell.published.row.clone(),
            cell.published.column.clone(),
            figure(cell.published.value),
            maybe(cell.got),
            error(cell),
            cell.accuracy
                .map_or_else(String::new, |stated| stated.words()),
            verdict(cell).into(),
            maybe(cell.own),
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if matches!(index, 2 | 3 | 4 | 7) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
}

/// How a table's cells came about, and on which machine.
pub(super) fn methods(cells: &[Cell]) -> String {
    let mut words: Vec<String> = Vec::new();
    for cell in cells {
        let method = format!("{:?}", cell.method).to_lowercase();
        let word = match &cell.profile {
            Some(profile) => format!("{method}, {profile}"),
            None => method,
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join("; ")
}

/// Reasons and remarks, each once, with the number of cells it stands for.
pub(super) fn remarks(sheet: &Sheet) -> Vec<(String, usize, bool)> {
    let mut remarks: Vec<(String, usize, bool)> = Vec::new();
    for cell in &sheet.cells {
        let Some(reason) = &cell.reason else {
            continue;
        };
        let line = format!("{}: {reason}", cell.published.seed);
        match remarks.iter_mut().find(|(known, ..)| *known == line) {
            Some((_, count, _)) => *count += 1,
            None => remarks.push((line, 1, cell.got.is_none())),
        }
    }
    remarks
}

fn reasons(sheet: &Sheet) {
    for (line, count, missing) in remarks(sheet) {
        let what = if missing { "no figure" } else { "remark" };
        println!("{what}, {count} cells: {line}");
    }
}

/// What was measured, policy beside policy.
fn measured_rows(sheet: &Sheet) {
    let rows = measured::comparisons(sheet);
    if !rows.is_empty() {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(["row", "figure", "flagstone", "others", ""]);
        for row in &rows {
            table.add_row(measured_words(row));
        }
        println!("{table}");
    }
    println!("{}", measured::summary(sheet));
}

/// Row, figure, ours with its range, the others with theirs, and how ours came out.
pub(super) fn measured_words(row: &measured::Comparison<'_>) -> [String; 5] {
    let range = |m: &measured::Measured| {
        format!(
            "{} ({} to {})",
            figure(m.median),
            figure(m.low),
            figure(m.high)
        )
    };
    let others: Vec<String> = row
        .others
        .iter()
        .map(|other| format!("{} {}", other.policy, range(other)))
        .collect();
    [
        format!("{} {}", row.own.seed, row.own.row),
        format!("{}, {}", row.own.column, row.own.unit),
        range(row.own),
        others.join("; "),
        row.verdict().into(),
    ]
}

fn targets(sheet: &Sheet) {
    if sheet.targets.is_empty() {
        return;
    }
    println!("What the flagstone policy should reach:");
    for target in &sheet.targets {
        println!(
            "{:<8} {} {}: {}",
            target.verdict(),
            target.seed,
            target.wanted,
            target.found
        );
    }
}
