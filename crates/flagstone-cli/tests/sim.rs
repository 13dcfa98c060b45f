//! `flagstone sim` from outside: good calls, bad calls, the JSON shape.

#[path = "support/least.rs"]
mod least;

use assert_cmd::Command;
use least::LEAST;

/// Runs it with a cache of its own, which nothing else has filled.
fn sim(words: &[&str]) -> assert_cmd::assert::Assert {
    let cache = tempfile::tempdir().unwrap();
    sim_in(cache.path(), words)
}

fn sim_in(cache: &std::path::Path, words: &[&str]) -> assert_cmd::assert::Assert {
    Command::cargo_bin("flagstone")
        .unwrap()
        .env("XDG_CACHE_HOME", cache)
        .arg("sim")
        .args(words)
        .assert()
}

/// The one line a refused call prints.
fn refusal(words: &[&str]) -> String {
    let output = sim(words).code(2).get_output().clone();
    assert!(output.stdout.is_empty(), "stdout is data only");
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

#[test]
fn unknown_names_list_the_known_ones() {
    let line = refusal(&["mmap3"]);
    assert!(
        line.contains("mmap3") && line.contains("mmap1") && line.contains("larson"),
        "{line}"
    );
    let line = refusal(&["mmap1", "--machine", "cray"]);
    assert!(
        line.contains("cray") && line.contains("spr-2s-224"),
        "{line}"
    );
    let line = refusal(&["mmap1", "--policy", "linux-9"]);
    assert!(
        line.contains("linux-9") && line.contains("linux-7.0"),
        "{line}"
    );
}

#[test]
fn impossible_combinations_are_one_clear_line() {
    let cases: [(&[&str], &str); 27] = [
        (&["--list", "--seed", "4"], "no use for --seed"),
        (&["--list", "mmap1"], "no use for a workload"),
        (&["--calibrate", "--json"], "no use for --json"),
        (&["mmap1", "--json", "--plot", "-"], "one document"),
        (
            &["hackbench", "--machine", "xeon-2007-8@4", "--tasks", "5"],
            "4 CPUs",
        ),
        (
            &["--calibrate", "/nonexistent/here.toml"],
            "/nonexistent/here.toml",
        ),
        (&["mmap1", "--size", "64"], "sizes of its own"),
        (&["larson", "--size", "9000"], "from 16 to 4096"),
        (
            &["validate", "--tasks", "2"],
            "unexpected argument '--tasks'",
        ),
        (
            &["interleave", "--machine", "x86-16"],
            "unexpected argument '--machine'",
        ),
        (&["mmap1", "--machine", "nowhere.toml@16"], "nowhere.toml"),
        (
            &["mmap1", "--machine", "x86-16", "--tasks", "17"],
            "16 CPUs",
        ),
        (
            &["hackbench", "--machine", "x86-16", "--tasks", "3"],
            "multiples of 2",
        ),
        (&["mmap1", "--seeds", "0"], "--seeds 0"),
        (&["mmap1", "--tasks", "many"], "many"),
        (&["larson", "--size", "8MB"], "8M or 8G"),
        (&["larson", "--think", "3 weeks"], "3us"),
        (&["larson", "--seeds", "1.5"], "1e3"),
        (&["hackbnch"], "did you mean 'hackbench'?"),
        (&["valdate"], "did you mean 'sim validate'?"),
        (&["mmap1", "--machine", "x86-61"], "did you mean 'x86-16'?"),
        (&["mmap1", "--window", "soon"], "full, quick"),
        (
            &["run", "--spec", "/nonexistent/spec.json"],
            "/nonexistent/spec.json",
        ),
        (&["mmap1", "--machine", "spr-2s-224@4096"], "4096"),
        (&["mmap1", "--set", "slab_max_order"], "KEY=VALUE"),
        (
            &["mmap1", "--plot", "/tmp/plot.png"],
            "name the file /tmp/plot.svg",
        ),
        (
            &["mmap1", "--plot", "/nonexistent/plot.svg"],
            "/nonexistent/plot.svg",
        ),
    ];
    for (words, part) in cases {
        let line = refusal(words);
        assert!(line.contains(part), "{words:?}: {line}");
    }
}

#[test]
fn json_has_the_promised_fields_and_one_seed_gives_one_answer() {
    let run = || {
        let words = [
            "random-mix",
            "--machine",
            "x86-16",
            "--tasks",
            "2,4",
            "--policy",
            "flagstone,linux-7.0",
            "--quick",
            "--json",
            "--seed",
            "7",
        ];
        let output = sim(&words).success().get_output().stdout.clone();
        serde_json::from_slice::<serde_json::Value>(&output).unwrap()
    };
    let document = run();
    assert_eq!(document["schema"], "flagstone.sim/1");
    assert_eq!(document["workload"], "random-mix");
    assert_eq!(document["machine"], "x86-16");
    assert_eq!(document["seed"], 7);
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        for field in [
            "tasks",
            "ops_per_task_per_s",
            "lock_share",
            "list_lock_share",
            "zone_lock_share",
            "peak_bytes",
            "mean_bytes",
            "alloc_ns",
            "free_ns",
        ] {
            assert!(row[field].is_number(), "{field}");
        }
        assert!(row["policy"].is_string() && row["ops_per_task_per_s"].as_f64() > Some(1.0));
    }
    assert_eq!(document, run(), "same seed, same figures, same digest");
}

