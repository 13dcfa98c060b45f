//! How each peer is built: its authors' own release settings, nothing tuned here.

use crate::sources::Found;
use crate::step;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A peer: which crate carries it, what to call it, how to build it.
pub struct Peer {
    /// Name in the bench's tables.
    pub name: &'static str,
    /// Crate whose source tree is used.
    pub package: &'static str,
    /// Upstream version, from the crate's version or the sources.
    pub version: fn(&Found) -> String,
    /// Source root, scratch folder, library to produce.
    pub build: fn(&Path, &Path, &Path) -> Result<(), String>,
}

/// Every peer this builder knows.
pub const PEERS: &[Peer] = &[
    Peer {
        name: "mimalloc2",
        package: "libmimalloc-sys",
        version: |found| mimalloc_version(&found.root.join("c_src/mimalloc/v2")),
        build: |root, _, out| mimalloc(&root.join("c_src/mimalloc/v2"), out),
    },
    Peer {
        name: "mimalloc3",
        package: "libmimalloc-sys",
        version: |found| mimalloc_version(&found.root.join("c_src/mimalloc/v3")),
        build: |root, _, out| mimalloc(&root.join("c_src/mimalloc/v3"), out),
    },
    Peer {
        name: "rpmalloc",
        package: "rpmalloc-sys",
        version: |found| first_line(&found.root.join("rpmalloc/CHANGELOG")),
        build: rpmalloc,
    },
    Peer {
        name: "jemalloc",
        package: "tikv-jemalloc-sys",
        version: |found| {
            let upstream = found
                .version
                .split_once('+')
                .map_or("", |(_, upstream)| upstream);
            upstream.split('-').next().unwrap_or_default().to_owned()
        },
        build: jemalloc,
    },
    Peer {
        name: "snmalloc",
        package: "snmalloc-sys",
        version: crate_version,
        build: snmalloc,
    },
    Peer {
        name: "scudo",
        package: "scudo-sys",
        version: crate_version,
        build: scudo,
    },
    Peer {
        name: "tcmalloc",
        package: "libtcmalloc-sys",
        version: crate_version,
        build: tcmalloc,
    },
];

