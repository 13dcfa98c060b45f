//! A writer of JSON into a file through a fixed buffer.
//!
//! Fields and items are separated by the writer; the caller opens and closes what it nests.

use flagstone_linux::sys;
use flagstone_linux::text::decimal;

/// The document under construction.
pub struct Json<'a> {
    fd: i32,
    buffer: &'a mut [u8],
    len: usize,
    failed: bool,
    /// Whether the next field or item is the first of its object or array.
    first: bool,
}

impl<'a> Json<'a> {
    /// A document into `fd`.
    pub fn new(fd: i32, buffer: &'a mut [u8]) -> Self {
        Self {
            fd,
            buffer,
            len: 0,
            failed: false,
            first: true,
        }
    }

    fn flush(&mut self) {
        let mut rest = self.buffer.get(..self.len).unwrap_or_default();
        while !rest.is_empty() && !self.failed {
            // SAFETY: the kernel reads the buffer.
            let written = unsafe {
                sys::call(
                    libc::SYS_write,
                    [
                        self.fd as usize,
                        rest.as_ptr().expose_provenance(),
                        rest.len(),
                        0,
                        0,
                        0,
                    ],
                )
            };
            match usize::try_from(written) {
                Ok(written) if written > 0 => rest = rest.get(written..).unwrap_or_default(),
                _ => self.failed = !sys::is_error(written, libc::EINTR),
            }
        }
        self.len = 0;
    }

    // Inlined, it makes the report 12 KiB larger.
    #[inline(never)]
    fn byte(&mut self, byte: u8) {
        if self.len == self.buffer.len() {
            self.flush();
        }
        if let Some(place) = self.buffer.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    fn raw(&mut self, text: &[u8]) {
        text.iter().for_each(|&byte| self.byte(byte));
    }

    fn separate(&mut self) {
        if !self.first {
            self.byte(b',');
        }
        self.first = false;
    }

    fn digits(&mut self, value: u64) {
        self.raw(decimal(value, &mut [0; 20]));
    }

    /// `"key":`, with a comma before it where one belongs.
    fn key(&mut self, key: &str) {
        self.separate();
        self.quoted(key.as_bytes());
        self.byte(b':');
    }

    fn quoted(&mut self, text: &[u8]) {
        self.byte(b'"');
        for &byte in text {
            match byte {
                b'"' | b'\\' => {
                    self.byte(b'\\');
                    self.byte(byte);
                }
                0x20..=0x7E => self.byte(byte),
                // Of bytes that may be no text, the document says that they were there.
                _ => self.byte(b'?'),
            }
        }
        self.byte(b'"');
    }

    /// A field with a number.
    pub fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        self.digits(value);
    }

    /// A field with a number, or `null`.
    pub fn maybe(&mut self, key: &str, value: Option<u64>) {
        match value {
            Some(value) => self.number(key, value),
            None => {
                self.key(key);
                self.raw(b"null");
            }
        }
    }

    /// A field with a text.
    pub fn text(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        self.quoted(value);
    }

    /// A field that is true or false.
    pub fn truth(&mut self, key: &str, value: bool) {
        self.key(key);
        self.raw(if value { b"true" } else { b"false" });
    }

    /// A field with an array of numbers.
    pub fn numbers(&mut self, key: &str, values: &[u32]) {
        self.key(key);
        self.byte(b'[');
        self.first = true;
        for &value in values {
            self.separate();
            self.digits(u64::from(value));
        }
        self.byte(b']');
        self.first = false;
    }

    /// A number as the next item of an array.
    pub fn entry(&mut self, value: u64) {
        self.separate();
        self.digits(value);
    }

    /// A field with an object.
    pub fn object(&mut self, key: &str, fields: impl FnOnce(&mut Self)) {
        self.key(key);
        self.braces(fields);
    }

    /// A field with an array.
    pub fn array(&mut self, key: &str, items: impl FnOnce(&mut Self)) {
        self.key(key);
        self.byte(b'[');
        self.first = true;
        items(self);
        self.byte(b']');
        self.first = false;
    }

    /// An object as the next item of an array.
    pub fn item(&mut self, fields: impl FnOnce(&mut Self)) {
        self.separate();
        self.braces(fields);
    }

    fn braces(&mut self, fields: impl FnOnce(&mut Self)) {
        self.byte(b'{');
        self.first = true;
        fields(self);
        self.byte(b'}');
        self.first = false;
    }

    /// The whole document: one object. `false` if it could not be written.
    pub fn document(mut self, fields: impl FnOnce(&mut Self)) -> bool {
        self.braces(fields);
        self.byte(b'\n');
        self.flush();
        !self.failed
    }
}
