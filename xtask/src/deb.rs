//! Debian packages: `cargo xtask deb [--out DIR] [--command FILE]`.
//!
//! ```text
//!   libflagstone0      usr/lib/<triplet>/libflagstone.so.0.1.0, .so.0
//!   libflagstone-dev   usr/include/flagstone, .so, .a, pkg-config, CMake
//!   flagstone          usr/bin/flagstone, man pages, completions
//! ```
//!
//! They are made of what `cargo xtask install` installs. What they depend on is read off the files: the C
//! library's lowest version, and nothing but it and the compiler's own library. Needs dpkg-deb, gzip and
//! binutils. There is no script to run at installation; the loader's cache is told by a trigger.

use crate::install::{self, ABI, Package, VERSION, place, release_command, succeed};
use crate::man;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "cargo xtask deb [--out DIR] [--command FILE]";
const HOMEPAGE: &str = env!("CARGO_PKG_REPOSITORY");

/// Builds the packages and says where they lie.
///
/// # Errors
/// One line: what failed.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let Package {
        target,
        out,
        command,
    } = Package::of(root, words, "debian", USAGE)?;
    let architecture = said(Command::new("dpkg").arg("--print-architecture"))?;
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let stage = target.join("debian-stage");
    let _ = fs::remove_dir_all(&stage);
    let whole = stage.join("whole");
    let (lib, whole_text) = (format!("lib/{triplet}"), whole.display().to_string());
    let install = ["--prefix", "/usr", "--destdir", &whole_text];
    let install = [&install[..], &["--libdir", &lib, "--libraries"]].concat();
    install::run(root, &install)?;
    let command = command.map_or_else(|| release_command(root, &target), Ok)?;
    let maker = Maker {
        root,
        stage: &stage,
        out: &out,
        architecture: &architecture,
    };
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    maker.library(&whole, &lib)?;
    maker.development(&whole, &lib)?;
    maker.command(&command)
}

struct Maker<'a> {
    root: &'a Path,
    stage: &'a Path,
    out: &'a Path,
    architecture: &'a str,
}

/// What a package says about itself.
struct Control<'a> {
    name: &'a str,
    section: &'a str,
    depends: String,
    multi_arch: &'a str,
    summary: &'a str,
    text: &'a str,
}

