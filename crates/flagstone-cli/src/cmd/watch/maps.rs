//! `flagstone stat PID --maps`: every mapping of a process, and what it is.

use super::{document, refuse};
use crate::cmd::run::view::{number, push_table, table};
use crate::exit::Outcome;
use crate::terminal::{Screen, size, wrap};
use crate::watch::maps::{Mapped, Maps, What};
use crate::watch::reading;
use comfy_table::Cell;
use std::path::Path;
use std::process::ExitCode;

/// Reads and prints.
///
/// # Errors
/// One line: the process is gone, not yours, or not ours.
pub fn run(pid: u32, json: Option<&Path>) -> Outcome {
    let maps = reading::maps(pid).map_err(|refusal| refuse("stat", refusal))?;
    if document("stat", json, &maps)? {
        print!("{}", text(&maps, Screen::of(&std::io::stdout(), 80)));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(maps: &Maps, screen: Screen) -> String {
    let huge: Vec<&Mapped> = of(maps, What::HugeBlock).collect();
    let kept = of(maps, What::KeptBlock).count();
    let head = format!(
        "{} (process {}): {} mappings, {} of {} in use and {kept} kept",
        maps.program,
        maps.pid,
        maps.maps.len(),
        match huge.len() {
            1 => "1 huge block".to_owned(),
            some => format!("{some} huge blocks"),
        },
        size(huge.iter().map(|map| map.end - map.start).sum()),
    );
    let mut out = screen.heading(wrap(&head, screen.width, 2).trim_end());
    out.push_str("\n\n");
    let mut table = table(&["address", "bytes", "resident", "what it is"], screen);
    for map in &maps.maps {
        table.add_row([
            Cell::new(format!("{:012x}", map.start)),
            number(size(map.end - map.start)),
            number(size(map.resident_bytes)),
            Cell::new(what(map)),
        ]);
    }
    push_table(&mut out, &mut table);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn of(maps: &Maps, what: What) -> impl Iterator<Item = &Mapped> {
    maps.maps.iter().filter(move |map| map.what == what)
}

/// What a mapping is, with the kernel's name where that says more.
fn what(map: &Mapped) -> String {
    let words = map.what.words();
    match (map.requested_bytes, map.name.as_str()) {
        (Some(bytes), _) => format!("{words}, {} asked for", size(bytes)),
        (None, "") => words.to_owned(),
        (None, name) if map.what == What::File => name.to_owned(),
        (None, _) if words.starts_with("heap") => words.to_owned(),
        (None, name) => format!("{words} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_eighty_columns_and_counts_huge_blocks() {
        let map = |start: u64, bytes: u64, what, name: &str, requested_bytes| Mapped {
            start,
            end: start + bytes,
            resident_bytes: bytes / 2,
            what,
            name: name.to_owned(),
            requested_bytes,
        };
        let library = "/usr/lib/x86_64-linux-gnu/a-library-with-a-long-name-indeed.so.0.1.0";
        let maps = Maps {
            schema: "flagstone.maps/1".to_owned(),
            pid: 7,
            program: "app".to_owned(),
            maps: vec![
                map(0x5000_0000_0000, 1 << 20, What::File, library, None),
                map(
                    0x7000_0000_0000,
                    8 << 20,
                    What::HugeBlock,
                    "",
                    Some(8_000_000),
                ),
                map(0x7000_0100_0000, 6 << 20, What::KeptBlock, "", None),
            ],
        };
        let screen = Screen {
            width: 80,
            styled: false,
        };
        let text = text(&maps, screen);
        assert!(text.starts_with(
            "app (process 7): 3 mappings, 1 huge block of 8.0 MiB in use and 1 kept\n"
        ));
        assert!(
            text.contains("heap: huge block, 7.6 MiB asked for"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
