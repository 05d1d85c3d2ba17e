//! `keyhush audit gaussian-sum`: the one-run audit on a sum whose epsilon is known.

use clap::Args;
use federated::{
    canaries::{AtDelta, Needed},
    numbers::grouped,
};
use privacy::{
    AccountantKind, Adjacency, Delta, NoiseMultiplier, PrivacyEvent,
    audit::{
        AuditError, Verdict,
        binomial::Binomial,
        gaussian_sum::GaussianSum,
        one_run::{Guesses, OneRun, Scored},
        one_shot::OneShot,
        trade_off::mu_of,
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
    let mut exceeded = 0;
    let mut most: Option<(OneRun, Vec<Scored>)> = None;
    let mut formal = None;
    for repetition in 0..args.repetitions {
        let seed = args.seed.wrapping_add(repetition);
        let sum = GaussianSum::new(args.canaries, args.epsilon, delta, seed).map_err(failed)?;
        let scored = sum.scores().map_err(failed)?;
        let found = OneRun::of(&scored, delta, args.confidence).map_err(failed)?;
        exceeded += u64::from(found.epsilon_lower_gaussian.max(found.epsilon_lower_any) > sum.epsilon().get());
        formal = Some(sum.epsilon());
        if most.as_ref().is_none_or(|(most, _)| found.epsilon_lower_gaussian > most.epsilon_lower_gaussian) {
            most = Some((found, scored));
        }
    }
    let (Some((found, scored)), Some(formal)) = (most, formal) else { return Ok(()) };
    let estimate = OneShot::of(&scored, delta).map_err(failed)?.epsilon_estimate;
    let details = Details {
        canaries: args.canaries,
        delta: args.delta,
        repetitions: args.repetitions,
        exceeded,
        guesses: found.guesses.clone(),
        canaries_needed: args.slack.needed(formal, delta, args.confidence)?,
    };
    let verdict =
        if is_too_often(args.repetitions, exceeded, args.confidence) { Verdict::Violated } else { Verdict::Consistent };
    let answer = Answer {
        audit: "gaussian-sum",
        epsilon_formal: formal,
        epsilon_lower: Some(found.epsilon_lower_gaussian),
        epsilon_lower_any: Some(found.epsilon_lower_any),
        epsilon_estimate: Some(estimate),
        confidence: Some(args.confidence),
        verdict,
        says: verdict.words(),
        plot: String::new(),
        details: &details,
    };
    let mut lines = vec![
        format!(
            "A noised sum with {} canaries and epsilon {} at delta {:e}.",
            grouped(args.canaries),
            shown(formal),
            args.delta
        ),
        format!(
            "With {2} % confidence, epsilon is at least {0:.2} if only the scale of the noise may be wrong, and at least {1:.2} without that assumption.",
            found.epsilon_lower_gaussian,
            found.epsilon_lower_any,
            100.0 * args.confidence
        ),
        format!("The estimate, which proves nothing, is {estimate:.2}."),
    ];
    if args.repetitions > 1 {
        lines.push(format!(
            "These are the numbers of the repetition with the largest bound, of {}. In {exceeded} of them a bound was above the true epsilon.",
            grouped(args.repetitions)
        ));
    }
    lines.extend(needed_lines(&details.canaries_needed));
    let folder = args.output.folder("gaussian-sum")?;
    let picture = bounds("Epsilon of a noised sum: formal and audited", &at_deltas(args, &scored)?);
    answer.give(&picture, &folder, args.output.json, &lines)
}

/// Whether so many repetitions are wrong that the audit is wrong more often than it says. Each may be with probability 1 - confidence.
fn is_too_often(repetitions: u64, exceeded: u64, confidence: f64) -> bool {
    let odds = (1.0 - confidence) / confidence;
    exceeded > 0 && Binomial::new(repetitions, odds.ln()).upper_tail(exceeded) <= (1.0 - confidence) * (1.0 + 1e-5)
}

/// The same at other deltas.
fn at_deltas(args: &GaussianSumArgs, scored: &[Scored]) -> anyhow::Result<Vec<AtDelta>> {
    let known = Delta::new(args.delta).map_err(|e| BadInput::illegal("delta", &e))?;
    let noise = NoiseMultiplier::new(1.0 / mu_of(args.epsilon, known).map_err(failed)?)?;
    let event = PrivacyEvent::gaussian(Adjacency::ZeroOut, noise);
    let mut all = Vec::new();
    for exponent in 2..=9 {
        let delta = Delta::new(10f64.powi(-exponent))?;
        let found = OneRun::of(scored, delta, args.confidence).map_err(failed)?;
        all.push(AtDelta {
            delta: delta.get(),
            epsilon_formal: AccountantKind::Best.judge(&event, delta)?.epsilon,
            epsilon_lower: found.epsilon_lower_gaussian,
            epsilon_lower_any: found.epsilon_lower_any,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::is_too_often;

    #[test]
    fn one_wrong_repetition_of_many_is_chance_and_ten_are_not() {
        assert!(!is_too_often(200, 0, 0.999) && !is_too_often(200, 1, 0.999) && is_too_often(200, 10, 0.999));
        assert!(is_too_often(1, 1, 0.999), "a single one has a probability of one in a thousand");
    }
}
