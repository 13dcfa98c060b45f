//! The default policy on real threads of this host, beside the policies the rows are about.
//!
//! Not cached: it is the host that is measured. Left out of quick runs, which say so.

use super::sheet::Sheet;
pub(super) use flagstone_sim::host::rows::Measured;

/// What was measured, or why nothing was.
pub(super) type Found = Result<Vec<Measured>, String>;

/// Why a quick run measures nothing.
pub(super) const QUICK: &str = "left out of quick runs: it takes about 20 s of processor time";

/// Measures the rows of `seeds`.
pub(super) fn rows(seeds: &[&str]) -> Found {
    let bar = crate::progress::bar(20, "measuring on real threads: {msg}, {elapsed}");
    let found = flagstone_sim::host::rows::measure(seeds, |what| bar.set_message(what.to_owned()));
    bar.finish_and_clear();
    found
}

/// One row of one policy against the best of the others in the same runs.
pub(super) struct Comparison<'a> {
    /// The row of our own policy.
    pub(super) own: &'a Measured,
    /// The others', in the order they ran.
    pub(super) others: Vec<&'a Measured>,
}

impl Comparison<'_> {
    /// In a word. Ranges that overlap are a tie; figures are costs, so less is better.
    pub(super) fn verdict(&self) -> &'static str {
        let best = self
            .others
            .iter()
            .min_by(|a, b| a.median.total_cmp(&b.median));
        match best {
            Some(best) if self.own.high < best.low => "less",
            Some(best) if self.own.low > best.high => "more",
            Some(_) => "tie",
            None => "alone",
        }
    }
}

/// Our policy's measured rows, each with the others' of the same row and column.
pub(super) fn comparisons(sheet: &Sheet) -> Vec<Comparison<'_>> {
    let Ok(rows) = &sheet.measured else {
        return Vec::new();
    };
    let own = rows.iter().filter(|row| row.policy == "flagstone");
    own.map(|own| {
        let same = |other: &&Measured| {
            other.policy != own.policy
                && (other.seed, &other.row, other.column) == (own.seed, &own.row, own.column)
        };
        Comparison {
            own,
            others: rows.iter().filter(same).collect(),
        }
    })
    .collect()
}

/// How many comparisons came out which way, in words.
pub(super) fn summary(sheet: &Sheet) -> String {
    match &sheet.measured {
        Err(reason) => format!("Nothing was measured on real threads: {reason}."),
        Ok(_) => {
            let all = comparisons(sheet);
            let count = |word| all.iter().filter(|one| one.verdict() == word).count();
            format!(
                "Measured on real threads here, {} figures against the best of the policies the \
                 rows are about: less {}, tie {}, more {}.",
                all.len(),
                count("less"),
                count("tie"),
                count("more")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &'static str, low: f64, high: f64) -> Measured {
        Measured {
            seed: "S0",
            row: "one".into(),
            column: "alloc",
            policy,
            method: "measured",
            threads: 1,
            cpus: 1,
            unit: "ns",
            median: (low + high) / 2.0,
            low,
            high,
            runs: 7,
        }
    }

    fn verdict(rows: Vec<Measured>) -> &'static str {
        let mut sheet = Sheet::new(&[]);
        sheet.measured = Ok(rows);
        comparisons(&sheet)[0].verdict()
    }

    #[test]
    fn ranges_that_overlap_are_a_tie_and_only_the_best_other_counts() {
        let other = || [row("base", 20.0, 22.0), row("patched", 10.0, 12.0)];
        let with = |own| verdict(other().into_iter().chain([own]).collect());
        assert_eq!(with(row("flagstone", 11.0, 15.0)), "tie");
        assert_eq!(with(row("flagstone", 13.0, 15.0)), "more");
        assert_eq!(with(row("flagstone", 8.0, 9.0)), "less");
        assert_eq!(verdict(vec![row("flagstone", 8.0, 9.0)]), "alone");
    }

    #[test]
    fn a_quick_run_says_why_nothing_was_measured() {
        let mut sheet = Sheet::new(&[]);
        sheet.measured = Err(QUICK.into());
        assert!(summary(&sheet).contains("quick") && comparisons(&sheet).is_empty());
    }
}
