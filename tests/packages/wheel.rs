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
        need("python3", "python3")?;
        let tools = Path::new(SCRATCH).join("maturin");
        if !tools.join("bin/maturin").exists() {
            if let Err(line) = environment(&tools, &[Path::new("maturin")]) {
                skip(&format!("the wheel: no maturin from pip: {}", why(&line)));
                return None;
            }
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
