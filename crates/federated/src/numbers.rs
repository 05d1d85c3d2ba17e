//! Formats numbers for sentences, tables and pages.

/// A share, in percent.
#[must_use]
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { "none".into() }
}

/// An accuracy in percent, as the papers give it.
#[must_use]
pub fn accuracy(value: f64) -> String {
    if value.is_finite() { format!("{:.2} %", value * 100.0) } else { "none".into() }
}

/// A whole number with its thousands apart.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number of things, with its thousands apart: `1 round`, `2,000 rounds`.
#[must_use]
pub fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Bytes, in units of 1000: `208 MB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{} {unit}", three_digits(value)) };
        }
        value /= 1000.0;
    }
    format!("{} PB", three_digits(value))
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// Four digits of a number.
#[must_use]
pub fn four_digits(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "infinite".into(),
        0.0 => "0".into(),
        _ if !(1e-3..1e7).contains(&size) => format!("{value:.3e}"),
        _ if size >= 1000.0 => format!("{value:.0}"),
        _ => format!("{value:.*}", (3 - libm::floor(libm::log10(size)) as i32).clamp(0, 6) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 2000].map(|n| counted(n, "round")), ["0 rounds", "1 round", "2,000 rounds"]);
        let written = [0.0, 0.012_345, 0.3, 12.3456, 1234.5, 1e9, 1e-9, f64::INFINITY].map(four_digits);
        assert_eq!(written, ["0", "0.01235", "0.3000", "12.35", "1234", "1.000e9", "1.000e-9", "infinite"]);
        assert_eq!(
            [0, 999, 1000, 120_064, 999_600, 64_000_000_000].map(bytes),
            ["0 B", "999 B", "1.00 kB", "120 kB", "1.00 MB", "64.0 GB"]
        );
        assert_eq!([accuracy(0.123_456), percent(0.5), accuracy(f64::NAN)], ["12.35 %", "50.0 %", "none"]);
    }
}
