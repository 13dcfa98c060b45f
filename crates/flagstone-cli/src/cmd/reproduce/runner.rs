//! Running asks: each once, the long ones first, answers kept in the user's cache directory.
//!
//! ```text
//!   $XDG_CACHE_HOME/flagstone/reproduce/<hash of key>.json    { key, figures }
//! ```
//!
//! A file that cannot be read as an answer is named on stderr, left out and written anew.
//! A key holds a digest of the simulated code (core and simulator), the machine's figures, the
//! policy's knobs, and the ask; a file whose key is not the very text is ignored. Failures are
//! not kept. No cache directory, no cache: nothing fails for it.

use super::ask::{self, Ask, Figures, Runs};
use crate::outfile;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

impl Cost {
    fn and(self, other: Self) -> Self {
        Self {
            made: self.made + other.made,
            kept: self.kept + other.kept,
            operations: self.operations + other.operations,
        }
    }
}

/// A kept answer.
#[derive(Serialize, Deserialize)]
struct Kept {
    key: String,
    figures: Figures,
    /// Wall seconds of the run, for whoever wonders where the time goes.
    #[serde(default)]
    seconds: f64,
}

/// What a call cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    /// Runs made now.
    pub(super) made: usize,
    /// Runs answered from the cache.
    pub(super) kept: usize,
    /// Allocator operations simulated now.
    pub(super) operations: u64,
}

/// Runs all asks, and more seeds of those rows that are not [`ask::precise`] yet. A row is what is asked
/// for with [`ask::FIRST_SEEDS`]; asks with one seed, or with a number of their own, stay as they are.
pub(super) fn run_until_precise(asks: Vec<Ask>, first: u64, cache: Option<&Path>) -> (Runs, Cost) {
    let rows = |asks: &[Ask]| {
        let mut seeds: HashMap<Ask, u64> = HashMap::new();
        for ask in asks {
            let most = seeds.entry(ask.with_seed(1)).or_default();
            *most = ask.seed.max(*most);
        }
        seeds.retain(|_, most| *most == ask::FIRST_SEEDS);
        seeds.into_keys().collect::<Vec<Ask>>()
    };
    let mut rows = rows(&asks);
    let (mut runs, mut cost) = run(asks, first, cache);
    for made in (ask::FIRST_SEEDS..ask::MOST_SEEDS).step_by(ask::FIRST_SEEDS as usize) {
        rows.retain(|row| runs.seeds(row).is_ok_and(|seeds| !ask::precise(&seeds)));
        let next = (made + 1)..=(made + ask::FIRST_SEEDS);
        let more = rows
            .iter()
            .flat_map(|row| next.clone().map(|seed| row.with_seed(seed)));
        let (found, paid) = run(more.collect(), first, cache);
        runs.0.extend(found.0);
        cost = cost.and(paid);
    }
    (runs, cost)
}

/// Runs all asks on as many threads as the host has cores (`RAYON_NUM_THREADS` bounds them). Families
/// number their seeds from 1: `first` is the one that number stands for.
pub(super) fn run(asks: Vec<Ask>, first: u64, cache: Option<&Path>) -> (Runs, Cost) {
    let mut seen = HashSet::new();
    let mut asks: Vec<Ask> = asks
        .into_iter()
        .filter(|ask| seen.insert(ask.clone()))
        .collect();
    asks.sort_by_key(|ask| core::cmp::Reverse(ask.weight()));
    let bar = progress(asks.iter().map(Ask::weight).sum());
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Runs::default(), Cost::default()));
    let threads = rayon::current_num_threads().min(asks.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(ask) = asks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bar.set_message(format!("{} {}", ask.workload, ask.policy));
                    let (answer, fresh) = answer(&ask.beginning_at(first), cache);
                    bar.inc(ask.weight());
                    let mut done = done.lock().expect("no run panics while it holds this");
                    if fresh {
                        done.1.made += 1;
                        done.1.operations += answer.as_ref().map_or(0, |f| f.simulated_ops);
                    } else {
                        done.1.kept += 1;
                    }
                    done.0.0.insert(ask.clone(), answer);
                }
            });
        }
    });
    bar.finish_and_clear();
    done.into_inner().expect("all threads have ended")
}

/// The answer, and whether it was simulated now.
fn answer(ask: &Ask, cache: Option<&Path>) -> (Result<Figures, String>, bool) {
    let key = match ask.key() {
        Ok(key) => key,
        Err(line) => return (Err(line), true),
    };
    let file = cache.map(|folder| folder.join(format!("{:016x}.json", digest(key.as_bytes()))));
    match file.as_deref().map(|file| (file, recall(file, &key))) {
        Some((_, Ok(Some(figures)))) => return (Ok(figures), false),
        Some((file, Err(why))) => eprintln!(
            "flagstone: reproduce: {}: {why}; left out, the run is made again",
            file.display()
        ),
        _ => {}
    }
    let began = Instant::now();
    let answer = ask.run();
    if let (Ok(figures), Some(file)) = (&answer, file) {
        keep(&file, key, figures, began.elapsed().as_secs_f64());
    }
    (answer, true)
}

