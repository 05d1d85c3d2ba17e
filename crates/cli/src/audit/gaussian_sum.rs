//! `keyhush audit gaussian-sum`: the one-run audit on a sum whose epsilon is known.

use clap::Args;
use federated::{canaries::Needed, numbers::grouped};
use privacy::{
    Delta,
    audit::{
        AuditError,
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
thousand repetitions.";

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
    let Found { epsilon_formal, largest, epsilon_estimate, exceeded, verdict, at_deltas } =
        repeated.run().map_err(failed)?;
    let details = Details {
        canaries,
        delta: args.delta,
        repetitions,
        exceeded,
        guesses: largest.guesses.clone(),
        canaries_needed: args.slack.needed(epsilon_formal, delta, confidence)?,
    };
    let answer = Answer {
        audit: "gaussian-sum",
        epsilon_formal,
        epsilon_lower: Some(largest.epsilon_lower_gaussian),
        epsilon_lower_any: Some(largest.epsilon_lower_any),
        epsilon_estimate: Some(epsilon_estimate),
        confidence: Some(confidence),
        verdict,
        says: verdict.words(),
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
        format!("The estimate, which proves nothing, is {epsilon_estimate:.2}."),
    ];
    if repetitions > 1 {
        lines.push(format!(
            "These are the numbers of the repetition with the largest bound, of {}. In {exceeded} of them a bound was above the true epsilon.",
            grouped(repetitions)
        ));
    }
    lines.extend(needed_lines(&details.canaries_needed));
    let folder = args.output.folder("gaussian-sum")?;
    let picture = bounds("Epsilon of a noised sum: formal and audited", &at_deltas);
    answer.give(&picture, &folder, args.output.json, &lines)
}
