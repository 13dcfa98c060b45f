//! CPython: parts of its own test suite, with every allocation through malloc.

use flagstone_tests::{Finished, find, finish, need, preloaded, skip, succeed, without};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1200);

/// Objects, text and numbers.
const DATA: &[&str] = &[
    "test_dict",
    "test_list",
    "test_set",
    "test_tuple",
    "test_str",
    "test_unicode",
    "test_bytes",
    "test_long",
    "test_float",
    "test_int",
    "test_array",
    "test_memoryview",
    "test_json",
    "test_re",
    "test_sort",
    "test_struct",
    "test_string",
    "test_slice",
    "test_range",
    "test_complex",
    "test_deque",
    "test_heapq",
    "test_collections",
    "test_itertools",
    "test_functools",
    "test_generators",
    "test_iter",
    "test_copy",
    "test_pickle",
    "test_marshal",
    "test_hashlib",
    "test_decimal",
    "test_fractions",
    "test_random",
    "test_weakref",
    "test_gc",
    "test_descr",
    "test_class",
    "test_enum",
    "test_dataclasses",
    "test_types",
    "test_ast",
    "test_compile",
    "test_grammar",
    "test_exceptions",
    "test_call",
    "test_code",
    "test_zlib",
    "test_bz2",
    "test_lzma",
    "test_csv",
    "test_sqlite3",
    "test_xml_etree",
    "test_email",
    "test_textwrap",
];

/// Processes, threads, files and sockets.
const SYSTEM: &[&str] = &[
    "test_threading",
    "test_thread",
    "test_threadedtempfile",
    "test_threading_local",
    "test_queue",
    "test_fork1",
    "test_subprocess",
    "test_io",
    "test_fileio",
    "test_bufio",
    "test_tempfile",
    "test_mmap",
    "test_ctypes",
    "test_signal",
    "test_select",
    "test_socketserver",
    "test_concurrent_futures",
    "test_tracemalloc",
    "test_faulthandler",
    "test_contextlib",
    "test_sched",
    "test_shelve",
    "test_glob",
    "test_posix",
    "test_resource",
];

/// An interpreter that has its own tests: the one on the PATH, or the distribution's.
fn interpreter() -> Option<PathBuf> {
    let candidates = [find("python3"), Some(PathBuf::from("/usr/bin/python3"))];
    let found = candidates.into_iter().flatten().find_map(|python| {
        let code = "import sys, test.test_dict, test.regrtest; print(sys.executable)";
        let output = Command::new(python).args(["-c", code]).output().ok()?;
        output
            .status
            .success()
            .then(|| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    });
    if found.is_none() {
        skip("no python3 with its test suite (Debian packages python3 libpython3-testsuite)");
    }
    found
}

fn suite<'a>(command: &'a mut Command, modules: &[&str], scratch: &Path) -> &'a mut Command {
    command
        .env("PYTHONMALLOC", "malloc")
        .current_dir(scratch)
        .args(["-m", "test", "-j2", "--timeout", "300"])
        .args(modules)
}

/// Modules named after "N tests failed:" in regrtest's summary.
fn failed(finished: &Finished) -> Vec<String> {
    let mut lines = finished
        .stdout
        .lines()
        .skip_while(|line| !line.contains(" failed:"));
    lines.next();
    lines
        .take_while(|line| line.starts_with("    "))
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect()
}

/// A module that fails here must also fail without the library; it is then named and left.
fn passes_as_without(modules: &[&str]) {
    let Some(python) = interpreter() else { return };
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let present: Vec<&str> = modules
        .iter()
        .copied()
        .filter(|module| {
            let code =
                format!("import importlib.util as u; exit(u.find_spec('test.{module}') is None)");
            Command::new(&python)
                .args(["-c", &code])
                .status()
                .is_ok_and(|status| status.success())
        })
        .collect();
    assert!(
        present.len() * 2 > modules.len(),
        "most modules are there: {present:?}"
    );
    let finished = finish(
        suite(&mut preloaded(&python), &present, scratch.path()),
        LIMIT,
    );
    if finished.status.success() {
        return;
    }
    let failed = failed(&finished);
    assert!(
        !failed.is_empty(),
        "{}\n{}\n{}",
        finished.status,
        finished.stdout,
        finished.stderr
    );
    for module in failed {
        let alone = finish(
            suite(&mut preloaded(&python), &[&module], scratch.path()),
            LIMIT,
        );
        if alone.status.success() {
            continue;
        }
        let plain = finish(
            suite(&mut without(&python), &[&module], scratch.path()),
            LIMIT,
        );
        assert!(
            !plain.status.success(),
            "{module} fails only with the library\n{}\n{}",
            alone.stdout,
            alone.stderr
        );
        let line = format!("{module} fails without the library too");
        skip(&line);
    }
}

#[test]
fn cpythons_own_tests_of_objects_pass() {
    passes_as_without(DATA);
}

#[test]
fn cpythons_own_tests_of_threads_and_processes_pass() {
    passes_as_without(SYSTEM);
}

#[test]
fn a_python_program_with_worker_processes_and_threads_runs() {
    let Some(python) = need("python3", "python3") else {
        return;
    };
    let code = "
import concurrent.futures as f, multiprocessing as m
def work(n): return sum(len(str(i)) for i in range(n))
if __name__ == '__main__':
    with f.ThreadPoolExecutor(8) as pool: a = sum(pool.map(work, [20000] * 16))
    with m.get_context('fork').Pool(4) as pool: b = sum(pool.map(work, [20000] * 16))
    print(a == b, a)
";
    let mut command = preloaded(python);
    command.env("PYTHONMALLOC", "malloc").args(["-c", code]);
    assert_eq!(succeed(&mut command, LIMIT).stdout, "True 1422240\n");
}
