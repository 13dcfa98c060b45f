//! The Debian packages, unpacked into a clean root, installed by dpkg where that is allowed.

use crate::{clean, fresh, run, workspace, xtask};
use flagstone_tests::{build_program, find, is_flagstone, need, other_library, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The packages, built once: library, development files, command.
fn packages() -> Option<&'static [PathBuf]> {
    static BUILT: OnceLock<Option<Vec<PathBuf>>> = OnceLock::new();
    let make = || {
        if !is_flagstone() {
            other_library();
            return None;
        }
        need("dpkg-deb", "dpkg")?;
        let out = fresh("debian");
        let mut build = xtask(&[
            "deb".as_ref(),
            "--command".as_ref(),
            build_program().as_ref(),
            "--out".as_ref(),
            out.as_ref(),
        ]);
        run(&mut build);
        let entries = std::fs::read_dir(&out).expect("a folder");
        let mut built: Vec<PathBuf> = entries
            .map(|entry| entry.expect("an entry").path())
            .collect();
        // flagstone, libflagstone-dev, libflagstone0.
        built.sort();
        assert_eq!(built.len(), 3, "{built:?}");
        Some(built)
    };
    BUILT.get_or_init(make).as_deref()
}

/// All three, unpacked into an empty root.
fn unpacked(name: &str) -> Option<PathBuf> {
    let root = fresh(name);
    for package in packages()? {
        run(clean("dpkg-deb", &root).arg("-x").arg(package).arg(&root));
    }
    Some(root)
}

fn field(package: &Path, name: &str) -> String {
    let mut ask = clean("dpkg-deb", Path::new("/"));
    run(ask.arg("-f").arg(package).arg(name))
        .0
        .trim()
        .to_owned()
}

fn triplet() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

#[test]
fn packages_say_what_they_need_and_hold_what_a_debian_system_expects() {
    let Some(packages) = packages() else { return };
    let [command, development, library] = packages else {
        unreachable!()
    };
    assert_eq!(field(library, "Package"), "libflagstone0");
    assert!(field(library, "Depends").starts_with("libc6 (>= 2."));
    assert_eq!(
        field(development, "Depends"),
        concat!("libflagstone0 (= ", env!("CARGO_PKG_VERSION"), ")")
    );
    assert!(field(command, "Depends").starts_with("libc6 (>= 2."));
    let root = unpacked("deb-files").expect("packages are built");
    let lib = root.join("usr/lib").join(triplet());
    for file in [
        "usr/bin/flagstone",
        "usr/include/flagstone/flagstone.h",
        "usr/share/man/man1/flagstone.1.gz",
        "usr/share/man/man1/flagstone-run.1.gz",
        "usr/share/bash-completion/completions/flagstone",
        "usr/share/zsh/vendor-completions/_flagstone",
        "usr/share/fish/vendor_completions.d/flagstone.fish",
        "usr/share/doc/libflagstone0/copyright",
        "usr/share/doc/flagstone/changelog.gz",
    ] {
        assert!(root.join(file).is_file(), "{file} is missing");
    }
    assert_eq!(
        std::fs::read_link(lib.join("libflagstone.so")).expect("a link"),
        Path::new("libflagstone.so.0")
    );
    let mut dynamic = clean("objdump", &root);
    let (text, _) = run(dynamic.arg("-p").arg(lib.join("libflagstone.so.0")));
    let soname = text.lines().find(|line| line.contains("SONAME"));
    assert!(
        soname.is_some_and(|line| line.ends_with(" libflagstone.so.0")),
        "{text}"
    );
}

