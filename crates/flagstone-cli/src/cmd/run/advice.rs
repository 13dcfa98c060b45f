//! What to try, each with its gain and cost.
//!
//! ```text
//!   ledger lines, caches, mappings ─► rules ─► Try, largest gain first
//! ```
//!
//! Gains are computed from this run's ledger and are upper bounds; `run --try` measures them (`trial`).

use super::answer::{Shares, bytes, end_of, is_larger, worth};
use super::document::Outcome;
use super::kept;
use super::reports::{Cache, Kind, Report};
use super::runtimes::{Keeps, Runtime, runtime_of};
use super::trial::{Apply, Measured};
use crate::terminal::{percent, size};
use flagstone_core::stats::Line;
use serde::Serialize;

/// A change worth trying.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Try {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// What to type.
    pub change: String,
    /// What in this run calls for it.
    pub because: String,
    /// What it should bring.
    pub gain: String,
    /// Its upper bound in bytes, where it is memory.
    pub gain_bytes: Option<u64>,
    /// What it costs.
    pub cost: String,
    /// How it is made from outside.
    #[serde(skip)]
    pub apply: Apply,
    /// What it brought, where it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

impl Try {
    /// The rule that names the profile.
    pub const CALL_SITES: &'static str = "call-sites";
}

/// What to try for this run, largest gain first; `is_go` says that the program is of Go, `set` which variables are set.
pub fn tries(
    main: &Report,
    outcome: &Outcome,
    is_go: bool,
    set: impl Fn(&str) -> bool,
) -> Vec<Try> {
    let mut found = Vec::new();
    let own = runtime_of(&main.program, is_go);
    found.extend(match own {
        Some(runtime) => of_runtime(main, runtime, set),
        None => own_mappings(main),
    });
    found.extend(stacks(main));
    found.extend(kept::cached(main));
    found.extend(fragmented(main, &outcome.policy));
    found.extend(rounded(main));
    found.retain(|one| !one.apply.is_in(&outcome.policy));
    found.sort_by_key(|one: &Try| std::cmp::Reverse(one.gain_bytes));
    // What is proposed below is of the smaller process.
    if let Some(first) = every_process(main, outcome) {
        found.insert(0, first);
    }
    // The stacks of an interpreter's pools tell little.
    if own.is_none_or(|runtime| runtime.keeps == Keeps::Mappings) {
        found.extend(call_sites(main));
    }
    found
}

/// What a runtime keeps apart.
fn of_runtime(main: &Report, runtime: &Runtime, set: impl Fn(&str) -> bool) -> Option<Try> {
    // Mappings are known of the peak, caches of the end alone.
    let (bytes, where_) = runtime.bytes(&main.peak.outside, &main.caches);
    if runtime.variable.is_some_and(set) || !worth(bytes, Shares::of(&main.peak.ledger).total()) {
        return None;
    }
    Some(Try {
        rule: runtime.rule,
        change: runtime.change.to_owned(),
        because: format!("{}: {} {where_}", runtime.what, size(bytes)),
        gain: format!("up to {} {}", size(bytes), runtime.gain),
        gain_bytes: Some(bytes),
        cost: runtime.cost.to_owned(),
        apply: Apply {
            variable: runtime.variable.zip(runtime.value),
            ..Apply::default()
        },
        measured: None,
    })
}

/// The resident bytes of a kind of mapping at the peak, if they are worth a word.
fn worth_of(main: &Report, kind: &str) -> Option<u64> {
    let bytes = Kind::bytes_of(&main.peak.outside, kind);
    worth(bytes, Shares::of(&main.peak.ledger).total()).then_some(bytes)
}

/// What a program maps itself for which no runtime is known.
fn own_mappings(main: &Report) -> Option<Try> {
    let bytes = worth_of(main, Kind::ANONYMOUS)?;
    Some(Try {
        rule: "own-mappings",
        change: "strace -f -k -e trace=mmap,mremap -o calls.txt CMD".to_owned(),
        because: format!(
            "the program or a library of it maps {} itself, beside malloc",
            size(bytes)
        ),
        gain: format!("who maps up to {}, by call stack", size(bytes)),
        gain_bytes: Some(bytes),
        cost: "the program runs several times slower meanwhile".to_owned(),
        apply: Apply::default(),
        measured: None,
    })
}

/// Deep stacks, or many.
fn stacks(main: &Report) -> Option<Try> {
    let bytes = worth_of(main, Kind::STACKS)?;
    Some(Try {
        rule: "stacks",
        change: "in the program: fewer threads, or large arrays off their stacks".to_owned(),
        because: format!("stacks of threads have {} resident", size(bytes)),
        gain: format!("at most {} less at its peak", size(bytes)),
        gain_bytes: Some(bytes),
        cost: "a change of the program; a smaller limit (ulimit -s) bounds each, but gains nothing that is touched"
            .to_owned(),
        apply: Apply::default(),
        measured: None,
    })
}

/// Who holds it, where that is the question.
fn call_sites(main: &Report) -> Option<Try> {
    let shares = Shares::of(&main.peak.ledger);
    let held = shares.held_bytes;
    let is_most = held >= shares.total() / 2 && worth(held, shares.total());
    is_most.then(|| Try {
        rule: Try::CALL_SITES,
        change: "flagstone run --profile heap.pb.gz -- …".to_owned(),
        because: format!(
            "the program held {} at its peak, {} of it{}",
            size(held),
            percent(held, shares.total()),
            blocks(main, held)
        ),
        gain: "the places in the program that hold it".to_owned(),
        gain_bytes: None,
        cost: "about 1 % more time".to_owned(),
        apply: Apply::default(),
        measured: None,
    })
}

