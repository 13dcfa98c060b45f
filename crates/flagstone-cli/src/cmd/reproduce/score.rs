//! How much better the simulation is than doing nothing.
//!
//! A tolerance is easy to meet where the published figures hardly move. So every cell is also given to a
//! rival that simulates nothing, and both are judged by the same tolerance:
//!
//! ```text
//!   document               what doing nothing says
//!   S0, S2, S3  patched    the base's published figure; a gain or a change is zero
//!   S1          SLUB       SLAB's published figure of the same size and CPU
//!               SLAB       its figure at 8 B, whatever the size
//!   S2          hackbench  a straight line through the base's 48 groups
//!   S4          others     SLUB's mean for min, max and mean, SLUB's deviation for the deviation
//!
//!   skill = (ours − nothing) / (all − nothing)     1: every cell inside, 0: no better than nothing
//! ```
//!
//! A cell counts if nothing was fitted to it, if doing nothing has an answer (a base's own figures have
//! none), and if no other cell says the same: of cells that are one figure in several forms one counts. Both
//! stand in the documents' files (`nothing`, `same_as`).

use super::documents;
use super::interpreter::from_published;
use super::published::Published;
use super::sheet::{Cell, Sheet};
use serde::Serialize;

/// What doing nothing says in a cell's place, by published figures alone; `None` where it has no answer.
pub(super) fn nothing(sheet: &Sheet, known: &Published) -> Option<f64> {
    let of = documents::of(known)?;
    from_published(sheet, of, of.2.nothing.as_ref()?)
}

/// Why a cell does not count by itself: another one says the same. `None` if it counts.
pub(super) fn same_as(known: &Published) -> Option<&'static str> {
    documents::of(known)?.2.same_as.as_deref()
}

/// A cell that counts: ours and doing nothing by the same tolerance.
pub(super) fn counted(sheet: &Sheet, cell: &Cell) -> Option<[bool; 2]> {
    if same_as(&cell.published).is_some() {
        return None;
    }
    let ours = cell.inside()?;
    let nothing = cell.judge(nothing(sheet, &cell.published)?)?;
    Some([ours, nothing])
}

/// A score and the score of doing nothing over the same cells.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(super) struct Score {
    /// Cells that count.
    pub(super) cells: usize,
    /// Of these, within the tolerance.
    pub(super) inside: usize,
    /// Of these, where doing nothing is within it.
    pub(super) nothing_inside: usize,
    /// (ours − nothing) / (all − nothing); none where doing nothing has all.
    pub(super) skill: Option<f64>,
}

impl Score {
    /// Over the cells of a document, or of all.
    pub(super) fn of(sheet: &Sheet, document: Option<&str>) -> Self {
        let wanted = |cell: &&Cell| document.is_none_or(|seed| cell.published.seed == seed);
        let mut score = Self::default();
        for [ours, nothing] in sheet
            .cells
            .iter()
            .filter(wanted)
            .filter_map(|c| counted(sheet, c))
        {
            score.cells += 1;
            score.inside += usize::from(ours);
            score.nothing_inside += usize::from(nothing);
        }
        let room = score.cells - score.nothing_inside;
        let won = score.inside as f64 - score.nothing_inside as f64;
        score.skill = (room > 0).then(|| won / room as f64);
        score
    }

    /// Skill in two digits.
    pub(super) fn skill_words(self) -> String {
        self.skill
            .map_or_else(|| "–".into(), |skill| format!("{skill:.2}"))
    }
}

/// The documents of a sheet with their scores, in their order.
pub(super) fn by_document(sheet: &Sheet) -> Vec<(&'static str, Score)> {
    let there = |seed: &&str| sheet.cells.iter().any(|cell| cell.published.seed == **seed);
    let documents = super::SEEDS.into_iter().filter(there);
    documents
        .map(|seed| (seed, Score::of(sheet, Some(seed))))
        .collect()
}

