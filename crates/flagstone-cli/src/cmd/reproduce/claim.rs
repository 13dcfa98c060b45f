//! Which published differences are claims: by the published figures alone, before anything is
//! simulated, and by one rule for all documents.
//!
//! A document that repeated its test says by how much a figure moves by itself. A difference of
//! less than two standard errors of that says nothing about which side it is on; its direction is
//! then no claim, and is counted apart, right or wrong.
//!
//! ```text
//!   published beside the figure            its standard error
//!   S4  n = 50 runs, deviation sd          avg sd/√n · sd sd/√(2(n-1)) · min, max 0.464 sd
//!   S1  seven CPUs that do the same        one of them: their deviation; their part of the average
//!   S0  "± p %"                            p % of the figure
//!   nothing                                nothing: every difference is a claim
//! ```
//!
//! S3's tables have no deviation, but counters. A row whose counters are all the base's when taken for
//! a unit of work did the same work: its score is no claim, nor are counters of time, which move with
//! it. One row is so, SCTP's patch 1 (score, free_high and alloc_zone 99.4, shares equal).
//!
//! These errors stand in the documents' files, by cell. 0.464 is the standard deviation of the greatest of fifty
//! normal figures of deviation 1.

use super::documents::{self, Claims};
use super::interpreter::from_published;
use super::sheet::{Cell, Sheet, Versus};

/// Standard errors that a difference must reach to be a claim.
pub(super) const LEAST: f64 = 2.0;

/// Percent that counters for a unit of work may differ by because both they and the score are printed
/// with one decimal.
const PRINT: f64 = 0.1;

/// Why a cell's published direction is no claim; `None` if it is one, or has none.
pub(super) fn none(sheet: &Sheet, cell: &Cell) -> Option<String> {
    let Some(Versus::Cell([table, row, column], nth)) = &cell.versus else {
        return None;
    };
    let other = sheet.cell(table, row, column, *nth)?;
    if same_work(sheet, cell) {
        return Some("no claim: every counter for a unit of work is the base's".into());
    }
    let errors = [error(sheet, cell), error(sheet, other)];
    if errors == [None, None] {
        return None;
    }
    let together = errors.into_iter().flatten().fold(0.0, f64::hypot);
    let apart = (cell.published.value - other.published.value).abs();
    (apart < LEAST * together).then(|| {
        format!(
            "no claim: the published difference of {apart:.2} is {:.1} standard errors",
            apart / together
        )
    })
}

/// Whether a row of S3 did what the base did, by its counters, and this is a figure by time.
fn same_work(sheet: &Sheet, cell: &Cell) -> bool {
    let known = &cell.published;
    let by_time = ["score", "free_high", "alloc_zone"];
    let claims = documents::of(known).and_then(|(_, table, _)| table.claims);
    if claims != Some(Claims::NotOfTheSameWork) || !by_time.contains(&known.column.as_str()) {
        return false;
    }
    let of = |row: &str, column: &str| {
        let found = sheet.cell(&known.table, row, column, 0);
        found.map_or(f64::NAN, |cell| cell.published.value)
    };
    let score = of(&known.row, "score");
    let counters = ["free_high", "alloc_zone"]
        .iter()
        .all(|column| (of(&known.row, column) / score - 1.0).abs() * 100.0 <= PRINT);
    let shares = ["lock contend%", "cache miss rate%"]
        .iter()
        .all(|column| of(&known.row, column) == of("base", column));
    counters && shares
}

