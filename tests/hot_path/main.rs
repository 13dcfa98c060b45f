//! What `malloc` and `free` cost when all goes well, read from the library that users preload.
//!
//! ```text
//!   malloc:  mov · cmp · jae cold ▸ lea · ... · jb cold ▸ mov · mov · ret
//!                    ▸ the branch that goes wrong is the one that jumps
//! ```
//!
//! The hot path is laid out straight: every conditional jump on it leaves it. So following the
//! instructions from the first to the first `ret` walks it whole.

#[cfg(target_arch = "x86_64")]
mod straight;
#[cfg(target_arch = "x86_64")]
mod window;

#[cfg(target_arch = "x86_64")]
mod tests {
    use crate::straight::{Path, straight_path};
    use iced_x86::Register;

    /// Most instructions up to and with `ret`: today's figures, near and, where the library was
    /// built beside a C library that does not allow it, far. Where a change pays for itself
    /// elsewhere, raise one here, and say what it pays in the commit.
    const BOUNDS: [(&str, [usize; 2]); 4] = [
        ("malloc", [19, 22]),
        ("free", [29, 32]),
        // The C++ operators are the same functions under other names.
        ("_Znwm", [19, 22]),
        ("_ZdlPvm", [29, 32]),
    ];

    /// Whether a path has the distance to the area of restartable sequences as a constant.
    fn is_near(path: &Path) -> bool {
        path.instructions
            .iter()
            .any(|i| i.segment_prefix() == Register::FS && i.memory_base() == Register::None)
    }

    fn each_path(check: impl Fn(&str, usize, &Path)) {
        if !flagstone_tests::is_flagstone() {
            return;
        }
        let library = std::fs::read(flagstone_tests::library()).expect("the built library");
        for (name, bound) in BOUNDS {
            let path =
                straight_path(&library, name).unwrap_or_else(|what| panic!("{name}: {what}"));
            check(name, bound[usize::from(!is_near(&path))], &path);
        }
    }

    #[test]
    fn the_fast_path_has_at_most_so_many_instructions() {
        each_path(|name, bound, path| {
            let count = path.instructions.len();
            assert!(
                count <= bound,
                "{name}: {count} instructions, at most {bound}:\n{path}"
            );
        });
    }

    #[test]
    fn the_fast_path_calls_nothing_and_enters_no_kernel() {
        each_path(|name, _, path| {
            assert_eq!(path.leaving(), None, "{name}:\n{path}");
        });
    }

    #[test]
    fn the_fast_path_lies_in_two_lines_of_code() {
        each_path(|name, _, path| {
            let at =
                |instruction: Option<&iced_x86::Instruction>| instruction.map_or(0, |i| i.ip());
            let (start, end) = (at(path.instructions.first()), at(path.instructions.last()));
            if !is_near(path) {
                return;
            }
            assert_eq!(start % 64, 0, "{name} begins a line (layout.ld)");
            assert!(
                end - start < 128,
                "{name}: {} bytes\n{path}",
                end - start + 1
            );
        });
    }

    #[test]
    fn the_fast_path_locks_no_line() {
        each_path(|name, _, path| {
            assert_eq!(path.locked(), None, "{name}:\n{path}");
        });
    }
}
