//! Files that the tools themselves wrote: what is read is what the tools report.

use flagstone_import::{Format, Options, import};
use flagstone_trace::{Event, Trace};
use std::fs::File;
use std::io::Cursor;
use std::path::Path;

fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // heaptrack's own files are packed; they stay so.
    if name.ends_with(".zst") && !name.starts_with("heaptrack") {
        return zstd::decode_all(&bytes[..]).unwrap();
    }
    bytes
}

/// Counts of an imported trace: allocations, frees, page allocations, page frees.
struct Imported {
    counts: [u64; 4],
    trace: Trace,
    format: Format,
    line: String,
    events: Vec<(u64, Event)>,
}

fn imported(bytes: Vec<u8>) -> Result<Imported, String> {
    let out = tempfile::NamedTempFile::new().unwrap();
    let file = || File::create(out.path());
    let done = import(&mut Cursor::new(bytes), &Options::default(), file);
    let summary = done.map_err(|error| error.to_string())?;
    let trace = Trace::open(out.path()).unwrap();
    let mut counts = [0; 4];
    let mut events = Vec::new();
    let mut merged = trace.merged(|_| true);
    while let Some((time, _, event)) = merged.next().unwrap() {
        events.push((time, event));
        let kind = match event {
            Event::Alloc { .. } => 0,
            Event::Free { .. } => 1,
            Event::PageAlloc { .. } => 2,
            Event::PageFree { .. } => 3,
            Event::PageMove { .. } => continue,
            other => panic!("no such event is imported: {other:?}"),
        };
        counts[kind] += 1;
    }
    drop(merged);
    let (format, line) = (summary.format, summary.notes.join(" "));
    Ok(Imported {
        counts,
        trace,
        format,
        line,
        events,
    })
}

/// Allocations of objects older than the recording, which the importer adds.
fn older(imported: &Imported) -> u64 {
    imported
        .trace
        .header()
        .caches
        .iter()
        .map(|cache| cache.older)
        .sum()
}

#[test]
fn perf_data_is_read_whole_from_file_pipe_and_packed() {
    for (name, events) in [
        ("perf.data.zst", 189),
        ("perf-z.data.zst", 169),
        ("perf-pipe.data.zst", 168),
    ] {
        let read = imported(data(name)).unwrap();
        assert_eq!(read.format, Format::Perf, "{name}");
        // `perf script` prints as many, with 15 frees of null among them.
        let told: u64 = read.counts.iter().sum();
        assert_eq!(told - older(&read), events, "{name}: {}", read.line);
        assert!(
            read.line.contains("Events of other kinds: 15.")
                && !read.line.contains("Moves of pages"),
            "{name}: {}",
            read.line
        );
        let sites = &read.trace.header().sites;
        assert!(
            sites.iter().any(|site| site == "vm_area_struct"),
            "{sites:?}"
        );
        let backwards = read.events.windows(2).any(|pair| pair[1].0 < pair[0].0);
        assert!(!backwards, "{name}");
    }
}

#[test]
fn trace_dat_of_both_versions_and_its_text_tell_the_same() {
    let packed = imported(data("trace-v7-zstd.dat.zst")).unwrap();
    let six = imported(data("trace-v6.dat.zst")).unwrap();
    assert_eq!((packed.format, six.format), (Format::Dat, Format::Dat));
    assert_eq!(packed.events, six.events);
    assert_eq!(packed.line, six.line);
    // `trace-cmd report` prints 1308 events; 97 of them are frees of null.
    let told: u64 = packed.counts.iter().sum();
    assert_eq!(told - older(&packed) - 4, 1211, "{}", packed.line);
    assert!(
        packed
            .line
            .contains("inferred where their address was allocated again: 4."),
        "{}",
        packed.line
    );
    assert_eq!(packed.trace.header().cpus, 2);
    assert!(
        packed.trace.header().machine.starts_with("Linux"),
        "{}",
        packed.trace.header().machine
    );

    let none = imported(data("trace-v7-none.dat.zst")).unwrap();
    let told: u64 = none.counts.iter().sum();
    assert_eq!(told - older(&none) - 4, 1969, "{}", none.line);
    assert!(none.line.contains("zones: 196."), "{}", none.line);
}

