//! Formats the remaining time for progress bars, and for the lines of progress that come where no terminal is.

use std::{
    fmt::Write,
    io::IsTerminal,
    time::{Duration, Instant},
};

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

/// Without a terminal a line comes this often.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// Lines of progress where no terminal shows a bar.
#[derive(Debug)]
pub(crate) struct Lines {
    started: Instant,
    /// What was done before that.
    first: u64,
    /// When the next line is due; none where a bar is shown, or nobody wants to know.
    next: Option<Instant>,
}

impl Lines {
    /// From now on, with so much done already.
    pub(crate) fn new(quiet: bool, first: u64) -> Self {
        Self::shown(!quiet && !std::io::stderr().is_terminal(), first)
    }

    fn shown(shown: bool, first: u64) -> Self {
        let started = Instant::now();
        Self { started, first, next: shown.then(|| started + EVERY) }
    }

    /// If a line is due: how much is done, and the time that is left.
    pub(crate) fn due(&mut self, done: u64, total: u64) -> Option<String> {
        let now = Instant::now();
        self.next.filter(|next| now >= *next)?;
        self.next = Some(now + EVERY);
        let each = (now - self.started).as_secs_f64() / done.saturating_sub(self.first).max(1) as f64;
        let left = Duration::from_secs_f64(each * total.saturating_sub(done) as f64);
        Some(format!("{} %, {}", 100 * done / total.max(1), words(left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a terminal `pretrain` was silent for a minute, and `eval` to its end.
    #[test]
    fn a_line_comes_every_few_seconds_where_no_terminal_is() {
        assert!(EVERY <= Duration::from_secs(10));
        let mut lines = Lines::shown(true, 10);
        assert_eq!(lines.due(20, 110), None, "not at once");
        lines.started -= Duration::from_secs(10);
        lines.next = Some(Instant::now());
        let said = lines.due(20, 110).expect("a line is due");
        assert!(said.starts_with("18 %, ") && (said.ends_with("90 s left") || said.ends_with("91 s left")), "{said}");
        assert_eq!(lines.due(21, 110), None, "not with every step");
        let next = lines.next.expect("there are more").saturating_duration_since(Instant::now());
        assert!(next <= EVERY && next > EVERY / 2, "{next:?}");
        let mut silent = Lines::shown(false, 0);
        silent.started -= Duration::from_secs(100);
        assert_eq!(silent.due(1, 2), None);
    }

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
