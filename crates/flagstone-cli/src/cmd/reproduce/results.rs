//! `docs/results.md`: the sheet as a document that is kept with the code.

use super::FIRST_SEED;
use super::documents;
use super::measured;
use super::published::Published;
use super::reasons;
use super::sheet::{Cell, Sheet};
use super::view::{SCORE_HEADS, figure, maybe, measured_words, remarks, score_rows, verdict};
use crate::source::machine::processor;
use core::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The document; `beside` is where it will lie.
pub(super) fn markdown(sheet: &Sheet, quick: bool, beside: &Path) -> String {
    let mut text = String::from("# Results: five published trade-offs, regenerated\n\n");
    let _ = writeln!(
        text,
        "Written by `flagstone reproduce --docs docs/results.md{}{}`; not by hand. Commit {}, simulated \
         code {}, on {}. Simulated figures come from the allocator on virtual CPUs in virtual time \
         and do not depend on the host; what was measured here stands under its own title.\n",
        if quick { " --quick" } else { "" },
        match sheet.first_seed {
            FIRST_SEED => String::new(),
            seed => format!(" --seed {seed}"),
        },
        commit(beside),
        env!("SIMULATED_CODE_DIGEST"),
        processor()
    );
    let _ = writeln!(text, "{}.\n", sheet.headline());
    scores(&mut text, sheet);
    text.push_str(
        "\nA cell reads `published · got · flagstone`, then + inside the stated tolerance, − outside, = fitted \
         or so by definition, ? without a figure. Tolerances carry the day they were set and whether results \
         had been seen by then; one in points is never wider than half the figure. Explanations are written \
         by hand and are guesses where they say probably. The JSON document (`--json`) has everything.\n\n\
         **Doing nothing** predicts the base's published figure for every patched one, zero for a gain, SLUB's \
         mean in S4, SLAB's figure for SLUB's in S1 and a straight line through one base row for S2's \
         hackbench; it is judged by the same tolerances. Skill is (inside − inside by doing nothing) / (all − \
         inside by doing nothing). A figure counts if nothing was fitted to it, if doing nothing has an \
         answer, and if no other cell is the same figure in another form.\n\n\
         **Directions**: a patched figure must lie on the published side of what the *base got*. Where a \
         document shows its own spread (S4's 50 runs, S1's seven CPUs, S0's ± figures), a difference of less \
         than two standard errors claims nothing and is not counted. The same rule judges the flagstone \
         policy's targets over seeds: less than two standard errors is \"not told\".\n",
    );
    for document in documents::all() {
        let (seed, source) = (document.seed.as_str(), &document.source);
        let cells: Vec<&Cell> = sheet
            .cells
            .iter()
            .filter(|cell| cell.published.seed == seed)
            .collect();
        if cells.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "\n## {seed}\n\n{source}.\n\n{}\n",
            reasons::of(seed, sheet)
        );
        tables(&mut text, &cells);
        outside(&mut text, seed, sheet);
        notes(&mut text, &cells);
    }
    targets(&mut text, sheet);
    measured_rows(&mut text, sheet);
    settings(&mut text, sheet);
    text
}

fn name(known: &Published) -> (String, usize) {
    (known.table.clone(), known.nth)
}

