//! Files that are wrong, what is written once, and what formulas say.

use super::*;
use crate::cmd::reproduce::ask::{Effort, Runs, Stat};
use crate::cmd::reproduce::interpreter;
use crate::cmd::reproduce::sheet::Sheet;
use expression::Names;
use std::collections::BTreeSet;

/// S0 with a gain, and what a test makes wrong in it.
const SOUND: &str = r#"
seed = "S0"
title = "t"
source = "s"
experiment = "e"
link = "l"

[policies]
base = "linux-6.5"
own = "flagstone"

[figures]
ops = "ops_per_task_per_s"

[[table]]
for = { row = ["25%", "50%"], tasks = [56, 112] }
name = "will-it-scale/mmap1"
run = { workload = "mmap1", machine = "spr-2s-224", look = { quick = "8ms", full = "64..256ms" } }
rows = [{ name = "{row}", tasks = "{tasks}" }]
columns = [{ name = "base", policy = "base", got = "ops", tolerance = { percent = 25, seen = "2026-11-20" } }]
"#;

#[test]
fn a_mistake_is_one_line_with_file_table_and_key() {
    assert!(parse("s0.toml", SOUND).is_ok());
    for (right, wrong, words) in [
        ("got = \"ops\"", "gott = \"ops\"", "unknown field `gott`"),
        (
            "got = \"ops\"",
            "got = \"opps\"",
            "got: unknown figure `opps`",
        ),
        ("got = \"ops\"", "got = \"ops +\"", "in `got`"),
        (
            "got = \"ops\"",
            "got = \"best(ops)\"",
            "unknown function `best`",
        ),
        (
            "got = \"ops\"",
            "got = \"ops / `. | . | bas`\"",
            "no published cell `will-it-scale/mmap1 | 25% | bas`",
        ),
        ("name = \"base\"", "name = \"bass\"", "no published cell"),
        (
            "percent = 25,",
            "percent = 25, points = 2,",
            "a tolerance is one of",
        ),
        ("percent = 25", "percent = \"25\"", "in `tolerance.percent`"),
        (
            "workload = \"mmap1\"",
            "workload = \"mmapp\"",
            "run: workload: ",
        ),
        (
            "machine = \"spr-2s-224\"",
            "machine = \"spr\"",
            "run: machine: ",
        ),
        ("quick = \"8ms\"", "quick = \"8s\"", "run: look: "),
        ("policy = \"base\"", "policy = \"bass\"", "policy: "),
        (
            "tasks = [56, 112]",
            "tasks = [56]",
            "for: lists of 1 and of 2 values",
        ),
        (
            "columns = [",
            "rules = [{ rows = [\"75%\"] }]\ncolumns = [",
            "rules: rows: there is no `75%`",
        ),
        (
            "columns = [",
            "rows_ = 1\ncolumns = [",
            "unknown field `rows_`",
        ),
        ("run = {", "run = \"mmap\" #", "unknown set `mmap`"),
        (
            "link = \"l\"",
            "link = \"l\"\nlinks = 1",
            "unknown field `links`",
        ),
    ] {
        assert!(SOUND.contains(right), "{right}");
        let line = parse("s0.toml", &SOUND.replacen(right, wrong, 1)).unwrap_err();
        assert!(
            line.starts_with("documents/s0.toml: ") && line.contains(words),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1, "{line}");
        let in_table = !["for: ", "unknown set", "`links`"]
            .iter()
            .any(|of| words.contains(of));
        assert_eq!(
            line.contains("table `will-it-scale/mmap1`"),
            in_table,
            "{line}"
        );
    }
}

#[test]
fn every_published_cell_stands_in_a_document_once() {
    let mut seen = BTreeSet::new();
    for document in all() {
        for table in &document.tables {
            for cell in &table.cells {
                let row = table.rows[cell.row].name.as_str();
                let key = (&document.seed, &table.name, row, &cell.name, table.nth);
                assert!(seen.insert(key), "{key:?}");
            }
        }
    }
    assert_eq!(seen.len(), crate::cmd::reproduce::published::cells().len());
}

#[test]
fn every_kernel_is_in_the_picture_of_throughput_against_memory() {
    let picture = &named("S0").unwrap().planes[1];
    let mut tables = named("S0").unwrap().tables.iter();
    let table = tables.find(|table| table.name == picture.table).unwrap();
    for (name, _) in flagstone_kernels::BASES {
        assert!(table.rows.iter().any(|row| row.name == *name), "{name}");
    }
}

