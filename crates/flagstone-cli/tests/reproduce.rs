//! `flagstone reproduce` from outside: refused calls, the JSON contract, the report in a browser.

use assert_cmd::Command;
use std::path::Path;

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
    let line = refusal(&["S2", "--html", "/nonexistent/report.html"]);
    assert!(line.contains("/nonexistent/report.html"), "{line}");
    let line = refusal(&["S2", "--json", "/"]);
    assert!(line.contains("is a directory"), "{line}");
}

#[test]
fn one_document_gives_every_cell_in_json_html_and_markdown_and_the_next_call_is_from_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let words = [
        "S4",
        "--quick",
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
        text.contains("signs right ") && text.contains(", settings tried "),
        "{text}"
    );
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["schema"], "flagstone.reproduce/1");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 60);
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
    drawn_in_a_browser(Path::new(&file("r.html")));
}

/// Opens the report in a headless browser, if this machine has one, and looks at what it drew.
fn drawn_in_a_browser(page: &Path) {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = names.iter().find_map(|name| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
    });
    let Some(browser) = found else {
        eprintln!("no chromium here: the report was not opened in a browser");
        return;
    };
    let profile = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!log.contains("CONSOLE"), "the page logs: {log}");
    assert!(
        dom.contains("<figure>") && dom.contains("class=\"m s1\""),
        "charts are drawn"
    );
    assert!(
        dom.contains("role=\"img\" aria-labelledby="),
        "pictures have words"
    );
}
