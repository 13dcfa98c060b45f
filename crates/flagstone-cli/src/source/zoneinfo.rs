//! `/proc/zoneinfo`: zones, their watermarks and each CPU's pageset.
//!
//! The file is a list of sections; only a zone's own counts are kept. Fields are found by name,
//! so the lines that some kernels lack (`boost`, `promo`, `high_min`, `high_max`) stay `None`.
//! All counts are pages.

use super::{Malformed, number, quote};
use std::str::SplitWhitespace;

/// One zone of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// NUMA node.
    pub node: u64,
    /// `DMA`, `DMA32`, `Normal`, `Movable`, ...
    pub name: String,
    /// Pages free now.
    pub free: u64,
    /// Temporary addition to all marks.
    pub boost: Option<u64>,
    /// Watermarks as printed (without the boost).
    pub min: u64,
    /// Background reclaim starts below this.
    pub low: u64,
    /// Background reclaim stops above this.
    pub high: u64,
    /// Page frames the zone covers, holes included.
    pub spanned: u64,
    /// Page frames that exist.
    pub present: u64,
    /// Pages the page allocator manages.
    pub managed: u64,
    /// Pages reserved from requests that could use higher zones.
    pub protection: Vec<u64>,
    /// One per online CPU; empty for an unpopulated zone of some kernels.
    pub pagesets: Vec<Pageset>,
}

/// One CPU's cache of free pages of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pageset {
    /// The CPU.
    pub cpu: u64,
    /// Pages held now.
    pub count: u64,
    /// Pages at which it drains; moves between the marks where they exist.
    pub high: u64,
    /// Pages moved at a time.
    pub batch: u64,
    /// Lower mark of the tuning; kernels that print it.
    pub high_min: Option<u64>,
    /// Upper mark of the tuning; kernels that print it.
    pub high_max: Option<u64>,
}

/// Largest page count accepted: 2^44 pages are 64 PiB, and sums of them cannot overflow.
const PAGES_MAX: u64 = 1 << 44;

/// Parses the whole file.
///
/// # Errors
/// [`Malformed`] with the line: no zone at all, a field that is not a number, or a field that
/// belongs to a zone before any zone.
pub fn parse(text: &str) -> Result<Vec<Zone>, Malformed> {
    let mut zones: Vec<Zone> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = index + 1;
        if line.starts_with("Node") {
            zones.push(heading(line, at)?);
        } else if let Some(zone) = zones.last_mut() {
            field(zone, line, at)?;
        } else if !line.trim().is_empty() {
            return Err(Malformed::at(
                at,
                format!("{} comes before any zone", quote(line)),
            ));
        }
    }
    if zones.is_empty() {
        Err(Malformed::at(1, "no \"Node N, zone NAME\" line"))
    } else {
        Ok(zones)
    }
}

/// `Node 0, zone   Normal`
fn heading(line: &str, at: usize) -> Result<Zone, Malformed> {
    let (node, name) = node_and_zone(line).ok_or_else(|| {
        Malformed::at(at, format!("{} is not \"Node N, zone NAME\"", quote(line)))
    })?;
    Ok(Zone {
        node,
        name: name.to_owned(),
        ..Zone::default()
    })
}

/// Node number and zone name at the start of a zoneinfo heading or a buddyinfo line.
pub(super) fn node_and_zone(line: &str) -> Option<(u64, &str)> {
    let (node, rest) = line.strip_prefix("Node")?.split_once(',')?;
    let mut words = rest.split_whitespace();
    let zone = (words.next()? == "zone").then(|| words.next()).flatten()?;
    Some((node.trim().parse().ok()?, zone))
}

