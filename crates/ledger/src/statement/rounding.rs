//! Rounds numbers for people to five digits, never in the flattering direction.

/// Five digits, never less than the value (but for the last bits of the floating-point number).
#[must_use]
pub fn rounded_up(value: f64) -> String {
    rounded(value, |x| libm::ceil(x - slack(x)))
}

/// Five digits, never more than the value.
#[must_use]
pub fn rounded_down(value: f64) -> String {
    rounded(value, |x| libm::floor(x + slack(x)))
}

/// What arithmetic may have added: far below the last digit that is shown, also of numbers that are shown with more than five.
fn slack(x: f64) -> f64 {
    (1e-12 * x.abs()).min(1e-7)
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

    /// An upper bound of 1e18 was shown below its lower bound: what arithmetic may have added was taken for a part of the number, and
    /// grew with it.
    #[test]
    fn an_upper_bound_is_never_shown_below_its_lower_one() {
        for exponent in -6..=300 {
            for digits in [1.0, 1.234_567_89, 9.999_999_9] {
                let value = digits * libm::pow(10.0, f64::from(exponent));
                let (up, down): (f64, f64) = (rounded_up(value).parse().unwrap(), rounded_down(value).parse().unwrap());
                assert!(
                    down <= up && up >= value * (1.0 - 1e-11) && down <= value * (1.0 + 1e-11),
                    "{value}: {down} {up}"
                );
            }
        }
        assert_eq!(
            (rounded_up(1e18), rounded_down(1e18)),
            ("1000000000000000000".into(), "1000000000000000000".into())
        );
    }
}
