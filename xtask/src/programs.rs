//! The programs of `tests/` that make sense wherever there is a C compiler.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

/// SIGABRT on Linux.
const ABORTED: i32 = 6;
/// Seconds after which a program is taken for hung.
const LIMIT: &str = "600";

/// Which C library's names a program needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// Any.
    Plain,
    /// Functions that only glibc has; the library has them too.
    Glibc,
    /// Types or constants of glibc's headers.
    GlibcTypes,
}

/// How a program ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Status 0.
    Fine,
    /// By a signal.
    Signal(i32),
    /// With another status.
    Code(i32),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fine => write!(f, "status 0"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Code(code) => write!(f, "status {code}"),
        }
    }
}

/// One program.
pub struct Program {
    /// Its source below `tests/`.
    pub source: &'static str,
    /// Further flags of the compiler.
    pub flags: &'static [&'static str],
    /// See [`Surface`].
    pub surface: Surface,
    /// Words of one run; where a word names several, by `|`, there is a run for each choice.
    arguments: &'static str,
    wanted: Outcome,
    /// What it must have written, if that matters.
    says: Option<&'static str>,
}

const fn fine(source: &'static str, arguments: &'static str) -> Program {
    Program {
        source,
        flags: &[],
        surface: Surface::Plain,
        arguments,
        wanted: Outcome::Fine,
        says: None,
    }
}

const fn glibc(source: &'static str, surface: Surface) -> Program {
    Program {
        surface,
        ..fine(source, "")
    }
}

const fn misuse(source: &'static str) -> Program {
    Program {
        wanted: Outcome::Signal(ABORTED),
        ..fine(source, "")
    }
}

/// A second free in each of the ways that the arguments tell: noticed before anything else is said.
const fn freed_twice(source: &'static str, arguments: &'static str, says: &'static str) -> Program {
    Program {
        arguments,
        says: Some(says),
        ..misuse(source)
    }
}

/// Made first: others load it (`@` in their arguments is the folder they lie in).
const PLUGIN: Program = Program {
    flags: &["-shared", "-fPIC"],
    ..fine("preload/plugin.c", "")
};

/// All of them, with loops short enough for an emulator.
///
/// `fork_while_streams_flush.c` is not here: musl's own allocator hangs in it too.
pub const PROGRAMS: &[Program] = &[
    PLUGIN,
    fine("abi/sizes.c", ""),
    fine("abi/realloc.c", ""),
    fine("abi/usable.c", ""),
    fine("abi/surface.c", "LIBRARY"),
    glibc("abi/alignment.c", Surface::Glibc),
    glibc("abi/statistics.c", Surface::GlibcTypes),
    fine("abi/operators.cpp", ""),
    fine("abi/new_handler.cpp", ""),
    fine("abi/new_handler_throws.cpp", ""),
    fine("preload/lifecycle.c", "@/plugin"),
    fine("preload/fork_from_threads.c", "50"),
    fine("preload/signal_handler.c", "500"),
    fine("preload/signals.c", ""),
    glibc("preload/trim.c", Surface::Glibc),
    glibc("preload/huge_loop.c", Surface::Glibc),
    fine("preload/huge_then_small.c", ""),
    fine("preload/kept.c", ""),
    fine("preload/limits.c", "1048576 100"),
    fine("preload/threads.cpp", ""),
    misuse("misuse/double_free_at_once.c"),
    misuse("misuse/double_free_later.c"),
    misuse("misuse/double_free_other_thread.c"),
    misuse("misuse/double_free_between.c"),
    misuse("misuse/double_free_twenty_later.c"),
    misuse("misuse/double_free_of_overwritten.c"),
    freed_twice(
        "misuse/double_free_matrix.c",
        "16|64|256|1000|4096|20000 1|10|100|1000|10000 0|1 0|5|20",
        "",
    ),
    freed_twice(
        "misuse/double_free_ways.c",
        "64|448 malloc|realloc|memalign|_Znwm|_ZnamSt11align_val_t free|_ZdlPv \
         free|realloc|malloc_usable_size|_ZdaPv",
        "once\n",
    ),
    freed_twice(
        "misuse/double_free_ways.c",
        "64|448 calloc free|reallocarray|free_sized|free_aligned_sized|_ZdlPvm|_ZdlPvmSt11align_val_t \
         free|reallocarray|free_sized|free_aligned_sized|_ZdlPvm|_ZdlPvmSt11align_val_t",
        "once\n",
    ),
    Program {
        says: Some("sound\n"),
        ..fine("misuse/no_misuse_marks.c", "")
    },
    misuse("misuse/double_free_large.c"),
    misuse("misuse/double_free_huge.c"),
    misuse("misuse/double_delete_cpp.c"),
    misuse("misuse/realloc_of_freed.c"),
    misuse("misuse/realloc_in_place_of_freed.c"),
    misuse("misuse/usable_size_of_freed.c"),
    misuse("misuse/free_stack.c"),
    misuse("misuse/free_static.c"),
    misuse("misuse/free_foreign_mapping.c"),
    misuse("misuse/free_wild.c"),
    misuse("misuse/free_never_allocated.c"),
    misuse("misuse/free_interior.c"),
    misuse("misuse/free_interior_large.c"),
    misuse("misuse/free_interior_huge.c"),
    misuse("misuse/free_misaligned.c"),
    misuse("misuse/realloc_interior.c"),
    misuse("misuse/free_sized_wrong.c"),
    misuse("misuse/free_sized_wrong_large.c"),
    fine("misuse/write_after_free.c", ""),
];

