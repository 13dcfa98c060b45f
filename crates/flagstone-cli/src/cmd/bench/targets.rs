//! What Flagstone has set itself to reach, and whether this run reached it.

use super::allocators::{FLAGSTONE, GLIBC, TCMALLOC};
use super::catalog::{BATCH_SIZES, FREEING, ORDERS, PAIR_SIZES};
use super::figures::geometric_mean;
use super::report::figure;
use super::runner::{Measured, Outcome};
use serde::Serialize;

/// One line: figure, limit, reached or not.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// What is asked.
    pub what: String,
    /// What this run gave; none when a part of it was not measured.
    pub got: Option<f64>,
    /// What it must not exceed.
    pub limit: f64,
    /// Unit of both.
    pub unit: &'static str,
    /// Whether it does not; none when there is no figure.
    pub reached: Option<bool>,
    /// The excess is smaller than the spread of the runs behind it.
    pub within_spread: bool,
    /// What it was compared with.
    pub against: String,
}

/// Alloc plus free of one allocating thread and N freeing ones for Google's tcmalloc and snmalloc,
/// ns of CPU, geometric mean over 8..4096 B, as measured on a like machine before Flagstone was
/// begun: the yardstick where neither could be built.
const PUBLISHED_ONE_ALLOC: [(usize, f64); 2] = [(1, 12.6), (7, 14.3)];

/// All targets, in the order they are printed.
pub fn targets(results: &[Measured]) -> Vec<Target> {
    let mut list = Vec::new();
    list.extend(PAIR_SIZES.iter().map(|size| pair(results, *size)));
    list.push(batches(results));
    list.extend(FREEING.iter().map(|freeing| one_alloc(results, *freeing)));
    list.push(one_alloc_4096(results));
    list.push(python(results));
    list.extend(threads(results));
    list.extend(start(results));
    list.extend(footprint(results));
    list
}

fn find<'a>(results: &'a [Measured], name: &str) -> Option<&'a Measured> {
    results
        .iter()
        .filter(|result| result.workload.name == name)
        .min_by_key(|result| result.threads)
}

fn peer(outcome: &Outcome) -> bool {
    outcome.allocator.name != FLAGSTONE
}

/// Builds the line from a figure; `slack` is the spread in the figure's unit.
fn line(
    what: String,
    got: Option<(f64, f64)>,
    limit: f64,
    unit: &'static str,
    against: String,
) -> Target {
    let reached = got.map(|(got, _)| got <= limit);
    let within_spread = got.is_some_and(|(got, slack)| got > limit && got - limit < slack);
    Target {
        what,
        got: got.map(|(got, _)| got),
        limit,
        unit,
        reached,
        within_spread,
        against,
    }
}

/// Ratio of Flagstone's median to the best accepted peer's, its spread, and that peer.
fn ratio(
    result: Option<&Measured>,
    among: impl Fn(&Outcome) -> bool,
) -> Option<(f64, f64, String)> {
    let result = result?;
    let own = result.of(FLAGSTONE)?.summary()?;
    let (best, summary) = result.best(|outcome| peer(outcome) && among(outcome))?;
    let spread = own.spread.max(summary.spread) / summary.median;
    let with = format!("{} {}", best.allocator.name, figure(summary.median));
    Some((own.median / summary.median, spread, with))
}

fn split(found: Option<(f64, f64, String)>) -> (Option<(f64, f64)>, String) {
    match found {
        Some((ratio, spread, with)) => (Some((ratio, spread)), with),
        None => (None, String::new()),
    }
}

fn pair(results: &[Measured], size: usize) -> Target {
    let (got, with) = split(ratio(find(results, &format!("pair-{size}")), |_| true));
    line(
        format!("malloc+free pair of {size} B, to the best peer"),
        got,
        1.05,
        "x",
        with,
    )
}