#[test]
fn one_cpu_runs_what_needs_one_and_says_what_needs_two() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.toml");
    let shape = include_str!("../../flagstone-sim/machines/xeon-2007-8.toml")
        .replace("sockets = 2", "sockets = 1")
        .replace("cores_per_socket = 4", "cores_per_socket = 1");
    std::fs::write(&path, shape).unwrap();
    let machine = path.to_str().unwrap();
    sim(&["larson", "--machine", machine, "--quick"]).success();
    let line = refusal(&["hackbench", "--machine", machine]);
    assert!(line.contains("needs 2 CPUs or more"), "{line}");
}

#[test]
fn a_host_without_room_for_the_machine_is_no_finding_but_exit_2() {
    let program = assert_cmd::cargo::cargo_bin("flagstone");
    let call = format!(
        "ulimit -v 4000000; exec {} sim mmap1 --machine spr-2s-224",
        program.display()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &call])
        .output()
        .unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(
        line.contains("ulimit -v") && line.lines().count() == 1,
        "{line}"
    );
}

#[test]
fn a_full_disk_behind_standard_output_is_one_line_and_exit_2() {
    for words in [&["--list"][..], &["--list", "--json"], &["--help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let output = std::process::Command::new(assert_cmd::cargo::cargo_bin("flagstone"))
            .arg("sim")
            .args(words)
            .stdout(full.unwrap())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(
            line.lines().count() <= 1 && !line.contains("panicked"),
            "{line}"
        );
    }
}

#[test]
fn a_plot_is_an_svg_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plot.svg");
    sim(&[
        "larson",
        "--machine",
        "x86-16",
        "--tasks",
        "2",
        "--quick",
        "--plot",
        path.to_str().unwrap(),
    ])
    .success();
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with("<svg") && text.contains("larson on x86-16 (simulated)"));
}

#[test]
fn interleaved_seeds_run_and_are_counted() {
    let output = sim(&["interleave", "--seeds", "20"])
        .success()
        .get_output()
        .stdout
        .clone();
    assert!(String::from_utf8(output).unwrap().starts_with("20 seeds, "));
}

#[test]
fn a_profile_from_a_file_scales_as_a_built_in_one_and_a_bad_line_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let good = include_str!("../../flagstone-sim/machines/x86-16.toml");
    std::fs::write(&path, good).unwrap();
    let scaled = format!("{}@8", path.display());
    let words = ["random-mix", "--machine", &scaled, "--quick", "--json"];
    let output = sim(&words).success().get_output().clone();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["machine"], "mine@8");
    assert_eq!(document["rows"][0]["tasks"], 8);
    std::fs::write(&path, good.replace("atomic =", "atomik =")).unwrap();
    let line = refusal(&["random-mix", "--machine", path.to_str().unwrap()]);
    let number = good
        .lines()
        .position(|line| line.starts_with("atomic ="))
        .unwrap()
        + 1;
    assert!(
        line.contains(&format!("line {number}")) && line.contains("atomik"),
        "{line}"
    );
}