impl Maker<'_> {
    fn library(&self, whole: &Path, lib: &str) -> Result<(), String> {
        let name = format!("libflagstone{ABI}");
        let (folder, full) = (self.stage.join(&name), format!("libflagstone.so.{VERSION}"));
        let from = whole.join("usr").join(lib);
        let to = made(&folder.join("usr").join(lib))?;
        place(&from.join(&full), &to.join(&full), 0o644)?;
        succeed(
            Command::new("strip")
                .arg("--strip-unneeded")
                .arg(to.join(&full)),
        )?;
        moved(&from, &to, &format!("libflagstone.so.{ABI}"))?;
        let control = made(&folder.join("DEBIAN"))?;
        write(
            &control.join("shlibs"),
            &format!("libflagstone {ABI} {name} (>= {VERSION})\n"),
        )?;
        write(&control.join("triggers"), "activate-noawait ldconfig\n")?;
        self.build(&Control {
            depends: depends(&to.join(full))?,
            name: &name,
            section: "libs",
            multi_arch: "same",
            summary: "malloc after the kernel's slab and page allocators (library)",
            text: "Preload it, or link with it: malloc and its relatives, the C++ operators, and\n \
                   typed object caches.",
        })
    }

    fn development(&self, whole: &Path, lib: &str) -> Result<(), String> {
        let name = "libflagstone-dev";
        let folder = self.stage.join(name);
        let usr = made(&folder.join("usr"))?;
        moved(&whole.join("usr"), &usr, "include")?;
        let from = whole.join("usr").join(lib);
        let to = made(&usr.join(lib))?;
        for file in ["libflagstone.so", "libflagstone.a", "pkgconfig", "cmake"] {
            moved(&from, &to, file)?;
        }
        self.build(&Control {
            depends: format!("libflagstone{ABI} (= {VERSION})"),
            name,
            section: "libdevel",
            multi_arch: "same",
            summary: "malloc after the kernel's slab and page allocators (headers)",
            text: "Headers for C and C++, the static library, pkg-config and CMake files.",
        })
    }

    fn command(&self, command: &Path) -> Result<(), String> {
        let name = "flagstone";
        let folder = self.stage.join(name);
        let bin = made(&folder.join("usr/bin"))?.join(name);
        place(command, &bin, 0o755)?;
        succeed(Command::new("strip").arg("--strip-unneeded").arg(&bin))?;
        let share = folder.join("usr/share");
        let texts = self.stage.join("texts");
        man::write_by(&[OsString::from(&bin)], &texts)?;
        let pages = made(&share.join("man"))?;
        moved(&texts, &pages, "man1")?;
        succeed(Command::new("gzip").args(["-9nr"]).arg(&pages))?;
        for (script, place) in [
            ("flagstone.bash", "bash-completion/completions/flagstone"),
            ("_flagstone", "zsh/vendor-completions/_flagstone"),
            ("flagstone.fish", "fish/vendor_completions.d/flagstone.fish"),
        ] {
            let to = share.join(place);
            made(to.parent().expect("a place in a folder"))?;
            crate::install::place(&texts.join("completions").join(script), &to, 0o644)?;
        }
        self.build(&Control {
            depends: depends(&bin)?,
            name,
            section: "devel",
            multi_arch: "foreign",
            summary: "run programs on the Flagstone allocator and see where memory went",
            text: "Runs programs on the allocator, computes what any kernel's slab policy chooses,\n \
                   looks at this host's slab caches, and simulates other machines. It carries the\n \
                   library inside.",
        })
    }

    fn build(&self, control: &Control<'_>) -> Result<(), String> {
        let folder = self.stage.join(control.name);
        let documents = made(&folder.join("usr/share/doc").join(control.name))?;
        let licence = fs::read_to_string(self.root.join("LICENSE-MIT"))
            .map_err(|error| format!("LICENSE-MIT: {error}"))?;
        let copyright = format!(
            "Flagstone, {HOMEPAGE}\n\nMIT or Apache 2.0, at your choice. Apache 2.0 lies in \
             /usr/share/common-licenses/Apache-2.0;\nMIT reads:\n\n{licence}"
        );
        write(&documents.join("copyright"), &copyright)?;
        let changes = self.root.join("CHANGELOG.md");
        place(&changes, &documents.join("changelog"), 0o644)?;
        succeed(
            Command::new("gzip")
                .arg("-9n")
                .arg(documents.join("changelog")),
        )?;
        let kibibytes = said(Command::new("du").args(["-sk"]).arg(folder.join("usr")))?;
        let kibibytes = kibibytes.split_whitespace().next().unwrap_or("0");
        let text = format!(
            "Package: {}\nVersion: {VERSION}\nArchitecture: {}\nMulti-Arch: {}\nSection: {}\n\
             Priority: optional\nMaintainer: Flagstone maintainers <flagstone@users.noreply.github.com>\n\
             Homepage: {HOMEPAGE}\nInstalled-Size: {kibibytes}\nDepends: {}\nDescription: {}\n {}\n",
            control.name,
            self.architecture,
            control.multi_arch,
            control.section,
            control.depends,
            control.summary,
            control.text,
        );
        write(&made(&folder.join("DEBIAN"))?.join("control"), &text)?;
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "--build"]);
        succeed(build.arg(&folder).arg(self.out))
    }
}

/// The packages that a program or library needs, by what it names: the C library of the newest of the
/// versions it asks for, and the compiler's library.
fn depends(file: &Path) -> Result<String, String> {
    let text = said(Command::new("objdump").arg("-p").arg(file))?;
    let needed = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"));
    let mut packages = vec![match newest(&text) {
        Some((major, minor)) => format!("libc6 (>= {major}.{minor})"),
        None => "libc6".to_owned(),
    }];
    for name in needed.map(str::trim) {
        match name {
            "libgcc_s.so.1" => packages.push("libgcc-s1".into()),
            _ if name.starts_with("libc.so") || name.starts_with("ld-linux") => {}
            "libm.so.6" | "libdl.so.2" | "libpthread.so.0" => {}
            _ => {
                return Err(format!(
                    "{}: needs {name}: of which package?",
                    file.display()
                ));
            }
        }
    }
    Ok(packages.join(", "))
}

/// The newest version of glibc that the version needs of a file name.
fn newest(objdump: &str) -> Option<(u32, u32)> {
    let versions = objdump.split("GLIBC_").skip(1).filter_map(|rest| {
        let number = rest.split(|c: char| c.is_whitespace()).next()?;
        let mut parts = number.split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    });
    versions.max()
}

fn made(folder: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder.to_owned())
}

fn moved(from: &Path, to: &Path, name: &str) -> Result<(), String> {
    fs::rename(from.join(name), to.join(name)).map_err(|error| format!("{name}: {error}"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!(
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_chosen_by_number() {
        let text = "  required from libc.so.6:\n 0x09 0x00 04 GLIBC_2.9\n 0x06 0x00 03 GLIBC_2.34\n\
                    0x06 0x00 03 GLIBC_PRIVATE\n 0x06 0x00 02 GLIBC_2.2.5\n";
        assert_eq!(newest(text), Some((2, 34)));
        assert_eq!(newest("nothing"), None);
    }
}
