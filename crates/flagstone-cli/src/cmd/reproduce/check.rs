//! `--check BASELINE.json`: which rows are worse than in a document kept from an earlier run.
//!
//! A row is worse if it had a figure and has none, was inside its tolerance and is outside, moved as
//! published and does not, or is outside by a quarter and a point more than it was. A target is worse if
//! it was reached and is missed. A kept document may have any other fields, or lack them.

use super::sheet::{Cell, Sheet};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

/// How much farther outside a row must be to be worse: a factor, and units of its error.
const FARTHER: (f64, f64) = (1.25, 1.0);

/// What is read of a kept document.
#[derive(Deserialize)]
pub(super) struct Kept {
    schema: String,
    quick: bool,
    first_seed: u64,
    rows: Vec<KeptRow>,
    targets: Vec<KeptTarget>,
}

#[derive(Deserialize)]
struct KeptRow {
    seed: String,
    table: String,
    row: String,
    column: String,
    error: Option<f64>,
    inside: Option<bool>,
    claimed_sign_right: Option<bool>,
}

#[derive(Deserialize)]
struct KeptTarget {
    seed: String,
    wanted: String,
    reached: Option<bool>,
}

/// How a run compares with a kept one.
pub(super) struct Compared {
    /// One line for each row or target that got worse.
    pub(super) worse: Vec<String>,
    /// Rows and targets that got better.
    pub(super) better: usize,
}

impl Kept {
    /// The document in `file`, of a run with the same effort and seeds.
    ///
    /// # Errors
    /// One line: it cannot be read, or is of another kind of run.
    pub(super) fn read(file: &Path, quick: bool, first_seed: u64) -> Result<Self, String> {
        let name = file.display();
        let text = std::fs::read(file).map_err(|error| format!("--check {name}: {error}"))?;
        let kept: Self = serde_json::from_slice(&text).map_err(|error| {
            format!("--check {name}: {error}; give a document that `reproduce --json` wrote")
        })?;
        if kept.schema != "flagstone.reproduce/1" {
            return Err(format!("--check {name}: its schema is {}", kept.schema));
        }
        if kept.quick != quick {
            let (was, give) = if kept.quick {
                ("a", "give")
            } else {
                ("no", "leave out")
            };
            return Err(format!(
                "--check {name}: of {was} quick run; {give} --quick"
            ));
        }
        if kept.first_seed != first_seed {
            return Err(format!(
                "--check {name}: of another seed; give --seed {}",
                kept.first_seed
            ));
        }
        Ok(kept)
    }

    /// Every row and target of the sheet that the kept document has, against it.
    pub(super) fn compare(&self, sheet: &Sheet) -> Compared {
        let mut compared = Compared {
            worse: Vec::new(),
            better: 0,
        };
        // Equal keys are told apart by their order, in the document as in the sheet.
        let mut rows: HashMap<[&str; 4], std::collections::VecDeque<&KeptRow>> = HashMap::new();
        for row in &self.rows {
            let key = [&row.seed, &row.table, &row.row, &row.column].map(String::as_str);
            rows.entry(key).or_default().push_back(row);
        }
        for cell in &sheet.cells {
            let known = &cell.published;
            let key = [&known.seed, &known.table, &known.row, &known.column].map(String::as_str);
            let Some(kept) = rows.get_mut(&key).and_then(|same| same.pop_front()) else {
                continue;
            };
            match change(sheet, cell, kept) {
                Change::Worse(how) => compared.worse.push(format!("{}: {how}", key.join(" "))),
                Change::Better => compared.better += 1,
                Change::Same => {}
            }
        }
        for kept in &self.targets {
            let now = sheet
                .targets
                .iter()
                .find(|t| (t.seed, &t.wanted) == (&*kept.seed, &kept.wanted));
            match (kept.reached, now.map(|target| target.reached)) {
                (Some(true), Some(Some(false))) => {
                    compared.worse.push(format!(
                        "{} {}: reached, now missed",
                        kept.seed, kept.wanted
                    ));
                }
                (Some(false), Some(Some(true))) => compared.better += 1,
                _ => {}
            }
        }
        compared
    }
}

enum Change {
    Worse(String),
    Better,
    Same,
}

