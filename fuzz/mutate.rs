//! The kept corpus and its mutations, for tests that run the fuzz targets' bodies without a fuzzer.
//!
//! Tests include this file by its path. The same seed gives the same bytes.

use std::path::Path;
use std::process::Command;

/// Bytes that numbers in files are replaced by.
const LURES: [u64; 10] = [
    0,
    1,
    7,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 40,
    u64::MAX,
];

/// A file longer than this is cut at some of its bytes, not at each.
const CUT_ALL_MAX: usize = 6 << 10;

/// The files of a target's corpus, by name.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let list =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = list.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{}: no files", folder.display());
    files
        .iter()
        .map(|file| std::fs::read(file).expect("a file"))
        .collect()
}

/// Shows `visit` every file of a corpus, each of them cut off at every byte, and `count` mutations.
pub fn each(target: &str, count: usize, mut visit: impl FnMut(&[u8])) {
    let files = corpus(target);
    for file in &files {
        visit(file);
        for end in (0..file.len()).step_by(file.len().div_ceil(CUT_ALL_MAX)) {
            visit(&file[..end]);
        }
    }
    let mut chance = Chance(0x5eed);
    let mut bytes = Vec::new();
    for round in 0..count {
        bytes.clear();
        bytes.extend_from_slice(&files[round % files.len()]);
        for _ in 0..=chance.below(6) {
            change(&mut bytes, &files, &mut chance);
        }
        visit(&bytes);
    }
}

/// The same, where each is read or refused by one line; there are more than `least` of the read ones and a
/// thousand of the others.
#[allow(dead_code, reason = "fuzz targets take the files alone")]
pub fn each_read<E: ToString>(
    target: &str,
    count: usize,
    least: usize,
    mut read: impl FnMut(&[u8]) -> Result<(), E>,
) {
    let (mut whole, mut refused) = (0, 0);
    each(target, count, |bytes| match read(bytes) {
        Ok(()) => whole += 1,
        Err(error) => {
            refused += 1;
            let line = error.to_string();
            assert!(!line.trim_end().contains('\n'), "{line}");
        }
    });
    assert!(
        whole > least && refused > 1000,
        "{target}: {whole} read, {refused} refused"
    );
}

fn change(bytes: &mut Vec<u8>, files: &[Vec<u8>], chance: &mut Chance) {
    if bytes.is_empty() {
        bytes.push(chance.below(256) as u8);
        return;
    }
    // Heads decide more than what follows: every other change is near the beginning.
    let reach = match chance.below(2) {
        0 => bytes.len().min(256),
        _ => bytes.len(),
    };
    let at = chance.below(reach);
    match chance.below(8) {
        0..=2 => bytes[at] ^= 1 << chance.below(8),
        3 => bytes[at] = chance.below(256) as u8,
        4 => {
            let lure = LURES[chance.below(LURES.len())].to_le_bytes();
            let width = [1, 2, 4, 8][chance.below(4)].min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&lure[..width]);
        }
        5 => {
            let end = at + chance.below(bytes.len() - at);
            bytes.drain(at..end);
        }
        6 => bytes.truncate(at),
        _ => {
            let other = &files[chance.below(files.len())];
            let start = chance.below(other.len().max(1)).min(other.len());
            let end = start + chance.below((other.len() - start).min(512) + 1);
            let part = other[start..end].to_vec();
            bytes.splice(at..at, part);
        }
    }
}

/// Numbers by chance, the same ones each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound.max(1) as u64) as usize
    }
}

/// Runs the test called `name` of this program again with `mib` MiB of address space; in that run the
/// answer is `true`, and the test does its work. A file that takes memory before it is checked aborts it.
#[allow(dead_code, reason = "not every test that has the corpus needs it")]
pub fn in_small_space(name: &str, mib: u64) -> bool {
    const INSIDE: &str = "SMALL_SPACE_TEST";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("this program");
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -v {} && exec \"$0\" \"$@\"", mib << 10))
        .arg(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .expect("sh");
    assert!(
        output.status.success(),
        "{name} with {mib} MiB: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(ran, "{name}: no such test ran");
    false
}
