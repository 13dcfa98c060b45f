//! `flagstone profile` and `run --profile` on programs whose places are known, opened by the real tools.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "support/run.rs"]
mod run;

use run::{bytes_of, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

fn flagstone(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flagstone"));
    command.env_remove("LD_PRELOAD").args(words);
    command.output().expect("started")
}

/// The program of known places, compiled as distributions do: optimised, without frame pointers.
fn program(folder: &TempDir) -> Option<PathBuf> {
    run::installed("g++")?;
    let program = folder.path().join("sites");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profile/sites.cpp");
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-fomit-frame-pointer", "-pthread", "-o"]);
    let done = compiler.arg(&program).arg(&source).status();
    assert!(done.expect("started").success());
    Some(program)
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("written")).expect("a document")
}

/// Bytes of `field` at places whose innermost function begins with `place`.
fn at(document: &Value, place: &str, field: &str) -> f64 {
    let sites = document["processes"][0]["sites"].as_array().expect("sites");
    let ours = sites.iter().filter(|site| {
        let first = site["stack"][0].as_str().unwrap_or_default();
        first.trim_start_matches("void* ").starts_with(place)
    });
    ours.map(|site| site[field].as_f64().expect("a number"))
        .sum()
}

const PLACES: [(&str, f64); 11] = [
    ("place_tiny", 1.0),
    ("place_zeroed", 1.0),
    ("place_aligned", 1.0),
    ("place_large", 1.0),
    ("place_huge", 1.0),
    ("place_typed<(unsigned long)64>", 1.0),
    ("place_typed<(unsigned long)1024>", 1.0),
    ("place_grown", 1.0),
    ("place_deep", 1.0),
    ("place_in_thread", 1.0),
    ("main", 0.0),
];

#[test]
fn bytes_are_put_down_to_the_functions_that_allocated_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(&folder) else {
        return;
    };
    let raw = folder.path().join("raw");
    let library = flagstone_library();
    let status = Command::new(&program)
        .arg("64")
        .env("LD_PRELOAD", &library)
        .env("FLAGSTONE_PROFILE", &raw)
        .env("FLAGSTONE_PROFILE_INTERVAL", "32K")
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let document = folder.path().join("p.json");
    let to = format!("--json={}", document.display());
    let words = ["profile", &to, raw.to_str().unwrap()];
    let output = flagstone(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = json(&document);
    let process = &document["processes"][0];
    let mib = f64::from(1 << 20);
    let mut named = 0.0;
    for (place, share) in PLACES {
        let allocated = at(&document, place, "allocated_bytes") / mib;
        // 2048 samples for each place: four standard deviations are 9 %.
        let off = (allocated - 64.0 * share).abs();
        assert!(off < 6.0, "{place}: {allocated:.1} MiB allocated");
        named += allocated;
        let live = at(&document, place, "live_bytes") / mib;
        // What `realloc` grew was 700 bytes of 2100 before.
        let expected = match place {
            "place_grown" => 64.0 / 3.0,
            _ => 32.0 * share,
        };
        assert!((live - expected).abs() < 5.0, "{place}: {live:.1} MiB live");
    }
    let all = process["allocated_bytes"].as_f64().unwrap() / mib;
    assert!(named > 0.95 * all, "{named:.1} of {all:.1} MiB are named");
    let deep = process["sites"].as_array().unwrap().iter();
    let deep = deep.filter(|site| site["stack"][0].as_str().unwrap().starts_with("place_deep"));
    let (frames, ends): (Vec<usize>, Vec<bool>) = deep
        .map(|site| {
            let stack = site["stack"].as_array().unwrap();
            (stack.len(), stack.iter().any(|line| line == "main"))
        })
        .unzip();
    assert!(frames.iter().all(|&frames| frames > 100), "{frames:?}");
    assert!(
        ends.iter().all(|&is_whole| is_whole),
        "recursion ends in main"
    );
    let timeline = process["timeline"].as_array().unwrap();
    assert!(timeline.len() >= 3, "{timeline:?}");
    assert_eq!(process["lost_samples"], 0);
}

