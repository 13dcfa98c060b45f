//! Whoever builds against Flagstone: from an installed tree and from the Rust crate, each in a folder
//! of its own, with nothing in the environment but a path.

mod kernel;

use flagstone_tests::{LIMIT, find, finish, is_flagstone, need, other_library, skip};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/consumers");

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace's folder")
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace());
    cargo
}

/// An installed tree, made once; `None` where another library is under test.
fn installed() -> Option<&'static Path> {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    if !is_flagstone() {
        other_library();
        return None;
    }
    Some(ROOT.get_or_init(|| {
        let root = fresh("installed");
        let status = cargo()
            .args([
                "run",
                "--quiet",
                "-p",
                "xtask",
                "--",
                "install",
                "--libraries",
            ])
            .args(["--prefix", "/usr", "--destdir"])
            .arg(&root)
            .status()
            .expect("cargo runs");
        assert!(status.success(), "xtask install failed");
        root.join("usr")
    }))
}

/// An empty folder.
fn fresh(name: &str) -> PathBuf {
    let folder = Path::new(SCRATCH).join(format!("consumers-{}", std::process::id()));
    let folder = folder.join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    folder
}

/// A command that knows nothing but where programs lie.
fn clean(program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().current_dir(folder);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

fn run(command: &mut Command) -> String {
    let finished = finish(command, LIMIT);
    assert!(
        finished.status.success(),
        "{command:?}: {}\n{}{}",
        finished.status,
        finished.stdout,
        finished.stderr
    );
    finished.stdout
}

fn copy(source: &str, folder: &Path) -> PathBuf {
    let from = Path::new(SOURCES).join(source);
    let to = folder.join(from.file_name().expect("a file"));
    std::fs::copy(&from, &to).expect("a copy");
    to
}

/// What pkg-config says about the installed library.
fn pkg_config(root: &Path, words: &[&str]) -> Vec<String> {
    let mut command = clean("pkg-config", root);
    command.env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"));
    let said = run(command.args(words).arg("flagstone"));
    said.split_whitespace().map(String::from).collect()
}

#[test]
fn a_c_program_builds_by_pkg_config_and_runs_on_the_shared_library() {
    let Some(root) = installed() else { return };
    if need("pkg-config", "pkg-config").is_none() {
        return;
    }
    let folder = fresh("pkg-config");
    let source = copy("caches.c", &folder);
    let program = folder.join("caches");
    let mut compile = clean("cc", &folder);
    compile.args([
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fno-builtin",
        "-pthread",
    ]);
    compile.arg(source).arg("-o").arg(&program);
    run(compile.args(pkg_config(root, &["--cflags", "--libs"])));
    let mut command = clean(&program, &folder);
    command.env("LD_LIBRARY_PATH", root.join("lib"));
    assert!(run(&mut command).contains("all held"));
    // Linked against the number, and one library in memory where it is preloaded by its plain name too.
    assert!(run(clean("readelf", &folder).arg("-d").arg(&program)).contains("libflagstone.so.0"));
    command.env("LD_PRELOAD", root.join("lib/libflagstone.so"));
    assert!(run(&mut command).contains("all held"));
    assert_eq!(
        pkg_config(root, &["--modversion"]),
        [env!("CARGO_PKG_VERSION")]
    );
}

#[test]
fn a_c_program_builds_by_cmake_with_either_library() {
    let Some(root) = installed() else { return };
    if need("cmake", "cmake").is_none() {
        return;
    }
    let folder = fresh("cmake");
    copy("caches.c", &folder);
    copy("cmake/CMakeLists.txt", &folder);
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", root.display());
    let flags = "-DCMAKE_C_FLAGS=-fno-builtin";
    run(clean("cmake", &folder).args(["-S", ".", "-B", "build", &prefix, flags]));
    run(clean("cmake", &folder).args(["--build", "build"]));
    for program in ["with_flagstone", "with_static"] {
        let said = run(&mut clean(folder.join("build").join(program), &folder));
        assert!(said.contains("all held"), "{program}: {said}");
    }
    // A version that this one does not serve is refused.
    let lists = folder.join("CMakeLists.txt");
    let text = std::fs::read_to_string(&lists).expect("the copy");
    std::fs::write(&lists, text.replace("flagstone 0.1", "flagstone 0.9")).expect("the copy");
    let newer = finish(
        clean("cmake", &folder).args(["-S", ".", "-B", "newer", &prefix]),
        LIMIT,
    );
    assert!(!newer.status.success());
}

#[test]
fn pmr_containers_run_on_typed_caches() {
    let Some(root) = installed() else { return };
    let folder = fresh("pmr");
    let source = copy("resource.cpp", &folder);
    let program = folder.join("resource");
    let mut compile = clean("c++", &folder);
    compile.args(["-std=c++17", "-Wall", "-Wextra", "-Werror"]);
    compile.arg("-I").arg(root.join("include")).arg(source);
    compile
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(root.join("lib"));
    run(compile.arg("-lflagstone"));
    let mut command = clean(&program, &folder);
    command.env("LD_LIBRARY_PATH", root.join("lib"));
    assert!(run(&mut command).contains("all held"));
}

#[test]
fn static_programs_of_either_c_library_run_on_the_archive() {
    let Some(root) = installed() else { return };
    let folder = fresh("static");
    let source = copy("caches.c", &folder);
    for (compiler, kind) in [
        ("cc", "-static"),
        ("cc", "-static-pie"),
        ("musl-gcc", "-static"),
    ] {
        if find(compiler).is_none() {
            skip("musl-gcc is not installed (Debian package musl-tools)");
            continue;
        }
        let program = folder.join(format!("{compiler}{kind}"));
        let mut compile = clean(compiler, &folder);
        compile.args([kind, "-std=gnu11", "-fno-builtin", "-pthread", "-I"]);
        compile.arg(root.join("include")).arg(&source);
        compile.arg(root.join("lib/libflagstone.a"));
        run(compile.arg("-o").arg(&program));
        let said = run(&mut clean(&program, &folder));
        assert!(said.contains("all held"), "{compiler} {kind}: {said}");
    }
}

/// The functions a header declares: names of ours before a parenthesis.
fn declared() -> BTreeSet<String> {
    let header = workspace().join("include/flagstone/flagstone.h");
    let text = std::fs::read_to_string(header).expect("the header");
    let code: String = text
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code))
        .collect();
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices('(') {
        let word = code[..at]
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
            .next();
        let ours = word.filter(|name| name.starts_with("fs_") || name.starts_with("flagstone_"));
        names.extend(ours.map(String::from));
    }
    names
}

