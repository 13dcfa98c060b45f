//! Another tool's recording: perf.data, trace.dat, text, heaptrack, packed or not.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _read_or_refused = flagstone_import::probe::import(bytes);
});