/// The library that the command carries, as `run` puts it there.
fn flagstone_library() -> String {
    let output = flagstone(&["run", "--quiet", "--", "/usr/bin/env"]);
    let printed = text(&output.stdout);
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("LD_PRELOAD="));
    line.expect("a library").to_owned()
}

#[test]
fn pprof_and_flame_graphs_open_what_run_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(&folder) else {
        return;
    };
    let file = folder.path().join("heap.pb.gz");
    let name = file.to_str().unwrap();
    let output = flagstone(&[
        "run",
        "--profile",
        name,
        "--",
        program.to_str().unwrap(),
        "16",
    ]);
    let said = text(&output.stderr);
    assert!(
        output.status.success() && said.contains("Heap profile of sites"),
        "{said}"
    );
    assert!(std::fs::read(&file).unwrap().starts_with(&[0x1F, 0x8B]));
    let folded = folder.path().join("heap.folded");
    let output = flagstone(&[
        "run",
        "--quiet",
        "--profile",
        folded.to_str().unwrap(),
        "--",
        program.to_str().unwrap(),
        "16",
    ]);
    assert!(output.status.success());
    let lines = std::fs::read_to_string(&folded).unwrap();
    for line in lines.lines() {
        let (stack, bytes) = line.rsplit_once(' ').expect("a stack and a number");
        assert!(!stack.is_empty() && bytes.parse::<u64>().is_ok(), "{line}");
    }
    assert!(
        lines
            .lines()
            .any(|line| line.contains(";main;") && line.contains(";place_large")),
        "{lines}"
    );
    let go = ["/usr/local/go/bin/go", "/usr/bin/go"].map(Path::new);
    let Some(go) = go.into_iter().find(|go| go.exists()) else {
        skip("go is not installed (golang-go): `go tool pprof` was not tried");
        return;
    };
    for (index, wanted) in [("inuse_space", "place_huge"), ("alloc_space", "place_tiny")] {
        let tool = Command::new(go)
            .args([
                "tool",
                "pprof",
                "-top",
                &format!("-sample_index={index}"),
                name,
            ])
            .env("GOTOOLCHAIN", "local")
            .output()
            .unwrap();
        let table = text(&tool.stdout);
        assert!(tool.status.success(), "{}", text(&tool.stderr));
        assert!(table.contains(wanted) && table.contains(index), "{table}");
    }
}

fn skip(why: &str) {
    assert!(
        std::env::var_os("FLAGSTONE_TESTS_STRICT").is_none(),
        "{why}"
    );
    eprintln!("skipped: {why}");
}

#[test]
fn what_a_real_program_holds_is_what_the_ledger_says() {
    let folder = tempfile::tempdir().unwrap();
    let Some(python) = run::installed("python3") else {
        return;
    };
    let (ledger, profile) = (folder.path().join("l.json"), folder.path().join("p.pb.gz"));
    let code = "import os\nx = [str(i) * 3 for i in range(600000)]\ny = {i: [i] for i in range(100000)}\n\
                z = bytearray(9 << 20)\nos._exit(0)";
    let output = Command::new(env!("CARGO_BIN_EXE_flagstone"))
        .env_remove("LD_PRELOAD")
        .env("PYTHONMALLOC", "malloc")
        .args([
            "run",
            "--json",
            ledger.to_str().unwrap(),
            "--profile",
            profile.to_str().unwrap(),
        ])
        .arg("--")
        .arg(python)
        .args(["-c", code])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let ledger = &json(&ledger)["ledger"];
    let lines = ["live", "large_runs", "huge_blocks"].map(|line| bytes_of(ledger, line));
    let held = lines.iter().sum::<f64>() / f64::from(1 << 20);
    let head = said
        .lines()
        .find(|line| line.contains("Heap profile of"))
        .expect("shown");
    let shown = head
        .split(": ")
        .nth(1)
        .unwrap()
        .split(" MiB")
        .next()
        .unwrap();
    let shown: f64 = shown.parse().expect(head);
    assert!(
        (shown / held - 1.0).abs() < 0.05,
        "{shown} of {held} MiB: {said}"
    );
}

