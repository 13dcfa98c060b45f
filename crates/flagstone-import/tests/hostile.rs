//! Files of strangers: whatever the bytes, an answer, within a small address space.

#[path = "../../../fuzz/mutate.rs"]
mod mutate;

use flagstone_import::{Options, import, probe};
use flagstone_trace::{Event, Trace};
use std::fs::File;
use std::io::Cursor;

#[test]
fn no_mutation_of_the_corpus_does_harm() {
    if !mutate::in_small_space("no_mutation_of_the_corpus_does_harm", 500) {
        return;
    }
    mutate::each_read("import", 30_000, 1000, |bytes| {
        probe::import(bytes).map(drop)
    });
}

/// A whole import, to the written trace.
fn imported(bytes: &[u8]) -> Result<Trace, String> {
    let out = tempfile::NamedTempFile::new().unwrap();
    let done = import(&mut Cursor::new(bytes), &Options::default(), || {
        File::create(out.path())
    });
    done.map_err(|error| error.to_string())?;
    Ok(Trace::open(out.path()).unwrap())
}

/// The corpus's cache as /proc/slabinfo has it, and its zone.
const SLABS: &str = "pid 30 32 128 32 1 : tunables 0 0 0 : slabdata 1 1 0\n";
const ZONES: &str =
    "Node 0, zone Normal\n managed 9\n cpu: 0\n count: 3\n high: 9\n batch: 3\n start_pfn: 0\n";

#[test]
fn what_is_imported_from_mutated_files_is_a_whole_trace() {
    let both = |text: &str| Some((text.to_owned(), text.to_owned()));
    let options = Options {
        slabs: both(SLABS),
        zones: both(ZONES),
        ..Options::default()
    };
    mutate::each_read("import", 3000, 100, |bytes| {
        let out = tempfile::NamedTempFile::new().unwrap();
        import(&mut Cursor::new(bytes), &options, || {
            File::create(out.path())
        })?;
        let trace = Trace::open(out.path()).unwrap();
        let mut merged = trace.merged(|_| true);
        while merged.next().unwrap().is_some() {}
        Ok::<(), flagstone_import::Error>(())
    });
}

#[test]
fn a_capture_as_text_has_its_slabs_and_its_moves_of_pages() {
    let text = std::fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/import/slabs.txt"
    ));
    let out = tempfile::NamedTempFile::new().unwrap();
    let options = Options {
        slabs: Some((SLABS.into(), SLABS.into())),
        zones: Some((ZONES.into(), ZONES.into())),
        ..Options::default()
    };
    import(&mut Cursor::new(text.unwrap()), &options, || {
        File::create(out.path())
    })
    .unwrap();
    let trace = Trace::open(out.path()).unwrap();
    let notes = trace.header().notes.join(" ");
    for told in [
        "inferred where their slab's pages were given back: 3.",
        "Allocations without an event, inferred by their frees: 1.",
        "Objects older than the trace: 32. Slabs of those: 1.",
        "Moves of pages between pagesets and zones: 6.",
    ] {
        assert!(notes.contains(told), "{told}: {notes}");
    }
    let cache = &trace.header().caches[0];
    assert_eq!((cache.older, cache.older_free), (32, 31));
    assert_eq!(trace.header().zones[0].before[0].count, 3);
}

#[test]
fn what_is_imported_from_damaged_files_is_a_whole_trace() {
    let mut rounds = 0;
    for bytes in mutate::corpus("import") {
        for end in (0..bytes.len()).step_by(bytes.len() / 40 + 1) {
            let Ok(trace) = imported(&bytes[..end]) else {
                continue;
            };
            rounds += 1;
            let mut merged = trace.merged(|_| true);
            let mut live = std::collections::HashSet::new();
            while let Some((_, _, event)) = merged.next().unwrap() {
                match event {
                    Event::Alloc { address, .. } => {
                        assert!(live.insert(address), "{address:#x} twice")
                    }
                    Event::Free { address } => drop(live.remove(&address)),
                    _ => {}
                }
            }
        }
    }
    assert!(rounds > 20, "{rounds}");
}

#[test]
fn lengths_that_lie_are_refused_before_memory_is_taken() {
    if !mutate::in_small_space("lengths_that_lie_are_refused_before_memory_is_taken", 120) {
        return;
    }
    let huge = u64::MAX.to_le_bytes();
    let mut perf = b"PERFILE2".to_vec();
    perf.extend(104_u64.to_le_bytes());
    for _ in 0..12 {
        perf.extend(huge);
    }
    let mut pipe = b"PERFILE2".to_vec();
    pipe.extend(16_u64.to_le_bytes());
    // Event formats of four gigabytes.
    pipe.extend([66, 0, 0, 0, 0, 0, 12, 0, 0xff, 0xff, 0xff, 0xff]);
    let mut six = b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0header_page\0".to_vec();
    six.extend(huge);
    let mut seven = b"\x17\x08\x44tracing7\0\0\x08\0\x10\0\0zstd\x001\0".to_vec();
    seven.extend((seven.len() as u64 + 8).to_le_bytes());
    seven.extend([0, 0, 1, 0, 0, 0, 0, 0]);
    seven.extend(huge);
    seven.extend([0xff; 8]);
    for bytes in [perf, pipe, six, seven] {
        let refused = probe::import(&bytes).unwrap_err().to_string();
        assert!(
            refused.starts_with("damaged at byte") || refused.contains("no kmem"),
            "{refused}"
        );
    }
}

#[test]
fn text_that_unpacks_to_gigabytes_takes_no_memory() {
    if !mutate::in_small_space("text_that_unpacks_to_gigabytes_takes_no_memory", 200) {
        return;
    }
    // One line of 256 MiB, and 256 MiB of empty lines, in some kilobytes.
    for filling in [b'x', b'\n'] {
        let block = vec![filling; 1 << 20];
        let mut packer = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        for _ in 0..256 {
            std::io::Write::write_all(&mut packer, &block).unwrap();
        }
        let packed = packer.finish().unwrap();
        assert_eq!(probe::import(&packed).unwrap().events, 0);
    }
}

#[test]
fn a_clock_that_goes_backwards_and_frees_of_unknown_objects_are_counted() {
    let text = "   sh-1 [000] ..... 10.000005: kmalloc: ptr=0000000012340000 bytes_req=60 bytes_alloc=64\n\
                \x20  sh-1 [000] ..... 10.000002: kfree: ptr=0000000012340000\n\
                \x20  sh-1 [000] ..... 10.000003: kfree: ptr=0000000056780000\n";
    let trace = imported(text.as_bytes()).unwrap();
    let notes = trace.header().notes.join(" ");
    for told in [
        "Times that went backwards, taken as standing still: 1.",
        "Frees of objects whose cache nothing tells: 1.",
    ] {
        assert!(notes.contains(told), "{told}: {notes}");
    }
}
