//! `/proc/slabinfo`, format version 2.x: how many objects and slabs each cache holds.
//!
//! ```text
//! name  active_objs num_objs objsize objperslab pagesperslab : tunables l b s : slabdata a n s
//! ```
//!
//! `objsize` is the stride (metadata and alignment included), `objperslab` and `pagesperslab`
//! are those of the preferred shape; slabs that had to fall back to the smallest order count
//! with what they really hold. Objects parked in per-CPU slabs, lists and sheaves count as
//! active (docs: linux-policies 8.1).

use super::{Malformed, number, quote};

/// One cache's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The cache's own name.
    pub name: String,
    /// Line in the file, counted from one, for messages.
    pub line: usize,
    /// Objects handed out or parked per CPU.
    pub active_objects: u64,
    /// Objects in all slabs.
    pub objects: u64,
    /// Stride in bytes, at least 1.
    pub size: u64,
    /// Objects in a slab of the preferred shape, at least 1.
    pub objects_per_slab: u64,
    /// Pages in a slab of the preferred shape: a power of two.
    pub pages_per_slab: u64,
    /// Slabs in existence.
    pub slabs: u64,
}

/// Parses the whole file.
///
/// # Errors
/// [`Malformed`] with the line: no `slabinfo - version: 2.x` heading, or a row whose counts are
/// missing, not numbers, or impossible.
pub fn parse(text: &str) -> Result<Vec<Row>, Malformed> {
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    let heading = lines.next().map_or("", |(_, line)| line);
    let version = heading.strip_prefix("slabinfo - version: ");
    if !version.is_some_and(|v| v.trim_start().starts_with("2.")) {
        let what = format!("{} is not \"slabinfo - version: 2.1\"", quote(heading));
        return Err(Malformed::at(1, what));
    }
    lines
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(number, line)| row(line, number))
        .collect()
}

fn row(line: &str, at: usize) -> Result<Row, Malformed> {
    let mut sections = line.split(" : ");
    let counts = sections.next().unwrap_or("");
    let slabdata = sections
        .find_map(|s| s.trim_start().strip_prefix("slabdata"))
        .ok_or_else(|| Malformed::at(at, "no \": slabdata\" section; is the line cut off?"))?;

    // A name may hold spaces, so the five counts are taken from the right.
    let mut fields = counts.split_whitespace().rev();
    let mut count = |name: &str| match fields.next() {
        Some(text) => number(text, name, at),
        None => Err(Malformed::at(
            at,
            format!("no {name} before \": tunables\""),
        )),
    };
    let pages_per_slab = count("pagesperslab")?;
    let objects_per_slab = count("objperslab")?;
    let size = count("objsize")?;
    let objects = count("num_objs")?;
    let active_objects = count("active_objs")?;
    let mut name: Vec<&str> = fields.collect();
    name.reverse();
    if name.is_empty() {
        return Err(Malformed::at(
            at,
            "five counts but no cache name before them",
        ));
    }

    let slabs = slabdata
        .split_whitespace()
        .nth(1)
        .ok_or_else(|| Malformed::at(at, "slabdata has no num_slabs"))
        .and_then(|text| number(text, "num_slabs", at))?;
    let row = Row {
        name: name.join(" "),
        line: at,
        active_objects,
        objects,
        size,
        objects_per_slab,
        pages_per_slab,
        slabs,
    };
    check(&row)?;
    Ok(row)
}

