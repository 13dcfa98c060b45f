//! Resident memory outside the heap, by what is mapped.
//!
//! ```text
//!   libx.so  r--p  ┐
//!   libx.so  r-xp  │ one file with code, and the zeroed data that follows it:
//!   libx.so  rw-p  │ a program or library
//!            rw-p  ┘
//!   data.db  r--s    a file without code: another mapped file
//!            ---p  ┐ a small guard and what lies above it: a thread's stack
//!            rw-p  ┘
//! ```
//!
//! The kernel does not say which mapping is a thread's stack, so that is a guess; everything else is
//! as `/proc/self/smaps` has it.

use crate::process::{Access, Mapping, Place};

/// Largest guard below a thread's stack, in bytes. glibc makes one of a page, musl of two; the largest
/// page is 64 KiB. Larger mappings without access are reservations.
const GUARD_BYTES_MAX: usize = 64 << 10;

/// Kinds of mappings.
pub const KINDS: usize = 5;

/// A kind of mapping. Its number is its place in [`Outside`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Files with code: the program and its libraries, their data included.
    Program,
    /// Other files, shared memory too.
    Files,
    /// Stacks of threads.
    Stacks,
    /// Memory the program or its runtime mapped itself.
    Anonymous,
    /// The kernel's pages.
    Other,
}

/// Names of the kinds in documents; they never change.
const NAMES: [&str; KINDS] = ["program", "files", "stacks", "anonymous", "other"];

/// Bytes of each kind.
#[derive(Clone, Copy)]
pub struct Outside {
    bytes: [u64; KINDS],
}

impl Outside {
    /// Nothing.
    pub const NONE: Self = Self { bytes: [0; KINDS] };

    /// Every kind's name and bytes.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.bytes)
    }

    fn add(&mut self, kind: Kind, bytes: u64) {
        self.bytes[kind as usize] += bytes;
    }
}

/// Sorts mappings as they come, in the order of their addresses.
pub struct Sorter {
    found: Outside,
    /// The file whose mappings come now, its bytes so far, and whether any of them was code.
    file: Option<u64>,
    file_bytes: u64,
    file_has_code: bool,
    /// Where the last mapping ended.
    end: usize,
    /// Whether the last mapping was a guard.
    guard: bool,
}

impl Sorter {
    /// Has seen nothing.
    pub fn new() -> Self {
        Self {
            found: Outside::NONE,
            file: None,
            file_bytes: 0,
            file_has_code: false,
            end: 0,
            guard: false,
        }
    }

    /// The next mapping, of which `bytes` are resident and not the heap's.
    pub fn next(&mut self, mapping: &Mapping, bytes: u64) {
        let joined = mapping.start == self.end;
        match mapping.place {
            Place::File(file) => {
                if self.file != Some(file) {
                    self.end_file();
                    self.file = Some(file);
                }
                self.file_bytes += bytes;
                self.file_has_code |= mapping.access == Access::Code;
            }
            Place::Anonymous if joined && self.file_has_code => {
                self.file_bytes += bytes;
                self.end_file();
            }
            place => {
                self.end_file();
                let kind = match place {
                    Place::Stack => Kind::Stacks,
                    Place::Kernel => Kind::Other,
                    _ if joined && self.guard => Kind::Stacks,
                    _ => Kind::Anonymous,
                };
                self.found.add(kind, bytes);
            }
        }
        let small = mapping.end - mapping.start <= GUARD_BYTES_MAX;
        let bare = mapping.place == Place::Anonymous && mapping.access == Access::None;
        self.guard = small && bare;
        self.end = mapping.end;
    }

    fn end_file(&mut self) {
        let kind = if self.file_has_code {
            Kind::Program
        } else {
            Kind::Files
        };
        self.found.add(kind, self.file_bytes);
        (self.file, self.file_bytes, self.file_has_code) = (None, 0, false);
    }

    /// What was found.
    pub fn finish(mut self) -> Outside {
        self.end_file();
        self.found
    }
}

impl Default for Sorter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Place = Place::File(1);
    const OTHER: Place = Place::File(2);

    /// Sorts mappings that follow each other without a gap, of 16 pages each unless told otherwise.
    fn sort(mappings: &[(Place, Access, usize, u64)]) -> [u64; KINDS] {
        let (mut sorter, mut at) = (Sorter::new(), 0x10_0000);
        for &(place, access, bytes, resident) in mappings {
            let mapping = Mapping {
                start: at,
                end: at + bytes,
                resident,
                shared: 0,
                place,
                access,
            };
            at = mapping.end;
            sorter.next(&mapping, resident);
        }
        sorter.finish().bytes
    }

    const SIZE: usize = 64 << 10;

    #[test]
    fn a_file_with_code_is_a_program_with_all_its_data() {
        let program = [
            (FILE, Access::Data, SIZE, 1),
            (FILE, Access::Code, SIZE, 20),
            (FILE, Access::Data, SIZE, 300),
            (Place::Anonymous, Access::Data, SIZE, 4000),
        ];
        assert_eq!(sort(&program), [4321, 0, 0, 0, 0]);
        let again = [program[1], (OTHER, Access::Code, SIZE, 5)];
        assert_eq!(sort(&again), [25, 0, 0, 0, 0]);
    }

    #[test]
    fn a_file_without_code_is_another_file_and_lends_its_name_to_nothing_behind_it() {
        let found = sort(&[
            (OTHER, Access::Data, SIZE, 7),
            (Place::Anonymous, Access::Data, SIZE, 50),
            (Place::Kernel, Access::Code, SIZE, 600),
        ]);
        assert_eq!(found, [0, 7, 0, 50, 600]);
    }

    #[test]
    fn memory_above_a_small_guard_is_a_stack_and_above_a_reservation_is_not() {
        let stack = (Place::Anonymous, Access::Data, 8 << 20, 9);
        let guard = |bytes| (Place::Anonymous, Access::None, bytes, 0);
        assert_eq!(sort(&[guard(4096), stack]), [0, 0, 9, 0, 0]);
        assert_eq!(sort(&[guard(1 << 20), stack]), [0, 0, 0, 9, 0]);
        let main = (Place::Stack, Access::Data, SIZE, 3);
        assert_eq!(sort(&[main]), [0, 0, 3, 0, 0]);
    }
}