/// Each batch against the best peer of that very batch: stricter than one peer for all.
fn batches(results: &[Measured]) -> Target {
    let mut ratios = Vec::new();
    let mut slack: f64 = 0.0;
    for (order, _) in ORDERS {
        for size in BATCH_SIZES {
            let found = ratio(find(results, &format!("batch-{order}-{size}")), |_| true);
            if let Some((ratio, spread, _)) = found {
                ratios.push(ratio);
                slack = slack.max(spread / (ORDERS.len() * BATCH_SIZES.len()) as f64);
            }
        }
    }
    let complete = ratios.len() == ORDERS.len() * BATCH_SIZES.len();
    let got = geometric_mean(&ratios)
        .filter(|_| complete)
        .map(|mean| (mean, slack));
    let with = "the best peer of each batch".to_owned();
    line(
        "batches of 1000 (LIFO, FIFO, shuffled), geometric mean".into(),
        got,
        1.0,
        "x",
        with,
    )
}

fn one_alloc(results: &[Measured], freeing: usize) -> Target {
    let what = format!("one allocates, {freeing} free, to the better of snmalloc and tcmalloc");
    let result = find(results, &format!("one-alloc-{freeing}-free"));
    let yardstick =
        |outcome: &Outcome| ["snmalloc", TCMALLOC].contains(&outcome.allocator.name.as_str());
    let measured = ratio(result, yardstick);
    let published = PUBLISHED_ONE_ALLOC
        .iter()
        .find(|(count, _)| *count == freeing);
    let found = measured.or_else(|| {
        let own = result?.of(FLAGSTONE)?.summary()?;
        let (_, published) = published?;
        let with = format!("tcmalloc {published} (published)");
        Some((own.median / published, own.spread / published, with))
    });
    let (got, with) = split(found);
    line(what, got, 1.0, "x", with)
}

fn one_alloc_4096(results: &[Measured]) -> Target {
    let worst = FREEING.iter().filter_map(|freeing| {
        let summary = find(results, &format!("one-alloc-{freeing}-free"))?
            .of(FLAGSTONE)?
            .part("4096")?;
        Some((summary.median, summary.spread))
    });
    let got = worst.max_by(|a, b| a.0.total_cmp(&b.0));
    line(
        "one allocates, N free, 4096 B, worst N".into(),
        got,
        15.0,
        "ns",
        String::new(),
    )
}

fn python(results: &[Measured]) -> Target {
    let (got, with) = split(ratio(find(results, "python"), |_| true));
    line(
        "Python program's CPU time, to the best peer".into(),
        got,
        1.0,
        "x",
        with,
    )
}

fn own_part(results: &[Measured], workload: &str, part: Option<&str>) -> Option<(f64, f64)> {
    let outcome = find(results, workload)?.of(FLAGSTONE)?;
    let summary = part.map_or_else(|| outcome.summary(), |part| outcome.part(part))?;
    Some((summary.median, summary.spread))
}

fn threads(results: &[Measured]) -> [Target; 2] {
    let after = own_part(results, "threads", Some("rss_after_kib"));
    let after = after.map(|(kib, spread)| (kib / 1024.0, spread / 1024.0));
    let time = own_part(results, "threads", None);
    [
        line(
            "10000 short threads, time per thread".into(),
            time,
            30.0,
            "us",
            String::new(),
        ),
        line(
            "10000 short threads, RSS afterwards".into(),
            after,
            4.0,
            "MiB",
            String::new(),
        ),
    ]
}

/// Flagstone's figure less glibc's in the same run.
fn over_glibc(results: &[Measured], part: Option<&str>) -> Option<(f64, f64)> {
    let glibc = find(results, "true")?.of(GLIBC)?;
    let base = part.map_or_else(|| glibc.summary(), |part| glibc.part(part))?;
    let (own, spread) = own_part(results, "true", part)?;
    Some((own - base.median, spread.max(base.spread)))
}

fn start(results: &[Measured]) -> [Target; 2] {
    let memory = over_glibc(results, Some("rss_kib"));
    let time = over_glibc(results, None);
    [
        line(
            "/bin/true, RSS at exit over glibc".into(),
            memory,
            300.0,
            "KiB",
            "glibc".into(),
        ),
        line(
            "/bin/true, time over glibc".into(),
            time,
            120.0,
            "us",
            "glibc".into(),
        ),
    ]
}

