//! `/proc/meminfo` and the like: `Key:   value kB` lines, readable by everyone.

use super::{Malformed, quote};

/// The totals that concern slabs, in bytes; absent where the kernel does not print them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meminfo {
    /// `MemTotal`: pages managed by all zones.
    pub total: Option<u64>,
    /// `MemFree`.
    pub free: Option<u64>,
    /// `Slab`: all slab pages.
    pub slab: Option<u64>,
    /// `SReclaimable`: the part that shrinks under pressure.
    pub slab_reclaimable: Option<u64>,
}

/// Parses the whole file; keys that are not needed are not looked at.
///
/// # Errors
/// [`Malformed`] with the line when a needed key's value is not a count of kB.
pub fn parse(text: &str) -> Result<Meminfo, Malformed> {
    let mut info = Meminfo::default();
    for (index, line) in text.lines().enumerate() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let slot = match key {
            "MemTotal" => &mut info.total,
            "MemFree" => &mut info.free,
            "Slab" => &mut info.slab,
            "SReclaimable" => &mut info.slab_reclaimable,
            _ => continue,
        };
        let kib = value
            .trim()
            .strip_suffix("kB")
            .and_then(|kib| kib.trim().parse::<u64>().ok());
        *slot = Some(kib.and_then(|kib| kib.checked_mul(1024)).ok_or_else(|| {
            Malformed::at(
                index + 1,
                format!("{key} is {}, expected N kB", quote(value.trim())),
            )
        })?);
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kilobytes_become_bytes_and_other_keys_are_skipped() {
        let info =
            parse("MemTotal:       24684092 kB\nHugePages_Total:       0\nSlab:  4 kB\n").unwrap();
        assert_eq!(
            (info.total, info.slab, info.free),
            (Some(24684092 * 1024), Some(4096), None)
        );
    }

    #[test]
    fn damage_names_its_line() {
        for text in [
            "MemFree: 1 kB\nSlab: many kB",
            "\nSlab: 5",
            "\nSlab: 99999999999999999999 kB",
        ] {
            assert_eq!(parse(text).unwrap_err().line, 2);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(Slab: ?)?\\PC{0,80}") {
            let _ = parse(&text);
        }
    }
}
