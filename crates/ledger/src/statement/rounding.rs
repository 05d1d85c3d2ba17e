//! Numbers for people: five digits, and never flattering.

/// Five digits, never less than the value (but for the last bits of the floating-point number).
#[must_use]
pub fn rounded_up(value: f64) -> String {
    rounded(value, |x| libm::ceil(x * (1.0 - 1e-12)))
}

/// Five digits, never more than the value.
#[must_use]
pub fn rounded_down(value: f64) -> String {
    rounded(value, |x| libm::floor(x * (1.0 + 1e-12)))
}

fn rounded(value: f64, round: impl Fn(f64) -> f64) -> String {
    if !value.is_finite() {
        return "infinity".into();
    }
    if value == 0.0 {
        return "0".into();
    }
    let digits = (4 - libm::floor(libm::log10(value.abs())) as i32).clamp(0, 300);
    let scale = libm::pow(10.0, f64::from(digits));
    format!("{:.*}", digits as usize, round(value * scale) / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_never_flatters() {
        assert_eq!(rounded_up(3.898_784_7), "3.8988");
        assert_eq!(rounded_up(3.898_71), "3.8988");
        assert_eq!(rounded_down(3.898_79), "3.8987");
        assert_eq!(rounded_up(0.000_123_456), "0.00012346");
        assert_eq!(rounded_up(149.099_3), "149.10");
        assert_eq!(rounded_up(123_456.7), "123457");
        assert_eq!(rounded_up(0.0), "0");
        assert_eq!(rounded_up(f64::INFINITY), "infinity");
    }
}
