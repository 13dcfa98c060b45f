//! What holds for the command as a whole: suggestions, completions, man pages.

use assert_cmd::Command;

fn flagstone(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::cargo_bin("flagstone").unwrap();
    command.args(arguments).output().unwrap()
}

#[test]
fn misspelt_words_are_one_line_that_says_what_was_meant() {
    for (arguments, meant) in [
        (&["rum", "--", "true"][..], "did you mean 'run'?"),
        (
            &["run", "--polcy", "flagstone", "--", "true"],
            "did you mean '--policy'?",
        ),
        (
            &["run", "--policy", "flagstoen", "--", "true"],
            "did you mean 'flagstone'?",
        ),
        (&["host", "--policy", "linux-6.4"], "linux-6.1"),
        (
            &["run", "--set", "slab_max_ordr=1", "--", "true"],
            "unknown setting 'slab_max_ordr'; did you mean 'slab_max_order'?",
        ),
        (
            &["host", "--root", "nowhere"],
            "No such file or directory\n",
        ),
        (
            &["bench", "larson", "--threads", "1k"],
            "not a whole number",
        ),
        (&["bench", "--quik"], "did you mean '--quick'?"),
        (&["bench", "larsn", "--quick"], "did you mean 'larson'?"),
        (
            &["run", "--set", "barn_bytes_max=8MB", "--", "true"],
            "8K, 8M or 8G",
        ),
        (
            &["record", "--under", "glibcc", "--", "true"],
            "did you mean 'glibc'?",
        ),
        (&["metrics", "--listen", "9464"], "such as 127.0.0.1:9464"),
        (
            &["check", "4194999"],
            "check: process 4194999: there is none",
        ),
    ] {
        let output = flagstone(arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
        assert!(line.contains(meant), "{arguments:?}: {line}");
    }
}

#[test]
fn a_program_that_is_not_there_is_answered_with_its_neighbour() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/true", folder.path().join("python3")).unwrap();
    let beside = folder.path().join("pyhton3");
    let beside = beside.to_str().unwrap();
    let file = folder.path().join("trace");
    let file = file.to_str().unwrap();
    for (arguments, status) in [
        (&["run", "--"][..], 127),
        (&["run", "--compare", "glibc", "--"], 127),
        (&["record", "--output", file, "--"], 127),
        (&["check", "--"], 2),
    ] {
        for (name, line) in [
            (
                "pyhton3",
                "no program 'pyhton3' in PATH; did you mean 'python3'?\n".to_owned(),
            ),
            ("nginx", "no program 'nginx' in PATH\n".to_owned()),
            (
                beside,
                format!(
                    "{beside}: no such file; did you mean '{}/python3'?\n",
                    folder.path().display()
                ),
            ),
        ] {
            let mut command = Command::cargo_bin("flagstone").unwrap();
            command.args(arguments).arg(name).env("PATH", folder.path());
            let output = command.output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            let line = format!("flagstone: {}: {line}", arguments[0]);
            assert_eq!((said, output.status.code()), (line, Some(status)));
        }
    }
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = flagstone(&["completions", shell]);
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        for command in ["plan", "host", "bench", "run", "sim", "reproduce"] {
            assert!(script.contains(command), "{shell} lacks {command}");
        }
    }
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let output = flagstone(&["manual", folder.path().to_str().unwrap()]);
    assert!(output.status.success());
    for command in ["", "-plan", "-host", "-bench", "-run", "-sim", "-reproduce"] {
        let page = folder.path().join(format!("flagstone{command}.1"));
        let text = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{page:?}: {e}"));
        assert!(text.contains(".TH"), "{page:?}");
    }
    let page = std::fs::read_to_string(folder.path().join("flagstone-run.1")).unwrap();
    assert!(page.contains("compare"), "{page}");
}

#[test]
fn the_version_is_one_line_with_release_and_model() {
    let output = flagstone(&["--version"]);
    let line = String::from_utf8(output.stdout).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..2], ["flagstone", env!("CARGO_PKG_VERSION")]);
    assert!(line.contains("model "), "{line}");
}
