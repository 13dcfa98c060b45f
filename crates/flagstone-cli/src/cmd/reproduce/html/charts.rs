//! Which charts each document gets.

use super::chart::{self, Chart, OWN, Series, Spot};
use crate::cmd::reproduce::documents::{self, Part};
use crate::cmd::reproduce::sheet::{Cell, Sheet};
use maud::{Markup, html};

/// The figures of a document, ready to be put into a page.
pub(super) fn of(seed: &str, sheet: &Sheet) -> Vec<Markup> {
    let Some(document) = documents::named(seed) else {
        return Vec::new();
    };
    let charts = document.charts.iter().map(|chart| drawn(sheet, chart));
    let charts = charts.filter(|chart| !chart.is_empty());
    let mut figures: Vec<Markup> = charts.map(|chart| framed(&chart)).collect();
    figures.extend(document.planes.iter().filter_map(|said| plane(sheet, said)));
    figures.extend(document.maps.iter().filter_map(|said| map(sheet, said)));
    figures
}

fn framed(chart: &Chart) -> Markup {
    html! {
        figure {
            figcaption { (chart.title) }
            (chart.picture())
            p { (chart.reading()) }
            details { summary { "Figures of this chart" } (chart.table()) }
        }
    }
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

/// A chart of a document with its figures.
fn drawn(sheet: &Sheet, said: &'static documents::Chart) -> Chart {
    let rows = rows(sheet, &said.places);
    let series = said
        .lines
        .iter()
        .map(|line| series(sheet, said, line, &rows));
    let series = series.collect();
    let renamed = |row: &String| match &said.renamed {
        Some([from, to]) => row.replace(from, to),
        None => row.clone(),
    };
    let own = said.own_place.iter().map(|own| own.name.clone());
    Chart {
        id: said.id.clone(),
        title: said.title.clone(),
        unit: said.unit.clone(),
        across: &said.across,
        places: rows.iter().map(renamed).chain(own).collect(),
        series,
        log: said.log,
    }
}

fn series(
    sheet: &Sheet,
    chart: &documents::Chart,
    line: &documents::Line,
    rows: &[String],
) -> Series {
    let table = line.table.as_ref().unwrap_or(&chart.places);
    let point = |row: &str, which: Part| {
        let of = |column: &str| part(find(sheet, table, row, column)?, which);
        let (value, spread) = of(&line.column)?;
        let apart = line
            .spread
            .as_ref()
            .map(|column| of(column).map(|(spread, _)| spread));
        Some((value, apart.unwrap_or(spread)))
    };
    let mut points: Vec<Point> = rows.iter().map(|row| point(row, line.part)).collect();
    if let Some(own) = &chart.own_place {
        let drawn = line.part == Part::Got;
        points.push(drawn.then(|| point(&own.row, Part::Own)).flatten());
    }
    Series {
        name: line.name.clone(),
        style: line.colour,
        published: line.part == Part::Published,
        points,
        joined: chart.joined,
    }
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

fn plane(sheet: &Sheet, said: &documents::Plane) -> Option<Markup> {
    let spots: Vec<Spot> = extra_rows(sheet, &said.table)
        .into_iter()
        .filter_map(|row| {
            Some(Spot {
                x: extra(sheet, &said.table, &row, &said.x.column)?,
                y: extra(sheet, &said.table, &row, &said.y.column)?,
                style: if row == "flagstone" { OWN } else { 1 },
                name: row,
            })
        })
        .collect();
    let (title, units) = (&said.title, [said.x.unit.as_str(), &said.y.unit]);
    (!spots.is_empty()).then(|| {
        html! {
            figure {
                figcaption { (title) }
                (chart::plane(&said.id, title, units, &spots))
                (chart::numbered(units, &spots))
            }
        }
    })
}

fn map(sheet: &Sheet, said: &documents::Map) -> Option<Markup> {
    let rows = extra_rows(sheet, &said.table);
    let values: Vec<Vec<Option<f64>>> = rows
        .iter()
        .map(|row| {
            let of = |column: &String| extra(sheet, &said.table, row, column);
            said.columns.iter().map(of).collect()
        })
        .collect();
    let (title, note) = (&said.title, &said.note);
    (!rows.is_empty()).then(|| {
        html! {
            figure {
                figcaption { (title) }
                div class="scrolled" role="region" tabindex="0" aria-label=(title) {
                    (chart::map(&said.id, title, &rows, &said.columns, &values))
                }
                p class="note" { (note) }
            }
        }
    })
}
