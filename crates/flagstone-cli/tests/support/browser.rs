//! Opens a report in a headless browser and asks it what it drew.

use std::io::Write as _;
use std::path::Path;

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
    cut: [...document.querySelectorAll('svg .role-legend text')].filter(label =>
      label.getBoundingClientRect().right > label.ownerSVGElement.getBoundingClientRect().right + 1)
      .map(label => label.textContent),
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

/// Opens the page where it has no room, as in a frame that is not shown yet: it waits, and logs nothing.
fn hidden(browser: &Path, page: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let around = folder.path().join("around.html");
    let frame = format!(
        "<!doctype html><iframe src='file://{}' width='0' height='900' style='border:0'></iframe>",
        page.display()
    );
    std::fs::write(&around, frame).unwrap();
    let output = std::process::Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=20000"])
        .arg("--dump-dom")
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg(format!("file://{}", around.display()))
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!log.contains("CONSOLE"), "a hidden page logs: {log}");
}

/// Opens the report in a headless browser, if this machine has one, and looks at what it drew.
pub fn drawn(page: &Path) {
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
    hidden(&browser, page);
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
        let none: [&str; 0] = [];
        assert_eq!(
            seen["cut"],
            serde_json::json!(none),
            "legends are whole: {seen}"
        );
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
