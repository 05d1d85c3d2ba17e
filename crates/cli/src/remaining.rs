//! Formats the remaining time for progress bars and progress lines.

use std::{fmt::Write, time::Duration};

use indicatif::{ProgressState, ProgressStyle, style::TemplateError};

/// Such as "about 40 s left"; no zeros, and no seconds where minutes say enough.
pub(crate) fn words(left: Duration) -> String {
    let seconds = left.as_secs_f64().round() as u64;
    match seconds {
        0 => "less than a second left".to_owned(),
        1..100 => format!("{seconds} s left"),
        100..5400 => format!("{} min left", (seconds + 30) / 60),
        _ => format!("{} h {} min left", (seconds + 30) / 3600, (seconds + 30) % 3600 / 60),
    }
}

/// A style of a progress bar whose template may use `{left}` for the time that is left.
pub(crate) fn style(template: &str) -> Result<ProgressStyle, TemplateError> {
    let left = |state: &ProgressState, out: &mut dyn Write| {
        let _ = out.write_str(&words(state.eta()));
    };
    Ok(ProgressStyle::with_template(template)?.with_key("left", left).progress_chars("=> "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Progress ended with "0s left".
    #[test]
    fn time_left_is_never_zero() {
        let of = |seconds: f64| words(Duration::from_secs_f64(seconds));
        assert_eq!(of(0.0), "less than a second left");
        assert_eq!([0.4, 0.6, 59.2, 99.0].map(of)[1..], ["1 s left", "59 s left", "99 s left"]);
        assert_eq!(
            [100.0, 3599.0, 5400.0, 7229.0].map(of),
            ["2 min left", "60 min left", "1 h 30 min left", "2 h 0 min left"]
        );
    }
}
