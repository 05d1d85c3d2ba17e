//! The text format of Prometheus: the lines of a metric together, after its help and its type.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{Kind, METRICS, Metric};
use crate::access::Role;

/// Metrics as they are collected.
pub(super) struct Text {
    role: Role,
    /// The lines of each metric, by its place in the list.
    lines: BTreeMap<usize, String>,
}

impl Text {
    /// What somebody of this role may see.
    pub(super) const fn new(role: Role) -> Self {
        Self { role, lines: BTreeMap::new() }
    }

    /// A count of one set of labels.
    pub(super) fn count(&mut self, name: &str, labels: &[(&str, &str)], count: u64) {
        self.write(name, labels, &count.to_string());
    }

    /// A number of one set of labels.
    pub(super) fn number(&mut self, name: &str, labels: &[(&str, &str)], number: f64) {
        let number = match number {
            _ if number.is_nan() => "NaN".to_owned(),
            f64::INFINITY => "+Inf".to_owned(),
            f64::NEG_INFINITY => "-Inf".to_owned(),
            number => number.to_string(),
        };
        self.write(name, labels, &number);
    }

    /// What is not in the list, or not for this role, is not written.
    fn write(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        let Some(place) = METRICS.iter().position(|metric| is_of(metric, name)) else {
            debug_assert!(false, "{name} is not in the list of metrics");
            return;
        };
        if METRICS[place].role > self.role {
            return;
        }
        let lines = self.lines.entry(place).or_default();
        lines.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            let begins = if place == 0 { '{' } else { ',' };
            _ = write!(lines, "{begins}{label}=\"{}\"", escaped(value));
        }
        let ends = if labels.is_empty() { "" } else { "}" };
        _ = writeln!(lines, "{ends} {value}");
    }

    pub(super) fn finish(self) -> String {
        let mut text = String::new();
        for (place, lines) in self.lines {
            let Metric { name, kind, help, role } = METRICS[place];
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Summary => "summary",
            };
            let outside = if role > Role::Viewer { " For operators only, not covered by the guarantee." } else { "" };
            _ = write!(text, "# HELP {name} {help}{outside}\n# TYPE {name} {kind}\n{lines}");
        }
        text
    }
}

/// Whether a line of this name is of the metric: a summary has two.
fn is_of(metric: &Metric, name: &str) -> bool {
    match metric.kind {
        Kind::Summary => name.strip_prefix(metric.name).is_some_and(|suffix| suffix == "_sum" || suffix == "_count"),
        _ => metric.name == name,
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_escaped_and_together_and_nothing_is_for_a_lower_role() {
        let mut text = Text::new(Role::Viewer);
        text.number("keyhush_delta", &[("task", "a \"b\" \\ \n c")], 1e-5);
        text.count("keyhush_rounds_planned", &[("task", "x")], 3);
        text.number("keyhush_epsilon", &[("task", "x"), ("meaning", "if_secret")], f64::INFINITY);
        text.number("keyhush_delta", &[("task", "x")], 0.5);
        text.count("keyhush_check_ins_total", &[], 7);
        let text = text.finish();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "keyhush_rounds_planned{task=\"x\"} 3",
                "keyhush_epsilon{task=\"x\",meaning=\"if_secret\"} +Inf",
                "keyhush_delta{task=\"a \\\"b\\\" \\\\ \\n c\"} 0.00001",
                "keyhush_delta{task=\"x\"} 0.5",
            ]
        );
        assert_eq!(text.matches("# TYPE keyhush_delta gauge").count(), 1);
    }

    #[test]
    fn a_summary_has_a_sum_and_a_count() {
        let mut text = Text::new(Role::Operator);
        text.number("keyhush_attempt_seconds_sum", &[], 2.5);
        text.count("keyhush_attempt_seconds_count", &[], 2);
        let text = text.finish();
        assert!(text.contains(
            "# TYPE keyhush_attempt_seconds summary\nkeyhush_attempt_seconds_sum 2.5\nkeyhush_attempt_seconds_count 2\n"
        ));
        assert!(text.contains("not covered by the guarantee"));
    }
}
