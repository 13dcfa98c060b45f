//! The Python wheel in a clean virtual environment.

use crate::{SCRATCH, attempt, clean, fresh, run, workspace, xtask};
use flagstone_tests::{build_program, is_flagstone, need, other_library, skip};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A virtual environment with packages from the index; the reason where that cannot be had.
fn environment(folder: &Path, packages: &[&Path]) -> Result<(), String> {
    let mut make = clean("python3", Path::new("/"));
    attempt(make.args(["-m", "venv"]).arg(folder))?;
    let mut pip = clean(folder.join("bin/python"), folder);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    attempt(pip.args(packages)).map(drop)
}

/// The first line of a failure that says why.
fn why(failure: &str) -> &str {
    let mut lines = failure.lines();
    lines
        .find(|line| line.contains("rror"))
        .unwrap_or_else(|| failure.lines().next().unwrap_or_default())
}

/// An environment with the wheel and pyarrow and pandas, made once; `None` says what is missing.
fn installed() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        if !is_flagstone() {
            other_library();
            return None;
        }
        if std::env::var_os("FLAGSTONE_TESTS_WHEEL").is_none() {
            // Ten minutes: the extension is a release build of its own, Ray some hundred megabytes.
            eprintln!("skipped: the wheel is built and tried with FLAGSTONE_TESTS_WHEEL=1 only");
            return None;
        }
        need("python3", "python3")?;
        let tools = Path::new(SCRATCH).join("maturin");
        if !tools.join("bin/maturin").exists()
            && let Err(line) = environment(&tools, &[Path::new("maturin")])
        {
            skip(&format!("the wheel: no maturin from pip: {}", why(&line)));
            return None;
        }
        let out = fresh("wheel");
        let mut build = xtask(&[
            "wheel".as_ref(),
            "--command".as_ref(),
            build_program().as_ref(),
            "--out".as_ref(),
            out.as_ref(),
        ]);
        let path = std::env::var("PATH").unwrap_or_default();
        build.env("PATH", format!("{}/bin:{path}", tools.display()));
        run(&mut build);
        let wheels: Vec<_> = std::fs::read_dir(&out).expect("a folder").collect();
        assert_eq!(wheels.len(), 1, "one wheel for all Pythons: {wheels:?}");
        let wheel = wheels[0].as_ref().expect("an entry").path();
        assert!(wheel.to_string_lossy().contains("abi3"), "{wheel:?}");
        let root = fresh("venv");
        let wanted = [&*wheel, Path::new("pyarrow"), Path::new("pandas")];
        if let Err(line) = environment(&root, &wanted) {
            skip(&format!("the wheel: pip install: {}", why(&line)));
            return None;
        }
        Some(root)
    };
    ROOT.get_or_init(make).as_deref()
}

#[test]
fn a_python_program_runs_on_the_library_by_the_command_that_pip_installed() {
    let Some(root) = installed() else { return };
    let python = root.join("bin/python");
    let program = "print(sum(len(str(i)) for i in range(20000)))";
    let mut command = clean(root.join("bin/flagstone"), root);
    command
        .arg("run")
        .arg("--")
        .arg(&python)
        .args(["-c", program]);
    let (said, answer) = run(&mut command);
    assert_eq!(said, "88890\n");
    assert!(answer.contains("Where its memory was"), "{answer}");
    let mut which = clean(&python, root);
    let code = "import flagstone; print(flagstone.library())";
    let (library, _) = run(which.args(["-c", code]));
    let mut preloaded = clean(&python, root);
    preloaded
        .env("LD_PRELOAD", library.trim())
        .env("FLAGSTONE_VERBOSE", "1");
    let (_, line) = run(preloaded.args(["-c", "1"]));
    assert!(line.starts_with("flagstone: version"), "{line}");
    let mut module = clean(&python, root);
    let (version, _) = run(module.args(["-m", "flagstone", "--version"]));
    assert!(version.starts_with("flagstone "), "{version}");
}