/// The standard error of a published figure, where its document lets one tell.
fn error(sheet: &Sheet, cell: &Cell) -> Option<f64> {
    let of = documents::of(&cell.published)?;
    from_published(sheet, of, of.2.error.as_ref()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::reproduce::ask::Stat;
    use crate::cmd::reproduce::sheet::{Fill, Method};

    fn judged(at: [&str; 3], nth: usize, versus: [&str; 3]) -> Option<String> {
        let mut sheet = Sheet::new(&["S0", "S1", "S3", "S4"]);
        let fill = Fill {
            versus: Some(Versus::Cell(versus.map(String::from), nth)),
            ..Fill::default()
        };
        sheet.fill(Method::Simulated, at, nth, fill);
        none(&sheet, sheet.cell(at[0], at[1], at[2], nth).unwrap())
    }

    #[test]
    fn a_mean_within_two_standard_errors_of_the_other_is_no_claim_and_says_how_many() {
        let user = |row, column| {
            let table = "fio netio user time";
            judged([table, row, column], 0, [table, "SLUB", column])
        };
        let line = user("SLAB", "avg").unwrap();
        assert!(line.contains("0.44 is 1.8 standard errors"), "{line}");
        assert_eq!(user("SLUB (dynamic)", "avg"), None, "2.2 of them");
        assert!(user("SLAB", "max").is_some(), "38.11 against 37.99");
        assert_eq!(user("SLAB", "min"), None, "36.89 against 30.85");
        assert_eq!(user("SLAB", "sd"), None);
    }

    #[test]
    fn what_the_documents_are_about_are_claims() {
        for table in ["fio netio real time", "fio netio sys time"] {
            for column in ["max", "avg", "sd"] {
                let at = [table, "SLUB (dynamic)", column];
                assert_eq!(judged(at, 0, [table, "SLUB", column]), None, "{at:?}");
            }
        }
        let spin = [
            "hackbench perf-profile",
            "native_queued_spin_lock_slowpath",
            "patched",
        ];
        assert_eq!(judged(spin, 0, [spin[0], spin[1], "base"]), None);
    }

    #[test]
    fn the_freeing_cpus_of_the_slab_test_are_each_others_repetitions() {
        let slub = |row, column| {
            let against = ["1 alloc N free SLAB", row, column];
            judged(["1 alloc N free SLUB", row, column], 0, against)
        };
        assert!(slub("8 B", "cpu 2").is_some(), "417 to 645 beside 550");
        assert_eq!(slub("8 B", "cpu 0"), None, "nobody repeats CPU 0");
        for row in ["16 B", "128 B", "1024 B", "4096 B"] {
            for column in ["cpu 0", "cpu 1", "cpu 7", "average"] {
                assert_eq!(slub(row, column), None, "{row} {column}");
            }
        }
    }

    #[test]
    fn a_row_of_the_same_work_makes_no_claim_and_every_other_row_without_a_deviation_does() {
        let claims = |table: &str, row: &str, column: &str| {
            let reason = judged([table, row, column], 0, [table, "base", column]);
            assert!(
                reason
                    .as_ref()
                    .is_none_or(|line| line.contains("unit of work"))
            );
            reason.is_none()
        };
        let sctp = "netperf SCTP_STREAM_MANY";
        for column in ["score", "free_high", "alloc_zone"] {
            assert!(!claims(sctp, "patch1", column), "{column}");
            for row in ["patch3", "patch5", "patch7", "patch9"] {
                assert!(claims(sctp, row, column), "{row} {column}");
                assert!(
                    claims("lmbench3 UNIX (AF_UNIX)", row, column),
                    "{row} {column}"
                );
            }
        }
        assert!(
            claims(sctp, "patch1", "lock contend%"),
            "unchanged is a claim"
        );
        assert!(claims("kbuild", "patch1", "build time"));
    }

    #[test]
    fn the_extreme_of_fifty_normal_figures_deviates_as_the_constant_says() {
        let chance = flagstone_sim::chance::Chance::new(1);
        let normal = || (0..12).map(|_| chance.uniform()).sum::<f64>() - 6.0;
        let greatest = || (0..50).map(|_| normal()).fold(f64::NEG_INFINITY, f64::max);
        let found: Vec<f64> = (0..4000).map(|_| greatest()).collect();
        let sd = Stat::of(&found).sd.unwrap();
        // Sums of twelve uniforms have somewhat shorter tails than normal figures.
        assert!((sd - 0.464).abs() < 0.05, "{sd}");
    }
}
