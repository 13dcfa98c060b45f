//! Why rows are not reached, in sentences that go with the figures.
//!
//! A sentence stands in the document only while what it explains is so: while one of its cells is
//! outside its accuracy or moves the wrong way, while two cells that should differ are the same, or
//! while a target of the default policy is missed. `{}` in it becomes
//! what was got in percent of the published, over its cells that are outside. Explanations are
//! written by hand, and only guesses where they say probably.

use super::score;
use super::sheet::{Cell, Sheet, Target};

/// Cells by table, row and column; an empty word is any.
type Cells = [&'static str; 3];

/// When a sentence is true.
enum When {
    /// It says how figures were made.
    Always,
    /// One of these cells is outside.
    Outside(Cells),
    /// One of these cells moves the wrong way.
    Wrong(Cells),
    /// The two came out the same.
    Same(Cells, Cells),
    /// The target in which these words are is missed.
    Missed(&'static str),
}

use When::{Always, Missed, Outside, Same, Wrong};

const SPIN: &str = "native_queued_spin_lock_slowpath";

const S0: &[(When, &str)] = &[
    (
        Outside(["will-it-scale/mmap1", "", "gain"]),
        "Gains that are outside come out at {} of the published.",
    ),
    (
        Outside(["mmap1 50% perf-profile", SPIN, ""]),
        "Waiting for locks at 112 tasks comes out at {} of the published share, and gains follow it.",
    ),
    (
        Outside(["mmap1 50% perf-profile", "get_any_partial", ""]),
        "get_any_partial by itself is here one look at each other node's counter, {} of the \
         published: the kernel's walks its zone list and asks the cpuset.",
    ),
    (
        Outside(["mmap1 50% perf-profile", "___slab_alloc", ""]),
        "___slab_alloc comes out at {} of the published.",
    ),
    (
        Outside(["mmap1 50% perf-profile", "__unfreeze_partials", ""]),
        "__unfreeze_partials comes out at {} of the published.",
    ),
    (
        Outside(["hackbench perf-profile", SPIN, ""]),
        "hackbench's waiting comes out at {} of the published, probably because it has no more tasks \
         than CPUs here, where the real one has many times more.",
    ),
    (
        Outside(["hackbench", "", "gain"]),
        "hackbench's gain comes out at {} of the published: the patch takes nearly all waiting away here, \
         and leaves 7.05 of 22.2 points in the published figures. Locks of run queues and wait queues were \
         the first suspects and are probably not it: in a form with eight tasks on each CPU, held for plain \
         estimates, they and the sockets' take less than 0.4 % together, 2 % with one task on each CPU. More \
         tasks leave more waiting for lists (14 % under the patch with sixteen, not settled). That form \
         does not settle at the base's share and is not used.",
    ),
    (
        Always,
        "Shares of functions are their own time, as a profile counts it; no setting was fitted to \
         them. The base rows of mmap1 share one fitted think time; they are not hit exactly.",
    ),
];

const S1: &[(When, &str)] = &[
    (
        Missed("no slower than the better of SLAB and SLUB"),
        "A free of the default policy writes a mark onto the block, by which a second free of it is noticed. Nobody else \
         touches this test's blocks, so their lines come from the CPU that allocated; SLAB's free leaves them there. \
         Programs that used a block have its line at hand.",
    ),
    (
        Missed("CPUs' first frees included"),
        "In the published test 64 freeing CPUs share 10,000 frees, 153 each, the first of their lives: what the default \
         policy pays there is a CPU's beginning. A sheaf of its own costs 322 ns where nobody waits, which \
         alone makes 1.11 of the least; the rest are fresh slabs of sheaves, and waiting for them and for the zone of a \
         cold node (ADR 0014).",
    ),
    (
        Outside(["1 alloc N free SLAB", "", "cpu 0"]),
        "SLAB's CPU 0 comes out at {} of the published cycles in the rows that are outside.",
    ),
    (
        Outside(["1 alloc N free SLAB", "", "cpu 1"]),
        "SLAB's freeing CPUs come out at {} of it in the rows that are outside.",
    ),
    (
        Outside(["1 alloc N free SLUB", "64 B", "cpu 1"]),
        "SLUB's freeing CPUs come out at {} of the published cycles at 64 B.",
    ),
    (
        Outside(["1 alloc N free SLUB", "512 B", "cpu 1"]),
        "SLUB's freeing CPUs come out at {} of the published cycles at 512 B.",
    ),
    (
        Outside(["1 alloc N free SLUB", "8 B", "cpu 1"]),
        "At 8 B the simulation and the mail are, it seems, in different ones of two states: the phase \
         diagram of the HTML report shows both; the row is judged by the state that the run fell into. The mail's seven freeing CPUs lie on both sides of SLAB's \
         themselves.",
    ),
    (
        Outside(["1 alloc N free SLUB", "4096 B", "cpu 0"]),
        "At 4096 B SLUB's CPU 0 comes out at {} of the published cycles.",
    ),
    (
        Always,
        "Seven freeing CPUs of one run are nearly one figure: the 180 cells are about 40 independent \
         ones.",
    ),
];

const S2: &[(When, &str)] = &[
    (
        Always,
        "The author's populations are not known; ours are of small machines just booted, every cache \
         multiplied alike until the base's total is the published one.",
    ),
    (
        Always,
        "Flagstone's memory here is that of slabs by population, a rule that only plans follow; its slab \
         layer makes slabs of rule b, of order 3 at most (ADR 0011).",
    ),
    (
        Outside(["wastage", "", "base"]),
        "Wastage depends on which caches are many: the base's comes out at {} of the published where \
         it is outside.",
    ),
    (
        Outside(["total slub memory", "", "change"]),
        "Changes of total memory that are outside: probably objects are no longer spread evenly over \
         the CPUs after hackbench.",
    ),
    (
        Outside(["", "1 groups", ""]),
        "One group of hackbench has fewer tasks than CPUs; start-up is not modelled.",
    ),
    (
        Always,
        "The 92 times of hackbench are six simulated speeds for each policy and a number of groups: \
         evidence that the patch costs no time, no more.",
    ),
];

const S3: &[(When, &str)] = &[
    (
        Missed("kbuild: zone-lock share"),
        "kbuild's zone-lock share under the default policy lies about patch 9's, and is above it by less than \
         its seeds differ (three at a time had 0.027 to 0.059 %).",
    ),
    (
        Outside(["lmbench3 UNIX (AF_UNIX)", "", "lock contend%"]),
        "AF_UNIX's lock shares come out at {} of the published where they are outside: from base to \
         patch 3 the published time outside of waiting falls by 19 % for each score, ours by 32 %, so \
         work under the lock is too large a part here of what patch 3 saves.",
    ),
    (
        Outside(["lmbench3 UNIX (AF_UNIX)", "", "cache miss rate%"]),
        "AF_UNIX's cache misses come out at {} of the published where they are outside. Under tuned \
         pagesets single pages come 2016 at a time, and those of eight senders, 40 MiB, just fit a \
         socket's cache (48 MiB) beside what other data brings in; what else a real cache holds is not known.",
    ),
    (
        Wrong(["lmbench3 UNIX (AF_UNIX)", "", "alloc_zone"]),
        "AF_UNIX fetches the same pages from zones in every state here, fifteen for each 64 KiB: a block \
         that a sender takes always ends on another CPU. By work the states differ by up to 4 %, by what \
         pagesets hold at the ends of the look; times what a pair alone does, 1 to 6 % more than under \
         the base, most come out above it.",
    ),
    (
        Wrong(["netperf SCTP_STREAM_MANY", "patch1", ""]),
        "SCTP under patch 1 is the base to the last event: no single page is freed on its path. By the \
         published counters it is too (free_high and alloc_zone for a unit of work 100.0, equal shares of \
         waiting and misses); what makes its score 99.4 is in none of them, so its sign is no claim.",
    ),
    (
        Outside(["netperf SCTP_STREAM_MANY", "", "score"]),
        "SCTP's scores come out at {} of the published where they are outside.",
    ),
    (
        Outside(["netperf SCTP_STREAM_MANY", "", "cache miss rate%"]),
        "SCTP's cache misses come out at {} of the published where they are outside.",
    ),
    (
        Outside(["kbuild", "", "build time"]),
        "kbuild's time comes out at {} of the published where it is outside.",
    ),
    (
        Outside(["memory overhead", "", ""]),
        "kbuild's memory overhead comes out at {} of the published: how much parked pages weigh depends \
         on the memory in use beside them, of which the files of the trees are an estimate.",
    ),
];

const S4: &[(When, &str)] = &[
    (
        Same(
            ["fio netio real time", "SLUB", "max"],
            ["fio netio real time", "SLUB (dynamic)", "max"],
        ),
        "What the document is about is not reproduced: SLUB and dynamic SLUB are the same run by run, \
         so no CPU gave up an empty slab: only there does 2.6.26 consult min_partial.",
    ),
    (
        Outside(["fio netio real time", "SLUB (dynamic)", "sd"]),
        "Dynamic's deviation of real time comes out at {}: by 2.6.26's rules it saves at most every second \
         call where a slab is emptied under an interrupt, and a free that empties one never asks it.",
    ),
    (
        Outside(["fio netio sys time", "SLUB", "max"]),
        "SLUB's worst system time comes out at {} of the published: a second of real time lost costs one \
         of system time here, all of it the sender's, where SLUB's published deviations say three; most \
         of it is probably the receiver's, which has time to spare.",
    ),
    (
        Outside(["fio netio user time", "SLUB", "min"]),
        "SLUB's least user time comes out at {}: user time follows system time, and is as far from its \
         mean as that.",
    ),
    (
        Outside(["fio netio sys time", "SLUB (dynamic)", "avg"]),
        "Dynamic's system time comes out at {}: half of SLUB's excess remains.",
    ),
    (
        Always,
        "User time is computed from system time by the ratio of SLUB's deviations, 0.73 s less for a second \
         more: no allocator's figure. What made real runs fast or slow is not known. Here each run draws how much of it sender and \
         receiver are in step, and answers take memory from the caches blocks do: an upper bound of \
         the effect. Mean times inside their accuracy say little: they are speeds in the published unit.",
    ),
];

const PATCHED_OTHER_LOCKS: &str = "The published share counts every lock that spins; here only zones' are, and little of it is left.";
const CAPTURES: &str = "Which caches are many decides what is wasted; the author's are not known, ours are of other machines.";
const OF_SENDER: &str = "A second of real time lost costs one of system time here, the sender's; the published deviations say three.";
const NETIO: &str = "At most every second call to the page allocator is saved here where a slab is emptied under an interrupt.";
const SENDER_LOCKED: &str = "Work under the zone's lock is too large a part of an operation: what patch 3 saves apart from waiting is 32 % \
     here and 19 % in the published figures.";

/// Why a cell is outside, in a sentence: the first that fits. The last of a document fits all of its cells.
const WHY: &[(&str, Cells, &str)] = &[
    (
        "S0",
        ["will-it-scale/mmap1", "25%", ""],
        "56 and 112 tasks load a socket's list alike here; the published base is a fifth faster at 56.",
    ),
    (
        "S0",
        ["will-it-scale/mmap1", "", ""],
        "The patched side is too fast: what siblings share beyond ports, caches and bandwidth, is probably what lacks.",
    ),
    (
        "S0",
        ["mmap1 50% perf-profile", "get_any_partial", ""],
        "One look at each other node's counter here; the kernel walks its zone list and asks the cpuset.",
    ),
    (
        "S0",
        ["", "__unfreeze_partials", ""],
        "Work under the list's lock while slabs go back is probably priced too high.",
    ),
    (
        "S0",
        ["hackbench perf-profile", SPIN, ""],
        "The patch leaves no waiting where tasks are no more than CPUs; sixteen on each CPU leave 14 % (not used: it does not settle).",
    ),
    (
        "S0",
        ["hackbench", "", ""],
        "The gain follows the waiting: the patch takes all of it away here, two thirds of it in the published profile.",
    ),
    (
        "S0",
        ["", "", ""],
        "Own time of a function is sensitive to which lines its caller has touched before.",
    ),
    (
        "S1",
        ["1 alloc N free SLUB", "8 B", ""],
        "One of two states: the published run fell into the other (phase diagram of the HTML report).",
    ),
    (
        "S1",
        ["", "", ""],
        "A transfer has one price here, however busy the front-side bus is.",
    ),
    ("S2", ["wastage", "", ""], CAPTURES),
    (
        "S2",
        ["total slub memory", "", ""],
        "Probably objects are not spread evenly over the CPUs after hackbench, as they are here.",
    ),
    (
        "S2",
        ["", "1 groups", ""],
        "Fewer tasks than CPUs: forks, first wake-ups of idle CPUs and exits are not simulated.",
    ),
    (
        "S2",
        ["", "4 groups", ""],
        "As many tasks as CPUs: forks, first wake-ups of idle CPUs and exits are not simulated.",
    ),
    (
        "S2",
        ["", "", ""],
        "Times are one simulated speed times the groups.",
    ),
    (
        "S3",
        ["kbuild", "", "build time"],
        "Time follows waiting for zones, and the base's share is not exactly the published one.",
    ),
    (
        "S3",
        ["kbuild", "", "free_high"],
        "The only high-order frees here are the tops of page tables; kernel stacks and slabs, which follow one another, are not simulated.",
    ),
    ("S3", ["kbuild", "", "lock contend%"], PATCHED_OTHER_LOCKS),
    (
        "S3",
        ["netperf SCTP_STREAM_MANY", "", "lock contend%"],
        PATCHED_OTHER_LOCKS,
    ),
    (
        "S3",
        ["netperf SCTP_STREAM_MANY", "", "free_high"],
        "Drains are too rare: probably blocks there are of order 3, and a few of them already reach the threshold.",
    ),
    (
        "S3",
        ["netperf SCTP_STREAM_MANY", "patch7", ""],
        "Pagesets of the freeing CPUs breathe between 4 and 6 GiB with each decay; the row does not settle.",
    ),
    (
        "S3",
        ["lmbench3 UNIX (AF_UNIX)", "", "cache miss rate%"],
        "The pages of eight senders, 40 MiB, just fit a socket's cache of 48 MiB; what else a real one holds is not known.",
    ),
    ("S3", ["lmbench3 UNIX (AF_UNIX)", "", ""], SENDER_LOCKED),
    (
        "S3",
        ["memory overhead", "", ""],
        "Parked pages weigh by the memory in use beside them, an estimate, and still grow when the longest look ends.",
    ),
    (
        "S3",
        ["", "", ""],
        "A test's parts beside page allocations are one fitted think time.",
    ),
    ("S4", ["fio netio sys time", "SLUB", ""], OF_SENDER),
    ("S4", ["", "SLUB (dynamic)", ""], NETIO),
    (
        "S4",
        ["", "", ""],
        "What made real runs fast or slow is not known; each run here draws how far sender and receiver are in step.",
    ),
];

/// Why a cell is outside.
pub(super) fn why(cell: &Cell) -> &'static str {
    let fits = |(seed, of, _): &&(&str, Cells, &'static str)| {
        *seed == cell.published.seed && is_of(cell, of)
    };
    WHY.iter().find(fits).map_or("", |(.., words)| words)
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

fn is_of(cell: &Cell, [table, row, column]: &Cells) -> bool {
    let known = &cell.published;
    let fits = |want: &str, is: &str| want.is_empty() || want == is;
    fits(table, &known.table) && fits(row, &known.row) && fits(column, &known.column)
}

/// What is outside of these cells, in percent of the published on average; `None` if nothing is.
fn outside(cells: &[&Cell], of: &Cells) -> Option<f64> {
    let found: Vec<f64> = cells
        .iter()
        .filter(|cell| is_of(cell, of) && cell.inside() == Some(false))
        .filter_map(|cell| Some(cell.got? / cell.published.value * 100.0))
        .collect();
    (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
}

/// The sentence, if it is true.
fn said(sheet: &Sheet, cells: &[&Cell], when: &When, text: &str) -> Option<String> {
    match when {
        Always => Some(text.to_owned()),
        Outside(of) => {
            let percent = outside(cells, of)?;
            Some(text.replace("{}", &format!("{percent:.0} %")))
        }
        Wrong(of) => {
            let wrong = |cell: &&&Cell| is_of(cell, of) && sheet.sign(cell) == Some(false);
            cells.iter().find(wrong).map(|_| text.to_owned())
        }
        Same(one, other) => {
            let got = |of: &Cells| cells.iter().find(|cell| is_of(cell, of))?.got;
            (got(one)? == got(other)?).then(|| text.to_owned())
        }
        Missed(words) => {
            let missed =
                |target: &&Target| target.reached == Some(false) && target.wanted.contains(words);
            sheet.targets.iter().find(missed).map(|_| text.to_owned())
        }
    }
}

/// What there is to say about the rows of a document.
pub(super) fn of(seed: &str, sheet: &Sheet) -> String {
    let cells: Vec<&Cell> = sheet
        .cells
        .iter()
        .filter(|cell| cell.published.seed == seed)
        .collect();
    let sentences = match seed {
        "S0" => S0,
        "S1" => S1,
        "S2" => S2,
        "S3" => S3,
        _ => S4,
    };
    let said = sentences
        .iter()
        .filter_map(|(when, text)| said(sheet, &cells, when, text));
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
        for (seed, of, words) in WHY {
            let is = |cell: &&Cell| {
                cell.published.seed == *seed && why(cell) == *words && is_of(cell, of)
            };
            assert!(sheet.cells.iter().any(|cell| is(&cell)), "{words}");
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
        for (when, text) in [S0, S1, S2, S3, S4].into_iter().flatten() {
            let of: &[&Cells] = match when {
                Always | Missed(_) => &[],
                Outside(of) | Wrong(of) => &[of],
                Same(one, other) => &[one, other],
            };
            for of in of {
                assert!(sheet.cells.iter().any(|cell| is_of(cell, of)), "{text}");
            }
        }
    }
}