#[test]
fn functions_answer_with_tables_and_mistakes_are_exceptions() {
    let Some(root) = installed() else { return };
    let python = root.join("bin/python");
    let trace = root.join("a.fst");
    let mut record = clean(root.join("bin/flagstone"), root);
    record
        .args(["record", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(&python);
    run(record.args(["-c", "x = [bytes(1000) for _ in range(5000)]"]));
    let mut check = clean(&python, root);
    check.arg(workspace().join("tests/packages/functions.py"));
    let (said, _) = run(check.arg(&trace));
    assert!(said.ends_with("all as expected\n"), "{said}");
}

/// Runs a script of this folder with the environment's Python.
fn script(root: &Path, name: &str, words: &[&Path]) -> String {
    let mut python = clean(root.join("bin/python"), root);
    let path = std::env::var("PATH").unwrap_or_default();
    python.env("PATH", format!("{}/bin:{path}", root.display()));
    // A record of one test is not another's answer.
    python.env("XDG_CACHE_HOME", root.join("cache"));
    python.arg(workspace().join("tests/packages").join(name));
    run(python.args(words)).0
}

#[test]
fn runs_and_sweeps_are_tables_and_no_run_is_made_twice() {
    let Some(root) = installed() else { return };
    let said = script(root, "lab.py", &[&fresh("lab")]);
    assert!(said.ends_with("all as expected\n"), "{said}");
}

/// Puts a package beside the wheel, or says why it cannot be had.
fn with_package(root: &Path, package: &str) -> bool {
    let mut pip = clean(root.join("bin/python"), root);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    match attempt(pip.arg(package)) {
        Ok(_) => true,
        Err(line) => {
            skip(&format!("{package}: pip install: {}", why(&line)));
            false
        }
    }
}

#[test]
fn clusters_give_every_row_once_though_a_worker_is_killed() {
    let Some(root) = installed() else { return };
    let examples = workspace().join("examples");
    for (kind, package) in [("dask", "dask[distributed]"), ("ray", "ray")] {
        if with_package(root, package) {
            let said = script(root, "clusters.py", &[Path::new(kind), &examples]);
            assert!(said.ends_with("every row once\n"), "{kind}: {said}");
        }
    }
}

#[test]
fn schedulers_arrays_make_every_run_of_a_sweep_once() {
    let Some(root) = installed() else { return };
    let folder = fresh("arrays");
    let grid = folder.join("grid.toml");
    let text = "workload = \"random-mix\"\nmachine = \"x86-16@4\"\ntasks = [1, 2]\nseeds = 4\nwindow = \"1ms\"\n";
    std::fs::write(&grid, text).expect("a file");
    let examples = workspace().join("examples");
    let path = format!("{}/bin:/usr/bin:/bin", root.display());
    let count = |runs: &Path| std::fs::read_dir(runs).expect("the records").count();
    // The array's script, as Slurm starts it.
    let runs = folder.join("slurm");
    for task in 0..8 {
        let mut array = clean("sh", &folder);
        array
            .arg(examples.join("slurm_sweep.sh"))
            .args([&grid, &runs]);
        array
            .env("PATH", &path)
            .env("SLURM_ARRAY_TASK_ID", task.to_string());
        array
            .env("SLURM_ARRAY_TASK_MIN", "0")
            .env("SLURM_ARRAY_TASK_COUNT", "8");
        let (said, _) = run(array.env("SLURM_CPUS_PER_TASK", "1"));
        assert!(said.starts_with("1 runs: 1 made"), "{said}");
    }
    assert_eq!(count(&runs), 8);
    // The job's command, as Kubernetes starts it with the manifest's variables.
    let manifest = std::fs::read_to_string(examples.join("kubernetes_sweep.yaml")).expect("a file");
    let line = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("command: ["));
    let words = line
        .expect("a command")
        .trim_end_matches(']')
        .replace('"', "");
    let runs = folder.join("runs");
    let all = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("completions: "));
    let all = all.expect("how many").to_owned();
    assert!(
        manifest.contains(&format!("value: \"{all}\"")),
        "both numbers are the same"
    );
    for index in 0..all.parse().expect("a number") {
        let index: u32 = index;
        let mut words = words.split(", ");
        let mut pod = clean(
            root.join("bin").join(words.next().expect("a program")),
            &folder,
        );
        pod.args(words.map(|word| word.replace("/data", &folder.display().to_string())));
        pod.env("JOB_COMPLETION_INDEX", index.to_string())
            .env("JOB_COMPLETIONS", &all);
        run(&mut pod);
    }
    assert_eq!(count(&runs), 8);
}