fn check(row: &Row) -> Result<(), Malformed> {
    let refuse = |what: String| Err(Malformed::at(row.line, format!("{}: {what}", row.name)));
    if row.size == 0 || row.size > 1 << 40 {
        return refuse(format!("objsize {} is not a size", row.size));
    }
    if row.objects_per_slab == 0 || row.objects_per_slab > 1 << 24 {
        return refuse(format!(
            "objperslab {} is not possible",
            row.objects_per_slab
        ));
    }
    if !row.pages_per_slab.is_power_of_two() || row.pages_per_slab > 1 << 20 {
        return refuse(format!(
            "pagesperslab {} is not a block of pages",
            row.pages_per_slab
        ));
    }
    // The kernel reads its counters one after the other while others change them, so relations
    // between them may be off by a slab; only a magnitude no machine has is refused.
    for (name, count) in [
        ("active_objs", row.active_objects),
        ("num_objs", row.objects),
        ("num_slabs", row.slabs),
    ] {
        if count > 1 << 44 {
            return refuse(format!("{name} {count} is more than any machine holds"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str = "slabinfo - version: 2.1\n# name <active_objs> ...\n";
    const LINE: &str = "dentry 10000 10500 192 21 1 : tunables 0 0 0 : slabdata 500 500 0\n";

    #[test]
    fn a_row_is_read_with_its_line_number() {
        let rows = parse(&format!("{HEAD}{LINE}")).unwrap();
        let expected = Row {
            name: "dentry".into(),
            line: 3,
            active_objects: 10000,
            objects: 10500,
            size: 192,
            objects_per_slab: 21,
            pages_per_slab: 1,
            slabs: 500,
        };
        assert_eq!(rows, [expected]);
    }

    #[test]
    fn a_name_may_hold_spaces_and_a_row_may_carry_statistics() {
        let text = format!(
            "{HEAD}my own cache 1 21 192 21 1 : tunables 0 0 0 : slabdata 1 1 0 : globalstat 1 2\n"
        );
        assert_eq!(parse(&text).unwrap()[0].name, "my own cache");
    }

    #[test]
    fn every_damage_to_a_row_names_its_line() {
        for (damaged, expect) in [
            ("dentry 10000 10500 192 21 1 : tunables 0 0 0\n", "slabdata"),
            (
                "dentry 10000 10500 x 21 1 : tunables 0 0 0 : slabdata 500 500 0\n",
                "objsize is \"x\"",
            ),
            (
                "10000 10500 192 21 1 : tunables 0 0 0 : slabdata 500 500 0\n",
                "no cache name",
            ),
            (
                "192 21 1 : tunables 0 0 0 : slabdata 500 500 0\n",
                "no num_objs",
            ),
            (
                "d 1 1 0 21 1 : tunables 0 0 0 : slabdata 1 1 0\n",
                "objsize 0",
            ),
            (
                "d 1 1 8 0 1 : tunables 0 0 0 : slabdata 1 1 0\n",
                "objperslab 0",
            ),
            (
                "d 1 1 8 21 3 : tunables 0 0 0 : slabdata 1 1 0\n",
                "pagesperslab 3",
            ),
            (
                "d 1 99999999999999 8 21 1 : tunables 0 0 0 : slabdata 2 2 0\n",
                "num_objs 9999",
            ),
            (
                "d 1 1 8 21 1 : tunables 0 0 0 : slabdata 2\n",
                "no num_slabs",
            ),
            (
                "d 1 1 8 21 1 : tunables 0 0 0 : slabdata 2 -2 0\n",
                "num_slabs is \"-2\"",
            ),
        ] {
            let error = parse(&format!("{HEAD}{LINE}{damaged}")).unwrap_err();
            assert_eq!(error.line, 4, "{damaged}");
            assert!(error.what.contains(expect), "{damaged} gave {}", error.what);
        }
    }

    #[test]
    fn another_format_is_refused_at_its_heading() {
        for text in ["", "slabinfo - version: 1.1\n", "MemTotal: 1 kB\n"] {
            assert_eq!(parse(text).unwrap_err().line, 1);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,400}") {
            let _ = parse(&text);
            let _ = parse(&format!("{HEAD}{text}"));
        }

        #[test]
        fn no_damage_to_a_good_row_makes_the_parser_panic(
            at in 0..LINE.len(), cut in 0usize..6, put in "[0-9: \\-a-z\\n]{0,6}"
        ) {
            let mut line = LINE.to_owned();
            let end = (at + cut).min(line.len());
            line.replace_range(at..end, &put);
            let _ = parse(&format!("{HEAD}{line}"));
        }

        #[test]
        fn what_is_printed_is_read_back(
            objects in 0u64..1 << 40, size in 1u64..1 << 20, per in 1u64..32768, order in 0u32..11
        ) {
            let slabs = objects.div_ceil(per);
            let text = format!(
                "{HEAD}c {objects} {objects} {size} {per} {} : tunables 0 0 0 : slabdata {slabs} {slabs} 0\n",
                1 << order
            );
            let row = parse(&text).unwrap().remove(0);
            prop_assert_eq!((row.objects, row.size, row.objects_per_slab, row.slabs),
                (objects, size, per, slabs));
        }
    }
}
