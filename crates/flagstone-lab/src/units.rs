//! Numbers as people write them: 64K, 3us, 1e3.

/// Bytes: a whole number, with K, M, G or T if it is large.
///
/// # Errors
/// One line that says what works.
pub fn bytes(text: &str) -> Result<usize, String> {
    crate::names::plain_size(text)
        .parse()
        .map_err(|_| format!("`{text}` is no size; bytes are written 8192, 8K, 8M or 8G"))
}

/// Nanoseconds: a number, with ns, us, ms or s behind it if there is a unit.
///
/// # Errors
/// One line that says what works.
pub fn nanoseconds(text: &str) -> Result<f64, String> {
    let units = [
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
    ];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
        .unwrap_or((text, 1.0));
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number * factor),
        _ => Err(format!(
            "`{text}` is no time; it is written 300, 300ns, 3us or 1ms"
        )),
    }
}

/// A count: a whole number, also 1e3 or 10k.
///
/// # Errors
/// One line that says what works.
pub fn count(text: &str) -> Result<u64, String> {
    let plain = || text.parse().ok();
    let short = || {
        let (number, factor) = match text.strip_suffix(['k', 'K']) {
            Some(number) => (number, 1e3),
            None => (text, 1.0),
        };
        let value = number.parse::<f64>().ok()? * factor;
        (value >= 0.0 && value <= 2f64.powi(53) && value.fract() == 0.0).then_some(value as u64)
    };
    plain()
        .or_else(short)
        .ok_or_else(|| format!("`{text}` is no whole number; 1000, 1k and 1e3 work"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_wrong_ones_say_which_work() {
        assert_eq!(bytes("8K"), Ok(8192));
        assert_eq!(nanoseconds("3us"), Ok(3000.0));
        assert_eq!(nanoseconds("2.5"), Ok(2.5));
        assert_eq!(count("1e3"), Ok(1000));
        assert_eq!(count("10k"), Ok(10_000));
        assert_eq!(count("18446744073709551615"), Ok(u64::MAX));
        assert!(bytes("8MB").unwrap_err().contains("8M or 8G"));
        assert!(nanoseconds("3 weeks").unwrap_err().contains("3us"));
        for wrong in ["1.5", "-1", "many", "1e99"] {
            assert!(count(wrong).unwrap_err().contains("1e3"), "{wrong}");
        }
    }
}