#[test]
fn text_gives_the_same_objects_as_the_file_it_was_printed_from() {
    let binary = imported(data("trace-v7-zstd.dat.zst")).unwrap();
    let text = imported(data("tracefs.txt.zst")).unwrap();
    assert_eq!(text.format, Format::Text);
    let (ours, theirs) = (&text.trace.header().sites, &binary.trace.header().sites);
    let strangers: Vec<_> = ours.iter().filter(|site| !theirs.contains(site)).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}

#[test]
fn heaptracks_files_have_every_block() {
    let raw = imported(data("heaptrack-raw.zst")).unwrap();
    assert_eq!(raw.format, Format::Heaptrack);
    // heaptrack prints 67 allocations and one leak.
    assert_eq!(raw.counts, [67, 66, 0, 0]);
    let sizes = |read: &Imported| {
        let size = |event: &(u64, Event)| match event.1 {
            Event::Alloc { request, .. } => Some(request.size),
            _ => None,
        };
        read.events.iter().filter_map(size).collect::<Vec<_>>()
    };
    for name in ["heaptrack-raw.gz", "heaptrack.zst"] {
        let other = imported(data(name)).unwrap();
        assert_eq!(other.counts, raw.counts, "{name}");
        assert_eq!(sizes(&other), sizes(&raw), "{name}");
    }
    assert!(
        raw.trace
            .header()
            .notes
            .iter()
            .any(|note| note.contains("one stream"))
    );
}

#[test]
fn files_without_an_order_of_events_are_refused_in_one_line() {
    for (name, why) in [
        ("dhat.json", "totals by call site"),
        ("massif.out", "snapshots of totals"),
    ] {
        let refused = imported(data(name)).err().expect(name);
        assert!(
            refused.contains(why) && refused.contains("flagstone record"),
            "{refused}"
        );
        assert!(!refused.contains('\n'), "{refused}");
    }
    let fst = imported(flagstone_trace::frame::SKIPPABLE.to_vec())
        .err()
        .unwrap();
    assert!(fst.contains("flagstone trace info"), "{fst}");
    let other_order = imported(b"2ELIFREP........".to_vec()).err().unwrap();
    assert!(other_order.contains("other byte order"), "{other_order}");
    assert!(
        imported(Vec::new())
            .err()
            .unwrap()
            .contains("no kmem event")
    );
}

#[test]
fn recordings_that_did_not_end_and_those_of_other_machines_are_one_line() {
    let refused = |bytes: Vec<u8>| {
        let line = imported(bytes).err().expect("refused");
        assert!(!line.contains('\n'), "{line}");
        line
    };
    // A killed `perf record` leaves the length of its records zero.
    let whole = data("perf.data.zst");
    let mut killed = whole.clone();
    killed[48..56].fill(0);
    let line = refused(killed);
    assert!(line.contains("did not end well"), "{line}");
    assert!(line.contains("perf record -o -"), "{line}");
    // One that was copied in half.
    let line = refused(whole[..whole.len() / 2].to_vec());
    assert!(line.contains("damaged at byte"), "{line}");

    for name in ["trace-v6.dat.zst", "trace-v7-zstd.dat.zst"] {
        let whole = data(name);
        // Behind the magic and the version's text is the byte order.
        let order = 10 + whole[10..].iter().position(|byte| *byte == 0).unwrap() + 1;
        let mut other = whole.clone();
        other[order] = 1;
        let line = refused(other);
        assert!(line.contains("other byte order"), "{name}: {line}");
        let line = refused(whole[..200].to_vec());
        assert!(line.contains("damaged at byte"), "{name}: {line}");
    }
}

#[test]
fn zlib_is_unpacked_as_zstd_is() {
    let whole = imported(version_seven("none", |part| part.to_vec())).unwrap();
    assert_eq!(whole.counts, [0, 1, 0, 0]);
    let zlib = |part: &[u8]| {
        use flate2::{Compression, write::ZlibEncoder};
        use std::io::Write;
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
        packer.write_all(part).unwrap();
        packer.finish().unwrap()
    };
    assert_eq!(
        imported(version_seven("zlib", zlib)).unwrap().events,
        whole.events
    );
    let refused = imported(version_seven("lzma", <[u8]>::to_vec))
        .err()
        .unwrap();
    assert!(refused.contains("packed by \"lzma\""), "{refused}");
}

