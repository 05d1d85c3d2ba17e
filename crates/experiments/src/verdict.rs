//! Checks the assertions of an experiment.

use federated::{
    metrics::{Measures, Metric},
    numbers::four_digits,
    sweep::estimate::Estimate,
};
use serde::Serialize;

use crate::{format::Expect, training::Outcome};

/// Whether an expectation holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// What was expected, and what was found.
    pub text: String,
    /// Whether it holds.
    pub holds: bool,
}

/// Judges one expectation of what was trained.
pub(crate) fn judge(expect: &Expect, outcomes: &[Outcome<'_>]) -> Verdict {
    let value = |name: &str| {
        let found = outcomes.iter().find(|outcome| outcome.variant.name == name);
        found.map_or(f64::NAN, |outcome| number(expect, outcome))
    };
    weigh(expect, &described(expect), value, |value| shown(expect, value))
}

/// Judges one expectation of numbers that have names. A number that is missing holds for nothing.
pub(crate) fn weigh(
    expect: &Expect,
    what: &str,
    value: impl Fn(&str) -> f64,
    shown: impl Fn(f64) -> String,
) -> Verdict {
    match (&expect.of, &expect.falling) {
        (Some(of), _) => within(expect, what, of, value(of), shown),
        (None, Some(names)) => {
            let values: Vec<f64> = names.iter().map(|name| value(name)).collect();
            falls(expect.ratio, what, names, &values, shown)
        }
        (None, None) => compare(expect, what, value, shown),
    }
}

fn within(expect: &Expect, what: &str, of: &str, value: f64, shown: impl Fn(f64) -> String) -> Verdict {
    let (least, most) = (expect.least, expect.most);
    let holds = least.is_none_or(|least| value >= least) && most.is_none_or(|most| value <= most);
    let bounds: Vec<String> = [("at least", least), ("at most", most)]
        .iter()
        .filter_map(|(word, bound)| Some(format!("{word} {}", shown((*bound)?))))
        .collect();
    let text = format!("{what} of {of} is {}: {}", bounds.join(" and "), shown(value));
    Verdict { text, holds: holds && !value.is_nan() }
}

fn falls(ratio: Option<f64>, what: &str, names: &[String], values: &[f64], shown: impl Fn(f64) -> String) -> Verdict {
    let step = |pair: &[f64]| ratio.map_or(pair[0] > pair[1], |ratio| pair[0] >= ratio * pair[1]);
    let (first, last) = (names.first().map_or("", String::as_str), names.last().map_or("", String::as_str));
    let how = match ratio {
        Some(ratio) => format!("each is at least {ratio} times the next"),
        None => "each is higher than the next".to_owned(),
    };
    let shown: Vec<String> = values.iter().map(|value| shown(*value)).collect();
    let text = format!("{what} from {first} to {last}: {how}: {}", shown.join(", "));
    Verdict { text, holds: values.windows(2).all(step) }
}

fn compare(expect: &Expect, what: &str, value: impl Fn(&str) -> f64, shown: impl Fn(f64) -> String) -> Verdict {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let (higher, lower) = (name(&expect.higher), name(&expect.lower));
    let (high, low) = (value(&higher), value(&lower));
    let (relation, holds) = match (expect.ratio, expect.by) {
        (Some(ratio), _) => (format!("is at least {ratio} times that of {lower}"), high >= ratio * low),
        (None, Some(by)) if by != 0.0 => {
            (format!("is higher by at least {} than that of {lower}", shown(by)), high - low >= by)
        }
        _ => (format!("is higher than that of {lower}"), high > low),
    };
    let text = format!("{what} of {higher} {relation}: {} against {}", shown(high), shown(low));
    Verdict { text, holds }
}

/// Which number; the format sees to it that it is there.
fn asked(expect: &Expect) -> &'static Metric {
    expect.what.unwrap_or_else(|| Measures::of([]).headline)
}

fn described(expect: &Expect) -> String {
    let label = asked(expect).label;
    match (expect.reach, expect.at) {
        (Some(reach), _) => format!("the rounds to a {label} of {}", asked(expect).shown(reach)),
        (None, Some(at)) => format!("{label} at round {at}"),
        (None, None) => label.to_owned(),
    }
}

fn shown(expect: &Expect, value: f64) -> String {
    match expect.reach {
        Some(_) if value.is_finite() => format!("{value}"),
        Some(_) => "never".into(),
        None => asked(expect).shown(value),
    }
}

/// The number of a variant that is compared.
fn number(expect: &Expect, outcome: &Outcome<'_>) -> f64 {
    let what = asked(expect);
    match expect.reach {
        Some(reach) if what.is_in_lines() => {
            let rounds = outcome.runs.seeds.iter().map(|run| {
                let curve = what.curve(run, what.smoothed);
                let reached = curve.iter().find(|(_, value)| what.goal.reaches(*value, reach));
                reached.map_or(f64::INFINITY, |(round, _)| *round as f64)
            });
            Estimate::of(&rounds.collect::<Vec<f64>>()).mean
        }
        _ => outcome.estimate(what, expect.at).mean,
    }
}

