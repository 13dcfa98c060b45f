//! Why rows are not reached, in sentences that go with the figures.
//!
//! A sentence stands in the document only while what it explains is so: while one of its cells is
//! outside its accuracy or moves the wrong way, while two cells that should differ are the same, or
//! while a target of the default policy is missed. `{}` in it becomes
//! what was got in percent of the published, over its cells that are outside. Explanations are
//! written by hand in the documents' files, and only guesses where they say probably.

use super::documents::key::Key;
use super::documents::{self, Reason};
use super::score;
use super::sheet::{Cell, Sheet, Target};

/// Why a cell is outside.
pub(super) fn why(cell: &Cell) -> &'static str {
    let document = documents::named(&cell.published.seed);
    let mut all = document.into_iter().flat_map(|document| &document.why);
    let found = all.find(|why| why.of.fits(&cell.published));
    found.map_or("", |why| why.text.as_str())
}

/// The cells of a document that are outside, the farthest first, with their distance in tolerances; those
/// that are another cell in other units are left out.
pub(super) fn cells_outside<'a>(seed: &str, sheet: &'a Sheet) -> Vec<(&'a Cell, f64)> {
    let of = |cell: &&Cell| {
        cell.published.seed == seed
            && score::same_as(&cell.published).is_none()
            && cell.inside() == Some(false)
    };
    let far = |cell: &'a Cell| {
        let stated = cell.accuracy?.accuracy;
        Some((cell, stated.distance(cell.published.value, cell.got?)))
    };
    let mut found: Vec<_> = sheet.cells.iter().filter(of).filter_map(far).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found
}

