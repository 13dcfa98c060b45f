//! Files of strangers: whatever the bytes, an answer, within a small address space.

#[path = "../../../fuzz/mutate.rs"]
mod mutate;

use flagstone_trace::encode::CHUNK_BYTES_MAX;
use flagstone_trace::frame::{Kind, Record};
use flagstone_trace::header::SCHEMA;
use flagstone_trace::index::StreamId;
use flagstone_trace::write::Writer;
use flagstone_trace::{Event, Header, Request, Trace, probe};
use std::fs::File;
use std::io::{Seek, Write};

fn header() -> Header {
    Header {
        schema: SCHEMA.into(),
        page_size: 4096,
        tick_ns: 1.0,
        ..Header::default()
    }
}

/// Writes the bytes over what the file has.
fn put(file: &mut File, bytes: &[u8]) -> File {
    file.rewind().unwrap();
    file.set_len(0).unwrap();
    file.write_all(bytes).unwrap();
    file.try_clone().unwrap()
}

#[test]
fn no_mutation_of_the_corpus_does_harm() {
    if !mutate::in_small_space("no_mutation_of_the_corpus_does_harm", 400) {
        return;
    }
    let mut file = tempfile::tempfile().unwrap();
    mutate::each_read("trace", 30_000, 1000, |bytes| {
        probe::read(put(&mut file, bytes)).map(drop)
    });
}

#[test]
fn many_streams_at_once_are_merged_in_bounded_memory() {
    if !mutate::in_small_space("many_streams_at_once_are_merged_in_bounded_memory", 700) {
        return;
    }
    // Twenty thousand streams of 64 KiB each, as 2 MB of file.
    let mut raw = Vec::new();
    while raw.len() < CHUNK_BYTES_MAX {
        // An exit, no time later.
        raw.extend([8, 0]);
    }
    let packed = zstd::bulk::compress(&raw, 3).unwrap();
    let mut bytes = Vec::new();
    flagstone_trace::write::write_text(
        &mut bytes,
        Kind::Header,
        0,
        &serde_json::to_vec(&header()).unwrap(),
    )
    .unwrap();
    for stream in 1..=20_000 {
        let record = Record {
            kind: Kind::Chunk,
            stream,
            process: 1,
            image: 1,
            thread: stream,
            events: raw.len() as u32 / 2,
            packed: packed.len() as u32,
            raw: raw.len() as u32,
            first: 5,
            last: 5,
        };
        bytes.extend(record.bytes());
        bytes.extend(&packed);
    }
    let mut file = tempfile::tempfile().unwrap();
    let trace = Trace::of(put(&mut file, &bytes)).unwrap();
    let mut merged = trace.merged(|_| true);
    for event in 0..60_000 {
        assert!(merged.next().unwrap().is_some(), "{event}");
    }
}

#[test]
fn descriptions_of_processes_are_no_bomb() {
    if !mutate::in_small_space("descriptions_of_processes_are_no_bomb", 300) {
        return;
    }
    let mut bytes = Vec::new();
    let text = serde_json::to_vec(&header()).unwrap();
    flagstone_trace::write::write_text(&mut bytes, Kind::Header, 0, &text).unwrap();
    let text = format!("{{\"process\":1,\"name\":\"{}\"}}", "x".repeat(60_000));
    for _ in 0..20_000 {
        flagstone_trace::write::write_text(&mut bytes, Kind::Process, 1, text.as_bytes()).unwrap();
    }
    let mut file = tempfile::tempfile().unwrap();
    let trace = Trace::of(put(&mut file, &bytes)).unwrap();
    assert_eq!(trace.processes().len(), 20_000);
    assert_eq!(trace.processes()[7].name.len(), 1024);
}

#[test]
fn a_clock_that_goes_backwards_stands_still() {
    let mut file = tempfile::tempfile().unwrap();
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let id = StreamId {
        process: 1,
        image: 1,
        stream: 1,
    };
    for (time, address) in [(100, 16), (50, 32), (120, 48), (70, 64), (130, 80)] {
        let request = Request::default();
        writer
            .event(id, 1, time, &Event::Alloc { address, request })
            .unwrap();
        if time == 120 {
            // The next chunk begins before this one ended.
            writer.end(id).unwrap();
        }
    }
    let bytes = writer.finish().unwrap();
    let trace = Trace::of(put(&mut file, &bytes)).unwrap();
    let mut merged = trace.merged(|_| true);
    let mut times = Vec::new();
    while let Some((time, _, _)) = merged.next().unwrap() {
        times.push(time);
    }
    assert_eq!(times, [100, 100, 120, 120, 180]);
    let mut again = Vec::new();
    let seen = trace.each(&trace.streams()[0], |time, _| {
        again.push(time);
        Ok::<(), flagstone_trace::Error>(())
    });
    seen.unwrap();
    assert_eq!(again, times);
}

