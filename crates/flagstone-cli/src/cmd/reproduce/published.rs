//! The published cells, read from the copy that the program carries.
//!
//! `data/published.csv` holds every figure of the five documents, 497 cells. Some keys occur twice
//! with different figures (S4's time columns were transcribed in shifted pairs), so a cell is
//! named by its key *and* the number of equal keys before it.

use serde::Deserialize;
use std::collections::HashMap;

/// The table itself.
const TABLE: &str = include_str!("../../../data/published.csv");

/// One published figure.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Published {
    /// Which document: S0 to S4.
    pub(super) seed: String,
    /// Its table.
    pub(super) table: String,
    /// The row.
    pub(super) row: String,
    /// The column.
    pub(super) column: String,
    /// The figure.
    #[serde(rename = "published")]
    pub(super) value: f64,
    /// Its unit.
    pub(super) unit: String,
    /// Cells of the same key before this one.
    #[serde(skip)]
    pub(super) nth: usize,
}

/// Every published cell, in the documents' order.
pub(super) fn cells() -> Vec<Published> {
    let mut seen: HashMap<[String; 4], usize> = HashMap::new();
    let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
    reader
        .deserialize()
        .map(|row| {
            let mut cell: Published = row.expect("the table in the program is well formed");
            let key = [&cell.seed, &cell.table, &cell.row, &cell.column].map(String::clone);
            let count = seen.entry(key).or_default();
            cell.nth = *count;
            *count += 1;
            cell
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_five_documents_have_497_cells() {
        let cells = cells();
        let of = |seed: &str| cells.iter().filter(|cell| cell.seed == seed).count();
        assert_eq!(
            ["S0", "S1", "S2", "S3", "S4"].map(of),
            [26, 180, 144, 87, 60]
        );
    }

    #[test]
    fn equal_keys_are_told_apart_by_their_number() {
        let cells = cells();
        let real = |nth| {
            let found = cells.iter().find(|cell| {
                cell.table == "fio netio real time"
                    && cell.row == "SLAB"
                    && cell.column == "min"
                    && cell.nth == nth
            });
            found.map(|cell| cell.value)
        };
        assert_eq!((real(0), real(1)), (Some(22.76), Some(6.9)));
    }
}
