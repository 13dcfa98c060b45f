//! Names as people write them: workloads, machines, policies and knobs, with "did you mean".

use flagstone_core::policy::{KEYS, Policy, SetProblem};
use flagstone_kernels::{BASES, MODIFIERS, Named};
use flagstone_sim::machine::{self, Machine};
use flagstone_sim::workload::{WORKLOADS, Workload};
use std::path::Path;

/// How alike two names must be, from 0 to 1, to be worth a question. At 0.6 two letters of five may be
/// wrong; lower, and names are offered that nobody meant.
const ALIKE: f64 = 0.6;

/// The known name that is most like `given`, if any is like it; of names as like as each other the one that has
/// digits where `given` has them.
#[must_use]
pub fn closest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let alike = |name: &str| strsim::normalized_damerau_levenshtein(given, name);
    let digits = |name: &str| {
        let pairs = given.bytes().zip(name.bytes());
        pairs
            .filter(|(a, b)| a.is_ascii_digit() == b.is_ascii_digit())
            .count()
    };
    known
        .into_iter()
        .map(|name| (alike(name), name))
        .filter(|&(score, _)| score >= ALIKE)
        .max_by(|a, b| {
            a.0.total_cmp(&b.0)
                .then_with(|| digits(a.1).cmp(&digits(b.1)))
        })
        .map(|(_, name)| name)
}

/// `did you mean 'NAME'? `, or nothing.
#[must_use]
pub fn question<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(given, known).map_or(String::new(), |near| format!("did you mean '{near}'? "))
}

/// The workload called `name`.
///
/// # Errors
/// One line: what was probably meant, and what is known.
pub fn workload(name: &str) -> Result<&'static Workload, String> {
    Workload::named(name).map_err(|line| {
        let near = question(name, WORKLOADS.iter().map(|workload| workload.name));
        asked(&line, &near)
    })
}

/// The line about an unknown name, with what was probably meant before the known ones.
fn asked(line: &str, hint: &str) -> String {
    line.replacen("; known", &format!("; {hint}known"), 1)
}

/// A built-in profile or one from a file that ends in `.toml`, scaled where `@CPUS` follows.
///
/// # Errors
/// One line: what is wrong with the name or the file.
pub fn machine(name: &str) -> Result<Machine, String> {
    let (base, cpus) = match name.rsplit_once('@') {
        Some((base, cpus)) => (base, Some(cpus)),
        None => (name, None),
    };
    if !base.ends_with(".toml") {
        return Machine::named(name).map_err(|line| {
            let near = question(base, machine::names());
            asked(&line, &near)
        });
    }
    let text = std::fs::read_to_string(base).map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::InvalidData => "it is not text".to_owned(),
            _ => error.to_string(),
        };
        format!(
            "machine `{base}`: {what}; a profile is a TOML file, as `flagstone sim calibrate F` writes one"
        )
    })?;
    let stem = Path::new(base).file_stem().unwrap_or_default();
    // Mistakes are told with the way to the file, figures with its name.
    let mut machine = Machine::parse(base, &text)?;
    machine.name = stem.to_string_lossy().into_owned();
    let Some(cpus) = cpus else {
        return Ok(machine);
    };
    let count = cpus
        .parse()
        .map_err(|_| format!("machine `{name}`: `{cpus}` is not a CPU count"))?;
    machine.scaled(count)
}

/// A policy by name: `6.5` means `linux-6.5`. Gives the full name and the policy.
///
/// # Errors
/// What is wrong, what was probably meant, and what is known.
pub fn policy(given: &str) -> Result<(String, Policy), String> {
    let name = full_name(given.trim());
    match Policy::parse(&name) {
        Ok(policy) => Ok((name, policy)),
        Err(error) => Err(asked(
            &error.to_string(),
            &instead(&name).unwrap_or_default(),
        )),
    }
}

/// A bare version is a kernel's.
fn full_name(given: &str) -> String {
    let version = given.starts_with(|c: char| c.is_ascii_digit());
    let version = version || given.starts_with('v') && version_of(&given[1..]).is_some();
    match version {
        true => format!("linux-{}", given.trim_start_matches('v')),
        false => given.to_owned(),
    }
}

/// What to ask for instead of a name that is not known.
fn instead(name: &str) -> Option<String> {
    let mut parts = name.split('+');
    let base = parts.next()?;
    if !BASES.iter().any(|(known, _)| *known == base) {
        if let Some(before) = preset_before(base) {
            return Some(format!(
                "it has no preset of its own, use the last one before it, {before}; "
            ));
        }
        return Some(question(base, BASES.iter().map(|(known, _)| *known)));
    }
    let wrong = parts.find(|part| !MODIFIERS.iter().any(|(known, _)| known == part))?;
    let near = closest(wrong, MODIFIERS.iter().map(|(known, _)| *known))?;
    Some(format!("did you mean '+{near}'? "))
}

/// `6.12.3` as numbers.
fn version_of(text: &str) -> Option<Vec<u32>> {
    let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    parts.filter(|parts| parts.len() >= 2)
}

/// The newest kernel's preset that is not newer than `name`.
fn preset_before(name: &str) -> Option<&'static str> {
    let wanted = version_of(name.strip_prefix("linux-")?)?;
    let presets = BASES.iter().filter_map(|(known, _)| {
        let version = version_of(known.strip_prefix("linux-")?)?;
        (version <= wanted).then_some((version, *known))
    });
    presets.max().map(|(_, known)| known)
}