/// Writes two files of the corpus anew: `cargo test -p flagstone-import --test real_files -- --ignored`.
#[test]
#[ignore = "writes fuzz/corpus/import"]
fn corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/import");
    let none = version_seven("none", <[u8]>::to_vec);
    std::fs::write(format!("{folder}/trace-v7.dat"), none).unwrap();
    let zstd = version_seven("zstd", |part| zstd::bulk::compress(part, 3).unwrap());
    std::fs::write(format!("{folder}/trace-v7-zstd.dat"), zstd).unwrap();
}

/// A file of version 7 with one CPU, one page and one event.
fn version_seven(packing: &str, pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let packed = packing != "none";
    let part = |data: &[u8]| {
        if !packed {
            return data.to_vec();
        }
        let small = pack(data);
        let mut part = (small.len() as u32).to_le_bytes().to_vec();
        part.extend((data.len() as u32).to_le_bytes());
        part.extend(small);
        part
    };
    let section = |id: u16, data: &[u8]| {
        let data = part(data);
        let mut section = id.to_le_bytes().to_vec();
        section.extend(u16::from(packed).to_le_bytes());
        section.extend(0_u32.to_le_bytes());
        section.extend((data.len() as u64).to_le_bytes());
        section.extend(data);
        section
    };
    let text = |name: &str, text: &str| {
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(0);
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    };
    let mut info = text(
        "header_page",
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\n\tfield: local_t commit;\toffset:8;\tsize:8;\n\
         \tfield: char data;\toffset:16;\tsize:4080;\n",
    );
    info.extend(text("header_event", ""));
    let format = "name: kfree\nID: 7\nformat:\n\tfield:const void * ptr;\toffset:8;\tsize:8;\n";
    let mut formats = 1_u32.to_le_bytes().to_vec();
    formats.extend(b"kmem\0");
    formats.extend(1_u32.to_le_bytes());
    formats.extend((format.len() as u64).to_le_bytes());
    formats.extend(format.as_bytes());
    let mut page = vec![0; 4096];
    page[8] = 20;
    page[16] = 4 | 3 << 5;
    page[20] = 7;
    page[28..36].copy_from_slice(&0xffff_8881_0000_0010_u64.to_le_bytes());

    let mut file = b"\x17\x08\x44tracing7\0\0\x08".to_vec();
    file.extend(4096_u32.to_le_bytes());
    file.extend(packing.as_bytes());
    file.extend(b"\x001\0");
    let first = file.len();
    file.extend([0; 8]);
    let info_at = file.len() as u64;
    file.extend(section(16, &info));
    let formats_at = file.len() as u64;
    file.extend(section(18, &formats));
    let buffer_at = file.len() as u64;
    file.extend(section(3, &[]));
    let data_at = file.len() as u64;
    if packed {
        file.extend(1_u32.to_le_bytes());
    }
    let data = part(&page);
    file.extend(&data);
    let mut options = Vec::new();
    let mut option = |id: u16, data: &[u8]| {
        options.extend(id.to_le_bytes());
        options.extend((data.len() as u32).to_le_bytes());
        options.extend(data);
    };
    option(16, &info_at.to_le_bytes());
    option(18, &formats_at.to_le_bytes());
    let mut buffer = buffer_at.to_le_bytes().to_vec();
    buffer.extend(b"\0local\0");
    buffer.extend(4096_u32.to_le_bytes());
    buffer.extend(1_u32.to_le_bytes());
    buffer.extend(0_u32.to_le_bytes());
    buffer.extend(data_at.to_le_bytes());
    buffer.extend((data.len() as u64).to_le_bytes());
    option(3, &buffer);
    option(0, &[0; 8]);
    let options_at = file.len() as u64;
    file.extend(section(0, &options));
    file[first..first + 8].copy_from_slice(&options_at.to_le_bytes());
    file
}
