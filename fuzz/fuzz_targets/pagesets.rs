//! Recorded pagesets of a kernel.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _read_or_refused = flagstone_lab::probe::pagesets(text);
});
