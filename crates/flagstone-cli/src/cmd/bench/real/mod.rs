//! Real programs on inputs that are made here, the same each time, without a network.
//!
//! ```text
//!   bench ─► watch (a small process, nothing preloaded) ─► the program, preloaded ─► its children
//!     ▲            └─ CPU time of the whole tree, largest resident size, page faults ─┐
//!     └──────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The figure is CPU time, user and system, of the whole tree of processes. A program that is not
//! installed leaves a row that says so.

mod inputs;
mod services;
pub mod watch;

use super::allocators::Allocator;
use super::child::{Sample, Scale};
use std::path::{Path, PathBuf};
use watch::Line;

/// A program that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Python with its own allocator above malloc.
    Python,
    /// Python on malloc alone.
    PythonMalloc,
    /// A C++ compiler on templates.
    Gxx,
    /// A C compiler on many functions.
    Gcc,
    /// The same file.
    Clang,
    /// The differences of all commits.
    GitLog,
    /// All objects packed anew.
    GitRepack,
    /// A database in memory.
    Sqlite,
    /// Text and hashes.
    Perl,
    /// Objects and JSON.
    Node,
    /// Tables and strings.
    Lua,
    /// Pages of PostScript drawn.
    Ghostscript,
    /// Objects and strings.
    Ruby,
    /// A key-value server under its own benchmark.
    Redis,
    /// A database server under its own benchmark.
    Postgres,
}

/// Each with its name in the list and what it does.
pub const PROGRAMS: [(&str, Program, &str); 15] = [
    (
        "python",
        Program::Python,
        "a Python program with Python's own allocator",
    ),
    (
        "python-malloc",
        Program::PythonMalloc,
        "the same with PYTHONMALLOC=malloc",
    ),
    ("gxx", Program::Gxx, "g++ -O0 of a file of templates"),
    ("gcc", Program::Gcc, "gcc -O0 of a C file of 200,000 lines"),
    ("clang", Program::Clang, "clang -O0 of the same file"),
    (
        "git-log",
        Program::GitLog,
        "git log -p of a generated history",
    ),
    (
        "git-repack",
        Program::GitRepack,
        "git repack -adf of it, one thread",
    ),
    (
        "sqlite",
        Program::Sqlite,
        "sqlite3: tables, indices and queries in memory",
    ),
    (
        "perl",
        Program::Perl,
        "a Perl program of hashes, strings and sorting",
    ),
    (
        "node",
        Program::Node,
        "a JavaScript program of objects, maps and JSON on Node",
    ),
    (
        "lua",
        Program::Lua,
        "a Lua program of tables, strings and closures",
    ),
    (
        "ghostscript",
        Program::Ghostscript,
        "gs draws generated pages of text and curves",
    ),
    (
        "ruby",
        Program::Ruby,
        "a Ruby program of objects, hashes and strings",
    ),
    (
        "redis",
        Program::Redis,
        "redis-server under redis-benchmark: the server's CPU time",
    ),
    (
        "postgres",
        Program::Postgres,
        "postgres under pgbench: the server's CPU time",
    ),
];

/// Where inputs lie, and by what programs are watched.
pub struct Scene {
    /// A folder of this run.
    pub folder: PathBuf,
    /// This program.
    pub own: PathBuf,
    /// The Python interpreter itself, if there is one.
    pub python: Option<PathBuf>,
    /// The program it runs.
    pub script: PathBuf,
}

impl Program {
    /// One run on one allocator.
    pub fn run(self, scene: &Scene, scale: Scale, on: &Allocator) -> Result<Sample, String> {
        std::fs::create_dir_all(&scene.folder).map_err(|error| cannot(&scene.folder, &error))?;
        match self {
            Program::Redis => services::redis(scene, scale, on),
            Program::Postgres => services::postgres(scene, scale, on),
            _ => self.line(scene, scale)?.watched(&scene.own, on),
        }
    }