/// The program of known places at work, on Flagstone.
struct Working(Child);

impl Working {
    fn start(program: &Path) -> Self {
        let mut child = Command::new(program)
            .args(["1", "on"])
            .env("LD_PRELOAD", flagstone_library())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    /// Its end, after its input has ended.
    fn end(mut self) -> bool {
        drop(self.0.stdin.take());
        self.0.wait().unwrap().success()
    }
}

#[test]
fn a_running_process_is_profiled_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(&folder) else {
        return;
    };
    let working = Working::start(&program);
    let pid = working.0.id().to_string();
    let document = folder.path().join("p.json");
    let to = format!("--json={}", document.display());
    for _ in 0..2 {
        let output = flagstone(&["profile", &pid, "--for", "400ms", &to]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        let found = json(&document);
        let process = &found["processes"][0];
        assert_eq!(process["pid"].as_u64(), pid.parse().ok());
        let all = process["allocated_bytes"].as_f64().unwrap();
        let ours = at(&found, "place_tiny", "allocated_bytes");
        assert!(all > 0.0 && ours > 0.95 * all, "{ours} of {all}: {said}");
    }
    assert!(working.end(), "it ran on and ended well");
}

#[test]
fn what_is_wrong_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let text_file = folder.path().join("notes.txt");
    std::fs::write(&text_file, "no profile").unwrap();
    let own = std::process::id().to_string();
    for (words, expected) in [
        (vec!["profile", "4000000000"], "process"),
        (vec!["profile", "2000000000"], "there is none"),
        (vec!["profile", "/no/such/file"], "neither a process number"),
        (
            vec!["profile", text_file.to_str().unwrap()],
            "no profile of Flagstone",
        ),
        (vec!["profile", &own, "--for", "1y"], "such as 30s"),
        (vec!["profile", &own, "--interval", "1"], "from 4K"),
        (vec!["profile", &own], "has no heap of Flagstone"),
        (
            vec!["profile", &own, "-o", "/no/such/dir/f"],
            "directory does not exist",
        ),
    ] {
        let output = flagstone(&words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}

#[test]
fn a_program_whose_profile_cannot_be_written_goes_on_and_says_so_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let library = flagstone_library();
    let name = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    for (limit, file, expected) in [
        (
            "ulimit -f 1; trap '' XFSZ",
            name("limited"),
            "cannot be written",
        ),
        ("true", name("none/file"), "directory does not exist"),
        ("true", name("folder"), "is a directory"),
    ] {
        let script = format!("{limit}; LD_PRELOAD='{library}' exec /bin/sh -c :");
        let output = Command::new("/bin/sh")
            .args(["-c", &script])
            .env("FLAGSTONE_PROFILE", &file)
            .env_remove("LD_PRELOAD")
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains(expected) && said.contains("FLAGSTONE_PROFILE"),
            "{said}"
        );
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "no part of a file stays: {left:?}");
}

#[test]
fn the_largest_interval_is_written_as_the_help_writes_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.pb.gz");
    let name = file.to_str().unwrap();
    for most in ["1T", "1024G"] {
        let words = [
            "run",
            "--profile",
            name,
            "--profile-interval",
            most,
            "--",
            "sh",
            "-c",
            "true",
        ];
        let output = flagstone(&words);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let output = flagstone(&[
        "run",
        "--profile",
        name,
        "--profile-interval",
        "2T",
        "--",
        "true",
    ]);
    let said = text(&output.stderr);
    assert!(said.contains("from 4K to 1T"), "{said}");
    for (given, complains) in [("1T", false), ("2T", true)] {
        let output = Command::new("sh")
            .args(["-c", "true"])
            .env("LD_PRELOAD", flagstone_library())
            .env("FLAGSTONE_PROFILE", folder.path().join("heap.raw"))
            .env("FLAGSTONE_PROFILE_INTERVAL", given)
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(
            said.contains("not from 4K to 1T"),
            complains,
            "{given}: {said}"
        );
    }
}

