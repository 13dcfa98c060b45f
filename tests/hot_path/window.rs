//! Where code lies: what every program runs lies together, and not much more with it.

use object::{Object, ObjectSection};
use std::ops::Range;

/// What a fault on a page of code makes resident at once: the kernel's default.
const WINDOW: u64 = 64 << 10;

/// Where the first section begins and the last of them ends.
///
/// # Errors
/// A sentence: the library has no such section.
fn part(library: &[u8], names: &[&str]) -> Result<Range<u64>, String> {
    let file = object::File::parse(library).map_err(|error| error.to_string())?;
    let section = |name: &&str| {
        file.section_by_name(name)
            .map(|section| section.address()..section.address() + section.size())
            .ok_or(format!("no section {name}"))
    };
    let sections: Vec<Range<u64>> = names.iter().map(section).collect::<Result<_, _>>()?;
    let start = sections.iter().map(|section| section.start).min();
    let end = sections.iter().map(|section| section.end).max();
    Ok(start.unwrap_or(0)..end.unwrap_or(0))
}

fn parts_of_library() -> Option<[Range<u64>; 3]> {
    if !flagstone_tests::is_flagstone() {
        return None;
    }
    let library = std::fs::read(flagstone_tests::library()).expect("the built library");
    let part = |names: &[&str]| part(&library, names).unwrap_or_else(|what| panic!("{what}"));
    Some([
        part(&[".text.start"]),
        part(&[".text.hot", ".text"]),
        part(&[".text.late", ".text.cold"]),
    ])
}

#[test]
fn malloc_and_free_with_their_slow_paths_lie_in_one_window() {
    let Some([_, hot, cold]) = parts_of_library() else {
        return;
    };
    let bytes = hot.end - hot.start;
    assert_eq!(hot.start % WINDOW, 0, "a window begins with them");
    assert!(hot.end <= cold.start, "cold code lies behind them");
    assert!(
        bytes <= WINDOW,
        "{bytes} bytes, at most {WINDOW}: name what is cold, or runs once, in \
         crates/flagstone-malloc/layout.ld"
    );
}

#[test]
fn building_the_heap_lies_right_before_that_window() {
    let Some([start, hot, _]) = parts_of_library() else {
        return;
    };
    assert!(
        start.end <= hot.start,
        "it has outgrown its place: let code begin earlier in \
         crates/flagstone-malloc/layout.ld"
    );
    let room = hot.start - start.start;
    assert!(
        room <= WINDOW / 2,
        "{room} bytes, half a window is too much"
    );
}

#[test]
fn something_that_is_no_library_has_no_parts() {
    assert!(part(b"no library", &[".text"]).is_err());
}
