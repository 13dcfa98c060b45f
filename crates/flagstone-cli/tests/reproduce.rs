//! `flagstone reproduce` from outside: refused calls, the JSON contract, the report in a browser.

use assert_cmd::Command;
use std::path::Path;

#[path = "support/browser.rs"]
mod browser;

fn reproduce(words: &[&str]) -> Command {
    let mut command = Command::cargo_bin("flagstone").unwrap();
    command.arg("reproduce").args(words);
    command
}

fn refusal(words: &[&str]) -> String {
    let output = reproduce(words).assert().code(2).get_output().clone();
    assert!(output.stdout.is_empty(), "stdout is data only");
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

#[test]
fn an_unknown_document_and_an_unwritable_file_are_one_line_each_before_any_work() {
    let line = refusal(&["S9"]);
    assert!(line.contains("S9") && line.contains("S4"), "{line}");
    let line = refusal(&["s9"]);
    assert!(line.contains("unknown document `s9`"), "{line}");
    let line = refusal(&["s2", "--html", "/nonexistent/report.html"]);
    assert!(!line.contains("unknown document"), "in either case: {line}");
    let line = refusal(&["S2", "--html", "/nonexistent/report.html"]);
    assert!(line.contains("/nonexistent/report.html"), "{line}");
    let line = refusal(&["S2", "--docs", "/proc/results.md"]);
    assert!(line.contains("/proc/results.md"), "{line}");
    let line = refusal(&["all", "S9"]);
    assert!(line.contains("S9"), "also beside all: {line}");
    let line = refusal(&["S2", "--json", "r.out", "--html", "r.out"]);
    assert!(line.contains("r.out is asked for twice"), "{line}");
    let line = refusal(&["S2", "--html", "-"]);
    assert!(line.contains("only --json can be `-`"), "{line}");
    let line = refusal(&["S2", "--seed", "0"]);
    assert!(line.contains("--seed 0"), "{line}");
    let line = refusal(&["S2", "--json", "/"]);
    assert!(line.contains("is a directory"), "{line}");
}

/// How a quick run came out when figures last changed on purpose (`data/README.md` says how to renew it).
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/baseline-quick.json");

#[test]
fn no_row_is_worse_than_kept_and_every_cell_is_in_json_html_and_markdown_and_then_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let words = [
        "all",
        "--quick",
        "--check",
        BASELINE,
        "--json",
        &file("r.json"),
        "--html",
        &file("r.html"),
        "--docs",
        &file("r.md"),
    ];
    let run = || {
        let mut command = reproduce(&words);
        command.env("XDG_CACHE_HOME", folder.path());
        let output = command.assert().success().get_output().stdout.clone();
        (
            String::from_utf8(output).unwrap(),
            std::fs::read_to_string(file("r.json")).unwrap(),
        )
    };
    let (text, json) = run();
    assert!(
        text.contains("Skill over doing nothing") && text.contains("settings were tried"),
        "{text}"
    );
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["schema"], "flagstone.reproduce/1");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 497);
    assert!(
        rows.iter()
            .any(|row| row["nothing"].is_number() && row["counts"] == true)
    );
    assert!(document["summary"]["independent"]["skill"].is_number());
    for row in rows {
        for field in ["seed", "table", "row", "column", "method", "unit"] {
            assert!(row[field].is_string(), "{field} in {row}");
        }
        assert!(row["published"].is_number());
        assert!(row["got"].is_number() || row["reason"].is_string(), "{row}");
    }
    let (again, same) = run();
    assert!(again.contains("0 runs simulated"), "{again}");
    let rows_again: serde_json::Value = serde_json::from_str(&same).unwrap();
    assert_eq!(document["rows"], rows_again["rows"]);
    browser::drawn(Path::new(&file("r.html")));
}

#[test]
fn an_interrupted_call_says_so_in_one_line_and_what_was_finished_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let version = flagstone_sim::MODEL_VERSION.to_string();
    let answers = folder.path().join("flagstone/sim").join(version);
    let kept =
        || std::fs::read_dir(&answers).map_or(0, |all| all.flatten().filter(is_answer).count());
    let report = folder.path().join("r.json");
    std::fs::write(&report, "what was there").unwrap();
    let mut call = std::process::Command::new(assert_cmd::cargo::cargo_bin("flagstone"))
        .args(["reproduce", "S1", "S0", "--json"])
        .arg(&report)
        .env("XDG_CACHE_HOME", folder.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // A full run takes minutes: the first answers are there long before its end.
    while kept() == 0 {
        assert!(call.try_wait().unwrap().is_none(), "ended by itself");
        std::thread::yield_now();
    }
    let interrupt = std::process::Command::new("kill")
        .args(["-INT", &call.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    let output = call.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(
        line.lines().count() == 1 && line.contains("interrupted"),
        "{line}"
    );
    assert_eq!(std::fs::read_to_string(&report).unwrap(), "what was there");
    assert!(kept() > 0);
    for entry in std::fs::read_dir(&answers)
        .unwrap()
        .flatten()
        .filter(is_answer)
    {
        let text = std::fs::read(entry.path()).unwrap();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap();
    }
}

#[test]
fn a_row_that_got_worse_is_named_and_the_exit_status_is_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept.json");
    let kept = serde_json::json!({
        "schema": "flagstone.reproduce/1", "quick": true, "first_seed": 1, "targets": [],
        "rows": [{"seed": "S2", "table": "wastage", "row": "160 CPUs 4K after boot", "column": "base",
                  "error": 1.0, "inside": true, "claimed_sign_right": null}],
    });
    std::fs::write(&file, kept.to_string()).unwrap();
    let words = ["S2", "--quick", "--check", file.to_str().unwrap()];
    let output = reproduce(&words)
        .env("XDG_CACHE_HOME", folder.path())
        .assert()
        .code(1);
    let lines = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    assert!(
        lines.contains("worse: S2 wastage 160 CPUs 4K after boot base: inside, now outside"),
        "{lines}"
    );
    assert!(lines.contains("1 rows got worse"), "{lines}");
}

fn is_answer(entry: &std::fs::DirEntry) -> bool {
    entry
        .path()
        .extension()
        .is_some_and(|ending| ending == "json")
}
