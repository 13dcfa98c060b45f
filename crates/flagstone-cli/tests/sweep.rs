//! `flagstone sweep` from outside: killed and resumed, in parts, and with mistakes.

use assert_cmd::Command;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const GRID: &str = "workload = \"random-mix\"\nmachine = \"x86-16\"\npolicy = [\"flagstone\", \"7.0\"]\n\
                    tasks = [1, 2]\nseeds = 100\nwindow = \"1ms\"\n";

fn sweep(words: &[&str]) -> assert_cmd::assert::Assert {
    let program = Command::cargo_bin("flagstone");
    program.unwrap().arg("sweep").args(words).assert()
}

fn grid(folder: &Path, text: &str) -> String {
    let file = folder.join("grid.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Names and texts of a folder's records.
fn records(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder).into_iter().flatten();
    let files = files.map(|entry| entry.unwrap().path());
    let named = files.filter_map(|file| {
        let name = file.file_name()?.to_str()?.to_owned();
        (!name.starts_with('.')).then(|| (name, std::fs::read(&file).unwrap()))
    });
    named.collect()
}

#[test]
fn a_killed_sweep_goes_on_and_every_row_is_there_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = grid(folder.path(), GRID);
    let out = folder.path().join("runs");
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("flagstone"))
        .args([
            "sweep",
            &file,
            "--jobs",
            "1",
            "--out",
            out.to_str().unwrap(),
        ])
        .spawn()
        .unwrap();
    let began = Instant::now();
    while records(&out).len() < 5 {
        assert!(began.elapsed() < Duration::from_secs(60), "no records");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "killed before its end");
    let before = records(&out);
    assert!((5..400).contains(&before.len()), "{}", before.len());
    for (name, text) in &before {
        let record: serde_json::Value = serde_json::from_slice(text).expect("a whole record");
        assert_eq!(
            *name,
            format!("{}.json", record["spec_digest"].as_str().unwrap())
        );
    }
    let words = [&file, "--out", out.to_str().unwrap(), "--json"];
    let output = sweep(&words).success().get_output().stdout.clone();
    let document: serde_json::Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(document["schema"], "flagstone.sweep/1");
    assert_eq!(document["asked"], 400);
    assert_eq!(document["there"], before.len());
    let after = records(&out);
    assert_eq!(after.len(), 400);
    assert!(
        before.iter().all(|(name, text)| after[name] == *text),
        "what was there stays"
    );
    // One table with every row once.
    let table = folder.path().join("runs.csv");
    sweep(&[
        "collect",
        out.to_str().unwrap(),
        "-o",
        table.to_str().unwrap(),
    ])
    .success();
    let text = std::fs::read_to_string(table).unwrap();
    assert_eq!(text.lines().count(), 401);
    let page = folder.path().join("runs.html");
    sweep(&[
        "report",
        out.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
    ])
    .success();
    let page = std::fs::read_to_string(page).unwrap();
    for part in [
        "random-mix on x86-16",
        "400 runs, 100 seeds",
        "Throughput against memory",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn two_parts_are_one_whole_and_schedulers_say_which_part() {
    let folder = tempfile::tempdir().unwrap();
    let file = grid(folder.path(), &GRID.replace("100", "3"));
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    sweep(&[&file, "--out", &place("whole")]).success();
    sweep(&[&file, "--out", &place("parts"), "--shard", "1/2"]).success();
    let half = records(Path::new(&place("parts"))).len();
    assert_eq!(half, 6);
    let mut second = Command::cargo_bin("flagstone").unwrap();
    let variables = [("JOB_COMPLETION_INDEX", "1"), ("JOB_COMPLETIONS", "2")];
    let words = ["sweep", &file, "--out", &place("parts"), "--shard", "auto"];
    second.envs(variables).args(words).assert().success();
    assert_eq!(
        records(Path::new(&place("whole"))),
        records(Path::new(&place("parts")))
    );
    let parquet = place("runs.parquet");
    sweep(&["collect", &place("whole"), "-o", &parquet]).success();
    assert!(std::fs::read(parquet).unwrap().starts_with(b"PAR1"));
}

#[test]
fn a_mistake_is_one_line_that_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = grid(folder.path(), &GRID.replace("policy", "polcy"));
    let out = folder.path().join("runs");
    let out = out.to_str().unwrap();
    let missing = folder.path().join("none");
    let cases: [(&[&str], &str); 7] = [
        (
            &[&wrong, "--out", out],
            "grid.toml, line 3: unknown key `polcy`; did you mean 'policy'?",
        ),
        (&[&wrong, "--out", out, "--shard", "3/2"], "i from 1 to n"),
        (
            &["/nonexistent/grid.toml", "--out", out],
            "/nonexistent/grid.toml",
        ),
        (
            &[&wrong, "--shard", "auto", "--out", out],
            "SLURM_ARRAY_TASK_ID",
        ),
        (&["collect", missing.to_str().unwrap(), "-o", "-"], "none"),
        (&["collect", out, "-o", "table.xls"], ".parquet, .csv"),
        (
            &["report", folder.path().to_str().unwrap(), "--html", "-"],
            "name of a file",
        ),
    ];
    for (words, part) in cases {
        let output = sweep(words).code(2).get_output().clone();
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(
            line.contains(part) && line.lines().count() == 1,
            "{words:?}: {line}"
        );
    }
    assert!(!Path::new(out).exists(), "nothing was begun");
}
