//! Numbers of variable length: seven bits to a byte, the lowest first, the high bit says "more".

/// Most bytes of one number.
pub const BYTES_MAX: usize = 10;

/// Writes `value` at `at` and answers where it ends. The caller keeps [`BYTES_MAX`] bytes free.
#[inline]
pub fn put(buffer: &mut [u8], at: usize, value: u64) -> usize {
    if value < 0x80 {
        buffer[at] = value as u8;
        return at + 1;
    }
    put_long(buffer, at, value)
}

fn put_long(buffer: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        buffer[at] = value as u8 | 0x80;
        at += 1;
        value >>= 7;
    }
    buffer[at] = value as u8;
    at + 1
}

/// Reads a number at `at` and answers where it ends; `None` if it is cut off or too long.
#[inline]
pub fn get(buffer: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *buffer.get(at)?;
        at += 1;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some((value, at));
        }
    }
    None
}

/// A difference as a number that is small for small differences of either sign.
#[inline]
#[must_use]
pub fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// The difference of such a number.
#[inline]
#[must_use]
pub fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_differences_come_back() {
        for value in [0, 1, 127, 128, 300, 1 << 32, u64::MAX - 1, u64::MAX] {
            let mut buffer = [0; BYTES_MAX];
            let end = put(&mut buffer, 0, value);
            assert_eq!(get(&buffer[..end], 0), Some((value, end)));
            assert_eq!(get(&buffer[..end - 1], 0), None, "{value} cut off");
        }
        for difference in [0, -1, 1, i64::MIN, i64::MAX, -4096] {
            assert_eq!(unzigzag(zigzag(difference)), difference);
        }
        assert_eq!(zigzag(-1), 1);
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        assert_eq!(get(&[0xff; 11], 0), None);
        assert_eq!(
            get(
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
                0
            ),
            None
        );
    }
}