fn tables(text: &mut String, cells: &[&Cell]) {
    let mut names: Vec<(String, usize)> = Vec::new();
    for cell in cells {
        if !names.contains(&name(&cell.published)) {
            names.push(name(&cell.published));
        }
    }
    for table in names {
        let of: Vec<&&Cell> = cells
            .iter()
            .filter(|cell| name(&cell.published) == table)
            .collect();
        let distinct = |pick: fn(&Published) -> &String| {
            of.iter().fold(Vec::new(), |mut seen: Vec<&String>, cell| {
                let word = pick(&cell.published);
                if !seen.contains(&word) {
                    seen.push(word);
                }
                seen
            })
        };
        let (rows, columns) = (distinct(|p| &p.row), distinct(|p| &p.column));
        let second = if table.1 > 0 {
            " (second set under this heading)"
        } else {
            ""
        };
        let _ = writeln!(text, "\n| {}{second} |{} |", table.0, join(&columns));
        let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
        for row in rows {
            let _ = write!(text, "| {row} |");
            for column in &columns {
                let cell = of
                    .iter()
                    .find(|cell| cell.published.row == *row && cell.published.column == **column);
                let _ = write!(
                    text,
                    " {} |",
                    cell.map_or(String::new(), |cell| short(cell))
                );
            }
            text.push('\n');
        }
        if let Some(words) = accuracies(&of) {
            let _ = writeln!(text, "\nStated tolerance: {words}.");
        }
    }
}

/// What the cells of a table promise: in a word if all promise the same, else by columns or by
/// rows, whichever tells them apart.
fn accuracies(cells: &[&&Cell]) -> Option<String> {
    let mut groups: Vec<(String, Vec<&Cell>)> = Vec::new();
    for cell in cells {
        let words = cell.accuracy?.words();
        match groups.iter_mut().find(|(known, _)| *known == words) {
            Some((_, group)) => group.push(cell),
            None => groups.push((words, vec![cell])),
        }
    }
    if let [(words, _)] = &groups[..] {
        return Some(words.clone());
    }
    let apart = |pick: fn(&Published) -> &str, group: &[&Cell]| {
        let mut names: Vec<&str> = group.iter().map(|cell| pick(&cell.published)).collect();
        names.dedup();
        names.sort_unstable();
        names.dedup();
        let size = |name: &str| cells.iter().filter(|c| pick(&c.published) == name).count();
        let whole = names.iter().map(|name| size(name)).sum::<usize>() == group.len();
        whole.then(|| names.join(", "))
    };
    let told = groups.iter().map(|(words, group)| {
        let by = apart(|known| &known.column, group).or_else(|| apart(|known| &known.row, group));
        let each = || -> String {
            let names: Vec<String> = group
                .iter()
                .map(|cell| format!("{} {}", cell.published.row, cell.published.column))
                .collect();
            names.join(", ")
        };
        format!("{words} for {}", by.unwrap_or_else(each))
    });
    Some(told.collect::<Vec<_>>().join("; "))
}

fn join(columns: &[&String]) -> String {
    let words: Vec<String> = columns.iter().map(|column| format!(" {column}")).collect();
    words.join(" |")
}

fn short(cell: &Cell) -> String {
    let sign = match verdict(cell) {
        "inside" => "+",
        "outside" => "−",
        "fitted" => "=",
        "no figure" => "?",
        _ => "",
    };
    format!(
        "{} · {} · {} {sign}",
        figure(cell.published.value),
        maybe(cell.got),
        maybe(cell.own)
    )
}

/// Every cell that is outside, the farthest first, with the reason.
fn outside(text: &mut String, seed: &str, sheet: &Sheet) {
    let found = reasons::cells_outside(seed, sheet);
    if found.is_empty() {
        return;
    }
    text.push_str("\n| outside | published | got | in tolerances | why |\n|---|--:|--:|--:|---|\n");
    for (cell, far) in found {
        let known = &cell.published;
        let _ = writeln!(
            text,
            "| {}, {}, {} | {} | {} | {far:.1} | {} |",
            known.table,
            known.row,
            known.column,
            figure(known.value),
            maybe(cell.got),
            reasons::why(cell)
        );
    }
}

/// What cells say about themselves.
fn notes(text: &mut String, cells: &[&Cell]) {
    let mut sheet = Sheet::new(&[]);
    sheet.cells = cells.iter().map(|cell| (*cell).clone()).collect();
    for (line, count, _) in remarks(&sheet) {
        let _ = writeln!(
            text,
            "\n- {count} cells: {}",
            line.split_once(": ").map_or("", |l| l.1)
        );
    }
}