/// The kept answer; none if there is none, or to another question.
///
/// # Errors
/// In a few words, if there is a file that is not an answer.
fn recall(file: &Path, key: &str) -> Result<Option<Figures>, String> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let kept: Kept = serde_json::from_slice(&bytes)
        .map_err(|error| format!("not a kept answer (line {})", error.line()))?;
    Ok((kept.key == key).then_some(kept.figures))
}

/// Writes beside and renames, so that a reader never sees half a file. A cache that cannot be
/// written is no failure.
fn keep(file: &Path, key: String, figures: &Figures, seconds: f64) {
    let kept = Kept {
        key,
        figures: figures.clone(),
        seconds,
    };
    let Ok(text) = serde_json::to_vec(&kept) else {
        return;
    };
    let _ = outfile::whole(file, &text);
}

/// FNV-1a: names a file; the key inside it decides.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The user's cache directory for answers, made if it is not there.
pub(super) fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    let folder = cache.join("flagstone").join("reproduce");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder)
}

/// See [`crate::progress`].
fn progress(weight: u64) -> ProgressBar {
    crate::progress::bar(weight, "{bar:30} {percent} %, {elapsed}, {left}, {msg}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::reproduce::ask::Look;

    fn ask() -> Ask {
        let ask = Ask::new("one-alloc-n-free", "xeon-2007-8", 2, Look::ms(8, 8));
        Ask {
            size: Some(64),
            ..ask.under("flagstone")
        }
    }

    #[test]
    fn the_same_ask_is_simulated_once_and_then_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let (first, cost) = run(vec![ask(), ask()], 1, Some(folder.path()));
        assert_eq!((cost.made, cost.kept), (1, 0));
        let (second, cost) = run(vec![ask()], 1, Some(folder.path()));
        assert_eq!((cost.made, cost.kept, cost.operations), (0, 1, 0));
        assert_eq!(first.get(&ask()).unwrap(), second.get(&ask()).unwrap());
    }

    #[test]
    fn other_first_seeds_are_other_runs_in_the_same_places() {
        let folder = tempfile::tempdir().unwrap();
        let mut both = vec![ask(), ask()];
        both[1].seed = 2;
        let (first, _) = run(both, 1, Some(folder.path()));
        let (shifted, cost) = run(vec![ask()], 2, Some(folder.path()));
        assert_eq!((cost.made, cost.kept), (0, 1), "seed 2 was run already");
        let second = Ask { seed: 2, ..ask() };
        assert_eq!(shifted.get(&ask()).unwrap(), first.get(&second).unwrap());
    }

    #[test]
    fn a_kept_answer_to_another_question_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let (runs, _) = run(vec![ask()], 1, None);
        let name = format!("{:016x}.json", digest(ask().key().unwrap().as_bytes()));
        let figures = runs.get(&ask()).unwrap();
        keep(
            &folder.path().join(&name),
            "another question".into(),
            figures,
            0.0,
        );
        let (_, cost) = run(vec![ask()], 1, Some(folder.path()));
        assert_eq!((cost.made, cost.kept), (1, 0));
    }

    #[test]
    fn a_damaged_answer_is_left_out_and_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (first, _) = run(vec![ask()], 1, Some(folder.path()));
        let key = ask().key().unwrap();
        let file = folder
            .path()
            .join(format!("{:016x}.json", digest(key.as_bytes())));
        for damaged in [&b""[..], b"{\"key\":", b"[1]", &[0xff; 40]] {
            std::fs::write(&file, damaged).unwrap();
            assert!(
                recall(&file, &key)
                    .unwrap_err()
                    .contains("not a kept answer")
            );
            let (again, cost) = run(vec![ask()], 1, Some(folder.path()));
            assert_eq!((cost.made, cost.kept), (1, 0));
            assert_eq!(again.get(&ask()).unwrap(), first.get(&ask()).unwrap());
            assert!(recall(&file, &key).unwrap().is_some());
        }
    }

    #[test]
    fn two_calls_at_once_share_a_cache_and_get_the_same_figures() {
        let folder = tempfile::tempdir().unwrap();
        let call = || run(vec![ask()], 1, Some(folder.path())).0;
        let both = std::thread::scope(|scope| {
            [scope.spawn(call), scope.spawn(call)].map(|thread| thread.join().unwrap())
        });
        assert_eq!(both[0].get(&ask()).unwrap(), both[1].get(&ask()).unwrap());
        assert_eq!(run(vec![ask()], 1, Some(folder.path())).1.kept, 1);
        let ends_well = |entry: std::io::Result<std::fs::DirEntry>| {
            entry
                .unwrap()
                .path()
                .extension()
                .is_some_and(|ending| ending == "json")
        };
        assert!(
            folder.path().read_dir().unwrap().all(ends_well),
            "nothing half written"
        );
    }

    #[test]
    fn an_impossible_ask_answers_with_its_reason() {
        let ask = Ask::new("one-alloc-n-free", "xeon-2007-8", 99, Look::ms(8, 8));
        let ask = ask.under("flagstone");
        let (runs, _) = run(vec![ask.clone()], 1, None);
        assert!(runs.get(&ask).unwrap_err().contains("99 tasks"));
    }
}
