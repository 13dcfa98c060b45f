//! What the page must hold, without a browser.

use super::super::catalog;
use super::super::child::Sample;
use super::super::runner::Outcome;
use super::*;
use crate::html::check::{charts, nested};
use serde_json::Value;

/// The charts of one bar for each allocator; those of the plane are in the other grammar.
fn bars(page: &str) -> Vec<Value> {
    let mut all = charts(page);
    all.retain(|spec| spec.get("layer").is_some());
    all
}

#[test]
fn time_against_memory_is_drawn_over_all_and_in_each_workload_that_has_both() {
    let page = page(&results(), &on(), &[], &about());
    let mut planes = charts(&page);
    planes.retain(|spec| spec.get("layer").is_none());
    assert_eq!(planes.len(), 3, "over all, pair-64 and threads");
    let words = planes[0]["description"].as_str().unwrap();
    assert!(words.contains("flagstone 0.1.0: time 1.00"), "{words}");
    assert!(words.contains("glibc 2.36: time ") && words.contains("on the front"));
    let spots = planes[1]["data"][0]["values"].as_array().unwrap();
    assert_eq!(spots.len(), 2, "none for one without a figure");
    assert!(page.contains("<h3>Geometric means of 2 rows</h3>"));
    let alone = super::page(&results()[..1], &on(), &[], &about());
    assert!(!alone.contains("id=\"means\""), "one row has no mean");
}

fn allocator(name: &str, version: &str) -> Allocator {
    Allocator {
        name: name.into(),
        version: version.into(),
        library: None,
        unusable: None,
    }
}

fn sample(value: f64) -> Sample {
    let sample = Sample {
        value,
        ns_per_op: Some(value * 3.7),
        peak_rss_kib: (value * 911.0) as u64,
        page_faults: (value * 53.0) as u64,
        ..Sample::default()
    };
    sample.with("8", value * 1.3).with("4096", value * 71.0)
}

fn outcome(name: &str, version: &str, values: &[f64]) -> Outcome {
    Outcome {
        allocator: allocator(name, version),
        samples: values.iter().copied().map(sample).collect(),
        failure: values.is_empty().then(|| "killed by <signal> 11".into()),
    }
}

fn results() -> Vec<Measured> {
    let names = [
        "pair-64".to_owned(),
        "threads".to_owned(),
        "larson".to_owned(),
    ];
    let list = catalog::select(&names).unwrap();
    let outcomes = |at: usize| match at {
        0 => vec![
            outcome(FLAGSTONE, "0.1.0", &[2.71, 2.64, 2.93]),
            outcome("glibc", "2.36", &[5.1, 5.32, 5.77]),
            outcome("broken", "1", &[]),
        ],
        2 => vec![
            outcome("glibc", "2.36", &[31.0, 44.0]),
            outcome(FLAGSTONE, "0.1.0", &[38.0, 35.5]),
        ],
        _ => vec![outcome("broken", "1", &[])],
    };
    let measured = |(at, workload): (usize, catalog::Workload)| Measured {
        threads: workload.threads[0],
        outcomes: outcomes(at),
        workload,
    };
    list.into_iter().enumerate().map(measured).collect()
}

fn about() -> About {
    About {
        machine: "2 CPUs of a <processor>".into(),
        commit: "commit 0123abc",
        library: "inside this program".into(),
        runs: 3,
        full: true,
    }
}

fn on() -> Vec<Allocator> {
    let mut broken = allocator("broken", "1");
    broken.unusable = Some("skipped: not an allocator".into());
    vec![
        allocator(FLAGSTONE, "0.1.0"),
        allocator("glibc", "2.36"),
        broken,
    ]
}

/// The cells of the row that begins with this name, in the section of this workload.
fn row_of<'a>(page: &'a str, workload: &str, allocator: &str) -> &'a str {
    let section = page.split_once(&format!("<section id=\"{workload}-at-"));
    let section = section.expect("every workload has a section").1;
    let section = section.split("</section>").next().unwrap();
    let head = format!("<th scope=\"row\">{allocator}</th>");
    let row = section
        .split_once(&head)
        .expect("a row for each allocator")
        .1;
    row.split("</tr>").next().unwrap()
}

