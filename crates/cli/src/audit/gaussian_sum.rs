//! `keyhush audit gaussian-sum`: the one-run audit on a sum whose epsilon is known.

use clap::Args;
use federated::{
    canaries::{Needed, WouldDo, estimated},
    numbers::{counted, grouped},
};
use privacy::{
    Delta,
    audit::{
        AuditError, Verdict,
        one_run::Guesses,
        repeated::{Found, Repeated},
    },
};
use report::audit::bounds;
use serde::Serialize;

use super::{Answer, OutputArgs, SlackArgs, needed_lines, shown};
use crate::failure::BadInput;

const EXAMPLES: &str = "\
Examples:
  keyhush audit gaussian-sum --canaries 10000 --epsilon 2
  keyhush audit gaussian-sum --canaries 1000 --epsilon 1 --repetitions 200 --json

The sum is correct, so a bound above its epsilon is an error of the audit. With 99.9 % confidence, that may happen in at most one of a \
thousand repetitions. The verdict is \"violated\" if it happens so often that an audit that errs no more than it says would err so often in \
at most one of twenty such series.";

/// Arguments of `keyhush audit gaussian-sum`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GaussianSumArgs {
    /// Number of canaries; about half of them take part
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    canaries: u64,
    /// Epsilon of the sum
    #[arg(long, value_name = "E", default_value_t = 2.0)]
    epsilon: f64,
    /// Delta of the epsilons
    #[arg(long, value_name = "D", default_value_t = 1e-5)]
    delta: f64,
    /// Confidence of the bound
    #[arg(long, value_name = "P", default_value_t = 0.999)]
    confidence: f64,
    /// Number of repetitions, with different coins and noise; prints the largest bound
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    repetitions: u64,
    /// Seed of coins and noise
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    slack: SlackArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Details {
    canaries: u64,
    delta: f64,
    repetitions: u64,
    /// Repetitions whose bound is above the true epsilon.
    exceeded: u64,
    /// How probable so many or more are, if the audit errs as often as it may.
    exceeded_by_chance: f64,
    /// Of the estimates of all repetitions: the middle, and where nine in ten are.
    estimate_median: f64,
    estimate_low: f64,
    estimate_high: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    any_would_need: Option<WouldDo>,
    guesses: Vec<Guesses>,
    canaries_needed: Vec<Needed>,
}

/// Wrong numbers are bad input; the rest has failed.
fn failed(error: AuditError) -> anyhow::Error {
    match error {
        AuditError::Bench(_) => error.into(),
        other => BadInput::Refused(other.to_string()).into(),
    }
}

pub(crate) fn run(args: &GaussianSumArgs) -> anyhow::Result<()> {
    let delta = Delta::new(args.delta).map_err(|e| BadInput::illegal("delta", &e))?;
    let repeated = Repeated {
        canaries: args.canaries,
        epsilon: args.epsilon,
        delta,
        confidence: args.confidence,
        repetitions: args.repetitions,
        seed: args.seed,
    };
    let Repeated { canaries, confidence, repetitions, .. } = repeated;
    let Found { epsilon_formal, largest, estimate, estimates, exceeded, chance, verdict, at_deltas } =
        repeated.run().map_err(failed)?;
    let epsilon_estimate = estimate.epsilon_estimate;
    let at = |share: f64| estimates[(share * (estimates.len() - 1) as f64).round() as usize];
    let any_would_need = WouldDo::of(canaries, delta, confidence).map_err(failed)?;
    let details = Details {
        canaries,
        delta: args.delta,
        repetitions,
        exceeded,
        exceeded_by_chance: chance,
        estimate_median: at(0.5),
        estimate_low: at(0.05),
        estimate_high: at(0.95),
        any_would_need,
        guesses: largest.guesses.clone(),
        canaries_needed: args.slack.needed(epsilon_formal, delta, confidence)?,
    };
    let answer = Answer {
        audit: "gaussian-sum",
        epsilon_formal,
        epsilon_lower: Some(largest.epsilon_lower_gaussian),
        epsilon_lower_any: Some(largest.epsilon_lower_any),
        epsilon_estimate: Some(epsilon_estimate),
        epsilon_estimate_range: Some(estimate.range()),
        confidence: Some(confidence),
        verdict,
        says: words(verdict),
        plot: String::new(),
        details: &details,
    };
    let mut lines = vec![
        format!(
            "A noised sum with {} canaries and epsilon {} at delta {:e}.",
            grouped(canaries),
            shown(epsilon_formal),
            args.delta
        ),
        format!(
            "With {2} % confidence, epsilon is at least {0:.2} if only the scale of the noise may be wrong, and at least {1:.2} without that assumption.",
            largest.epsilon_lower_gaussian,
            largest.epsilon_lower_any,
            100.0 * confidence
        ),
        estimated(epsilon_estimate, Some(estimate.range())),
    ];
    lines.extend(any_would_need.map(|would| would.words(canaries, args.delta)));
    if repetitions > 1 {
        lines.push(format!(
            "These are the numbers of the repetition with the largest bound, of {}. Of all estimates half are above {:.2}, and nine in ten are between {:.2} and {:.2}.",
            grouped(repetitions),
            details.estimate_median,
            details.estimate_low,
            details.estimate_high
        ));
    }
    lines.push(often(exceeded, repetitions, confidence, chance));
    lines.extend(needed_lines(&details.canaries_needed));
    let folder = args.output.folder("gaussian-sum")?;
    let picture = bounds("Epsilon of a noised sum: formal and audited", &at_deltas);
    answer.give(&picture, &folder, args.output.json, &lines)
}

/// How often a bound was above the truth, and how often that may be.
fn often(exceeded: u64, repetitions: u64, confidence: f64, chance: f64) -> String {
    let wrong = 100.0 * (1.0 - confidence);
    let found = format!(
        "In {} of {} a bound was above the true epsilon",
        grouped(exceeded),
        counted(repetitions, "repetition")
    );
    match exceeded {
        0 => format!("{found}; up to {wrong:.3} % of bounds may be."),
        _ => format!(
            "{found}; if each bound is wrong in {wrong:.3} % of cases, the probability of that many or more is {chance:.2}."
        ),
    }
}

/// The verdict of the test bench is of the audit, not of the sum.
const fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Violated => {
            "The audit is wrong more often than it says: the sum is correct, and too many bounds are above its epsilon."
        }
        _ => {
            "No sign that the audit is wrong more often than it says. That its bounds are as large as they could be is not shown."
        }
    }
}
