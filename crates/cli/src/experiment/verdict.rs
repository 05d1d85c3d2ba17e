//! Whether what must hold holds.

use federated::{report::four_digits, sweep::bootstrap::Estimate};
use serde::Serialize;

use super::{format::Expect, training::Outcome};

/// What came of an expectation.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Verdict {
    /// What was expected, and what was found.
    pub(super) text: String,
    pub(super) holds: bool,
}

/// Judges one expectation.
pub(super) fn judge(expect: &Expect, outcomes: &[Outcome<'_>]) -> Verdict {
    let value = |name: &Option<String>| {
        let of = |outcome: &&Outcome<'_>| Some(&outcome.variant.name) == name.as_ref();
        outcomes.iter().find(of).map_or(f64::NAN, |outcome| number(expect, outcome))
    };
    let what = described(expect);
    if let Some(of) = &expect.of {
        let (value, least, most) = (value(&expect.of), expect.least, expect.most);
        let holds = least.is_none_or(|least| value >= least) && most.is_none_or(|most| value <= most);
        let bounds: Vec<String> = [("at least", least), ("at most", most)]
            .iter()
            .filter_map(|(word, bound)| Some(format!("{word} {}", shown(expect, (*bound)?))))
            .collect();
        let text = format!("{what} of {of} is {}: {}", bounds.join(" and "), shown(expect, value));
        return Verdict { text, holds: holds && !value.is_nan() };
    }
    let (high, low) = (value(&expect.higher), value(&expect.lower));
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let (higher, lower) = (name(&expect.higher), name(&expect.lower));
    let (relation, holds) = match (expect.ratio, expect.by) {
        (Some(ratio), _) => (format!("is at least {ratio} times that of {lower}"), high >= ratio * low),
        (None, Some(by)) if by != 0.0 => {
            (format!("is higher by at least {} than that of {lower}", shown(expect, by)), high - low >= by)
        }
        _ => (format!("is higher than that of {lower}"), high > low),
    };
    let text = format!("{what} of {higher} {relation}: {} against {}", shown(expect, high), shown(expect, low));
    Verdict { text, holds }
}

fn described(expect: &Expect) -> String {
    let label = expect.what.label();
    match (expect.reach, expect.at) {
        (Some(reach), _) => format!("the rounds to a {label} of {}", expect.what.shown(reach)),
        (None, Some(at)) => format!("{label} at round {at}"),
        (None, None) => label.to_owned(),
    }
}

fn shown(expect: &Expect, value: f64) -> String {
    match expect.reach {
        Some(_) if value.is_finite() => format!("{value}"),
        Some(_) => "never".into(),
        None => expect.what.shown(value),
    }
}

/// The number of a variant that is compared.
fn number(expect: &Expect, outcome: &Outcome<'_>) -> f64 {
    match (expect.reach, expect.what.measure()) {
        (Some(reach), Some(measure)) => {
            let reached = |value: f64| if expect.what.is_good() { value >= reach } else { value <= reach };
            let rounds = outcome.runs.seeds.iter().map(|run| {
                let curve = measure.curve(run, measure.is_smoothed());
                curve.iter().find(|(_, value)| reached(*value)).map_or(f64::INFINITY, |(round, _)| *round as f64)
            });
            Estimate::of(&rounds.collect::<Vec<f64>>()).mean
        }
        _ => outcome.estimate(expect.what, expect.at).mean,
    }
}

/// A row of an accounting experiment: the printed value against ours.
pub(super) fn near(what: &str, ours: f64, paper: f64, tolerance: f64) -> Verdict {
    let holds = (ours - paper).abs() <= tolerance;
    let text = format!("{what} is {paper} within {tolerance:.4}: {}", four_digits(ours));
    Verdict { text, holds }
}