#[test]
fn a_consumer_builds_against_the_unpacked_packages_and_the_command_runs_it() {
    let Some(root) = unpacked("deb-consumer") else {
        return;
    };
    if need("pkg-config", "pkg-config").is_none() {
        return;
    }
    let lib = root.join("usr/lib").join(triplet());
    let mut ask = clean("pkg-config", &root);
    ask.env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    let (flags, _) = run(ask.args(["--cflags", "--libs", "flagstone"]));
    let program = root.join("caches");
    let mut compile = clean("cc", &root);
    compile.args(["-std=gnu11", "-fno-builtin", "-pthread"]);
    compile.arg(workspace().join("tests/consumers/caches.c"));
    compile
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program);
    run(&mut compile);
    let mut consumer = clean(&program, &root);
    consumer.env("LD_LIBRARY_PATH", &lib);
    assert!(run(&mut consumer).0.contains("all held"));
    let mut command = clean(root.join("usr/bin/flagstone"), &root);
    let (_, answer) = run(command.args(["run", "--", "ls", "/"]));
    assert!(answer.contains("Where its memory was"), "{answer}");
    let mut page = Command::new("gzip");
    let page = page
        .arg("-dc")
        .arg(root.join("usr/share/man/man1/flagstone-run.1.gz"));
    assert!(run(page).0.contains("Example"));
}

#[test]
fn dpkg_installs_into_an_empty_system_where_the_command_runs_and_removes_all_of_it() {
    let Some(packages) = packages() else { return };
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 || find("dpkg").is_none() || find("chroot").is_none() {
        skip("dpkg into an empty root: needs root, dpkg and chroot");
        return;
    }
    let root = fresh("deb-root");
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "tmp"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    for file in ["status", "available"] {
        std::fs::write(root.join("var/lib/dpkg").join(file), "").expect("a file");
    }
    let dpkg = |words: &[&str]| {
        let mut dpkg = clean("dpkg", &root);
        let path = std::env::var("PATH").unwrap_or_default();
        dpkg.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        dpkg.arg(format!("--root={}", root.display()));
        // The empty system has no C library as a package; it gets the files below.
        dpkg.args(["--force-depends", "--force-not-root"])
            .args(words);
        dpkg
    };
    run(dpkg(&["--install"]).args(packages));
    let (status, _) = run(&mut dpkg(&["--list"]));
    assert_eq!(
        status.lines().filter(|line| line.starts_with("ii")).count(),
        3,
        "{status}"
    );
    let (needed, _) = run(clean("ldd", &root).arg(root.join("usr/bin/flagstone")));
    let files = needed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for file in files {
        let to = root.join(file.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().expect("in a folder")).expect("a folder");
        std::fs::copy(file, to).expect("a copy of the C library");
    }
    let mut inside = clean("chroot", &root);
    inside.arg(&root).args(["/usr/bin/flagstone", "run", "--"]);
    let (version, answer) = run(inside.args(["/usr/bin/flagstone", "--version"]));
    assert!(
        version.starts_with(concat!("flagstone ", env!("CARGO_PKG_VERSION"))),
        "{version}"
    );
    assert!(answer.contains("peak"), "{answer}");
    run(&mut dpkg(&[
        "--purge",
        "flagstone",
        "libflagstone-dev",
        "libflagstone0",
    ]));
    for file in [
        "usr/bin/flagstone",
        "usr/include/flagstone",
        "usr/share/doc/flagstone",
    ] {
        assert!(!root.join(file).exists(), "{file} is left");
    }
}

#[test]
fn the_documented_line_for_images_appends_to_the_variable() {
    let Some(root) = unpacked("deb-append") else {
        return;
    };
    let library = root
        .join("usr/lib")
        .join(triplet())
        .join("libflagstone.so.0");
    let document = std::fs::read_to_string(workspace().join("docs/install.md")).expect("a file");
    let line = document
        .lines()
        .find(|line| line.trim().starts_with("'LD_PRELOAD="));
    let line = line.expect("the line").trim();
    let (shell, _) = line[1..].split_once('\'').expect("in quotes");
    let shell = shell.replace("/opt/libflagstone.so.0", &library.display().to_string());
    for (before, after) in [(None, ""), (Some("libm.so.6"), ":libm.so.6")] {
        let mut image = clean("/bin/sh", &root);
        if let Some(before) = before {
            image.env("LD_PRELOAD", before);
        }
        image.args(["-c", &shell, "--", "/bin/sh", "-c", "echo $LD_PRELOAD"]);
        let (said, _) = run(&mut image);
        assert_eq!(said.trim(), format!("{}{after}", library.display()));
    }
}
