//! Which charts each document gets.

use super::chart::{self, Chart, OWN, Series, Spot};
use crate::cmd::reproduce::sheet::{Cell, Sheet};
use crate::cmd::reproduce::{pareto, s1};
use crate::html::escape;

/// The figures of a document, ready to be put into a page.
pub(super) fn of(seed: &str, sheet: &Sheet) -> Vec<String> {
    let drawn = match seed {
        "S0" => s0(sheet),
        "S1" => s1(sheet),
        "S2" => s2(sheet),
        "S3" => s3(sheet),
        _ => s4(sheet),
    };
    let mut figures: Vec<String> = drawn
        .iter()
        .filter(|chart| !chart.is_empty())
        .map(framed)
        .collect();
    match seed {
        "S0" => figures.extend(
            pareto::PICTURES
                .iter()
                .filter_map(|picture| plane(sheet, picture)),
        ),
        "S1" => figures.extend(phase_diagram(sheet)),
        _ => {}
    }
    figures
}

fn framed(chart: &Chart) -> String {
    format!(
        "<figure><figcaption>{}</figcaption>{}<p>{}</p><details><summary>Figures of this chart</summary>{}\
         </details></figure>",
        escape(&chart.title),
        chart.picture(),
        escape(&chart.reading()),
        chart.table()
    )
}

/// What of a cell a line shows.
#[derive(Clone, Copy)]
enum Part {
    Published,
    Got,
    Own,
}

type Point = Option<(f64, Option<f64>)>;

fn part(cell: &Cell, part: Part) -> Point {
    match part {
        Part::Published => Some((cell.published.value, None)),
        Part::Got => cell.got.map(|got| (got, cell.spread)),
        Part::Own => cell.own.map(|own| (own, None)),
    }
}

fn find<'a>(sheet: &'a Sheet, table: &str, row: &str, column: &str) -> Option<&'a Cell> {
    sheet.cells.iter().find(|cell| {
        let known = &cell.published;
        known.table == table && known.row == row && known.column == column && known.nth == 0
    })
}

/// A line over rows of one column.
fn over_rows(
    sheet: &Sheet,
    table: &str,
    rows: &[String],
    column: &str,
    which: Part,
    style: usize,
    name: &str,
) -> Series {
    let cell = |row: &String| find(sheet, table, row, column).and_then(|cell| part(cell, which));
    Series {
        name: name.into(),
        style,
        published: matches!(which, Part::Published),
        points: rows.iter().map(cell).collect(),
        joined: true,
    }
}

/// The rows of a table, in their order.
fn rows(sheet: &Sheet, table: &str) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for cell in sheet
        .cells
        .iter()
        .filter(|cell| cell.published.table == table)
    {
        if !rows.contains(&cell.published.row) {
            rows.push(cell.published.row.clone());
        }
    }
    rows
}

fn s0(sheet: &Sheet) -> Vec<Chart> {
    let table = "will-it-scale/mmap1";
    let places = rows(sheet, table);
    let line = |column: &str, which, style, name: &str| {
        over_rows(sheet, table, &places, column, which, style, name)
    };
    vec![
        Chart {
            id: "s0-mmap1".into(),
            title: "mmap1: operations of one process in a second, by share of 224 CPUs".into(),
            unit: "operations of a process in a second".into(),
            across: "tasks, in percent of 224 CPUs",
            series: vec![
                line("base", Part::Published, 2, "published, base"),
                line("patched", Part::Published, 1, "published, order 4"),
                line("base", Part::Got, 2, "simulated, base"),
                line("patched", Part::Got, 1, "simulated, order 4"),
                line("base", Part::Own, 3, "flagstone"),
            ],
            places: places.clone(),
            log: false,
        },
        Chart {
            id: "s0-gain".into(),
            title: "mmap1: gain of order 4".into(),
            unit: "% more than the base".into(),
            across: "tasks, in percent of 224 CPUs",
            series: vec![
                line("gain", Part::Published, 1, "published"),
                line("gain", Part::Got, 1, "simulated"),
                line("gain", Part::Own, 3, "flagstone over base"),
            ],
            places,
            log: false,
        },
    ]
}

