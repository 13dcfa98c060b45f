//! The library and the simulator's digests on other machines: `cargo xtask portable`.
//!
//! ```text
//!   musl      the library as built for glibc, preloaded into programs that musl-gcc made
//!   aarch64   the library, the digests and the core's own tests under qemu-aarch64
//! ```
//!
//! A part whose tools are missing says in one line what it would need, and is no failure.

use crate::programs::{Outcome, PROGRAMS, Program, Surface};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The name that programs linked with the library ask for.
const SONAME: &str = "libflagstone.so.0";
const AARCH64: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER";
const RUNNER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER";
/// Where Debian's cross compilers keep the C library for programs they make.
const ROOT: &str = "/usr/aarch64-linux-gnu";
/// Address space a program of `tests/` may have under the emulator. Why 16 GiB: the emulator keeps an entry for
/// each page that is mapped, reserved ones too, so that a reservation of 1 TiB costs it 13 GB and
/// a minute.
const SPACE: &str = "--as=17179869184";
/// What an emulator cannot show: the last look at a program's end is only where no other thread is,
/// and the emulator has one of its own.
const NOT_EMULATED: &str = "misuse/double_free_of_overwritten.c";
/// Instructions of the functions programs call most, at most: today's figures, the jumps to the
/// cold functions included. Where a change pays for itself elsewhere, raise one here, and say
/// what it pays in the commit.
const BOUNDS: [(&str, u64); 4] = [("malloc", 31), ("free", 50), ("_Znwm", 32), ("_ZdlPvm", 50)];

/// What went wrong, one a line.
pub fn check(root: &Path) -> Vec<String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let place = Place { root, target };
    let mut failures = Vec::new();
    for (name, part) in [("musl", musl as Part), ("aarch64", aarch64)] {
        match part(&place) {
            Ok(Done { ran, failed }) => {
                println!("{name}: {ran} checks, {} failed", failed.len());
                failures.extend(failed.into_iter().map(|line| format!("{name}: {line}")));
            }
            Err(needs) => println!("{name}: not run: {needs}"),
        }
    }
    failures
}

type Part = fn(&Place<'_>) -> Result<Done, String>;

/// What a part did.
#[derive(Default)]
struct Done {
    ran: usize,
    failed: Vec<String>,
}

impl Done {
    fn note(&mut self, what: &str, verdict: Result<(), String>) {
        self.ran += 1;
        if let Err(why) = verdict {
            self.failed.push(format!("{what}: {why}"));
        }
    }
}

struct Place<'a> {
    root: &'a Path,
    target: PathBuf,
}

impl Place<'_> {
    fn cargo(&self, words: &[&str]) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args(words)
            .current_dir(self.root)
            .env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// Compiles a program of `tests/`; where it lies.
    fn compile(&self, with: &Toolchain<'_>, program: &Program) -> Result<PathBuf, String> {
        let source = self.root.join("tests").join(program.source);
        let plus = program.source.ends_with(".cpp");
        let out = with.scratch.join(program.name());
        let mut command = Command::new(if plus { with.cxx } else { with.c });
        command.args(["-O1", "-g", "-w", "-fno-builtin", "-pthread"]);
        command.args(if plus {
            &["-std=c++17", "-fsized-deallocation"][..]
        } else {
            &["-std=gnu11"]
        });
        command.args(program.flags).arg(&source).arg("-o").arg(&out);
        if with.links_library && program.surface == Surface::Glibc {
            let named = with.scratch.join(SONAME);
            if std::fs::symlink_metadata(&named).is_err() {
                std::os::unix::fs::symlink(with.library, &named)
                    .map_err(|error| format!("{}: {error}", named.display()))?;
            }
            // What musl's headers do not declare would return an int.
            command.arg("-Dpvalloc=valloc");
            command.arg(with.library).arg(format!(
                "-Wl,--allow-shlib-undefined,-rpath,{}",
                with.scratch.display()
            ));
        }
        quiet(command.arg("-ldl"))?;
        Ok(out)
    }
}

/// How programs are made and run.
struct Toolchain<'a> {
    c: &'a str,
    cxx: &'a str,
    /// Programs that name a function of glibc alone are linked with the library, which has it.
    links_library: bool,
    library: &'a Path,
    scratch: PathBuf,
}

fn musl(place: &Place<'_>) -> Result<Done, String> {
    found("musl-gcc", "musl-tools")?;
    let library = build(place, &[])?;
    let with = Toolchain {
        c: "musl-gcc",
        cxx: "musl-gcc",
        links_library: true,
        library: &library,
        scratch: scratch(place, "musl")?,
    };
    let mut done = Done::default();
    let fit = |program: &&Program| {
        !program.source.ends_with(".cpp") && program.surface != Surface::GlibcTypes
    };
    for program in PROGRAMS.iter().filter(fit) {
        let verdict = place.compile(&with, program).and_then(|file| {
            let mut command = Command::new(file);
            command.env("LD_PRELOAD", &library);
            program.judge(&command, &with.scratch, &library)
        });
        done.note(program.source, verdict);
    }
    Ok(done)
}

