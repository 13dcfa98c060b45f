//! Where code lies: what every program runs must fit into one window of pages.

use object::{Object, ObjectSection};

/// What a fault on a page of code makes resident at once: the kernel's default.
const WINDOW: u64 = 64 << 10;

/// The start of the hot part, and its bytes: start-up, `malloc`, `free` and their slow paths.
///
/// # Errors
/// A sentence: the library has no such part.
fn hot_part(library: &[u8]) -> Result<(u64, u64), String> {
    let file = object::File::parse(library).map_err(|error| error.to_string())?;
    let section = |name: &str| {
        file.section_by_name(name)
            .map(|section| section.address()..section.address() + section.size())
            .ok_or(format!("no section {name}"))
    };
    let (first, last) = (section(".text.start")?, section(".text")?);
    let cold = section(".text.cold")?;
    if first.start > last.start || last.start > cold.start {
        return Err("the parts are not in order".into());
    }
    Ok((first.start, last.end - first.start))
}

#[test]
fn all_code_that_every_program_runs_lies_in_one_window() {
    if !flagstone_tests::is_flagstone() {
        return;
    }
    let library = std::fs::read(flagstone_tests::library()).expect("the built library");
    let (start, bytes) = hot_part(&library).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(start % WINDOW, 0, "the first window begins with it");
    assert!(
        bytes <= WINDOW,
        "{bytes} bytes of hot code, at most {WINDOW}: name what is cold in \
         crates/flagstone-malloc/layout.ld"
    );
}

#[test]
fn something_that_is_no_library_has_no_parts() {
    assert!(hot_part(b"no library").is_err());
}
