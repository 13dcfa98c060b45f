//! A record, and the spec in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _read_or_refused = flagstone_lab::probe::record(text);
});
