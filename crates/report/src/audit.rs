//! Charts of audits: the computed bound against what an attack shows.

use std::collections::BTreeMap;

use federated::{
    audit::{
        membership::Membership,
        secrets::{Remembered, Secret, Secrets},
        tails::{Compared, Tails},
    },
    canaries::Guessed,
};
use privacy::audit::{AtDelta, membership::Roc};

use crate::chart::{Chart, Series};

/// The empirical bound under the formal one, over delta.
#[must_use]
pub fn bounds(title: &str, at_deltas: &[AtDelta]) -> Chart {
    let line = |name: &str, value: fn(&AtDelta) -> f64| {
        Series::new(name, at_deltas.iter().map(|at| (at.delta, value(at))).collect())
    };
    Chart {
        title: title.into(),
        x_label: "delta".into(),
        y_label: "epsilon (lower is more private)".into(),
        log_x: true,
        series: vec![
            line("the guarantee: epsilon is at most this", |at| at.epsilon_formal.get()),
            line("shown by the attack, if only the scale of the noise may be wrong: at least this", |at| {
                at.epsilon_lower
            }),
            line("shown by the attack, whatever the run did: at least this", |at| at.epsilon_lower_any),
        ],
        ..Chart::default()
    }
}

/// Charts how many of an auditor's guesses are right.
#[must_use]
pub fn guesses(guessed: &[Guessed]) -> Chart {
    let line = |name: &str, only_present: bool| {
        let of_kind = guessed.iter().filter(|guessed| guessed.only_present == only_present);
        let share = |guessed: &Guessed| 100.0 * guessed.correct as f64 / guessed.made.max(1) as f64;
        Series::new(name, of_kind.map(|guessed| (guessed.made as f64, share(guessed))).collect())
    };
    Chart {
        title: "Correct guesses".into(),
        x_label: "number of guesses, the most confident first".into(),
        y_label: "correct (%)".into(),
        series: vec![line("took part or not", false), line("took part", true)],
        reference: vec![("chance".into(), 50.0)],
        ..Chart::default()
    }
}

/// The ROC curves of an attack on members.
#[must_use]
pub fn membership(shown: &Membership) -> Chart {
    let points = |roc: &Roc| roc.points.iter().map(|(alarms, hits)| (100.0 * alarms, 100.0 * hits)).collect();
    let named = |name: &str, roc: &Roc| Series::new(format!("{name}: area {:.2}", roc.area), points(roc));
    Chart {
        title: "Membership inference: can the attacker tell who took part?".into(),
        x_label: "false positives (%)".into(),
        y_label: "members found: true positives (%)".into(),
        series: vec![
            named("with privacy", &shown.private),
            named("without privacy", &shown.non_private),
            Series::new("guessing: area 0.50", vec![(0.0, 0.0), (100.0, 100.0)]),
        ],
        ..Chart::default()
    }
}

/// Exposure over the number of copies, each the mean of a group.
#[must_use]
pub fn secrets(shown: &Secrets) -> Chart {
    let line = |name: &str, of: fn(&Secret) -> &Remembered| {
        let mut groups: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        // Nobody can remember what was in nobody who took part.
        for secret in shown.canaries.iter().filter(|secret| of(secret).took_part > 0) {
            let copies = secret.users * u64::from(secret.repeats);
            groups.entry(copies).or_default().push(of(secret).exposure.by_estimate);
        }
        let mean = |bits: Vec<f64>| bits.iter().sum::<f64>() / bits.len() as f64;
        Series::new(name, groups.into_iter().map(|(copies, bits)| (copies as f64, mean(bits))).collect())
    };
    Chart {
        title: "How much a model remembers of planted secrets".into(),
        x_label: "copies of a secret, over all users".into(),
        y_label: "exposure: n bits is likelier than all but 1 in 2^n".into(),
        log_x: true,
        series: vec![line("with privacy", |s| &s.private), line("without privacy", |s| &s.non_private)],
        reference: vec![("nothing remembered: 1.4".into(), std::f64::consts::LOG2_E)],
        ..Chart::default()
    }
}

/// The tail of the pair that shows most, and what was fitted to it (Popov et al. 2018, Figure 3).
#[must_use]
pub fn tails(shown: &Tails, texts: u32) -> Chart {
    let most = shown.compared.iter().max_by(|a, b| a.epsilon.total_cmp(&b.epsilon));
    Chart {
        title: "Models with and without one user: how far their texts tell them apart".into(),
        x_label: "log likelihood ratio: how much likelier a text is under the model that wrote it".into(),
        y_label: "share of texts with a larger ratio".into(),
        log_y: true,
        series: most.map_or_else(Vec::new, |compared| tail(compared, texts)),
        reference: vec![(format!("delta {:e}", shown.delta), shown.delta)],
        ..Chart::default()
    }
}

fn tail(compared: &Compared, texts: u32) -> Vec<Series> {
    let share = |rank: usize| rank as f64 / f64::from(texts);
    let mut seen: Vec<(f64, f64)> = compared.largest.iter().enumerate().map(|(at, x)| (*x, share(at + 1))).collect();
    seen.reverse();
    let fitted = compared.tail.map_or_else(Vec::new, |tail| {
        let end = compared.epsilon.max(tail.threshold);
        let at = |i: u32| tail.threshold + (end - tail.threshold) * f64::from(i) / 40.0;
        (0..=40).map(|i| (at(i), tail.scale * libm::exp(-tail.shape * at(i)))).collect()
    });
    vec![
        Series::new("the texts with the largest ratios, of the user who shows most", seen),
        Series::new("fitted tail: the estimate of epsilon is where it meets delta", fitted),
    ]
}
