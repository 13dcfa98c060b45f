//! What the suites share: the library under test, programs to run on it, small C programs to
//! compile, and the words for what had to be skipped.

mod library;
mod programs;
mod running;

pub use library::{build_program, is_flagstone, library};
pub use programs::{
    compile, compile_with, find, need, other_library, same_output_as_without, skip,
};
pub use running::{Finished, LIMIT, finish, preloaded, succeed, without};
