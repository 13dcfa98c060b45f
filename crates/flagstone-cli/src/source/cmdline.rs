//! `/proc/cmdline`: the boot parameters that change slabs (docs: linux-policies 9).

/// Slab parameters in force, both spellings read alike; the last one on the line wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlabParameters {
    /// `slab_min_order` / `slub_min_order`.
    pub min_order: Option<u64>,
    /// `slab_max_order` / `slub_max_order`.
    pub max_order: Option<u64>,
    /// `slab_min_objects` / `slub_min_objects`.
    pub min_objects: Option<u64>,
    /// `slab_nomerge` / `slub_nomerge`: every cache gets its own slabs.
    pub no_merge: bool,
    /// `slab_debug` / `slub_debug`, with its value (empty for all flags).
    pub debug: Option<String>,
    /// Parameters that look like these but were not understood, as written.
    pub odd: Vec<String>,
}

/// Reads the parameters. Never fails: what is not a number is listed in `odd`, as the kernel too
/// would ignore it and go on.
#[must_use]
pub fn parse(text: &str) -> SlabParameters {
    let mut found = SlabParameters::default();
    for word in text.split_whitespace() {
        // What follows "--" is for init, not for the kernel.
        if word == "--" {
            break;
        }
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let Some(name) = key
            .strip_prefix("slab_")
            .or_else(|| key.strip_prefix("slub_"))
        else {
            continue;
        };
        let slot = match name {
            "min_order" => &mut found.min_order,
            "max_order" => &mut found.max_order,
            "min_objects" => &mut found.min_objects,
            "nomerge" => {
                found.no_merge = true;
                continue;
            }
            "merge" => {
                found.no_merge = false;
                continue;
            }
            "debug" => {
                found.debug = Some(value.to_owned());
                continue;
            }
            _ => continue,
        };
        match value.parse::<u32>() {
            Ok(number) => *slot = Some(u64::from(number)),
            Err(_) => found.odd.push(word.to_owned()),
        }
    }
    found
}

impl SlabParameters {
    /// The parameters as they would be written on a current kernel's command line.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let numbers = [
            ("slab_min_order", self.min_order),
            ("slab_max_order", self.max_order),
            ("slab_min_objects", self.min_objects),
        ];
        let mut words: Vec<String> = numbers
            .iter()
            .filter_map(|(name, v)| v.map(|v| format!("{name}={v}")))
            .collect();
        if self.no_merge {
            words.push("slab_nomerge".into());
        }
        if let Some(flags) = &self.debug {
            words.push(if flags.is_empty() {
                "slab_debug".into()
            } else {
                format!("slab_debug={flags}")
            });
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_spellings_are_read_and_the_last_wins() {
        let found =
            parse("quiet slub_max_order=4 slab_max_order=2 slub_nomerge slab_min_objects=x\n");
        assert_eq!((found.max_order, found.no_merge), (Some(2), true));
        assert_eq!(found.odd, ["slab_min_objects=x"]);
        assert_eq!(found.words(), ["slab_max_order=2", "slab_nomerge"]);
    }

    #[test]
    fn words_for_init_are_not_parameters() {
        assert_eq!(
            parse("quiet -- slab_max_order=4"),
            SlabParameters::default()
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(slab_|slub_)?(max_order=|debug=?)?\\PC{0,60}") {
            let _ = parse(&text).words();
        }
    }
}
