//! Numbers as people read them.

/// `340 B`, `12.5 KiB`, `88.1 MiB`, `1.20 GiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.96 would print as "1024.0 KiB".
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// The same for a table's column: `340`, `12.5K`, `88.1M`, `1.2G`.
#[must_use]
pub fn short(value: u64) -> String {
    let long = bytes(value);
    match long.split_once(' ') {
        Some((number, "B")) => number.to_owned(),
        Some((number, unit)) => format!("{number}{}", &unit[..1]),
        None => long,
    }
}

/// A page size: `4 KiB`.
#[must_use]
pub fn page(bytes: u64) -> String {
    if bytes >= 1 << 20 {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}

/// Share in per cent with one digit, `-` of nothing.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".into();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// Change in per cent with a sign, `=` for none.
#[must_use]
pub fn change(then: u64, now: u64) -> String {
    if now == 0 || then == now {
        return "=".into();
    }
    format!("{:+.1} %", (then as f64 - now as f64) * 100.0 / now as f64)
}

/// How often, for "... as often": `2.0 times`, `half`, `about`.
#[must_use]
pub fn factor(value: f64) -> String {
    match value {
        0.48..=0.52 => "half".into(),
        0.95..=1.05 => "about".into(),
        _ => format!("{value:.1} times"),
    }
}

/// Digits in groups of three.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_three_or_four_digits() {
        let got = [0, 1023, 1024, 1_048_523, 1_048_575, 107 << 20].map(bytes);
        assert_eq!(
            got,
            [
                "0 B",
                "1023 B",
                "1.0 KiB",
                "1023.9 KiB",
                "1.0 MiB",
                "107.0 MiB"
            ]
        );
    }

    #[test]
    fn a_table_column_has_one_letter_units() {
        assert_eq!(
            [7, 1536, 107 << 20, 5 << 30].map(short),
            ["7", "1.5K", "107.0M", "5.0G"]
        );
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(
            [7, 999, 1000, 1234567].map(count),
            ["7", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn changes_carry_a_sign() {
        assert_eq!(
            [change(110, 100), change(95, 100), change(5, 5)],
            ["+10.0 %", "-5.0 %", "="]
        );
    }
}