#[test]
fn the_list_of_names_is_a_document_too() {
    let output = sim(&["--list", "--json"]).success().get_output().clone();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = |key: &str| document[key][0]["name"].as_str().map(str::to_owned);
    assert_eq!(first("workloads").as_deref(), Some("mmap1"));
    assert_eq!(first("machines").as_deref(), Some("spr-2s-224"));
    assert_eq!(first("policies").as_deref(), Some("linux-2.6.24"));
    assert_eq!(first("modifiers").as_deref(), Some("dynamic-min-partial"));
    assert_eq!(first("instead").as_deref(), Some("interleave"));
}

#[test]
fn a_subcommand_and_the_older_spelling_say_the_same() {
    let out = |words: &[&str]| sim(words).success().get_output().stdout.clone();
    assert_eq!(out(&["list", "--json"]), out(&["--list", "--json"]));
    let tail = [
        "random-mix",
        "--machine",
        "x86-16",
        "--tasks",
        "2",
        "--quick",
    ];
    let with = |head: &[&str], last: &[&str]| out(&[head, &tail, last].concat());
    let long = with(&["run"], &["--json"]);
    assert_eq!(long, with(&[], &["--json=-"]));
    assert_eq!(long, with(&["--json"], &[]), "a workload is no file");
    assert!(
        String::from_utf8(out(&["interleave", "--seeds", "2", "--json"]))
            .unwrap()
            .contains("flagstone.interleave/1")
    );
}

#[test]
fn policies_are_repeated_or_separated_by_commas() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |words: &[&str]| {
        let tail = [&LEAST[..], &["--json"]].concat();
        let output = sim_in(folder.path(), &[words, &tail[..]].concat())
            .success()
            .get_output()
            .clone();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        document["rows"].clone()
    };
    let one = rows(&["--policy", "flagstone,7.0"]);
    assert_eq!(
        one,
        rows(&["--policy", "flagstone", "--policy", "linux-7.0"])
    );
    assert_eq!(one[1]["policy"], "linux-7.0");
}

#[test]
fn records_name_all_it_takes_to_run_them_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let profile = include_str!("../../flagstone-sim/machines/x86-16.toml");
    std::fs::write(
        file("mine.toml"),
        profile.replace("atomic = ", "atomic = 1"),
    )
    .unwrap();
    let words = [
        "larson",
        "--machine",
        &file("mine.toml"),
        "--tasks",
        "2",
        "--seeds",
        "2",
        "--size",
        "1K",
    ];
    let how = [
        "--set",
        "barn_full=3",
        "--window",
        "2ms",
        "--records",
        &file("a.jsonl"),
    ];
    sim(&[&words[..], &how].concat()).success();
    let lines = std::fs::read_to_string(file("a.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 2);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["schema"], "flagstone.record/1");
    assert_eq!(
        (&first["size"], &first["knobs"]),
        (&1024.into(), &"barn_full=3".into())
    );
    // The profile's file is gone: its figures are in the record.
    std::fs::remove_file(file("mine.toml")).unwrap();
    sim(&[
        "run",
        "--spec",
        &file("a.jsonl"),
        "--records",
        &file("b.jsonl"),
    ])
    .success();
    assert_eq!(std::fs::read_to_string(file("b.jsonl")).unwrap(), lines);
    sim(&[
        "run",
        "--spec",
        &file("b.jsonl"),
        "--records",
        &file("c.csv"),
    ])
    .success();
    assert_eq!(
        std::fs::read_to_string(file("c.csv"))
            .unwrap()
            .lines()
            .count(),
        3
    );
}

#[test]
fn a_run_is_made_once_and_forgotten_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let words = LEAST;
    let told = |words: &[&str]| {
        let output = sim_in(folder.path(), words)
            .success()
            .get_output()
            .stdout
            .clone();
        String::from_utf8(output).unwrap()
    };
    assert!(!told(&words).contains("made before"));
    assert!(told(&words).contains("1 of 1 runs were made before"));
    assert!(!told(&[&words[..], &["--no-cache"]].concat()).contains("made before"));
    assert!(told(&["cache", "list"]).contains(": 1 runs, "));
    told(&["cache", "clear", "--old"]);
    assert!(
        told(&["cache", "list"]).contains(": 1 runs, "),
        "it is of this version"
    );
    told(&["cache", "clear"]);
    assert!(told(&["cache", "list"]).contains("nothing is kept"));
}

