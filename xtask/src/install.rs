//! Installs what others build against: `cargo xtask install --prefix /usr [--destdir DIR]`.
//!
//! ```text
//!   lib/libflagstone.so.0.1.0   ◄─ libflagstone.so.0 ◄─ libflagstone.so
//!   lib/libflagstone.a          one object; only the names of the C surface are visible
//!   lib/pkgconfig/flagstone.pc  lib/cmake/flagstone/flagstone-config.cmake, -version.cmake
//!   include/flagstone/          flagstone.h, memory_resource.hpp
//!   bin/flagstone               the command, unless --libraries
//! ```
//!
//! pkg-config and CMake files find everything from where they lie themselves, so that an installed
//! tree may be moved. Needs `ld` and `objcopy` (Debian package binutils).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of everything.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The number in the library's SONAME: one for all versions that a program linked against another may
/// be run with.
pub const ABI: &str = "0";

const USAGE: &str =
    "cargo xtask install [--prefix DIR] [--destdir DIR] [--libdir lib] [--libraries]";

/// What is installed, and where to.
struct Plan {
    prefix: PathBuf,
    destdir: PathBuf,
    libdir: String,
    command: bool,
}

/// Installs as the words say.
///
/// # Errors
/// One line: what failed.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let plan = Plan::parse(words)?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let shared = build_shared(root, &target)?;
    let archive = build_archive(root, &target)?;
    let lib = plan.folder(&plan.libdir)?;
    let full = format!("libflagstone.so.{VERSION}");
    place(&shared, &lib.join(&full), 0o755)?;
    link(&full, &lib.join(format!("libflagstone.so.{ABI}")))?;
    link(
        &format!("libflagstone.so.{ABI}"),
        &lib.join("libflagstone.so"),
    )?;
    place(&archive, &lib.join("libflagstone.a"), 0o644)?;
    let include = plan.folder("include/flagstone")?;
    for header in ["flagstone.h", "memory_resource.hpp"] {
        place(
            &root.join("include/flagstone").join(header),
            &include.join(header),
            0o644,
        )?;
    }
    let pkgconfig = plan.folder(&format!("{}/pkgconfig", plan.libdir))?;
    write(&pkgconfig.join("flagstone.pc"), &plan.pkg_config())?;
    let cmake = plan.folder(&format!("{}/cmake/flagstone", plan.libdir))?;
    write(&cmake.join("flagstone-config.cmake"), &plan.cmake())?;
    write(
        &cmake.join("flagstone-config-version.cmake"),
        &CMAKE_VERSION.replace("@VERSION@", VERSION),
    )?;
    if plan.command {
        cargo(root, &["build", "--release", "-p", "flagstone-cli"])?;
        let bin = plan.folder("bin")?;
        place(
            &target.join("release/flagstone"),
            &bin.join("flagstone"),
            0o755,
        )?;
    }
    Ok(())
}

impl Plan {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut plan = Self {
            prefix: "/usr/local".into(),
            destdir: PathBuf::new(),
            libdir: "lib".into(),
            command: true,
        };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word}: no value; {USAGE}"));
            match word {
                "--prefix" => plan.prefix = value()?.into(),
                "--destdir" => plan.destdir = value()?.into(),
                "--libdir" => plan.libdir = (*value()?).into(),
                "--libraries" => plan.command = false,
                _ => return Err(format!("unknown option {word}; {USAGE}")),
            }
        }
        if !plan.prefix.is_absolute() {
            let prefix = plan.prefix.display();
            return Err(format!("--prefix {prefix}: must be absolute"));
        }
        Ok(plan)
    }

    /// A folder below the prefix, made.
    fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let prefix = match self.destdir.as_os_str().is_empty() {
            true => self.prefix.clone(),
            false => self
                .destdir
                .join(self.prefix.strip_prefix("/").unwrap_or(&self.prefix)),
        };
        let folder = prefix.join(name);
        fs::create_dir_all(&folder).map_err(|error| at(&folder, &error))?;
        Ok(folder)
    }

    /// `../` for each part of the library folder, and so the way from it to the prefix.
    fn way_up(&self) -> String {
        let parts = Path::new(&self.libdir).components().count();
        vec![".."; parts].join("/")
    }

    fn pkg_config(&self) -> String {
        format!(
            "prefix=${{pcfiledir}}/../{up}\n\
             libdir=${{prefix}}/{lib}\n\
             includedir=${{prefix}}/include\n\
             \n\
             Name: flagstone\n\
             Description: A malloc after the kernel's slab allocator, with typed object caches\n\
             Version: {VERSION}\n\
             Libs: -L${{libdir}} -lflagstone\n\
             Cflags: -I${{includedir}}\n",
            up = self.way_up(),
            lib = self.libdir,
        )
    }

    fn cmake(&self) -> String {
        CMAKE
            .replace("@UP@", &format!("../../{}", self.way_up()))
            .replace("@LIB@", &self.libdir)
            .replace("@ABI@", ABI)
    }
}