#[test]
fn the_page_is_one_well_formed_document_that_fetches_nothing() {
    let results = results();
    let page = page(&results, &on(), &targets::targets(&results), &about());
    assert_eq!(nested(&page), Ok(()));
    let own = page.split("<script>").next().unwrap();
    for fetched in [" src=", "<link rel=\"stylesheet", "@import", "href=\"http"] {
        assert!(!own.contains(fetched), "{fetched}");
    }
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    assert!(own.contains("2 CPUs of a &lt;processor&gt;") && own.contains("commit 0123abc"));
    assert!(own.contains("broken: killed by &lt;signal&gt; 11"));
    assert!(own.contains("skipped: not an allocator"));
    assert!(!own.contains("a quick run"));
    // Less than the distance of the quartiles behind: a tie.
    assert!(row_of(own, "threads", "glibc").contains(">tie<"));
    let line = sum(&results, &[]);
    assert!(line.contains("ahead of every peer in 1, shares"), "{line}");
    assert!(line.contains("(a tie) in 1 and is behind in 0"), "{line}");
    assert!(own.contains(&line), "{line}");
}

#[test]
fn every_figure_of_the_json_document_is_in_its_row() {
    let results = results();
    let list = targets::targets(&results);
    let page = page(&results, &on(), &list, &about());
    let document = serde_json::to_value(report::document(&results, list)).unwrap();
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let [workload, allocator] = ["workload", "allocator"].map(|key| row[key].as_str().unwrap());
        let cells = row_of(&page, workload, allocator);
        let mut figures = 0;
        let fields = row.as_object().unwrap().iter();
        let parts = row["parts"].as_object().unwrap().iter();
        for (name, value) in fields.chain(parts) {
            // Threads stand in the heading; a pair's ns_per_op is its figure, but not here.
            let elsewhere = name == "threads" || (name == "ns_per_op" && row["unit"] == "ns/op");
            let Some(value) = value.as_f64().filter(|_| !elsewhere) else {
                continue;
            };
            let said = match name.as_str() {
                "runs" => format!("{value}"),
                "ratio_to_best" => format!("{value:.2}"),
                _ => figure(value),
            };
            assert!(
                cells.contains(&said),
                "{name} {said} of {allocator}: {cells}"
            );
            figures += 1;
        }
        assert!(figures > 8 || row["failure"].is_string(), "{row}");
    }
    for target in document["targets"].as_array().unwrap() {
        let what = target["what"].as_str().unwrap();
        let what = maud::html! { th scope="row" { (what) } }.into_string();
        let cells = page.split_once(&what).expect("a row for each target").1;
        let cells = cells.split("</tr>").next().unwrap();
        for figure_of in ["got", "limit"] {
            let Some(value) = target[figure_of].as_f64() else {
                continue;
            };
            assert!(cells.contains(&figure(value)), "{target}");
        }
        let verdict = match target["reached"].as_bool() {
            Some(true) => ">reached<",
            Some(false) => ">not reached",
            None => ">not measured<",
        };
        assert!(cells.contains(verdict), "{target}: {cells}");
    }
}

#[test]
fn every_workload_with_a_figure_has_a_chart_of_all_medians_and_ranges_in_words_too() {
    let results = results();
    let page = page(&results, &on(), &[], &about());
    let specs = bars(&page);
    assert_eq!(specs.len(), 2, "none where nothing has a figure");
    let rows = specs[0]["data"]["values"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["flagstone 0.1.0", "glibc 2.36"], "the best first");
    assert_eq!(rows[0]["own"], true);
    assert_eq!(rows[1]["own"], false);
    let of = |field: &str| rows[0][field].as_f64().unwrap();
    assert_eq!([of("low"), of("value"), of("high")], [2.64, 2.71, 2.93]);
    let words = specs[0]["description"].as_str().unwrap();
    for said in [
        "less is better",
        "2.71 ns/op, from 2.64 to 2.93, best",
        "glibc 2.36: 5.32",
    ] {
        assert!(words.contains(said), "{words}");
    }
    let drawn = charts(&page).len();
    assert_eq!(page.matches("role=\"img\" aria-label=").count(), drawn);
    assert!(
        !page.contains("id=\"targets\""),
        "only where the command speaks of them"
    );
}

#[test]
fn a_hindered_run_is_named_and_does_not_shrink_the_bars() {
    let mut results = results();
    results.truncate(1);
    results[0].outcomes[0] = outcome(FLAGSTONE, "0.1.0", &[2.7, 2.7, 3027.0]);
    let spec = bars(&page(&results, &on(), &[], &about())).remove(0);
    let row = &spec["data"]["values"][0];
    assert_eq!(row["figure"], "2.70 → 3027");
    assert_eq!(row["high"], 3027.0);
    assert!(row["drawn_to"].as_f64() < Some(10.0), "{row}");
}

#[test]
fn a_workload_asked_for_twice_has_two_sections_of_their_own() {
    let mut results = results();
    results.extend(self::results());
    let page = page(&results, &on(), &[], &about());
    let ids: Vec<&str> = page
        .split(" id=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ids.len(), "{ids:?}");
    let rows: Vec<Value> = bars(&page);
    assert_eq!(rows.len(), 4);
}