/// How far S1's counted cells are off, as a factor: root mean square of the logarithms.
pub(super) fn factor(sheet: &Sheet, document: &str) -> Option<f64> {
    let of = |cell: &&Cell| cell.published.seed == document && !cell.fitted;
    let single = |cell: &&Cell| same_as(&cell.published).is_none();
    let logs: Vec<f64> = (sheet.cells.iter().filter(of).filter(single))
        .filter_map(|cell| Some((cell.got? / cell.published.value).ln().powi(2)))
        .collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    (!logs.is_empty()).then(|| mean.sqrt().exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::reproduce::SEEDS;
    use crate::cmd::reproduce::sheet::{Accuracy, Fill, Method};

    /// Every cell with `got` in its place.
    fn filled(got: impl Fn(&Sheet, &Published) -> Option<f64>) -> Sheet {
        let mut sheet = Sheet::new(&SEEDS);
        for known in super::super::published::cells() {
            let fill = Fill {
                got: got(&sheet, &known).map(|got| Ok((got, None))),
                accuracy: Some(Accuracy::Percent(1.0).seen("2026-11-23")),
                ..Fill::default()
            };
            let at = [&known.table, &known.row, &known.column].map(String::as_str);
            sheet.fill(Method::Computed, at, known.nth, fill);
        }
        sheet
    }

    #[test]
    fn doing_nothing_has_no_skill_and_the_published_figures_have_all() {
        let score = Score::of(&filled(nothing), None);
        assert!(score.cells > 100 && score.inside == score.nothing_inside);
        assert_eq!(score.skill, Some(0.0));
        let score = Score::of(&filled(|_, known| Some(known.value)), None);
        assert_eq!((score.inside, score.skill), (score.cells, Some(1.0)));
        let wrong = Score::of(&filled(|_, known| Some(-1.0 - known.value)), None);
        assert!(wrong.skill.unwrap() < 0.0, "worse than nothing shows");
    }

    #[test]
    fn a_figure_printed_several_times_counts_once() {
        let sheet = filled(|_, known| Some(known.value));
        let cells = |document| Score::of(&sheet, Some(document)).cells;
        assert_eq!(
            cells("S1"),
            38,
            "two sides of two allocators at ten sizes, but SLAB's 8 B is given"
        );
        assert_eq!(
            cells("S4"),
            16,
            "two rows of four columns, real and system time"
        );
        let hackbench = |cell: &&Cell| cell.published.table.starts_with("hackbench-");
        let counted = sheet
            .cells
            .iter()
            .filter(hackbench)
            .filter(|c| counted(&sheet, c).is_some());
        assert_eq!(
            counted.count(),
            12,
            "four machines at 48 groups, two at one group, two columns"
        );
    }

    #[test]
    fn what_doing_nothing_says_is_the_base_a_line_or_a_mean() {
        let sheet = Sheet::new(&SEEDS);
        let says = |table, row, column, nth| {
            nothing(
                &sheet,
                &sheet.cell(table, row, column, nth).unwrap().published,
            )
        };
        assert_eq!(says("will-it-scale/mmap1", "50%", "gain", 0), Some(0.0));
        assert_eq!(
            says("will-it-scale/mmap1", "50%", "patched", 0),
            Some(186_020.0)
        );
        assert_eq!(says("will-it-scale/mmap1", "50%", "base", 0), None);
        assert_eq!(says("kbuild", "patch9", "lock contend%", 0), Some(14.0));
        assert_eq!(says("1 alloc N free SLUB", "16 B", "cpu 1", 0), Some(573.0));
        assert_eq!(says("1 alloc N free SLAB", "16 B", "cpu 1", 0), Some(549.0));
        assert_eq!(says("fio netio real time", "SLAB", "min", 0), Some(23.46));
        assert_eq!(says("fio netio real time", "SLAB", "sd", 0), Some(0.72));
        assert_eq!(says("fio netio real time", "SLUB", "sd", 0), None);
        let line = says(
            "hackbench-process-sockets 160 CPUs 4K",
            "12 groups",
            "patched",
            0,
        );
        assert!((line.unwrap() - 16.7 / 4.0).abs() < 0.1, "{line:?}");
    }
}
