//! Files come back as they were written; damaged and foreign ones are refused without harm.

use flagstone_trace::encode::CHUNK_BYTES_MAX;
use flagstone_trace::header::SCHEMA;
use flagstone_trace::index::StreamId;
use flagstone_trace::write::Writer;
use flagstone_trace::{Decoder, Encoder, Error, Event, Header, Move, Process, Request, Trace};
use proptest::prelude::*;
use std::io::Write;
use tempfile::NamedTempFile;

fn header() -> Header {
    Header {
        schema: SCHEMA.into(),
        recorder: "a test".into(),
        command: vec!["true".into()],
        allocator: "glibc".into(),
        machine: String::new(),
        cpus: 2,
        page_size: 4096,
        tick_ns: 10.0,
        began: 0,
        sample: 1,
        sites: vec!["one".into()],
        notes: Vec::new(),
        caches: Vec::new(),
        zones: Vec::new(),
    }
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        (1_u64..1000).prop_map(|n| 0x7f00_0000_0000 + n * 16),
        1..u64::MAX,
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (address(), any::<u64>(), 0_u8..64, any::<bool>(), any::<u32>()).prop_map(
            |(address, size, align_log2, zeroed, site)| Event::Alloc {
                address,
                request: Request { size, align_log2, zeroed, site },
            }
        ),
        4 => prop_oneof![9 => address(), 1 => Just(0)].prop_map(|address| Event::Free { address }),
        2 => (address(), prop_oneof![Just(0), address()], any::<u64>())
            .prop_map(|(old, new, size)| Event::Realloc { old, new, size }),
        1 => any::<u64>().prop_map(|bytes| Event::Touched { bytes }),
        1 => any::<u32>().prop_map(|cpu| Event::Cpu { cpu }),
        1 => (any::<u64>(), 0_u8..16, any::<u8>()).prop_map(|(pfn, order, migratetype)| {
            Event::PageAlloc { pfn, order, migratetype }
        }),
        1 => (any::<u64>(), 0_u8..16).prop_map(|(pfn, order)| Event::PageFree { pfn, order }),
        1 => (0_usize..8, any::<u64>(), 0_u8..16, any::<u8>()).prop_map(|(what, pfn, order, migratetype)| {
            Event::PageMove { what: Move::ALL[what], pfn, order, migratetype }
        }),
        1 => any::<u32>().prop_map(|child| Event::Fork { child }),
        1 => Just(Event::Exit),
        1 => any::<u64>().prop_map(|count| Event::Lost { count }),
        1 => any::<u64>().prop_map(|keep| Event::Trim { keep }),
        1 => (any::<u64>(), any::<u64>()).prop_map(|(heap, other)| Event::Resident { heap, other }),
        1 => (address(), any::<u64>()).prop_map(|(address, bytes)| Event::Extent { address, bytes }),
    ]
}