fn s1(sheet: &Sheet) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (column, words) in [("cpu 0", "the allocating CPU"), ("cpu 1", "a freeing CPU")] {
        let places = rows(sheet, "1 alloc N free SLAB");
        let line = |name: &str, which, style, words: &str| {
            let table = format!("1 alloc N free {name}");
            over_rows(sheet, &table, &places, column, which, style, words)
        };
        charts.push(Chart {
            id: format!("s1-{}", column.replace(' ', "")),
            title: format!("Cycles of {words}, by object size"),
            unit: "processor cycles for an object (logarithmic)".into(),
            across: "bytes of an object",
            series: vec![
                line("SLAB", Part::Published, 2, "SLAB, published"),
                line("SLAB", Part::Got, 2, "SLAB, simulated"),
                line("SLUB", Part::Published, 1, "SLUB, published"),
                line("SLUB", Part::Got, 1, "SLUB, simulated"),
                line("SLUB", Part::Own, 3, "flagstone"),
            ],
            places,
            log: true,
        });
    }
    charts
}

fn s2(sheet: &Sheet) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (table, id) in [("wastage", "s2-waste"), ("total slub memory", "s2-total")] {
        let places = rows(sheet, table);
        let line = |which, style, name: &str| Series {
            joined: false,
            ..over_rows(sheet, table, &places, "change", which, style, name)
        };
        charts.push(Chart {
            id: id.into(),
            title: format!("Change of {table} against the base"),
            unit: "% more than the base".into(),
            across: "machine, page size and moment",
            series: vec![
                line(Part::Published, 1, "least waste, published"),
                line(Part::Got, 1, "least waste, computed"),
                line(Part::Own, 3, "flagstone, computed"),
            ],
            places: places
                .iter()
                .map(|row| row.replace(" after ", ", "))
                .collect(),
            log: false,
        });
    }
    for words in ["160 CPUs 4K", "160 CPUs 64K", "16 CPUs 4K", "16 CPUs 64K"] {
        let table = format!("hackbench-process-sockets {words}");
        let places = rows(sheet, &table);
        let line = |column: &str, which, style, name: &str| {
            over_rows(sheet, &table, &places, column, which, style, name)
        };
        charts.push(Chart {
            id: format!("s2-{}", words.replace(' ', "").to_lowercase()),
            title: format!("hackbench's time, {words}"),
            unit: "seconds".into(),
            across: "groups of 40 tasks",
            series: vec![
                line("base", Part::Published, 2, "published, base"),
                line("patched", Part::Published, 1, "published, least waste"),
                line("patched", Part::Got, 1, "simulated, least waste"),
                line("base", Part::Own, 3, "flagstone"),
            ],
            places: places
                .iter()
                .map(|row| row.replace(" groups", ""))
                .collect(),
            log: false,
        });
    }
    charts
}

fn s3(sheet: &Sheet) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (table, id, first) in [
        ("kbuild", "kbuild", "build time"),
        ("netperf SCTP_STREAM_MANY", "sctp", "score"),
        ("lmbench3 UNIX (AF_UNIX)", "unix", "score"),
    ] {
        for (column, unit) in [
            (first, "% of the base"),
            (
                "lock contend%",
                "% of processor time that waits for zone locks",
            ),
        ] {
            let places = rows(sheet, table);
            let line = |which, style, name: &str| {
                over_rows(sheet, table, &places, column, which, style, name)
            };
            charts.push(Chart {
                id: format!("s3-{id}-{}", &column[..4]),
                title: format!("{table}: {column}"),
                unit: unit.into(),
                across: "patches of the series that are applied",
                series: vec![
                    line(Part::Published, 1, "published"),
                    line(Part::Got, 1, "simulated"),
                    line(Part::Own, 3, "flagstone"),
                ],
                places,
                log: false,
            });
        }
    }
    charts
}