fn footprint(results: &[Measured]) -> [Target; 3] {
    let freed = own_part(results, "giveback", None);
    let at_once = own_part(results, "scatter", None);
    let later = own_part(results, "scatter", Some("after_3s"));
    let scattered = "90 % of a GiB freed at random, RSS / live";
    [
        line(
            "2 GiB freed, RSS at once".into(),
            freed,
            32.0,
            "MiB",
            String::new(),
        ),
        line(
            format!("{scattered}, at once"),
            at_once,
            1.7,
            "x",
            String::new(),
        ),
        line(
            format!("{scattered}, after 3 s"),
            later,
            1.7,
            "x",
            String::new(),
        ),
    ]
}

/// A target in words: what was got, what was wanted, the verdict, and against what.
pub fn words(target: &Target) -> [String; 4] {
    let verdict = match target.reached {
        Some(true) => "reached",
        Some(false) if target.within_spread => "not reached, within the spread",
        Some(false) => "not reached",
        None => "not measured",
    };
    [
        target.got.map_or("-".to_owned(), figure),
        format!("<= {} {}", figure(target.limit), target.unit),
        verdict.to_owned(),
        target.against.clone(),
    ]
}

/// The summary in the terminal.
pub fn summary(list: &[Target]) -> String {
    let mut text = String::from("Targets\n");
    for target in list {
        let [got, limit, verdict, against] = words(target);
        let against = match against.as_str() {
            "" => String::new(),
            name => format!("  ({name})"),
        };
        text.push_str(&format!(
            "  {:<66} {got:>7}  {limit:<12} {verdict}{against}\n",
            target.what
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::allocators::Allocator;
    use super::super::catalog;
    use super::super::child::Sample;
    use super::*;

    fn measured(name: &str, rows: &[(&str, f64)]) -> Measured {
        let outcome = |&(name, value): &(&str, f64)| Outcome {
            allocator: Allocator {
                name: name.into(),
                version: String::new(),
                library: None,
                unusable: None,
            },
            samples: vec![Sample::of_ns(value).with("rss_kib", value * 10.0)],
            failure: None,
        };
        let workload = catalog::select(&[name.to_owned()]).unwrap().remove(0);
        Measured {
            workload,
            threads: 1,
            outcomes: rows.iter().map(outcome).collect(),
        }
    }

    #[test]
    fn a_pair_is_judged_against_the_best_peer_of_its_size() {
        let results = [measured(
            "pair-64",
            &[(FLAGSTONE, 3.1), (GLIBC, 5.0), ("rpmalloc", 3.0)],
        )];
        let target = pair(&results, 64);
        assert_eq!(target.reached, Some(true));
        assert_eq!(target.against, "rpmalloc 3.00");
        let slower = [measured("pair-64", &[(FLAGSTONE, 3.2), ("rpmalloc", 3.0)])];
        assert_eq!(pair(&slower, 64).reached, Some(false));
    }

    #[test]
    fn one_alloc_uses_the_published_figure_where_no_yardstick_was_built() {
        let results = [measured(
            "one-alloc-1-free",
            &[(FLAGSTONE, 12.0), (GLIBC, 180.0)],
        )];
        let target = one_alloc(&results, 1);
        assert_eq!(target.reached, Some(true));
        assert!(target.against.contains("published"));
        assert_eq!(one_alloc(&results, 2).reached, None);
    }

    #[test]
    fn the_start_cost_is_a_difference_to_glibc() {
        let results = [measured("true", &[(FLAGSTONE, 700.0), (GLIBC, 600.0)])];
        let [memory, time] = start(&results);
        assert_eq!(memory.got, Some(1000.0));
        assert_eq!(memory.reached, Some(false));
        assert_eq!((time.got, time.reached), (Some(100.0), Some(true)));
    }

    #[test]
    fn what_was_not_measured_is_neither_reached_nor_missed() {
        let list = targets(&[]);
        assert!(list.iter().all(|target| target.reached.is_none()));
        assert!(summary(&list).contains("not measured"));
    }
}