proptest! {
    #[test]
    fn events_of_a_chunk_come_back(events in prop::collection::vec((0_u64..1 << 40, event()), 1..300)) {
        let mut buffer = vec![0; CHUNK_BYTES_MAX];
        let mut encoder = Encoder::new();
        let mut time = 0;
        let mut expected = Vec::new();
        for (since, event) in &events {
            time += since;
            encoder.put(&mut buffer, time, event);
            expected.push((time, *event));
        }
        let mut decoder = Decoder::new(&buffer[..encoder.len()], encoder.times().0);
        let mut found = Vec::new();
        while let Some(read) = decoder.next().unwrap() {
            found.push(read);
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut decoder = Decoder::new(&bytes, 0);
        while let Ok(Some(_)) = decoder.next() {}
    }
}

fn stream(number: u32) -> StreamId {
    StreamId {
        process: 7,
        image: 1,
        stream: number,
    }
}

fn alloc(address: u64) -> Event {
    let request = Request {
        size: 64,
        ..Request::default()
    };
    Event::Alloc { address, request }
}

/// Two threads that hand one address to each other, in several chunks.
fn written() -> (NamedTempFile, u64) {
    let file = NamedTempFile::new().unwrap();
    let mut writer = Writer::new(file.reopen().unwrap(), &header()).unwrap();
    let process = Process {
        process: 7,
        name: "a test".into(),
        ..Process::default()
    };
    writer.process(&process).unwrap();
    let mut events = 0;
    for round in 0..40_000_u64 {
        let (maker, taker) = (1 + (round % 2) as u32, 2 - (round % 2) as u32);
        writer
            .event(stream(maker), maker, round * 10, &alloc(4096))
            .unwrap();
        let free = Event::Free { address: 4096 };
        // At the time of the next allocation: the free comes first.
        writer
            .event(stream(taker), taker, round * 10 + 10, &free)
            .unwrap();
        events += 2;
    }
    writer.finish().unwrap();
    (file, events)
}

#[test]
fn streams_are_merged_by_time_and_a_free_comes_before_an_allocation() {
    let (file, events) = written();
    let trace = Trace::open(file.path()).unwrap();
    assert_eq!(
        (trace.events(), trace.streams().len(), trace.unread()),
        (events, 2, 0)
    );
    assert_eq!(trace.processes()[0].name, "a test");
    assert!(
        trace.bytes() < events * 4,
        "{} bytes for {events} events",
        trace.bytes()
    );
    let mut merged = trace.merged(|_| true);
    let (mut live, mut last, mut count) = (false, 0, 0);
    while let Some((time, _, event)) = merged.next().unwrap() {
        assert!(time >= last);
        last = time;
        count += 1;
        let allocates = matches!(event, Event::Alloc { .. });
        assert_ne!(allocates, live, "event {count} at {time}");
        live = allocates;
    }
    assert_eq!(count, events);
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_its_last_whole_frame() {
    let (file, events) = written();
    let whole = std::fs::read(file.path()).unwrap();
    for part in [whole.len() - 1, whole.len() / 2, 700] {
        let mut cut = NamedTempFile::new().unwrap();
        cut.write_all(&whole[..part]).unwrap();
        let trace = Trace::open(cut.path()).unwrap();
        assert!(trace.events() < events);
        let mut merged = trace.merged(|_| true);
        let mut count = 0;
        while merged.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, trace.events(), "cut at {part}");
        assert!(trace.unread() > 0);
    }
}

#[test]
fn damaged_and_foreign_files_are_refused() {
    let (file, _) = written();
    let whole = std::fs::read(file.path()).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        let mut damaged = NamedTempFile::new().unwrap();
        damaged.write_all(&bytes).unwrap();
        // Refused, or read as far as it goes: what matters is that nothing is trusted.
        if let Ok(trace) = Trace::open(damaged.path()) {
            let mut merged = trace.merged(|_| true);
            while let Ok(Some(_)) = merged.next() {}
        }
    }
    for foreign in [&b""[..], b"ELF", &[0; 4096]] {
        let mut other = NamedTempFile::new().unwrap();
        other.write_all(foreign).unwrap();
        assert!(matches!(Trace::open(other.path()), Err(Error::Foreign)));
    }
}

#[test]
fn a_record_that_promises_a_huge_payload_is_refused_before_memory_is_taken() {
    use flagstone_trace::frame::{Kind, Record};
    let (file, _) = written();
    let mut bytes = std::fs::read(file.path()).unwrap();
    let bomb = Record {
        kind: Kind::Chunk,
        stream: 9,
        process: 7,
        image: 1,
        thread: 9,
        events: 1,
        packed: 16,
        raw: u32::MAX,
        first: 0,
        last: 0,
    };
    bytes.extend(bomb.bytes());
    bytes.extend([0; 16]);
    let mut with_bomb = NamedTempFile::new().unwrap();
    with_bomb.write_all(&bytes).unwrap();
    let trace = Trace::open(with_bomb.path()).unwrap();
    let mut merged = trace.merged(|stream| stream.id.stream == 9);
    let refused = merged.next().unwrap_err().to_string();
    assert!(refused.contains("cannot be so long"), "{refused}");
}
