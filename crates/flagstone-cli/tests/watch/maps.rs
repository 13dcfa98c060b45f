//! The list of mappings says what each is, also where the kernel has no name for it.

use crate::ours::{Running, ask, compiled, json, on_library};
use serde_json::Value;
use std::process::Command;

/// Holds three huge blocks, frees one that is short enough to be kept, and says where each lies.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    char *small = malloc(100), *one = malloc(100 << 20), *two = malloc(6 << 20), *three = malloc(20 << 20);
    memset(one, 1, 10 << 20);
    memset(three, 1, 20 << 20);
    free(two);
    printf("%p %p %p %p\n", small, one, two, three);
    fflush(stdout);
    for (;;) pause();
}
"#;

#[test]
fn huge_blocks_are_told_from_what_lies_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), PROGRAM);
    let running = Running::start(on_library(&mut Command::new(program)));
    let at: Vec<u64> = running
        .line
        .split_whitespace()
        .map(|word| u64::from_str_radix(&word[2..], 16).unwrap())
        .collect();
    let read = json(&["stat", &running.pid, "--maps", "--json"]);
    assert_eq!(read["schema"], "flagstone.maps/1");
    let maps = read["maps"].as_array().unwrap();
    let figure = |map: &Value, key: &str| map[key].as_u64().unwrap();
    let of = |address: u64| {
        let holds = |map: &&Value| figure(map, "start") <= address && address < figure(map, "end");
        maps.iter().find(holds).unwrap()
    };
    for (index, mib, touched) in [(1, 100, 10), (3, 20, 20)] {
        let block = of(at[index]);
        assert_eq!(block["what"], "huge_block", "{block}");
        assert_eq!(figure(block, "start"), at[index]);
        assert_eq!(figure(block, "end") - at[index], mib << 20);
        assert_eq!(figure(block, "requested_bytes"), mib << 20);
        assert_eq!(figure(block, "resident_bytes"), touched << 20);
    }
    assert_eq!(of(at[0])["what"], "pages");
    assert_eq!(of(at[2])["what"], "kept_block");
    for pair in maps.windows(2) {
        assert!(
            figure(&pair[0], "end") <= figure(&pair[1], "start"),
            "{pair:?}"
        );
    }
    for what in ["tables", "room", "huge_table", "file", "stack", "kernel"] {
        assert!(
            maps.iter().any(|map| map["what"] == what),
            "no {what}: {read}"
        );
    }
    let all: u64 = maps.iter().map(|map| figure(map, "resident_bytes")).sum();
    let rss = figure(&json(&["stat", &running.pid, "--json"]), "rss_bytes");
    assert!(all.abs_diff(rss) * 50 <= rss, "{all} of {rss}");

    let (code, out, err) = ask(&["stat", &running.pid, "--maps"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    // The first line breaks where the program's number is long.
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("2 huge blocks of 120.0 MiB in use and 1 kept"),
        "{out}"
    );
    assert!(
        out.contains("heap: huge block, 100.0 MiB asked for"),
        "{out}"
    );
}