fn field(zone: &mut Zone, line: &str, at: usize) -> Result<(), Malformed> {
    let line = line.trim();
    if let Some(list) = line.strip_prefix("protection:") {
        let inner = list.trim().trim_start_matches('(').trim_end_matches(')');
        let values: Result<_, _> = inner
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(|text| pages_from(text, "protection", at))
            .collect();
        zone.protection = values?;
        return Ok(());
    }
    let mut words = line.split_whitespace();
    let Some(key) = words.next() else {
        return Ok(());
    };
    match (key, zone.pagesets.last_mut()) {
        ("pages", None) if words.next() == Some("free") => zone.free = pages(words, "free", at)?,
        ("boost", None) => zone.boost = Some(pages(words, key, at)?),
        ("min", None) => zone.min = pages(words, key, at)?,
        ("low", None) => zone.low = pages(words, key, at)?,
        ("high", None) => zone.high = pages(words, key, at)?,
        ("spanned", None) => zone.spanned = pages(words, key, at)?,
        ("present", None) => zone.present = pages(words, key, at)?,
        ("managed", None) => zone.managed = pages(words, key, at)?,
        ("cpu:", _) => {
            let cpu = pages(words, "cpu", at)?;
            zone.pagesets.push(Pageset {
                cpu,
                ..Pageset::default()
            });
        }
        ("count:", Some(set)) => set.count = pages(words, "count", at)?,
        ("high:", Some(set)) => set.high = pages(words, "high", at)?,
        ("batch:", Some(set)) => set.batch = pages(words, "batch", at)?,
        ("high_min:", Some(set)) => set.high_min = Some(pages(words, "high_min", at)?),
        ("high_max:", Some(set)) => set.high_max = Some(pages(words, "high_max", at)?),
        _ => {}
    }
    Ok(())
}

fn pages(mut words: SplitWhitespace<'_>, name: &str, at: usize) -> Result<u64, Malformed> {
    let text = words
        .next()
        .ok_or_else(|| Malformed::at(at, format!("{name} has no value")))?;
    pages_from(text, name, at)
}

fn pages_from(text: &str, name: &str, at: usize) -> Result<u64, Malformed> {
    match number(text, name, at)? {
        value if value <= PAGES_MAX => Ok(value),
        value => Err(Malformed::at(
            at,
            format!("{name} {value} is more pages than any machine"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
Node 0, zone   Normal
  per-node stats
      nr_inactive_anon 1215
  pages free     3840
        boost    0
        min      49
        low      61
        high     73
        promo    85
        spanned  4095
        present  3998
        managed  3840
        cma      0
        protection: (0, 3019, 5067)
      nr_free_pages 3840
  pagesets
    cpu: 0
              count:    12
              high:     30
              batch:    1
              high_min: 30
              high_max: 240
  vm stats threshold: 4
    cpu: 1
              count:    0
              high:     0
              batch:    1
  vm stats threshold: 4
  node_unreclaimable:  0
  start_pfn:           1
";

    #[test]
    fn marks_and_pagesets_are_read_and_missing_ones_stay_none() {
        let zones = parse(TEXT).unwrap();
        let zone = &zones[0];
        assert_eq!((zone.node, zone.name.as_str()), (0, "Normal"));
        assert_eq!(
            (zone.free, zone.min, zone.low, zone.high),
            (3840, 49, 61, 73)
        );
        assert_eq!((zone.managed, zone.boost), (3840, Some(0)));
        assert_eq!(zone.protection, [0, 3019, 5067]);
        let first = Pageset {
            cpu: 0,
            count: 12,
            high: 30,
            batch: 1,
            high_min: Some(30),
            high_max: Some(240),
        };
        assert_eq!(zone.pagesets[0], first);
        assert_eq!(
            (zone.pagesets[1].batch, zone.pagesets[1].high_max),
            (1, None)
        );
    }

    #[test]
    fn damage_names_its_line() {
        for (from, to, line) in [
            ("low      61", "low      x", 7),
            ("Node 0, zone", "Node 0 zone", 1),
            (
                "batch:    1\n              high_min",
                "batch:    -1\n              high_min",
                20,
            ),
            ("5067)", "5o67)", 14),
            ("managed  3840", "managed", 12),
            ("managed  3840", "managed 99999999999999999", 12),
        ] {
            assert!(TEXT.contains(from), "{from}");
            assert_eq!(
                parse(&TEXT.replacen(from, to, 1)).unwrap_err().line,
                line,
                "{from}"
            );
        }
        assert_eq!(parse("").unwrap_err().line, 1);
        assert_eq!(parse("MemTotal: 3 kB").unwrap_err().line, 1);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,300}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_damage_makes_the_parser_panic(
            at in 0..TEXT.len(), cut in 0usize..40, put in "[0-9a-z:,() \\n]{0,12}"
        ) {
            let mut text = TEXT.to_owned();
            text.replace_range(at..(at + cut).min(TEXT.len()), &put);
            let _ = parse(&text);
        }
    }
}
