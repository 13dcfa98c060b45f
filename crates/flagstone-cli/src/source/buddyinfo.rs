//! `/proc/buddyinfo`: free blocks per order, zone by zone.

use super::zoneinfo::node_and_zone;
use super::{Malformed, number, quote};

/// Free blocks of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// NUMA node.
    pub node: u64,
    /// Zone name.
    pub zone: String,
    /// `blocks[o]` free blocks of order `o`.
    pub blocks: Vec<u64>,
}

impl Row {
    /// Free pages in blocks of at least `order`.
    #[must_use]
    pub fn pages_from(&self, order: usize) -> u64 {
        let pages = |(o, blocks): (usize, &u64)| blocks.saturating_mul(1 << o.min(32));
        self.blocks
            .iter()
            .enumerate()
            .skip(order)
            .map(pages)
            .fold(0, u64::saturating_add)
    }
}

/// Parses the whole file.
///
/// # Errors
/// [`Malformed`] with the line: not `Node N, zone NAME counts...`, no counts, or a count that is
/// not a number.
pub fn parse(text: &str) -> Result<Vec<Row>, Malformed> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(index, line)| row(line, index + 1)).collect()
}

fn row(line: &str, at: usize) -> Result<Row, Malformed> {
    let (node, zone) = node_and_zone(line).ok_or_else(|| {
        Malformed::at(
            at,
            format!("{} is not \"Node N, zone NAME counts\"", quote(line)),
        )
    })?;
    // Words: Node N, zone NAME count... ; the number may be glued to its comma only.
    let counts = line.split_once(',').map_or("", |(_, rest)| rest);
    let blocks: Result<Vec<u64>, _> = counts
        .split_whitespace()
        .skip(2)
        .map(|text| number(text, "free blocks", at))
        .collect();
    let blocks = blocks?;
    if blocks.is_empty() || blocks.len() > 32 {
        return Err(Malformed::at(
            at,
            format!("{} orders of free blocks", blocks.len()),
        ));
    }
    Ok(Row {
        node,
        zone: zone.to_owned(),
        blocks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn free_pages_are_counted_from_an_order_up() {
        let rows = parse("Node 1, zone   Normal      5      2      0      3 \n").unwrap();
        assert_eq!((rows[0].node, rows[0].zone.as_str()), (1, "Normal"));
        assert_eq!(
            (
                rows[0].pages_from(0),
                rows[0].pages_from(1),
                rows[0].pages_from(3)
            ),
            (33, 28, 24)
        );
        assert_eq!(rows[0].pages_from(4), 0);
    }

    #[test]
    fn damage_names_its_line() {
        for text in [
            "Node 0, zone DMA 1 2\nNode 0 zone DMA 1",
            "\nNode 0, zone DMA",
            "\nNode 0, zone DMA 1 x",
        ] {
            assert_eq!(parse(text).unwrap_err().line, 2, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(Node 0, zone )?[\\PC]{0,200}", order in 0usize..64) {
            for row in parse(&text).unwrap_or_default() {
                let _ = row.pages_from(order);
            }
        }
    }
}