/// A row of an accounting experiment: the printed value against ours.
pub(crate) fn near(what: &str, ours: f64, paper: f64, tolerance: f64) -> Verdict {
    let holds = (ours - paper).abs() <= tolerance;
    let text = format!("{what} is {paper} within {tolerance:.4}: {}", four_digits(ours));
    Verdict { text, holds }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::*;
    use crate::{
        Library, baselines,
        format::{Experiment, Kind},
    };

    /// The experiments of the repository, with their folders.
    fn experiments() -> Vec<(String, std::path::PathBuf, Experiment)> {
        let library = Library::Folder(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments").into());
        let read = |found: crate::Found| {
            let (folder, experiment) = (found.folder().unwrap(), found.experiment().unwrap());
            (found.name, folder, experiment)
        };
        library.all().unwrap().into_iter().map(read).collect()
    }

    /// Numbers that contradict it: the higher is lower, what falls rises, what has bounds is beyond them.
    fn refuting(expect: &Expect, name: &str) -> f64 {
        let place = |names: &Vec<String>| names.iter().position(|known| known == name).unwrap_or(0) as f64;
        let size = expect.by.unwrap_or(0.0).abs() + 1.0;
        match (&expect.of, &expect.falling) {
            (Some(_), _) => expect.least.map_or_else(|| expect.most.unwrap() + 1.0, |least| least - 1.0),
            (None, Some(names)) => 1.0 + place(names),
            (None, None) if expect.lower.as_deref() == Some(name) => 1e3 * size,
            (None, None) => 1e-3,
        }
    }

    #[test]
    fn every_expectation_of_the_repository_can_fail() {
        for (name, _, experiment) in experiments() {
            for expect in &experiment.expect {
                let judged = weigh(expect, "it", |of| refuting(expect, of), four_digits);
                assert!(!judged.holds, "{name}: {}", judged.text);
                let missing = weigh(expect, "it", |_| f64::NAN, four_digits);
                assert!(!missing.holds, "{name}: {}", missing.text);
            }
        }
    }

    /// Results that were judged by other expectations than those that stand there say nothing about them.
    #[test]
    fn what_is_kept_was_judged_by_the_expectations_that_stand_there() {
        for (name, folder, experiment) in experiments() {
            for place in ["results", "results-store"] {
                let Ok(text) = fs::read_to_string(folder.join(place).join("results.json")) else { continue };
                let kept: Value = serde_json::from_str(&text).unwrap();
                let expectations = kept["expectations"].as_array().cloned().unwrap_or_default();
                // Of a store nothing is expected of variants that only the crowd has.
                let crowds = |name: &String| experiment.variant.iter().any(|v| v.crowd_only && v.name == *name);
                let is_asked = |expect: &&Expect| place == "results" || !expect.names().any(crowds);
                let asked_for: Vec<&Expect> = experiment.expect.iter().filter(is_asked).collect();
                assert_eq!(expectations.len(), asked_for.len(), "{name}: run it again");
                for (expect, said) in asked_for.into_iter().zip(&expectations) {
                    if experiment.kind == Kind::Accounting || expect.at.is_some() || expect.reach.is_some() {
                        continue;
                    }
                    if let Some(column) = &expect.column {
                        let number = |of: &str| compared(&kept, of, column);
                        let shown = |value| baselines::shown(column, value);
                        let again = weigh(expect, baselines::label(column), number, shown);
                        assert_eq!(
                            (&said["text"], &said["holds"]),
                            (&again.text.into(), &again.holds.into()),
                            "{name}"
                        );
                        continue;
                    }
                    let number = |of: &str| mean_of(&kept, of, asked(expect).name);
                    let again = weigh(expect, &described(expect), number, |value| shown(expect, value));
                    assert_eq!(
                        (Some(again.text.as_str()), Some(again.holds)),
                        (said["text"].as_str(), said["holds"].as_bool()),
                        "{name}"
                    );
                }
            }
        }
    }

    fn compared(kept: &Value, variant: &str, column: &str) -> f64 {
        let all = kept["compared"].as_array().unwrap();
        let of = all.iter().find(|v| v["name"] == variant).unwrap_or_else(|| panic!("no {variant}"));
        of["values"][column].as_f64().unwrap_or_else(|| panic!("{variant}: no {column}"))
    }

    fn mean_of(kept: &Value, variant: &str, what: &str) -> f64 {
        let variants = kept["variants"].as_array().unwrap();
        let of = variants.iter().find(|v| v["name"] == variant).unwrap_or_else(|| panic!("no {variant}"));
        let mean = &of["ends"][what]["mean"];
        mean.as_f64().unwrap_or_else(|| if mean == "infinity" { f64::INFINITY } else { panic!("{variant}: no {what}") })
    }

    #[test]
    fn what_falls_falls_at_every_step() {
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let judged = |ratio, values: [f64; 3]| {
            let expect = Expect { falling: Some(names.clone()), ratio, ..Expect::default() };
            weigh(&expect, "rho", |name| values[names.iter().position(|n| n == name).unwrap()], four_digits)
        };
        let falling = judged(None, [3.0, 2.0, 1.0]);
        assert_eq!(falling.text, "rho from a to c: each is higher than the next: 3.000, 2.000, 1.000");
        assert!(falling.holds);
        assert!(!judged(None, [3.0, 1.0, 1.0]).holds && judged(Some(1.0), [3.0, 1.0, 1.0]).holds);
        assert!(!judged(Some(1.0), [3.0, 1.0, 2.0]).holds && !judged(Some(2.0), [4.0, 2.0, 1.5]).holds);
    }
}