const CMAKE: &str = r#"# flagstone::flagstone  the shared library; flagstone::static  the static one, which replaces malloc in
# the program it is linked into.
get_filename_component(_flagstone_prefix "${CMAKE_CURRENT_LIST_DIR}/@UP@" ABSOLUTE)
if(NOT TARGET flagstone::flagstone)
  add_library(flagstone::flagstone SHARED IMPORTED)
  set_target_properties(flagstone::flagstone PROPERTIES
    IMPORTED_LOCATION "${_flagstone_prefix}/@LIB@/libflagstone.so.@ABI@"
    IMPORTED_SONAME "libflagstone.so.@ABI@"
    INTERFACE_INCLUDE_DIRECTORIES "${_flagstone_prefix}/include")
endif()
if(NOT TARGET flagstone::static)
  add_library(flagstone::static STATIC IMPORTED)
  set_target_properties(flagstone::static PROPERTIES
    IMPORTED_LOCATION "${_flagstone_prefix}/@LIB@/libflagstone.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_flagstone_prefix}/include")
endif()
unset(_flagstone_prefix)
"#;

/// Versions with the same first two numbers serve each other until 1.0.
const CMAKE_VERSION: &str = r#"set(PACKAGE_VERSION "@VERSION@")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" _flagstone_have "${PACKAGE_VERSION}")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" _flagstone_want "${PACKAGE_FIND_VERSION}.0")
  string(COMPARE EQUAL "${_flagstone_have}" "${_flagstone_want}" PACKAGE_VERSION_COMPATIBLE)
  if(PACKAGE_FIND_VERSION STREQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
"#;

fn build_shared(root: &Path, target: &Path) -> Result<PathBuf, String> {
    cargo(root, &["build", "--release", "-p", "flagstone-malloc"])?;
    Ok(target.join("release/libflagstone.so"))
}

/// The static library as one object whose inner names are its own: two of Rust's static libraries
/// in one program would otherwise clash, and `malloc` is replaced whole or not at all.
fn build_archive(root: &Path, target: &Path) -> Result<PathBuf, String> {
    let folder = target.join("archive");
    let folder_name = folder.display().to_string();
    cargo(
        root,
        &[
            "rustc",
            "--release",
            "-p",
            "flagstone-malloc",
            "--no-default-features",
            "--crate-type",
            "staticlib",
            "--target-dir",
            &folder_name,
        ],
    )?;
    let built = folder.join("release/libflagstone.a");
    let object = folder.join("flagstone.o");
    let archive = folder.join("libflagstone.a");
    let mut ld = Command::new("ld");
    ld.args(["-r", "-u", "malloc", "-o"])
        .arg(&object)
        .arg(built);
    succeed(&mut ld)?;
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--strip-debug", "--wildcard"]);
    // Bitcode that the compiler's own library carries; other tools stumble over it.
    objcopy.args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"]);
    for inner in ["_ZN*", "_R*", "rust_*", "__*ti3", "flagstone_new_*"] {
        objcopy.arg(format!("--localize-symbol={inner}"));
    }
    succeed(objcopy.arg(&object))?;
    let _ = fs::remove_file(&archive);
    succeed(Command::new("ar").args(["crsD"]).arg(&archive).arg(&object))?;
    Ok(archive)
}

/// Runs cargo in the workspace.
///
/// # Errors
/// One line.
pub fn cargo(root: &Path, words: &[&str]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    succeed(
        Command::new(cargo)
            .args(words)
            .arg("--quiet")
            .current_dir(root),
    )
}

/// What the words of a command that makes a package say.
pub struct Package {
    /// Where cargo builds.
    pub target: PathBuf,
    /// Where the package goes.
    pub out: PathBuf,
    /// The command that it carries, if it is built already.
    pub command: Option<PathBuf>,
}

impl Package {
    /// Of `[--out DIR] [--command FILE]`; without `--out` it goes into `folder` of the target.
    ///
    /// # Errors
    /// One line with the usage.
    pub fn of(root: &Path, words: &[&str], folder: &str, usage: &str) -> Result<Self, String> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let mut package = Self {
            out: target.join(folder),
            target,
            command: None,
        };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word}: no value; {usage}"));
            match word {
                "--out" => package.out = value()?.into(),
                "--command" => package.command = Some(PathBuf::from(value()?)),
                _ => return Err(format!("unknown option {word}; {usage}")),
            }
        }
        Ok(package)
    }
}

/// Builds the command and says where it lies.
///
/// # Errors
/// One line: what failed.
pub fn release_command(root: &Path, target: &Path) -> Result<PathBuf, String> {
    cargo(root, &["build", "--release", "-p", "flagstone-cli"])?;
    Ok(target.join("release/flagstone"))
}

/// Runs a command that must succeed.
///
/// # Errors
/// One line.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Copies beside the target and moves it there: a library in use must never be half of one.
///
/// # Errors
/// One line.
pub fn place(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let draft = to.with_added_extension("new");
    fs::copy(from, &draft).map_err(|error| at(from, &error))?;
    fs::set_permissions(&draft, fs::Permissions::from_mode(mode))
        .and_then(|()| fs::rename(&draft, to))
        .map_err(|error| at(to, &error))
}

fn link(to: &str, at_path: &Path) -> Result<(), String> {
    let _ = fs::remove_file(at_path);
    symlink(to, at_path).map_err(|error| at(at_path, &error))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| at(path, &error))
}