#[test]
fn charts_are_about_tables_and_columns_that_exist() {
    for document in all() {
        let has = |table: &str, column: &str| {
            let mut same = document.tables.iter().filter(|known| known.name == table);
            same.any(|known| known.cells.iter().any(|cell| cell.name == column))
        };
        for chart in &document.charts {
            for line in &chart.lines {
                let table = line.table.as_ref().unwrap_or(&chart.places);
                assert!(has(table, &line.column), "{}: {}", chart.id, line.name);
            }
        }
    }
}

/// Names that stand for themselves.
struct Plain;

impl Names for Plain {
    fn name(&self, name: &str) -> Result<Stat, String> {
        match name {
            "many" => Ok(Stat::of(&[1.0, 2.0, 6.0])),
            "detail.MiB live" => Ok(Stat::exact(8.0)),
            _ => Err(format!("no {name}")),
        }
    }

    fn published(&self, key: &Key) -> Result<f64, String> {
        let (found, _) = key.from(["table", "row", "column"], 0);
        Ok(if found == ["table", "row", "base"].map(String::from) {
            5.0
        } else {
            0.0
        })
    }

    fn row(&self) -> &str {
        "25%"
    }

    fn rows(&self) -> Vec<Self> {
        vec![Self, Self]
    }
}

#[test]
fn formulas_bind_as_written_and_texts_show_values_as_asked() {
    let value = |text: &str| {
        let parsed = Expression::try_from(text.to_owned()).unwrap();
        parsed.value(&Plain).map(|value| value.mean)
    };
    assert_eq!(value("1 + 2 * 3 - 4 / 2"), Ok(5.0));
    assert_eq!(value("(1 + 2) * 3"), Ok(9.0));
    assert_eq!(value("`detail.MiB live` / `. | . | base`"), Ok(1.6));
    assert_eq!(value("min(many) + max(many)"), Ok(7.0));
    assert_eq!(value("min(many, 2) + max(many, 2)"), Ok(5.0));
    assert_eq!(value("sd(1, 2, 3) * sqrt(4)"), Ok(2.0));
    assert!(value("none").unwrap_err().contains("no none"));
    let text = "{row}: {many:±.1}, {mean(many):±.1}, {many - 5:+.0} %, {1 + 1} tasks";
    let text = Text::try_from(text.to_owned()).unwrap();
    assert_eq!(
        text.filled(&Plain).unwrap(),
        "25%: 3.0 ± 2.6, 3.0, -2 %, 2 tasks"
    );
}

#[test]
fn counters_are_of_as_much_work_as_the_whole_test_does() {
    let document = named("S3").unwrap();
    let record = |ops: f64| {
        let mut ask = interpreter::asks(document, Effort::Quick).remove(0);
        ask.tasks = 1;
        ask.look = "1ms";
        let mut record = ask.spec(1, None).unwrap().run().unwrap().record;
        record.ops_per_task_per_s = ops;
        record.zone_pages_per_1000_ops = 15_000.0;
        record
    };
    let (slow, fast) = (record(100.0), record(105.0));
    let mut runs = Runs::default();
    for ask in interpreter::asks(document, Effort::Quick) {
        // An operation takes the same pages everywhere; all but the sixteen pairs are faster.
        let faster = ask.policy == "linux-6.6+pcp1" && ask.tasks != 32;
        runs.0
            .insert(ask, Ok(if faster { fast.clone() } else { slow.clone() }));
    }
    let mut sheet = Sheet::new(&["S3"]);
    interpreter::fill(document, &mut sheet, &runs, Effort::Quick);
    let got = |table, first: &str| {
        let of = |column: &str| sheet.cell(table, "patch1", column, 0).unwrap().got.unwrap();
        (of("alloc_zone"), of(first))
    };
    let build = got("kbuild", "build time");
    assert_eq!(
        (build.0, build.1.round()),
        (100.0, 95.0),
        "one build, however fast"
    );
    let netperf = got("netperf SCTP_STREAM_MANY", "score");
    assert_eq!(netperf, (105.0, 105.0), "so many seconds");
    let lmbench = got("lmbench3 UNIX (AF_UNIX)", "score");
    assert_eq!(
        lmbench,
        (105.0, 100.0),
        "what a pair alone does, however fast sixteen are"
    );
}