fn s4(sheet: &Sheet) -> Vec<Chart> {
    let table = "fio netio real time";
    let mut places = rows(sheet, table);
    let of = |row: &str, which| {
        let value = |column: &str| {
            find(sheet, table, row, column)
                .and_then(|cell| part(cell, which))
                .map(|(value, _)| value)
        };
        Some((value("avg")?, value("sd")))
    };
    let mut published: Vec<Point> = places.iter().map(|row| of(row, Part::Published)).collect();
    let mut got: Vec<Point> = places.iter().map(|row| of(row, Part::Got)).collect();
    got.push(of("SLUB", Part::Own));
    published.push(None);
    places.push("flagstone".into());
    let line = |name: &str, published, points| Series {
        name: name.into(),
        style: 1,
        published,
        points,
        joined: false,
    };
    vec![Chart {
        id: "s4-real".into(),
        title: "fio netio: real time, mean and deviation over 50 runs".into(),
        unit: "seconds of real time".into(),
        across: "allocator",
        places,
        series: vec![
            line("published", true, published),
            line("simulated speed, in the published unit", false, got),
        ],
        log: false,
    }]
}

fn extra(sheet: &Sheet, table: &str, row: &str, column: &str) -> Option<f64> {
    let found = sheet
        .extras
        .iter()
        .find(|extra| extra.table == table && extra.row == row && extra.column == column);
    found.map(|extra| extra.got)
}

fn extra_rows(sheet: &Sheet, table: &str) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for extra in sheet.extras.iter().filter(|extra| extra.table == table) {
        if !rows.contains(&extra.row) {
            rows.push(extra.row.clone());
        }
    }
    rows
}

fn plane(sheet: &Sheet, picture: &pareto::Picture) -> Option<String> {
    let spots: Vec<Spot> = extra_rows(sheet, picture.table)
        .into_iter()
        .filter_map(|row| {
            Some(Spot {
                x: extra(sheet, picture.table, &row, pareto::COLUMNS[1])?,
                y: extra(sheet, picture.table, &row, pareto::COLUMNS[0])?,
                style: if row == "flagstone" { OWN } else { 1 },
                name: row,
            })
        })
        .collect();
    let title = format!(
        "Throughput against memory: up and left is better ({})",
        picture.about
    );
    let units = ["MiB in use", "operations of a task in a second"];
    let id = format!("s0-plane-{}", picture.workload.replace('.', "-"));
    (!spots.is_empty()).then(|| {
        format!(
            "<figure><figcaption>{title}</figcaption>{}{}</figure>",
            chart::plane(&id, &title, units, &spots),
            chart::numbered(units, &spots)
        )
    })
}

fn phase_diagram(sheet: &Sheet) -> Option<String> {
    let rows = extra_rows(sheet, s1::PHASES);
    let columns = s1::PAUSES.map(|pause| format!("{pause} ns")).to_vec();
    let values: Vec<Vec<Option<f64>>> = rows
        .iter()
        .map(|row| {
            columns
                .iter()
                .map(|column| extra(sheet, s1::PHASES, row, column))
                .collect()
        })
        .collect();
    let title = "Phase diagram of SLUB: cycles of a freeing CPU, by size and by who is slower";
    (!rows.is_empty()).then(|| {
        format!(
            "<figure><figcaption>{title}</figcaption><div class='scrolled' role='region' \
             tabindex='0' aria-label='{title}'>{}</div><p class='note'>Columns: a pause for each \
             object, below zero of the freeing CPUs, above zero of the allocating one; darker is \
             more cycles. The freeing CPUs' own pause is taken off; where the \
             allocating one pauses, the others mostly wait.</p></figure>",
            chart::map("s1-phases", title, &rows, &columns, &values)
        )
    })
}