fn crate_version(found: &Found) -> String {
    found
        .version
        .split('+')
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn first_line(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// `#define MI_MALLOC_VERSION 30302` is 3.3.2.
fn mimalloc_version(root: &Path) -> String {
    let header = std::fs::read_to_string(root.join("include/mimalloc.h")).unwrap_or_default();
    let number: u32 = header
        .lines()
        .find_map(|line| line.strip_prefix("#define MI_MALLOC_VERSION"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    format!(
        "{}.{}.{}",
        number / 10_000,
        number / 100 % 100,
        number % 100
    )
}

fn compiler(name: &str, fallback: &str) -> Command {
    Command::new(std::env::var_os(name).unwrap_or_else(|| fallback.into()))
}

fn mimalloc(root: &Path, out: &Path) -> Result<(), String> {
    step(
        compiler("CC", "cc")
            .args(["-O3", "-DNDEBUG", "-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB"])
            .args([
                "-DMI_SHARED_LIB_EXPORT",
                "-D_GNU_SOURCE",
                "-std=gnu11",
                "-fPIC",
                "-shared",
            ])
            .args([
                "-fvisibility=hidden",
                "-ftls-model=initial-exec",
                "-fno-builtin-malloc",
            ])
            .arg("-I")
            .arg(root.join("include"))
            .arg(root.join("src/static.c"))
            .args(["-lpthread", "-lrt", "-latomic", "-o"])
            .arg(out),
    )
}

fn rpmalloc(root: &Path, _work: &Path, out: &Path) -> Result<(), String> {
    step(
        compiler("CC", "cc")
            .args([
                "-O3",
                "-DNDEBUG",
                "-DENABLE_PRELOAD=1",
                "-DENABLE_OVERRIDE=1",
            ])
            .args([
                "-D_GNU_SOURCE",
                "-std=gnu11",
                "-fPIC",
                "-shared",
                "-ftls-model=initial-exec",
            ])
            .args(["-fno-math-errno", "-funroll-loops", "-fno-builtin-malloc"])
            .arg(root.join("rpmalloc/rpmalloc/rpmalloc.c"))
            .args(["-lpthread", "-ldl", "-o"])
            .arg(out),
    )
}

/// Copied first: its build writes into the source tree, and cargo's copy is to stay as it is.
fn jemalloc(root: &Path, work: &Path, out: &Path) -> Result<(), String> {
    let tree = work.join("tree");
    step(
        Command::new("cp")
            .arg("-r")
            .arg(root.join("jemalloc"))
            .arg(&tree),
    )?;
    step(
        Command::new("cp")
            .arg(root.join("configure/configure"))
            .arg(&tree),
    )?;
    let version = "5.3.1-0-g81034ce1f1373e37dc865038e1bc8eeecf559ce8";
    step(
        Command::new("sh")
            .arg("configure")
            .args(["--disable-cxx", "--disable-doc", "--disable-libdl"])
            .arg(format!("--with-version={version}"))
            .current_dir(&tree),
    )?;
    step(
        Command::new("make")
            .args(["-j2", "build_lib_shared"])
            .current_dir(&tree),
    )?;
    step(
        Command::new("cp")
            .arg("-L")
            .arg(tree.join("lib/libjemalloc.so"))
            .arg(out),
    )
}

fn snmalloc(root: &Path, work: &Path, out: &Path) -> Result<(), String> {
    let overrides = root.join("upstream/src/snmalloc/override");
    step(
        compiler("CXX", "c++")
            .args([
                "-O3",
                "-DNDEBUG",
                "-std=c++20",
                "-mcx16",
                "-fPIC",
                "-shared",
            ])
            .args([
                "-fomit-frame-pointer",
                "-ftls-model=initial-exec",
                "-pthread",
            ])
            .args(["-fvisibility=hidden", "-DMALLOC_USABLE_SIZE_QUALIFIER="])
            .args([
                "-DSNMALLOC_USE_WAIT_ON_ADDRESS=1",
                "-DSNMALLOC_USE_CXX11_THREAD_ATEXIT_DIRECT",
            ])
            .arg("-DSNMALLOC_EXPORT=__attribute__((visibility(\"default\")))")
            .arg("-I")
            .arg(root.join("upstream/src"))
            .arg(overrides.join("malloc.cc"))
            .arg(overrides.join("new.cc"))
            .args(["-latomic", "-o"])
            .arg(out)
            .current_dir(work),
    )
}

fn scudo(root: &Path, work: &Path, out: &Path) -> Result<(), String> {
    let tree = root.join("scudo-standalone");
    let mut files = files_with(&tree, ".cpp")?;
    files.retain(|path| !path.ends_with("wrappers_c_bionic.cpp"));
    step(
        compiler("CXX", "c++")
            .args([
                "-O3",
                "-DNDEBUG",
                "-std=c++17",
                "-msse4.2",
                "-mcrc32",
                "-fPIC",
                "-shared",
            ])
            .args([
                "-fno-exceptions",
                "-fno-rtti",
                "-ftls-model=initial-exec",
                "-pthread",
            ])
            .args(["-fno-builtin", "-fvisibility=hidden"])
            .arg("-I")
            .arg(tree.join("include"))
            .args(files)
            .arg("-o")
            .arg(out)
            .current_dir(work),
    )
}

/// Google's tcmalloc with abseil. Its file list is the one in the crate's build script; only the
/// crate's bridge file gives way to the file that overrides malloc.
fn tcmalloc(root: &Path, work: &Path, out: &Path) -> Result<(), String> {
    let script = std::fs::read_to_string(root.join("build.rs")).map_err(|e| e.to_string())?;
    let mut files: Vec<PathBuf> = script
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","))
        .filter(|name| name.starts_with("c_src/") && !name.ends_with("_bridge.cc"))
        .filter(|name| name.ends_with(".cc") || name.ends_with(".S"))
        .map(|name| root.join(name))
        .collect();
    files.push(root.join("c_src/tcmalloc/tcmalloc/tcmalloc.cc"));
    let mut objects = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let object = work.join(format!("{index}.o"));
        step(
            compiler("CXX", "c++")
                .args([
                    "-O2",
                    "-DNDEBUG",
                    "-DNOMINMAX",
                    "-std=c++17",
                    "-fPIC",
                    "-w",
                    "-c",
                ])
                .args(["-DTCMALLOC_INTERNAL_8K_PAGES", "-ftls-model=initial-exec"])
                .arg("-I")
                .arg(root.join("c_src/abseil-cpp"))
                .arg("-I")
                .arg(root.join("c_src/tcmalloc"))
                .arg(file)
                .arg("-o")
                .arg(&object),
        )?;
        objects.push(object);
    }
    step(
        compiler("CXX", "c++")
            .args(["-shared", "-pthread"])
            .args(objects)
            .args(["-lrt", "-ldl", "-o"])
            .arg(out),
    )
}

fn files_with(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    files.sort();
    Ok(files)
}