fn defined(file: &Path, flags: &[&str]) -> BTreeSet<String> {
    let mut nm = clean("nm", Path::new(SCRATCH));
    let said = run(nm.args(flags).arg(file));
    let names = said
        .lines()
        .filter_map(|line| match *line.split(' ').collect::<Vec<_>>() {
            [_, "T", name] => Some(name),
            _ => None,
        });
    let ours = names.filter(|name| name.starts_with("fs_") || name.starts_with("flagstone_"));
    ours.map(String::from).collect()
}

#[test]
fn header_and_libraries_have_the_same_functions() {
    let Some(root) = installed() else { return };
    let declared = declared();
    assert!(declared.len() >= 17, "{declared:?}");
    let shared = defined(&root.join("lib/libflagstone.so"), &["-D", "--defined-only"]);
    assert_eq!(shared, declared);
    let archive = defined(&root.join("lib/libflagstone.a"), &["--defined-only"]);
    assert_eq!(archive, declared);
}

#[test]
fn the_header_stands_alone_in_c99_and_in_cpp() {
    let folder = fresh("header");
    for (compiler, standard, name) in [("cc", "-std=c99", "h.c"), ("c++", "-std=c++11", "h.cpp")] {
        std::fs::write(folder.join(name), "#include <flagstone/flagstone.h>\n").expect("a file");
        let mut compile = clean(compiler, &folder);
        compile.args([
            standard,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsyntax-only",
            "-I",
        ]);
        run(compile.arg(workspace().join("include")).arg(name));
    }
}