fn change(sheet: &Sheet, cell: &Cell, kept: &KeptRow) -> Change {
    let (inside, sign) = (cell.inside(), sheet.claimed_sign(cell));
    let (Some(before), now) = (kept.error, cell.error()) else {
        return if cell.got.is_some() {
            Change::Better
        } else {
            Change::Same
        };
    };
    let Some(now) = now else {
        return Change::Worse("had a figure, now none".into());
    };
    let moved = format!("error {before:+.1}, now {now:+.1} {}", cell.error_unit());
    match (kept.inside, inside, kept.claimed_sign_right, sign) {
        (Some(true), Some(false), ..) => Change::Worse(format!("inside, now outside ({moved})")),
        (.., Some(true), Some(false)) => {
            Change::Worse(format!("direction right, now wrong ({moved})"))
        }
        (_, Some(false), ..) if now.abs() > before.abs() * FARTHER.0 + FARTHER.1 => {
            Change::Worse(format!("farther outside ({moved})"))
        }
        (Some(false), Some(true), ..) | (.., Some(false), Some(true)) => Change::Better,
        _ => Change::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::reproduce::json;
    use crate::cmd::reproduce::runner::Cost;
    use crate::cmd::reproduce::sheet::{Accuracy, Fill, Method, Target, Versus};

    /// S0's gains of these sizes, and a target.
    fn sheet(gains: [f64; 3], reached: bool) -> Sheet {
        let mut sheet = Sheet::new(&["S0"]);
        for (row, gain) in ["25%", "50%", "100%"].into_iter().zip(gains) {
            let fill = Fill {
                got: Some(Ok((gain, None))),
                accuracy: Some(Accuracy::Points(10.0).seen("2026-11-23")),
                versus: Some(Versus::Zero),
                ..Fill::default()
            };
            sheet.fill(
                Method::Simulated,
                ["will-it-scale/mmap1", row, "gain"],
                0,
                fill,
            );
        }
        sheet.targets.push(Target {
            seed: "S0",
            wanted: "speed".into(),
            found: String::new(),
            reached: Some(reached),
            margin: None,
        });
        sheet
    }

    fn compared(before: &Sheet, now: &Sheet) -> Compared {
        let text = json::json(before, true, Cost::default());
        serde_json::from_str::<Kept>(&text).unwrap().compare(now)
    }

    #[test]
    fn a_run_is_no_worse_than_itself() {
        let sheet = sheet([33.0, 90.0, -1.0], true);
        let same = compared(&sheet, &sheet);
        assert!(
            same.worse.is_empty() && same.better == 0,
            "{:?}",
            same.worse
        );
    }

    #[test]
    fn each_way_of_getting_worse_is_told_by_row() {
        let good = sheet([33.0, 51.0, 65.0], true);
        let told = |now: &Sheet| compared(&good, now).worse.join("\n");
        assert!(told(&sheet([20.0, 51.0, 65.0], true)).contains("25% gain: inside, now outside"));
        assert!(told(&sheet([33.0, 51.0, 65.0], false)).contains("speed: reached, now missed"));
        let mut none = good.clone();
        none.cells[2].got = None;
        assert!(told(&none).contains("25% gain: had a figure"));
        let wide = |gain| sheet([33.0, 51.0, gain], true);
        let outside = compared(&wide(90.0), &wide(120.0)).worse.join("");
        assert!(
            outside.contains("farther outside (error +25.0, now +55.0 points)"),
            "{outside}"
        );
        let sign = compared(&wide(30.0), &wide(-1.0)).worse.join("");
        assert!(sign.contains("direction right, now wrong"), "{sign}");
    }

    #[test]
    fn what_got_better_is_counted() {
        let better = compared(
            &sheet([33.0, 90.0, -1.0], false),
            &sheet([33.0, 51.0, 30.0], true),
        );
        assert!(
            better.worse.is_empty() && better.better == 3,
            "{:?}",
            better.worse
        );
    }

    #[test]
    fn a_document_of_another_kind_of_run_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kept.json");
        let text = json::json(&sheet([1.0; 3], true), true, Cost::default());
        std::fs::write(&file, text).unwrap();
        let refused = |quick, seed| Kept::read(&file, quick, seed).err().unwrap_or_default();
        assert_eq!(refused(true, 1), "");
        assert!(refused(false, 1).contains("give --quick"));
        assert!(refused(true, 2).contains("give --seed 1"));
        std::fs::write(&file, "{}").unwrap();
        assert!(refused(true, 1).contains("reproduce --json"));
    }
}
