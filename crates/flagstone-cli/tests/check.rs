//! `flagstone check` on real processes: in use, not in use and why, and what cannot be looked at.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn flagstone() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flagstone"));
    command.env_remove("LD_PRELOAD");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn check(words: &[&str]) -> (Option<i32>, String) {
    let output: Output = flagstone().arg("check").args(words).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.lines().all(|line| line.len() < 400), "{said}");
    (output.status.code(), said)
}

/// A process that has said it is there, and ends with its handle.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        // `cat` echoes the line once it runs, and then waits for more.
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        use std::io::Write;
        child.stdin.as_mut().unwrap().write_all(b".").unwrap();
        let mut byte = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut byte)
            .unwrap();
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The library that the command carries, as `run` puts it there.
fn library() -> PathBuf {
    let program = "printf %s \"$LD_PRELOAD\"";
    let output = flagstone()
        .args(["run", "--quiet", "--", "sh", "-c", program])
        .output();
    let list = text(&output.unwrap().stdout);
    let first = list.split(':').next().unwrap().to_owned();
    assert!(Path::new(&first).is_file(), "{list}");
    first.into()
}

fn cat(preload: Option<&Path>) -> Command {
    let mut command = Command::new("cat");
    command.env_remove("LD_PRELOAD");
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    command
}

#[test]
fn a_preloaded_process_is_in_use_and_stays_undisturbed() {
    let process = Running::start(cat(Some(&library())));
    let (code, said) = check(&[&process.pid()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("in use: flagstone "), "{said}");
    let (code, said) = check(&["--json", &process.pid()]);
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (code, &json["schema"]),
        (Some(0), &"flagstone.check/1".into())
    );
    assert_eq!(json["in_use"], true);
}

#[test]
fn locks_instead_of_sequences_are_noted_with_their_reason() {
    let mut command = cat(Some(&library()));
    command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    let process = Running::start(command);
    let (code, said) = check(&[&process.pid()]);
    assert_eq!(code, Some(0), "{said}");
    let musl_or_old = said.contains("musl") || said.contains("C library registered no");
    assert!(said.contains("rseq=0") || musl_or_old, "{said}");
}

#[test]
fn a_process_without_the_library_says_why() {
    let process = Running::start(cat(None));
    let (code, said) = check(&[&process.pid()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("LD_PRELOAD was not set"), "{said}");

    let process = Running::start(cat(Some(Path::new("/nowhere/libflagstone.so"))));
    let (code, said) = check(&[&process.pid()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("could not open it"), "{said}");

    let process = Running::start(cat(Some(Path::new("/nowhere/libother.so"))));
    let (code, said) = check(&[&process.pid()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("replaced the library"), "{said}");
}

#[test]
fn a_static_process_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("s.c"), folder.path().join("s"));
    let code = "#include <unistd.h>\nint main(void){char c;while(read(0,&c,1)==1)write(1,&c,1);}";
    std::fs::write(&source, code).unwrap();
    let mut compile = Command::new("cc");
    let status = compile
        .args(["-static", "-w", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    assert!(status.unwrap().success());
    let process = Running::start(Command::new(&program));
    let (code, said) = check(&[&process.pid()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the program is static"), "{said}");
    let (code, said) = check(&["--", program.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("static"), "{said}");
}

#[test]
fn another_allocator_before_it_is_named() {
    let jemalloc = Path::new("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2");
    if !jemalloc.exists() {
        eprintln!("skipped: libjemalloc2 is not installed");
        return;
    }
    let list = format!("{}:{}", jemalloc.display(), library().display());
    // A variable of ours has the library look for what it asks, and builds no heap by itself.
    for variable in ["OTHER", "FLAGSTONE_POLICY"] {
        let mut cat = cat(Some(Path::new(&list)));
        cat.env(variable, "flagstone");
        let process = Running::start(cat);
        let (code, said) = check(&[&process.pid()]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("libjemalloc.so.2 comes before it"), "{said}");
    }
}

#[test]
fn a_command_is_checked_by_running_it() {
    let (code, said) = check(&["--", "cat", "/dev/null"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("in use: "), "{said}");
}

#[test]
fn a_command_that_becomes_another_program_without_the_library_is_not_in_use() {
    let (code, said) = check(&["--", "env", "LD_PRELOAD=", "cat", "/dev/null"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("env had the library and then became cat"),
        "{said}"
    );
    let (code, said) = check(&["--", "env", "A=1", "cat", "/dev/null"]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn what_cannot_be_looked_at_is_one_line_and_exit_2() {
    for words in [&["4194999"][..], &["--", "/nowhere/program"], &[], &["x"]] {
        let (code, said) = check(words);
        assert_eq!(
            (code, said.lines().count()),
            (Some(2), 1),
            "{words:?}: {said}"
        );
    }
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (code, _) = check(&[&ended.id().to_string()]);
    assert_eq!(code, Some(2));
}