/// The policy of a recorded machine's kernel, as `Linux 6.18.44-cloud x86_64` names it: the newest preset that is
/// not newer.
#[must_use]
pub fn kernel_of(machine: &str) -> Option<&'static str> {
    let release = machine.strip_prefix("Linux ")?;
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.');
    let version = release[..end.unwrap_or(release.len())].trim_end_matches('.');
    preset_before(&format!("linux-{version}"))
}

/// A number of bytes with a suffix K, M, G or T as plain digits; anything else as it is, for the policy
/// to refuse.
#[must_use]
pub fn plain_size(value: &str) -> String {
    let shift = match value.bytes().last() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        Some(b'g' | b'G') => 30,
        Some(b't' | b'T') => 40,
        _ => return value.to_owned(),
    };
    let number = value[..value.len() - 1].parse::<u64>().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .map_or_else(|| value.to_owned(), |bytes| bytes.to_string())
}

/// Applies `KEY=VALUE` to a policy; gives the key and the plain value.
///
/// # Errors
/// What is wrong, and how it is written.
pub fn set(policy: &mut Policy, item: &str) -> Result<(String, String), String> {
    let Some((key, value)) = item.split_once('=') else {
        return Err(format!(
            "--set {item}: expected KEY=VALUE, for example sheaf_capacity=32"
        ));
    };
    let (key, value) = (key.trim(), plain_size(value.trim()));
    policy.set(key, &value).map_err(|error| {
        let unit = value.starts_with(|c: char| c.is_ascii_digit())
            && value.ends_with(|c: char| c.is_ascii_alphabetic());
        let hint = if unit {
            "; sizes are written 8K, 8M or 8G"
        } else {
            ""
        };
        let near = match error.problem {
            SetProblem::UnknownKey => question(key, KEYS.iter().map(|(known, _)| *known)),
            _ => String::new(),
        };
        format!("--set {item}: {}{hint}", asked(&error.to_string(), &near))
    })?;
    Ok((key.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_kernel_has_the_newest_preset_that_is_not_newer() {
        for (machine, policy) in [
            ("Linux 6.18.44-cloud x86_64", Some("linux-6.18")),
            ("Linux 6.12.0 x86_64", Some("linux-6.12")),
            ("Linux 6.11.0-rc3+ aarch64", Some("linux-6.7")),
            ("Linux 7.9", Some("linux-7.2")),
            ("Linux 2.4.1", None),
            ("Linux ", None),
            ("", None),
        ] {
            assert_eq!(kernel_of(machine), policy, "{machine}");
        }
    }

    #[test]
    fn misspelt_names_are_understood_and_others_are_not() {
        assert_eq!(
            closest("flagstoen", ["linux-6.5", "flagstone"]),
            Some("flagstone")
        );
        assert_eq!(
            closest("hackbnch", ["mmap1", "hackbench"]),
            Some("hackbench")
        );
        let classes = ["malloc-64", "malloc-6k"];
        assert_eq!(closest("malloc-65", classes), Some("malloc-64"));
        assert_eq!(closest("zzz", ["linux-6.5", "flagstone"]), None);
    }

    #[test]
    fn misspelt_workloads_and_machines_are_asked_for() {
        let line = workload("hackbnch").unwrap_err();
        assert!(
            line.contains("did you mean 'hackbench'? known: mmap1"),
            "{line}"
        );
        let line = machine("x86-61").unwrap_err();
        assert!(line.contains("did you mean 'x86-16'?"), "{line}");
    }

    #[test]
    fn a_bare_version_is_a_kernels() {
        assert_eq!(policy("6.5+order4").unwrap().0, "linux-6.5+order4");
        assert_eq!(policy("v7.0").unwrap().0, "linux-7.0");
        assert_eq!(policy("flagstone").unwrap().0, "flagstone");
    }

    #[test]
    fn a_version_without_a_preset_names_the_one_before_it() {
        let line = policy("linux-6.4").unwrap_err();
        assert!(line.contains("before it, linux-6.1;"), "{line}");
        assert!(policy("6.10").unwrap_err().contains("linux-6.7;"));
        let line = policy("linux-2.4").unwrap_err();
        assert!(!line.contains("before it"), "older than all: {line}");
    }

    #[test]
    fn a_misspelt_policy_or_modifier_is_asked_for() {
        assert!(
            policy("flagstoen")
                .unwrap_err()
                .contains("did you mean 'flagstone'?")
        );
        let line = policy("flagstoen").unwrap_err();
        assert!(
            line.starts_with("unknown policy 'flagstoen'; did you mean"),
            "{line}"
        );
        let line = policy("linux-6.5+order5").unwrap_err();
        assert!(line.contains("did you mean '+order4'?"), "{line}");
    }

    #[test]
    fn sizes_have_units_and_wrong_ones_say_which_work() {
        let mut policy = Policy::default();
        let set = |policy: &mut Policy, item| set(policy, item);
        assert_eq!(set(&mut policy, "barn_bytes_max=64K").unwrap().1, "65536");
        let line = set(&mut policy, "barn_bytes_max=8MB").unwrap_err();
        assert!(line.contains("8M or 8G"), "{line}");
        let line = set(&mut policy, "slab_max_ordr=1").unwrap_err();
        assert!(
            line.contains("did you mean 'slab_max_order'? known: "),
            "{line}"
        );
        let line = set(&mut policy, "barn_bytes_max").unwrap_err();
        assert!(line.contains("KEY=VALUE"), "{line}");
    }
}