fn targets(text: &mut String, sheet: &Sheet) {
    text.push_str("\n## What the flagstone policy should reach\n\n| reached | document | wanted | found |\n|---|---|---|---|\n");
    for target in &sheet.targets {
        let reached = match target.reached {
            Some(false) => "**no**",
            _ => target.verdict(),
        };
        let _ = writeln!(
            text,
            "| {reached} | {} | {} | {} |",
            target.seed, target.wanted, target.found
        );
    }
    text.push_str("\nAll of it simulated or computed.\n");
}

/// Scores beside those of doing nothing, and the goals.
fn scores(text: &mut String, sheet: &Sheet) {
    let _ = writeln!(
        text,
        "| {} |\n|---|--:|--:|--:|--:|",
        SCORE_HEADS.join(" | ")
    );
    for row in score_rows(sheet) {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text.push_str("\n| goal (set 2026-11-22) | found | |\n|---|--:|---|\n");
    for goal in sheet.goals() {
        let reached = match goal.reached {
            Some(true) => "reached",
            Some(false) => "**missed**",
            None => "not told",
        };
        let _ = writeln!(text, "| {} | {} | {reached} |", goal.wanted, goal.found);
    }
}

/// The default policy on real threads of the host.
fn measured_rows(text: &mut String, sheet: &Sheet) {
    let _ = writeln!(
        text,
        "\n## Measured on real threads\n\n{} A figure is the median of {} runs taken in turns, with \
         their range; less is better; ranges that overlap are a tie. Times are CPU time of the thread \
         that did the work. So few CPUs contend for little: this shows what the policy costs real \
         threads, not what it gains on 224. The policies of kernels with a slab per CPU enter a CPU's \
         section by a lock here, where a kernel has a compare-and-swap local to the CPU: their \
         objects cost more by that than a kernel's.",
        measured::summary(sheet),
        flagstone_sim::host::rows::RUNS
    );
    let rows = measured::comparisons(sheet);
    if rows.is_empty() {
        return;
    }
    text.push_str("\n| row | figure | flagstone | others | |\n|---|---|---|---|---|\n");
    for row in &rows {
        let _ = writeln!(text, "| {} |", measured_words(row).join(" | "));
    }
}

fn settings(text: &mut String, sheet: &Sheet) {
    text.push_str(
        "\n## Settings\n\nFrozen for base, patched and own rows alike.\n\n| document | setting | source | values tried |\n|---|---|---|---|\n",
    );
    for setting in &sheet.settings {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            setting.seed, setting.what, setting.source, setting.tried
        );
    }
}

/// The commit of the repository the document lies in.
fn commit(beside: &Path) -> String {
    let folder = beside
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let output = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(folder)
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::reproduce::sheet::Accuracy;

    #[test]
    fn accuracies_are_told_by_column_by_row_or_one_by_one() {
        let mut sheet = Sheet::new(&["S0"]);
        sheet
            .cells
            .retain(|cell| cell.published.table == "will-it-scale/mmap1");
        let said = |sheet: &Sheet| {
            let cells: Vec<&Cell> = sheet.cells.iter().collect();
            accuracies(&cells.iter().collect::<Vec<_>>()).unwrap()
        };
        let mut set = |pick: fn(&Published) -> bool| {
            for cell in &mut sheet.cells {
                let points = if pick(&cell.published) { 2.0 } else { 8.0 };
                cell.accuracy = Some(Accuracy::Points(points).seen("2026-11-20"));
            }
            said(&sheet)
        };
        assert_eq!(set(|_| true), "±2 points");
        let by_column = set(|known| known.column == "gain");
        assert_eq!(by_column, "±8 points for base, patched; ±2 points for gain");
        let by_row = set(|known| known.row == "50%");
        assert_eq!(by_row, "±8 points for 100%, 25%; ±2 points for 50%");
        let single = set(|known| known.row == "50%" && known.column == "gain");
        assert!(single.ends_with("±2 points for 50% gain"), "{single}");
    }
}