/// Writes a trace of `BIG_TRACE_MIB` to `BIG_TRACE`, for measuring how readers take a long one: four
/// streams, 100,000 live blocks, one free in eight by another stream.
#[test]
#[ignore = "writes a large file"]
fn big_trace() {
    let text = |name: &str| std::env::var(name).expect("BIG_TRACE and BIG_TRACE_MIB are set");
    let bytes = text("BIG_TRACE_MIB").parse::<u64>().unwrap() << 20;
    let path = text("BIG_TRACE");
    let mut writer = Writer::new(File::create(&path).unwrap(), &header()).unwrap();
    writer
        .process(&flagstone_trace::Process::default())
        .unwrap();
    let id = |stream| StreamId {
        process: 0,
        image: 0,
        stream,
    };
    let mut chance = 1_u64;
    let mut below = |bound: u64| {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % bound
    };
    let mut live = vec![(0_u64, 0_u32); 100_000];
    for (time, next) in (1_u64..).zip(1_u64..) {
        let stream = 1 + below(4) as u32;
        let at = below(live.len() as u64) as usize;
        let (address, owner) = live[at];
        if address != 0 {
            let by = if below(8) == 0 { stream } else { owner };
            writer
                .event(id(by), by, 300 * time, &Event::Free { address })
                .unwrap();
        }
        let address = (0x7f00_0000_0000 + next * 64) ^ (below(1 << 20) << 44);
        let request = Request {
            size: 1 + below(2000),
            ..Request::default()
        };
        live[at] = (address, stream);
        let alloc = Event::Alloc { address, request };
        writer
            .event(id(stream), stream, 300 * time + 100, &alloc)
            .unwrap();
        if next % 100_000 == 0 && std::fs::metadata(&path).unwrap().len() >= bytes {
            break;
        }
    }
    writer.finish().unwrap();
}

/// Writes the corpus anew: `cargo test -p flagstone-trace --test hostile -- --ignored`.
#[test]
#[ignore = "writes fuzz/corpus/trace"]
fn corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/trace");
    let request = |size, site| Request {
        size,
        site,
        ..Request::default()
    };
    let events = |round: u64| {
        let address = 0x7f00_0000 + round * 48;
        [
            Event::Alloc {
                address,
                request: request(40 + round, round as u32 % 3),
            },
            Event::Cpu { cpu: 3 },
            Event::Realloc {
                old: address,
                new: address + 4096,
                size: 99,
            },
            Event::Touched { bytes: 8192 },
            Event::Free {
                address: address + 4096,
            },
            Event::PageAlloc {
                pfn: 70 + round,
                order: 3,
                migratetype: 1,
            },
            Event::PageFree {
                pfn: 70 + round,
                order: 3,
            },
            Event::Free {
                address: 0xdead_0007,
            },
            Event::Fork { child: 7 },
            Event::Trim { keep: 1 },
            Event::Lost { count: 5 },
            Event::Exit,
        ]
    };
    for (name, streams, rounds) in [
        ("one-stream", 1, 3),
        ("three-streams", 3, 8),
        ("no-events", 0, 0),
    ] {
        let mut writer = Writer::new(Vec::new(), &header()).unwrap();
        writer
            .process(&flagstone_trace::Process::default())
            .unwrap();
        for stream in 1..=streams {
            let id = StreamId {
                process: 7,
                image: 1,
                stream,
            };
            for round in 0..rounds {
                for (step, event) in events(round).iter().enumerate() {
                    writer
                        .event(id, stream, 1000 * round + 10 * step as u64, event)
                        .unwrap();
                }
            }
        }
        std::fs::write(format!("{folder}/{name}.fst"), writer.finish().unwrap()).unwrap();
    }
}