/// Builds the Rust consumer with `features` for `target`; the program.
fn cargo_consumer(folder: &Path, features: &str, target: Option<&str>) -> PathBuf {
    std::fs::create_dir_all(folder.join("src")).expect("a folder");
    copy("cargo/main.rs", &folder.join("src"));
    let manifest = format!(
        "[package]\nname = \"consumer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\nflagstone = {{ path = {:?}, features = [{features}] }}\n",
        workspace().join("crates/flagstone")
    );
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest");
    // The same versions that the workspace has: no network is asked.
    std::fs::copy(workspace().join("Cargo.lock"), folder.join("Cargo.lock")).expect("a copy");
    let mut build = cargo();
    build
        .current_dir(folder)
        .args(["build", "--offline", "--quiet"]);
    build.env("CARGO_TARGET_DIR", folder.join("target"));
    let mut built = folder.join("target");
    if let Some(target) = target {
        build.args(["--target", target]);
        built.push(target);
    }
    run(&mut build);
    built.join("debug/consumer")
}

/// The crate with its lowest Rust; the C library's names need a later one.
#[test]
fn the_crate_builds_with_the_lowest_rust_that_it_states() {
    checks_with_the_lowest("flagstone", &[]);
}

#[test]
fn the_c_face_builds_with_the_lowest_rust_that_it_states() {
    checks_with_the_lowest("flagstone-abi", &["--features", "flagstone/alloc-override"]);
}

/// Checks `flagstone` by the Rust that the manifest of `of` states.
fn checks_with_the_lowest(of: &str, features: &[&str]) {
    let manifest = workspace().join(format!("crates/{of}/Cargo.toml"));
    let manifest = std::fs::read_to_string(manifest).expect("the manifest");
    let stated = manifest.split("rust-version = \"").nth(1);
    let lowest = stated.and_then(|rest| rest.split('"').next());
    let toolchain = format!("{}.0", lowest.expect("a version"));
    let mut which = Command::new("rustup");
    let there = which
        .args(["run", &toolchain, "rustc", "--version"])
        .output();
    if !there.is_ok_and(|output| output.status.success()) {
        skip(&format!(
            "Rust {toolchain} is not installed (rustup toolchain install {toolchain})"
        ));
        return;
    }
    let mut build = Command::new("rustup");
    build.args(["run", &toolchain, "cargo", "check", "--offline", "--quiet"]);
    build.args(["-p", "flagstone"]).args(features);
    // What cargo tells a test of the toolchain that runs it.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        build.env_remove(name);
    }
    build
        .current_dir(workspace())
        .env("CARGO_TARGET_DIR", fresh(&format!("lowest-{of}")));
    run(&mut build);
}

/// Whether a program has a `malloc` of its own.
fn defines_malloc(program: &Path) -> bool {
    let said = run(clean("nm", Path::new(SCRATCH)).arg(program));
    said.lines().any(|line| line.ends_with(" T malloc"))
}

#[test]
fn a_rust_program_has_the_allocator_and_c_keeps_its_own() {
    let folder = fresh("cargo");
    let program = cargo_consumer(&folder, "", None);
    assert!(!defines_malloc(&program));
    assert!(run(&mut clean(&program, &folder)).contains("shared with C: false"));
}

#[test]
fn with_the_override_c_shares_the_heap_of_a_rust_program() {
    let folder = fresh("cargo-override");
    let program = cargo_consumer(&folder, "\"alloc-override\"", None);
    assert!(defines_malloc(&program));
    assert!(run(&mut clean(&program, &folder)).contains("shared with C: true"));
}

#[test]
fn a_static_rust_program_for_musl_runs_on_it() {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut rustc = Command::new("rustc");
    let said = run(rustc.args(["--print", "target-libdir", "--target", &target]));
    if !Path::new(said.trim()).join("self-contained").exists() {
        skip(&format!(
            "no Rust library for {target} (rustup target add {target})"
        ));
        return;
    }
    for (name, features, shared) in [
        ("musl", "", "shared with C: false"),
        ("musl-override", "\"alloc-override\"", "shared with C: true"),
    ] {
        let folder = fresh(name);
        let program = cargo_consumer(&folder, features, Some(&target));
        assert!(
            run(&mut clean(&program, &folder)).contains(shared),
            "{name}"
        );
    }
}
