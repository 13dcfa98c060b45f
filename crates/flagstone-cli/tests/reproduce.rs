//! `flagstone reproduce` from outside: refused calls, the JSON contract, the report in a browser.

use assert_cmd::Command;
use std::io::Write as _;
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

#[test]
fn an_interrupted_call_says_so_in_one_line_and_what_was_finished_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let answers = folder.path().join("flagstone/reproduce");
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

fn is_answer(entry: &std::fs::DirEntry) -> bool {
    entry
        .path()
        .extension()
        .is_some_and(|ending| ending == "json")
}

/// Asks the page itself, once it is drawn: what is where, in which colours. It lies in a frame, which can
/// be as narrow as a phone where a browser's own window cannot, and tells the page around it.
const PROBE: &str = "<script>addEventListener('load', () => setTimeout(() => {
  const charts = [...document.querySelectorAll('.chart')];
  const words = element => (element.getAttribute('aria-label') || '').length > 40;
  parent.postMessage(JSON.stringify({
    charts: charts.length,
    drawn: charts.filter(chart => chart.querySelector('svg .role-mark path, svg .role-mark text')).length,
    described: charts.filter(words).length,
    fits: charts.every(chart => chart.parentElement.className === 'scrolled'
      || chart.getBoundingClientRect().right <= innerWidth),
    sideways: document.documentElement.scrollWidth > innerWidth,
    width: innerWidth,
    paper: getComputedStyle(document.body).backgroundColor,
    label: getComputedStyle(document.querySelector('.chart svg .role-axis-label text')).fill,
    reachable: document.querySelectorAll('summary, a, [tabindex]').length,
    heads: [...document.querySelectorAll('th')].filter(head => !head.scope).length,
  }), '*');
}, 300));</script>";

/// The page around it.
const AROUND: &str = "<!doctype html><style>:root { color-scheme: light dark }</style>
<script>addEventListener('message', said => {
  const out = document.createElement('pre');
  out.id = 'probe';
  out.textContent = said.data;
  document.body.append(out);
})</script>";

/// A browser of this machine, if there is one.
fn browser() -> Option<std::path::PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    names.iter().find_map(|name| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
    })
}

/// Opens the page so wide, in light or dark, and answers what it says of itself.
fn opened(browser: &Path, page: &Path, width: u32, dark: bool) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("page.html");
    let text = std::fs::read_to_string(page).unwrap();
    std::fs::write(&copy, text.replace("</body>", &format!("{PROBE}</body>"))).unwrap();
    let around = folder.path().join("around.html");
    let frame = format!(
        "{AROUND}<body><iframe src='page.html' width='{width}' height='900' style='border:0'>"
    );
    std::fs::write(&around, frame).unwrap();
    let mut command = std::process::Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=20000",
        "--dump-dom",
    ]);
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    let output = command
        .arg("--window-size=1200,1000")
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg(format!("file://{}", around.display()))
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!log.contains("CONSOLE"), "the page logs: {log}");
    let dom = String::from_utf8_lossy(&output.stdout);
    let said = dom
        .split_once("<pre id=\"probe\">")
        .expect("the page ran its scripts")
        .1;
    let said = said.split_once("</pre>").unwrap().0;
    serde_json::from_str(said).unwrap()
}

/// Opens the report in a headless browser, if this machine has one, and looks at what it drew.
fn drawn_in_a_browser(page: &Path) {
    let Some(browser) = browser() else {
        // Past the test runner, which would show the line of a passing test to nobody.
        assert!(
            std::env::var_os("FLAGSTONE_TESTS_STRICT").is_none(),
            "would skip: chromium is not installed"
        );
        let line = "skipped: chromium is not installed: the report was not opened in a browser";
        let _ = writeln!(std::io::stderr(), "{line}");
        return;
    };
    for width in [1100, 375] {
        let seen = opened(&browser, page, width, false);
        assert_eq!(seen["width"], width, "as wide as was asked for: {seen}");
        assert_eq!(seen["heads"], 0, "every head has its scope: {seen}");
        assert!(seen["charts"].as_u64() > Some(0), "{seen}");
        assert_eq!(
            seen["drawn"], seen["charts"],
            "every chart is drawn: {seen}"
        );
        assert_eq!(seen["described"], seen["charts"], "and has words: {seen}");
        assert_eq!(seen["fits"], true, "no chart is cut off: {seen}");
        assert_eq!(
            seen["sideways"], false,
            "the page does not scroll sideways: {seen}"
        );
        assert!(
            seen["reachable"].as_u64() > Some(5),
            "works without a mouse: {seen}"
        );
    }
    let [light, dark] = [false, true].map(|dark| opened(&browser, page, 1100, dark));
    assert_ne!(light["paper"], dark["paper"]);
    assert_ne!(light["label"], dark["label"], "charts change with the page");
}
