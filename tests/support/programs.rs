//! Finding programs, and compiling the small ones.

use crate::{finish, library, preloaded, succeed, without};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// A program on the PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Says that a part of a suite is skipped and why, past the test runner, which would show the
/// line of a passing test to nobody.
///
/// With `FLAGSTONE_TESTS_STRICT=1` (set where everything is installed) it fails instead.
pub fn skip(why: &str) {
    assert!(
        std::env::var_os("FLAGSTONE_TESTS_STRICT").is_none(),
        "would skip: {why}"
    );
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Says that a test has nothing to look at because another library than Flagstone is under test.
pub fn other_library() {
    let _ = writeln!(
        std::io::stderr(),
        "skipped: {} is not flagstone",
        library().display()
    );
}

/// A program on the PATH, or a line that says what is skipped and how to have it.
pub fn need(name: &str, package: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        skip(&format!(
            "{name} is not installed (Debian package {package})"
        ));
    }
    found
}

/// Compiles one C or C++ source below the suites' folder; the file's ending says which.
pub fn compile(scratch: &str, source: &str) -> PathBuf {
    compile_with(scratch, source, &["-pthread"])
}

/// Compiles with further flags. `-fno-builtin` keeps the compiler from dropping the very calls
/// that are tested. The program appears whole under its name: tests of one process may compile it at
/// the same time, and none may run what another still writes.
pub fn compile_with(scratch: &str, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let plus = source.extension().is_some_and(|ending| ending == "cpp");
    let (variable, fallback, standard) = if plus {
        ("CXX", "c++", "-std=c++17")
    } else {
        ("CC", "cc", "-std=gnu11")
    };
    let compiler = std::env::var_os(variable).unwrap_or_else(|| fallback.into());
    let stem = source
        .file_stem()
        .expect("a source has a name")
        .to_string_lossy()
        .into_owned();
    let folder = Path::new(scratch).join(std::process::id().to_string());
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    let out = folder.join(format!(
        "{stem}{}",
        flags.join("").replace(['/', '-', '='], "_")
    ));
    let mut command = Command::new(compiler);
    command
        .args([standard, "-O1", "-g", "-w", "-fno-builtin"])
        .args(flags);
    static COMPILED: AtomicU32 = AtomicU32::new(0);
    let own = out.with_added_extension(COMPILED.fetch_add(1, Relaxed).to_string());
    command.arg(&source).arg("-o").arg(&own).args(["-ldl"]);
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("the C compiler: {error}"));
    assert!(
        output.status.success(),
        "{}: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&own, &out).expect("a name in the same folder");
    out
}

/// Runs the same arguments with and without the library and expects the same output.
pub fn same_output_as_without(program: &Path, set_up: impl Fn(&mut Command), limit: Duration) {
    let mut plain = without(program);
    set_up(&mut plain);
    let expected = finish(&mut plain, limit);
    assert!(
        expected.status.success(),
        "fails without the library too: {}",
        expected.stderr
    );
    let mut command = preloaded(program);
    set_up(&mut command);
    let got = succeed(&mut command, limit);
    assert_eq!(got.stdout, expected.stdout, "{}", program.display());
}
