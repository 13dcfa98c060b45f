//! What only a kernel of one's own shows: a control group that the kernel holds at `memory.high`, memory pressure, and
//! Yama's scopes. A Debian kernel boots in an emulator, with the command and a small program.
//!
//! The kernel is the file that `FLAGSTONE_TESTS_KERNEL` names, or `boot/vmlinuz-*` below `target/guest-kernel`, where
//! `.ci/run` unpacks Debian's package `linux-image-cloud-amd64`, or below `/`.

mod archive;

use archive::Archive;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Seconds after which the machine is taken for hung; it takes 30.
const LIMIT: &str = "150";

/// Says that the test is skipped, past the test runner.
fn skip(why: &str) {
    let strict = std::env::var_os("FLAGSTONE_TESTS_STRICT").is_some();
    assert!(!strict, "would skip: {why}");
    let _ = writeln!(std::io::stderr(), "skipped: a kernel in a guest: {why}");
}

/// A program on the PATH.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        skip(&format!("{name} is not installed"));
    }
    found
}

/// The newest readable kernel of this machine's kind.
fn kernel() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FLAGSTONE_TESTS_KERNEL") {
        return Some(named.into());
    }
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("guest-kernel/boot");
    let mut found: Vec<PathBuf> = [unpacked, "/boot".into()]
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("vmlinuz-") && name.ends_with("amd64") && File::open(path).is_ok()
        })
        .collect();
    found.sort();
    if found.is_empty() {
        skip("no kernel (Debian package linux-image-cloud-amd64, unpacked: .ci/run does it)");
    }
    found.pop()
}

/// The libraries of a program, and its loader.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let words = text.split_whitespace();
    let paths = words.filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}

/// What the guest said, by the names of its answers.
fn said() -> Option<BTreeMap<String, String>> {
    if !cfg!(target_arch = "x86_64") {
        skip("it is one for x86-64");
        return None;
    }
    let emulator = find("qemu-system-x86_64")?;
    let busybox = find("busybox")?;
    let kernel = kernel()?;
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("guest");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/guest.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-w", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().expect("a C compiler").success());

    let first = folder.path().join("initrd");
    let command = Path::new(env!("CARGO_BIN_EXE_flagstone"));
    let write = || -> std::io::Result<()> {
        let mut archive = Archive::new(BufWriter::new(File::create(&first)?))?;
        for (name, from) in [
            ("busybox", &*busybox),
            ("guest", &program),
            ("flagstone", command),
        ] {
            archive.program(&format!("bin/{name}"), &std::fs::read(from)?)?;
        }
        let mut needed = libraries(command);
        needed.extend(libraries(&busybox));
        needed.sort();
        needed.dedup();
        for library in needed {
            archive.file_of_this_machine(&library)?;
        }
        archive.program("init", include_bytes!("init.sh"))?;
        archive.end()
    };
    write().expect("a first file system");

    let mut machine = Command::new("timeout");
    machine.arg(LIMIT).arg(emulator);
    machine.args([
        "-machine",
        "pc",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
    ]);
    // What the heap keeps depends on the machine's memory; the host gives only what is touched.
    machine.args(["-smp", "2", "-m", "4G", "-net", "none", "-no-reboot"]);
    machine.args(["-display", "none", "-serial", "stdio"]);
    machine.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]);
    machine.arg("-kernel").arg(kernel).arg("-initrd").arg(first);
    let output = machine.stdin(std::process::Stdio::null()).output();
    let text = output.expect("QEMU runs").stdout;
    let text = format!("\n{}", String::from_utf8_lossy(&text).replace('\r', ""));
    assert!(text.contains("== end"), "the guest came to its end: {text}");
    let answers = text.split("\n== ").skip(1);
    let named = |answer: &str| {
        let (name, text) = answer.split_once('\n').unwrap_or((answer, ""));
        (name.to_owned(), text.to_owned())
    };
    Some(answers.map(named).collect())
}

/// The number before a word.
fn before(text: &str, word: &str) -> f64 {
    let (left, _) = text
        .split_once(word)
        .unwrap_or_else(|| panic!("{word}: {text}"));
    let number = left.trim_end().rsplit([' ', '\n']).next();
    let number = number.and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("a number before {word}: {text}"))
}

/// `kept 62 MiB, left 2 MiB after 10.1 s and 2 rounds`.
fn kept_and_left(text: &str) -> (f64, f64) {
    let (kept, left) = text.split_once(", left").expect("both");
    (before(kept, " MiB"), before(left, " MiB"))
}

#[test]
fn a_kernel_of_its_own_shows_memory_high_pressure_and_yama() {
    let Some(said) = said() else { return };
    let of = |name: &str| &*said[name];

    // Free memory stays where nobody asks for its going back, and goes where somebody does.
    let (off, on) = (of("high, pressure 0"), of("high, pressure 1"));
    let _ = write!(std::io::stderr(), "off: {off}on:  {on}");
    let (kept, left) = kept_and_left(off);
    assert!(kept > 40.0 && left > kept * 0.75, "{off}");
    let (kept, left) = kept_and_left(on);
    assert!(kept > 40.0 && left < kept / 2.0, "{on}");
    assert!(!off.contains("high 0\n"), "the kernel held it: {off}");

    // Its group's own files are those that it looks at.
    let files = of("files");
    for name in ["memory.pressure", "memory.events"] {
        assert!(
            files.contains(&format!("/sys/fs/cgroup/app/{name}")),
            "{files}"
        );
    }

    for command in ["stat", "ps", "top", "check"] {
        for (scope, user) in [(0, 0), (0, 1000), (1, 0), (2, 0)] {
            let answer = of(&format!("scope {scope}, user {user}, {command}"));
            assert!(answer.ends_with("exit 0"), "{scope} {user} {answer}");
        }
        for (scope, user, why) in [
            (1, 1000, "needs root here: kernel.yama.ptrace_scope"),
            (2, 1000, "needs root here: kernel.yama.ptrace_scope"),
            (3, 0, "kernel.yama.ptrace_scope below 3"),
            (3, 1000, "kernel.yama.ptrace_scope below 3"),
        ] {
            let name = format!("scope {scope}, user {user}, {command}");
            let answer = of(&name);
            let (line, exit) = answer.split_once('\n').expect("a line and the status");
            assert!(line.contains(why), "{name}: {answer}");
            let expected = if command == "ps" { "exit 1" } else { "exit 2" };
            assert_eq!(exit.trim_end(), expected, "{name}: one line: {answer}");
        }
    }
    assert!(
        of("scope 3, own child").ends_with("exit 0"),
        "run works anywhere"
    );
}
