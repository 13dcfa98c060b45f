//! A line of text on the stack.

use core::fmt;
use flagstone_linux::text::decimal;

/// Longest line in bytes; what does not fit is cut.
const BYTES: usize = 1024;

/// A line under construction.
pub struct Line {
    bytes: [u8; BYTES],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Line {
    /// An empty line.
    pub const fn new() -> Self {
        Self {
            bytes: [0; BYTES],
            len: 0,
        }
    }

    /// Appends text.
    // Its loop is not worth a copy at each call.
    #[inline(never)]
    pub fn push(&mut self, text: &str) {
        let room = self.bytes.iter_mut().take(BYTES - 1).skip(self.len);
        for (place, byte) in room.zip(text.bytes()) {
            *place = byte;
            self.len += 1;
        }
    }

    /// Appends a number in decimal.
    pub fn push_number(&mut self, number: u64) {
        if let Ok(text) = core::str::from_utf8(decimal(number, &mut [0; 20])) {
            self.push(text);
        }
    }

    fn filled(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        // Cutting may have split a character; what precedes it is whole.
        let whole = self.filled().utf8_chunks().next();
        whole.map_or("", |chunk| chunk.valid())
    }

    /// The text so far, ended by a zero byte.
    pub fn terminated(&self) -> *const core::ffi::c_char {
        // `push` leaves the last byte, and with it every byte after `len`, zero.
        self.bytes.as_ptr().cast()
    }

    /// Writes the line and its end to standard error.
    pub fn print(&self) {
        flagstone_linux::write_line(&[self.filled(), b"\n"]);
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}