    /// What is started; makes the input where it is not there yet.
    fn line(self, scene: &Scene, scale: Scale) -> Result<Line, String> {
        let made = |name: &str, text: fn(Scale) -> String| scene.made(name, || text(scale));
        let script = |name: &str, text: &str| scene.made(name, || text.to_owned());
        let times = |full: u32, quick: u32| scale.pick(full, quick, 1).to_string();
        let line = match self {
            Program::Python | Program::PythonMalloc => {
                let python = scene
                    .python
                    .clone()
                    .ok_or("skipped: no python3 on the PATH")?;
                let line = Line::new(python).word("-S").word("-s").word(&scene.script);
                let line = line.word(times(30, 8)).variable("PYTHONHASHSEED", "0");
                match self {
                    Program::PythonMalloc => line.variable("PYTHONMALLOC", "malloc"),
                    _ => line,
                }
            }
            Program::Gxx => compiler("g++", "g++", made("templates.cpp", inputs::templates)?)?,
            Program::Gcc => compiler("gcc", "gcc", made("functions.c", inputs::functions)?)?,
            Program::Clang => compiler("clang", "clang", made("functions.c", inputs::functions)?)?,
            Program::GitLog => git(scene, scale)?.words(["log", "-p"]),
            Program::GitRepack => {
                git(scene, scale)?.words(["-c", "pack.threads=1", "repack", "-a", "-d", "-f", "-q"])
            }
            Program::Sqlite => {
                let file = made("queries.sql", inputs::queries)?;
                let read = format!(".read {}", file.display());
                Line::new(needed("sqlite3", "sqlite3")?).words([":memory:", &read])
            }
            Program::Perl => Line::new(needed("perl", "perl")?)
                .word(script("program.pl", include_str!("programs/program.pl"))?)
                .word(times(12, 3)),
            Program::Node => Line::new(needed("node", "nodejs")?)
                .word(script("program.js", include_str!("programs/program.js"))?)
                .word(times(12, 3)),
            Program::Lua => Line::new(needed_of(&["lua5.4", "lua"], "lua5.4")?)
                .word(script("program.lua", include_str!("programs/program.lua"))?)
                .word(times(12, 3)),
            Program::Ghostscript => Line::new(needed("gs", "ghostscript")?)
                .words(["-q", "-dNOPAUSE", "-dBATCH", "-dSAFER", "-sDEVICE=ppmraw"])
                .words(["-r100", "-sOutputFile=/dev/null"])
                .word(made("pages.ps", inputs::pages)?),
            Program::Ruby => Line::new(needed("ruby", "ruby")?)
                .word("--disable-gems")
                .word(script("program.rb", include_str!("programs/program.rb"))?)
                .word(times(12, 3)),
            Program::Redis | Program::Postgres => unreachable!("servers are not one line"),
        };
        Ok(line.inside(&scene.folder))
    }
}

impl Scene {
    /// A file of the scene; made once, whole or not at all.
    fn made(&self, name: &str, text: impl FnOnce() -> String) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        if !path.exists() {
            std::fs::write(&path, text()).map_err(|error| cannot(&path, &error))?;
        }
        Ok(path)
    }
}

fn compiler(name: &str, package: &str, file: PathBuf) -> Result<Line, String> {
    let line = Line::new(needed(name, package)?).words(["-O0", "-w", "-c", "-o", "/dev/null"]);
    Ok(line.word(file))
}

/// `git` in the generated repository, with nobody's settings.
fn git(scene: &Scene, scale: Scale) -> Result<Line, String> {
    let git = needed("git", "git")?;
    let repository = scene.folder.join("repository");
    let in_it = |repository: &Path, words: &[&str]| {
        let line = Line::new(git.clone()).word("-C").word(repository);
        line.words(words.iter().copied())
            .variable("HOME", &scene.folder)
            .variable("GIT_CONFIG_NOSYSTEM", "1")
            .variable("GIT_PAGER", "cat")
    };
    if !repository.exists() {
        // Under its name only once it is whole.
        let making = scene.folder.join("repository.making");
        let _ = std::fs::remove_dir_all(&making);
        std::fs::create_dir_all(&making).map_err(|error| cannot(&making, &error))?;
        in_it(&making, &["init", "-q", "--bare", "-b", "main"]).plainly(None)?;
        let history = inputs::history(scale);
        in_it(&making, &["fast-import", "--quiet"]).plainly(Some(history.as_bytes()))?;
        std::fs::rename(&making, &repository).map_err(|error| cannot(&repository, &error))?;
    }
    Ok(in_it(&repository, &[]))
}

fn cannot(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// A program on the PATH, or why its row has no figure.
fn needed(name: &str, package: &str) -> Result<PathBuf, String> {
    needed_of(&[name], package)
}

fn needed_of(names: &[&str], package: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = names
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)));
    let found = files.find(|file| file.is_file());
    let name = names[0];
    found.ok_or_else(|| format!("skipped: no {name} on the PATH (Debian package {package})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_what_to_install() {
        let line = needed("no-such-program", "some-package").unwrap_err();
        assert_eq!(
            line,
            "skipped: no no-such-program on the PATH (Debian package some-package)"
        );
    }

    #[test]
    fn inputs_are_the_same_each_time_and_grow_with_the_scale() {
        let texts = [
            inputs::functions,
            inputs::templates,
            inputs::queries,
            inputs::pages,
            inputs::history,
        ];
        for make in texts {
            assert_eq!(make(Scale::Smoke), make(Scale::Smoke));
            assert!(make(Scale::Smoke).len() < make(Scale::Quick).len());
        }
        let lines = inputs::functions(Scale::Full).lines().count();
        assert!((199_000..201_000).contains(&lines), "{lines}");
    }
}