/// What is outside of these cells, in percent of the published on average; `None` if nothing is.
fn outside(cells: &[&Cell], of: &Key) -> Option<f64> {
    let found: Vec<f64> = cells
        .iter()
        .filter(|cell| of.fits(&cell.published) && cell.inside() == Some(false))
        .filter_map(|cell| Some(cell.got? / cell.published.value * 100.0))
        .collect();
    (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
}

/// The sentence, if it is true.
fn said(sheet: &Sheet, cells: &[&Cell], reason: &Reason) -> Option<String> {
    let mut text = reason.text.clone();
    if let Some(of) = &reason.outside {
        let percent = outside(cells, of)?;
        text = text.replace("{}", &format!("{percent:.0} %"));
    }
    if let Some(of) = &reason.wrong {
        let wrong = |cell: &&&Cell| of.fits(&cell.published) && sheet.sign(cell) == Some(false);
        cells.iter().find(wrong)?;
    }
    if let Some([one, other]) = &reason.same {
        let got = |of: &Key| cells.iter().find(|cell| of.fits(&cell.published))?.got;
        (got(one)? == got(other)?).then_some(())?;
    }
    if let Some(words) = &reason.missed {
        let missed =
            |target: &&Target| target.reached == Some(false) && target.wanted.contains(words);
        sheet.targets.iter().find(missed)?;
    }
    Some(text)
}

/// What there is to say about the rows of a document.
pub(super) fn of(seed: &str, sheet: &Sheet) -> String {
    let cells: Vec<&Cell> = sheet
        .cells
        .iter()
        .filter(|cell| cell.published.seed == seed)
        .collect();
    let reasons = documents::named(seed)
        .into_iter()
        .flat_map(|document| &document.reasons);
    let said = reasons.filter_map(|reason| said(sheet, &cells, reason));
    said.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::reproduce::sheet::{Accuracy, Fill, Method};

    fn sheet(gain: f64) -> Sheet {
        let mut sheet = Sheet::new(&["S0"]);
        let fill = Fill {
            got: Some(Ok((gain, None))),
            accuracy: Some(Accuracy::Points(15.0).seen("2026-11-20")),
            ..Fill::default()
        };
        let at = ["will-it-scale/mmap1", "100%", "gain"];
        sheet.fill(Method::Simulated, at, 0, fill);
        sheet
    }

    #[test]
    fn a_sentence_stands_while_its_row_is_outside_and_says_how_far() {
        let far = of("S0", &sheet(13.0));
        assert!(
            far.contains("Gains that are outside come out at 20 %"),
            "{far}"
        );
        assert!(!of("S0", &sheet(64.0)).contains("Gains"));
        assert!(of("S0", &sheet(64.0)).contains("fitted think time"));
    }

    #[test]
    fn a_sentence_about_a_sign_stands_while_it_is_wrong() {
        let with = |patched: f64| {
            let mut sheet = Sheet::new(&["S3"]);
            let table = "lmbench3 UNIX (AF_UNIX)";
            let base = [table, "base", "alloc_zone"];
            for (row, got) in [("base", 100.0), ("patch3", patched)] {
                let versus = super::super::sheet::Versus::Cell(base.map(String::from), 0);
                let fill = Fill {
                    got: Some(Ok((got, None))),
                    versus: (row != "base").then_some(versus),
                    ..Fill::default()
                };
                sheet.fill(Method::Simulated, [table, row, "alloc_zone"], 0, fill);
            }
            of("S3", &sheet).contains("fifteen for each 64 KiB")
        };
        assert!(with(98.0) && !with(103.0));
    }

    #[test]
    fn a_sentence_about_a_target_stands_while_it_is_missed() {
        let with = |reached| {
            let mut sheet = Sheet::new(&["S3"]);
            sheet.targets.push(Target {
                seed: "S3",
                wanted: "kbuild: zone-lock share at most patch 9's".into(),
                found: String::new(),
                reached: Some(reached),
                margin: None,
            });
            of("S3", &sheet).contains("zone-lock share")
        };
        assert!(with(false) && !with(true));
    }

    #[test]
    fn every_cell_has_a_sentence_should_it_be_outside_and_the_farthest_comes_first() {
        let sheet = Sheet::new(&["S0", "S1", "S2", "S3", "S4"]);
        assert!(sheet.cells.iter().all(|cell| why(cell).ends_with('.')));
        for document in documents::all() {
            for known in &document.why {
                let is = |cell: &Cell| {
                    cell.published.seed == document.seed
                        && why(cell) == known.text
                        && known.of.fits(&cell.published)
                };
                assert!(sheet.cells.iter().any(is), "{}", known.text);
            }
        }
        let mut sheet = super::tests::sheet(13.0);
        let fill = Fill {
            got: Some(Ok((20.0, None))),
            accuracy: Some(Accuracy::Points(10.0).seen("2026-11-23")),
            ..Fill::default()
        };
        let at = ["will-it-scale/mmap1", "25%", "gain"];
        sheet.fill(Method::Simulated, at, 0, fill);
        let found = cells_outside("S0", &sheet);
        let rows: Vec<&str> = found
            .iter()
            .map(|(cell, _)| cell.published.row.as_str())
            .collect();
        assert_eq!(rows, ["100%", "25%"]);
        assert!(found.iter().all(|(_, far)| *far > 1.0));
    }

    #[test]
    fn a_distance_above_one_is_outside() {
        for accuracy in [
            Accuracy::Exact,
            Accuracy::Points(8.0),
            Accuracy::Percent(25.0),
            Accuracy::Factor(2.0),
        ] {
            for got in [-1.0, 0.0, 4.0, 5.0, 7.6, 10.0, 12.4, 15.0, 19.0, 21.0] {
                let far = accuracy.distance(10.0, got);
                assert_eq!(far <= 1.0, accuracy.holds(10.0, got), "{accuracy:?} {got}");
            }
        }
    }

    #[test]
    fn every_sentence_is_about_cells_that_exist() {
        let sheet = Sheet::new(&["S0", "S1", "S2", "S3", "S4"]);
        for document in documents::all() {
            let of = |cell: &&Cell| cell.published.seed == document.seed;
            for reason in &document.reasons {
                let single = [&reason.outside, &reason.wrong].into_iter().flatten();
                for key in single.chain(reason.same.iter().flatten()) {
                    let fits = |cell: &Cell| key.fits(&cell.published);
                    assert!(sheet.cells.iter().filter(of).any(fits), "{}", reason.text);
                }
            }
        }
    }
}
