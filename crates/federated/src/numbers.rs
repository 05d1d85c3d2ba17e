//! Numbers as people read them, in sentences, tables and pages.

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
        assert_eq!([accuracy(0.123_456), percent(0.5), accuracy(f64::NAN)], ["12.35 %", "50.0 %", "none"]);
    }
}
