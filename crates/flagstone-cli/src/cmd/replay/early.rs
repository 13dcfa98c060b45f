//! The player's start, before anything of its process asks the allocator.
//!
//! What glibc keeps goes with what was asked and freed first. After the 38 blocks of a start by way of `main`, the
//! replay of a service whose heap takes 4.9 MiB took 6.2.

use super::{PLAYER, Pace, player};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Runs after the initialisers of all libraries, and before `main`. Other C libraries pass no words: there the
/// player starts from `main` ([`super::player_process`]).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char) = start;

#[cfg_attr(not(target_env = "gnu"), allow(dead_code))]
extern "C" fn start(count: c_int, words: *const *const c_char) {
    let word = |at: c_int| {
        // SAFETY: glibc passes the program's words to initialisers; `at` is below their count.
        (at < count).then(|| unsafe { CStr::from_ptr(*words.add(at as usize)) })
    };
    let named = |at, name: &str| word(at).is_some_and(|word| word.to_bytes() == name.as_bytes());
    if !named(1, "replay") || !named(2, PLAYER) {
        return;
    }
    let (Some(file), Some(pace)) = (word(3), word(4)) else {
        return;
    };
    let file = Path::new(OsStr::from_bytes(file.to_bytes()));
    let status = match player::play(file, Pace::of(pace.to_bytes())) {
        Ok(()) => 0,
        Err(line) => {
            eprintln!("flagstone: replay: {line}");
            1
        }
    };
    // SAFETY: the process has nothing else to do.
    unsafe { libc::exit(status) }
}
