//! One line on stderr, without allocation.

/// Most bytes of a line.
const BYTES: usize = 512;

/// Prints the parts, the number and a newline by one write.
pub fn say(parts: &[&str], number: u64) {
    let mut buffer = [0; BYTES];
    let mut at = 0;
    for part in parts {
        let room = (BYTES - 24).saturating_sub(at).min(part.len());
        buffer[at..at + room].copy_from_slice(&part.as_bytes()[..room]);
        at += room;
    }
    buffer[at] = b' ';
    at += 1;
    at = digits(&mut buffer, at, number);
    buffer[at] = b'\n';
    // SAFETY: a buffer of at least that many bytes.
    unsafe { libc::write(2, buffer.as_ptr().cast(), at + 1) };
}

/// Writes a number in decimal at `at`; where it ends.
pub fn digits(buffer: &mut [u8], at: usize, mut number: u64) -> usize {
    let mut text = [0; 20];
    let mut from = text.len();
    loop {
        from -= 1;
        text[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let length = text.len() - from;
    buffer[at..at + length].copy_from_slice(&text[from..]);
    at + length
}
