//! What the library keeps of a heap profile.
#![no_main]

#[allow(
    dead_code,
    reason = "the command's own reader, of which one function is tried"
)]
#[path = "../../crates/flagstone-cli/src/cmd/profile/raw.rs"]
mod raw;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _read_or_refused = raw::of_file(bytes);
});