#[test]
fn a_failed_run_loses_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.toml");
    let profile = include_str!("../../flagstone-sim/machines/x86-16.toml");
    let memory = profile
        .lines()
        .find(|line| line.starts_with("memory_gib"))
        .unwrap();
    std::fs::write(&path, profile.replace(memory, "memory_gib = 1")).unwrap();
    let words = [
        "random-mix",
        "--machine",
        path.to_str().unwrap(),
        "--tasks",
        "2",
        "--window",
        "2ms",
    ];
    let all = [&words[..], &["--policy", "flagstone", "--json"]].concat();
    sim(&all).success();
    let spec = |tasks: u32| {
        let output = sim(&[&words[..], &["--records", "-"]].concat())
            .success()
            .get_output()
            .stdout
            .clone();
        let record: serde_json::Value = serde_json::from_slice(&output).unwrap();
        let spec = record["spec"].as_str().unwrap().to_owned();
        spec.replace("\"tasks\":2", &format!("\"tasks\":{tasks}"))
            .replace(
                "\"model_version\":",
                if tasks == 4 {
                    "\"model_version\":9"
                } else {
                    "\"model_version\":"
                },
            )
    };
    let file = folder.path().join("specs.jsonl");
    std::fs::write(&file, [spec(2), spec(4), spec(6)].join("\n")).unwrap();
    let words = ["run", "--spec", file.to_str().unwrap(), "--json"];
    let output = sim(&words).code(1).get_output().clone();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["rows"].as_array().unwrap().len(), 2);
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(
        line.contains("model version") && line.lines().count() == 1,
        "{line}"
    );
}

#[test]
fn an_interrupt_ends_runs_and_shows_those_that_are_done() {
    let cache = tempfile::tempdir().unwrap();
    let kept = || {
        let mut folders = vec![cache.path().to_owned()];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.path().is_dir() {
                    true => folders.push(entry.path()),
                    false => files += 1,
                }
            }
        }
        files
    };
    // The first run is short. The others would take hours.
    let specs = cache.path().join("specs");
    let record = sim(&[&LEAST[..], &["--records", "-"]].concat());
    let short = String::from_utf8(record.success().get_output().stdout.clone()).unwrap();
    // Looks as often, and never content.
    let mut long = short.clone();
    for (from, to) in [
        ("last_ps", "9000000000000000"),
        ("patient_ps", "9000000000000000"),
    ] {
        long = long.replace(
            &format!("\\\"{from}\\\":2000000000"),
            &format!("\\\"{from}\\\":{to}"),
        );
    }
    long = long.replace("\\\"tolerance\\\":0.03", "\\\"tolerance\\\":0.0");
    assert_ne!(short, long, "{short}");
    std::fs::write(&specs, format!("{short}{long}")).unwrap();
    let before = kept();
    let call = std::process::Command::new(assert_cmd::cargo::cargo_bin("flagstone"))
        .args(["sim", "run", "--jobs", "2", "--spec"])
        .arg(&specs)
        .env("XDG_CACHE_HOME", cache.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let began = std::time::Instant::now();
    while kept() == before {
        assert!(
            began.elapsed().as_secs() < 60,
            "the short run is never kept"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let interrupt = std::process::Command::new("kill")
        .args(["-INT", &call.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    let output = call.wait_with_output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{line}");
    assert!(
        line.lines().count() == 1
            && line.contains("interrupted; 1 of 2 runs are done; they are kept"),
        "{line}"
    );
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("flagstone"), "{table}");
}

#[test]
fn a_setting_without_effect_is_said_so() {
    let told = |policy: &str, set: &str| {
        let words = [
            &LEAST[..],
            &["--policy", policy, "--set", set, "--records", "-"],
        ]
        .concat();
        let output = sim(&words).success().get_output().clone();
        (
            String::from_utf8(output.stderr).unwrap(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let digest = |record: &str| {
        let record: serde_json::Value = serde_json::from_str(record).unwrap();
        record["digest"].clone()
    };
    let (_, plain) = told("flagstone", "barn_full=9");
    for useless in ["cpu_partial=7", "cpu_partial=99"] {
        let (said, record) = told("flagstone", useless);
        assert!(
            said.contains(&format!("--set {useless} has no effect on flagstone")),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        let (_, other) = told("flagstone", "cpu_partial=3");
        assert_eq!(digest(&record), digest(&other), "so it is");
    }
    assert!(told("flagstone", "barn_full=9").0.is_empty());
    assert_eq!(digest(&plain), digest(&told("flagstone", "barn_full=9").1));
}
