//! A line of text on the stack.

use core::fmt;

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
    pub fn push(&mut self, text: &str) {
        let room = BYTES - 1 - self.len;
        let part = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }

    /// Appends a number in decimal.
    pub fn push_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut rest = number;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if let Ok(text) = core::str::from_utf8(&digits[start..]) {
            self.push(text);
        }
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        // Cutting may have split a character; what precedes it is whole.
        match core::str::from_utf8(&self.bytes[..self.len]) {
            Ok(text) => text,
            Err(error) => core::str::from_utf8(&self.bytes[..error.valid_up_to()]).unwrap_or(""),
        }
    }

    /// The text so far, ended by a zero byte.
    pub fn terminated(&self) -> *const core::ffi::c_char {
        // `push` leaves the last byte, and with it every byte after `len`, zero.
        self.bytes.as_ptr().cast()
    }

    /// Writes the line and its end to standard error.
    pub fn print(&self) {
        flagstone_linux::write_line(&[&self.bytes[..self.len], b"\n"]);
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}