fn aarch64(place: &Place<'_>) -> Result<Done, String> {
    found("prlimit", "util-linux")?;
    found("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")?;
    found("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu")?;
    let emulator = found("qemu-aarch64-static", "qemu-user-static")
        .or_else(|_| found("qemu-aarch64", "qemu-user"))?;
    if !has_standard_library() {
        return Err(format!(
            "the compiler has no {AARCH64} (rustup target add {AARCH64})"
        ));
    }
    let library = build(place, &["--target", AARCH64])?;
    let with = Toolchain {
        c: "aarch64-linux-gnu-gcc",
        cxx: "aarch64-linux-gnu-g++",
        links_library: false,
        library: &library,
        scratch: scratch(place, "aarch64")?,
    };
    let mut done = Done::default();
    done.note("instructions", short_enough(&library));
    let shown = |program: &&Program| program.source != NOT_EMULATED;
    for program in PROGRAMS.iter().filter(shown) {
        let verdict = place.compile(&with, program).and_then(|file| {
            let mut command = Command::new("prlimit");
            command.args([SPACE, emulator, "-L", ROOT, "-E"]);
            command.arg(format!("LD_PRELOAD={}", library.display()));
            command.arg(&file);
            program.judge(&command, &with.scratch, &library)
        });
        done.note(program.source, verdict);
    }
    for test in [
        &["-p", "flagstone-sim", "--test", "golden"][..],
        &["-p", "flagstone-core", "--lib"],
    ] {
        let mut command = place.cargo(&["test", "--quiet", "--target", AARCH64]);
        command
            .args(test)
            .env(RUNNER, format!("{emulator} -L {ROOT}"));
        done.note(&test.join(" "), quiet(with_linker(&mut command)));
    }
    Ok(done)
}

/// Whether the functions of [`BOUNDS`] have at most so many instructions, of four bytes each.
fn short_enough(library: &Path) -> Result<(), String> {
    let name = found("aarch64-linux-gnu-nm", "binutils-aarch64-linux-gnu")?;
    let output = Command::new(name).args(["-D", "-S"]).arg(library).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    let symbols = String::from_utf8_lossy(&output.stdout);
    for (function, most) in BOUNDS {
        let size = size_of_symbol(&symbols, function);
        let count = size.ok_or_else(|| format!("{function} is not among the symbols"))? / 4;
        if count > most {
            return Err(format!("{function} has {count}, at most {most}"));
        }
    }
    Ok(())
}

/// Bytes of a function in what `nm -S` wrote: address, size, kind, name.
fn size_of_symbol(symbols: &str, name: &str) -> Option<u64> {
    symbols.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let size = u64::from_str_radix(words.next()?, 16).ok()?;
        (words.nth(1)?.split('@').next() == Some(name)).then_some(size)
    })
}

/// Builds the library as users preload it; where it lies.
fn build(place: &Place<'_>, target: &[&str]) -> Result<PathBuf, String> {
    let mut command = place.cargo(&["build", "--release", "--quiet", "-p", "flagstone-malloc"]);
    command.args(target);
    quiet(with_linker(&mut command))?;
    let mut folder = place.target.clone();
    folder.extend(target.get(1));
    Ok(folder.join("release/libflagstone.so"))
}

fn with_linker(command: &mut Command) -> &mut Command {
    if std::env::var_os(LINKER).is_none() {
        command.env(LINKER, "aarch64-linux-gnu-gcc");
    }
    command
}

fn has_standard_library() -> bool {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler)
        .args(["--print", "target-libdir", "--target", AARCH64])
        .output();
    output.is_ok_and(|output| {
        let folder = String::from_utf8_lossy(&output.stdout);
        Path::new(folder.trim()).is_dir()
    })
}

fn found<'a>(name: &'a str, package: &str) -> Result<&'a str, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .any(|folder| folder.join(name).is_file())
        .then_some(name)
        .ok_or_else(|| format!("{name} is not installed (Debian package {package})"))
}

fn scratch(place: &Place<'_>, name: &str) -> Result<PathBuf, String> {
    let folder = place.target.join("portable").join(name);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Runs to the end; its complaints if it failed.
fn quiet(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", ending(output.status), text.trim_end()))
}

/// How a process ended, in a word.
pub fn ending(status: ExitStatus) -> Outcome {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(0), _) => Outcome::Fine,
        (_, Some(signal)) => Outcome::Signal(signal),
        (code, _) => Outcome::Code(code.unwrap_or(-1)),
    }
}

#[cfg(test)]
mod tests {
    use super::size_of_symbol;

    #[test]
    fn the_size_of_a_function_is_the_second_word_of_its_line() {
        let symbols = "                 U abort@GLIBC_2.17\n\
                       000000000002bd08 00000000000000c8 T free\n\
                       000000000002c3bc 000000000000007c T malloc@@FLAGSTONE_1\n";
        assert_eq!(size_of_symbol(symbols, "malloc"), Some(124));
        assert_eq!(size_of_symbol(symbols, "free"), Some(200));
        assert_eq!(size_of_symbol(symbols, "abort"), None);
    }
}
