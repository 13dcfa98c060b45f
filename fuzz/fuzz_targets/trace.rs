//! A trace file: index, frames, chunks, merged events.
#![no_main]

use std::io::{Seek, Write};

thread_local! {
    static FILE: std::cell::RefCell<std::fs::File> =
        std::cell::RefCell::new(tempfile::tempfile().expect("a temporary file"));
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    FILE.with_borrow_mut(|file| {
        file.set_len(0).expect("an empty file");
        file.rewind().expect("its beginning");
        file.write_all(bytes).expect("room");
        let file = file.try_clone().expect("a descriptor");
        let _read_or_refused = flagstone_trace::probe::read(file);
    });
});
