//! Formats seconds and epsilons for the terminal.

fn digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// Seconds in units that fit.
pub(super) fn seconds(seconds: f64) -> String {
    let whole = seconds.round();
    match seconds {
        s if s < 0.0995 => format!("{} ms", digits(s * 1000.0)),
        s if s < 99.5 => format!("{} s", digits(s)),
        _ if whole < 3600.0 => format!("{} min {} s", (whole / 60.0).floor(), whole % 60.0),
        _ if whole < 172_800.0 => {
            let minutes = (whole / 60.0).round();
            format!("{} h {} min", (minutes / 60.0).floor(), minutes % 60.0)
        }
        _ => format!("{} days", digits(whole / 86_400.0)),
    }
}

/// Epsilon with as many digits as are of use.
pub(super) fn epsilon(value: f64) -> String {
    match value {
        v if v.is_infinite() => "infinite".to_owned(),
        v if v < 100.0 => format!("{v:.3}"),
        v if v < 1e6 => format!("{v:.0}"),
        v => format!("{v:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_units() {
        assert_eq!(
            [0.0123, 1.0, 59.96, 100.0, 3600.0, 7290.0, 200_000.0].map(seconds),
            ["12.3 ms", "1.00 s", "60.0 s", "1 min 40 s", "1 h 0 min", "2 h 2 min", "2.31 days"]
        );
        assert_eq!(seconds(7170.0), "2 h 0 min", "it was 1 h 60 min");
        assert_eq!([1.23456, 1234.5, 1e9, f64::INFINITY].map(epsilon), ["1.235", "1234", "1.0e9", "infinite"]);
    }
}