/// From so many blocks of one size on they may be a pool's.
const POOL_BLOCKS: u64 = 64;
/// Such blocks have at least this many bytes: smaller ones are objects.
const POOL_BYTES: u64 = 4 << 10;

/// The cache that most of it still lies in at the end, if there is one: caches are known of the end alone.
fn blocks(main: &Report, at_peak: u64) -> String {
    let held = |cache: &&Cache| cache.active * cache.mean_requested.unwrap_or(cache.object_size);
    let own = main.caches.iter().filter(|cache| !cache.internal);
    let Some(most) = own.max_by_key(held) else {
        return String::new();
    };
    if held(&most) < at_peak / 2 {
        return String::new();
    }
    let each = most.mean_requested.unwrap_or(most.object_size);
    let pool = match each >= POOL_BYTES && most.active >= POOL_BLOCKS {
        true => "; if they are a pool's, what is free inside counts as held",
        false => "",
    };
    format!(
        "; most in {}, {} blocks of {} on average {}{pool}",
        most.name,
        most.active,
        size(each),
        end_of(main)
    )
}

/// What is free between objects in use, at the end or else at the peak; caches are known of the end alone.
fn between(main: &Report) -> Option<(u64, &'static str, String)> {
    let lost = |lines| (bytes(lines, Line::PartialSlabs), Shares::of(lines).total());
    let ((end, whole), (peak, most)) = (lost(&main.ledger), lost(&main.peak.ledger));
    if worth(end, whole) {
        // Free objects that are neither cached nor in empty or pinned slabs.
        let free =
            |cache: &&Cache| (cache.free_in_slabs * cache.size).saturating_sub(cache.pinned_bytes);
        let cache = main.caches.iter().max_by_key(free)?;
        let where_ = format!(
            ", most in {}: {} in use in {} slabs, where {} would hold them",
            cache.name,
            cache.active,
            cache.slabs,
            cache.active.div_ceil(cache.objects_per_slab.max(1))
        );
        return Some((end, end_of(main), where_));
    }
    worth(peak, most).then(|| (peak, "at its peak", String::new()))
}

/// Smaller slabs are no answer under our own policy: it gives back the free pages inside a slab already.
fn fragmented(main: &Report, policy: &str) -> Option<Try> {
    let (lost, when, where_) = between(main)?;
    let because = format!(
        "{} is free between objects in use {when}{where_}",
        size(lost)
    );
    let own = policy.split([' ', '+']).next() == Some("flagstone");
    Some(if own {
        Try {
            rule: "lifetimes-apart",
            change: "in the program: what stays and what goes in blocks of their own".to_owned(),
            because,
            gain: format!("at most {} less {when}, if what stays lies together", size(lost)),
            gain_bytes: Some(lost),
            cost: "a change of the program: an arena, a typed cache (flagstone.h), or a copy of what stays; \
                   `flagstone run --profile F` names the places"
                .to_owned(),
            apply: Apply::default(),
            measured: None,
        }
    } else {
        Try {
            rule: "own-policy",
            change: "--policy flagstone".to_owned(),
            because,
            gain: format!(
                "a part of {} {when}: pages inside slabs on which nothing lives go back",
                size(lost)
            ),
            gain_bytes: Some(lost),
            cost: "these are no longer the kernel's rules".to_owned(),
            apply: Apply {
                policy: Some("flagstone"),
                ..Apply::default()
            },
            measured: None,
        }
    })
}

fn rounded(main: &Report) -> Option<Try> {
    let lines = &main.peak.ledger;
    let lost = bytes(lines, Line::Rounding);
    let cache = main
        .caches
        .iter()
        .filter(|cache| !cache.internal)
        .max_by_key(|cache| {
            let asked = cache.mean_requested.unwrap_or(cache.object_size);
            cache.active * cache.object_size.saturating_sub(asked)
        })?;
    let asked = cache.mean_requested?;
    worth(lost, Shares::of(lines).total()).then(|| Try {
        rule: "fitting-sizes",
        change: "in the program: sizes closer below a size class".to_owned(),
        because: format!(
            "size classes cost {}; most in {}: objects of {} B for requests of {asked} B on average",
            size(lost),
            cache.name,
            cache.object_size
        ),
        gain: format!("at most {} less at its peak ({} of it)", size(lost), percent(lost, main.peak.rss_bytes)),
        gain_bytes: Some(lost),
        cost: "a change of the program".to_owned(),
        apply: Apply::default(),
        measured: None,
    })
}

fn every_process(main: &Report, outcome: &Outcome) -> Option<Try> {
    let children = outcome.children_peak_rss_kib? * 1024;
    let larger = is_larger(children, main.peak_bytes());
    (larger && outcome.processes.is_empty()).then(|| Try {
        rule: "every-process",
        change: "flagstone run --all -- …".to_owned(),
        because: format!(
            "a child peaked at {}, this process at {}",
            size(children),
            size(main.peak_bytes())
        ),
        gain: "a ledger of every process".to_owned(),
        gain_bytes: None,
        cost: "about 2 ms for each fork".to_owned(),
        apply: Apply::default(),
        measured: None,
    })
}