#[test]
fn a_full_disk_costs_the_profile_and_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().display();
    // A mount of its own for this shell, filled; it goes with it.
    let full = format!(
        "mount -t tmpfs -o size=64k none {disk} && {{ dd if=/dev/zero of={disk}/rest 2>/dev/null; true; }}"
    );
    let within = |line: &str| {
        Command::new("unshare")
            .args(["-m", "sh", "-c", &format!("{full} && {{ {line}; }}")])
            .env_remove("LD_PRELOAD")
            .output()
    };
    if !within("true").is_ok_and(|output| output.status.success()) {
        skip("unshare and mount need root: a full disk was not tried");
        return;
    }
    let library = flagstone_library();
    let program = format!(
        "LD_PRELOAD='{library}' FLAGSTONE_PROFILE={disk}/heap.raw sh -c 'echo mine'; ls {disk}"
    );
    let output = within(&program).unwrap();
    let said = text(&output.stderr);
    assert_eq!(
        text(&output.stdout),
        "mine\nrest\n",
        "no part of a file stays"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("heap.raw: no space left; no profile is left"),
        "{said}"
    );
    // The command's own file.
    let command = env!("CARGO_BIN_EXE_flagstone");
    let run = format!("'{command}' run --quiet --profile {disk}/heap.pb.gz -- sh -c 'echo mine'");
    let output = within(&run).unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("No space left on device"), "{said}");
}

#[test]
fn a_profile_replaces_a_file_and_goes_into_a_pipe_which_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let library = flagstone_library();
    let script = format!(
        "cd '{}' && echo old > heap.raw && mkfifo pipe && {{ cat pipe > copy & \
         for file in heap.raw pipe; do FLAGSTONE_PROFILE=$file LD_PRELOAD='{library}' sh -c :; done; wait; \
         test -p pipe && ls; }}",
        folder.path().display()
    );
    let mut shell = Command::new("sh");
    let output = shell
        .args(["-c", &script])
        .env_remove("LD_PRELOAD")
        .output();
    let output = output.unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
    assert_eq!(text(&output.stdout), "copy\nheap.raw\npipe\n");
    for name in ["heap.raw", "copy"] {
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        assert!(bytes.starts_with(b"\x7ffsprof"), "{name}");
        let shown = flagstone(&["profile", folder.path().join(name).to_str().unwrap()]);
        assert!(shown.status.success(), "{}", text(&shown.stderr));
    }
}

#[test]
fn a_process_without_a_sample_leaves_a_file_only_under_a_name_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let left = |name: &str| {
        let status = Command::new("sh")
            .args(["-c", "true"])
            .env("LD_PRELOAD", flagstone_library())
            .env("FLAGSTONE_PROFILE", folder.path().join(name))
            .env("FLAGSTONE_PROFILE_INTERVAL", "1T")
            .status();
        assert!(status.unwrap().success());
        std::fs::read_dir(folder.path()).unwrap().count()
    };
    assert_eq!(left("heap.%p"), 0, "one of many processes");
    assert_eq!(left("heap.raw"), 1, "the one that was asked for");
    let file = folder.path().join("heap.pb.gz");
    let output = flagstone(&[
        "run",
        "--profile",
        file.to_str().unwrap(),
        "--profile-interval",
        "1T",
        "--",
        "true",
    ]);
    let said = text(&output.stderr);
    assert!(
        output.status.success() && said.contains("no sample"),
        "{said}"
    );
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.starts_with(&[0x1F, 0x8B]), "an empty profile");
}