impl Program {
    /// Its file name once compiled.
    pub fn name(&self) -> &'static str {
        let file = self.source.rsplit('/').next().unwrap_or(self.source);
        file.split('.').next().unwrap_or(file)
    }

    /// Runs it as `command` says, once for each choice of arguments, and compares the ends with the
    /// one wanted. A misuse must also say its one line. What is only loaded by others is not run.
    pub fn judge(&self, command: &Command, folder: &Path, library: &Path) -> Result<(), String> {
        if !self.flags.is_empty() {
            return Ok(());
        }
        for choice in choices(self.arguments) {
            let mut run = bounded(command);
            run.args(choice.iter().map(|&word| match word {
                "LIBRARY" => library.display().to_string(),
                _ => word.replace('@', &folder.display().to_string()),
            }));
            self.judge_one(&mut run)
                .map_err(|why| format!("{why} (arguments: {})", choice.join(" ")))?;
        }
        Ok(())
    }

    fn judge_one(&self, run: &mut Command) -> Result<(), String> {
        let output = run
            .output()
            .map_err(|error| format!("{}: {error}", run.get_program().display()))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout);
        // An emulator repeats the signal as its own and says so on a line of its own.
        let lines = stderr
            .lines()
            .filter(|line| line.starts_with("flagstone: "));
        let said = lines.count();
        let ended = crate::portable::ending(output.status);
        let as_shell = Outcome::Code(128 + ABORTED);
        let same =
            ended == self.wanted || (self.wanted == Outcome::Signal(ABORTED) && ended == as_shell);
        if !same || (self.wanted != Outcome::Fine && said != 1) {
            let wanted = self.wanted;
            return Err(format!("{ended}, wanted {wanted}; {}", stderr.trim_end()));
        }
        match self.says {
            Some(says) if says != stdout => Err(format!("wrote {stdout:?}, wanted {says:?}")),
            _ => Ok(()),
        }
    }
}

/// The argument lists that a line with `|` stands for.
fn choices(line: &str) -> Vec<Vec<&str>> {
    let mut lists = vec![Vec::new()];
    for word in line.split_whitespace() {
        lists = lists
            .iter()
            .flat_map(|list: &Vec<_>| word.split('|').map(|one| [&list[..], &[one]].concat()))
            .collect();
    }
    lists
}

/// The same command under `timeout`, which kills what hangs.
fn bounded(command: &Command) -> Command {
    let mut bounded = Command::new("timeout");
    bounded.args(["-s", "KILL", LIMIT]).arg("env");
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let mut word = name.to_owned();
            word.push("=");
            word.push(value);
            bounded.arg(word);
        }
    }
    bounded.arg(command.get_program()).args(command.get_args());
    bounded.stdin(Stdio::null());
    bounded
}

#[cfg(test)]
mod tests {
    use super::choices;

    #[test]
    fn a_line_stands_for_a_run_of_each_choice() {
        assert_eq!(choices(""), [[""; 0]]);
        assert_eq!(choices("@/plugin 50"), [["@/plugin", "50"]]);
        assert_eq!(
            choices("1|2 x a|b"),
            [
                ["1", "x", "a"],
                ["1", "x", "b"],
                ["2", "x", "a"],
                ["2", "x", "b"]
            ]
        );
    }
}
