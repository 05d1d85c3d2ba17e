//! `keyhush privacy noise | rounds | cohort`: the noise, rounds or cohort that a target needs.

use clap::Args;
use privacy::{
    PrivacyEvent,
    calibrate::Calibrated,
    query::{Query, solve},
};

use super::{
    answer::{Answer, Found},
    query::QueryArgs,
};

/// A run with something missing, and what it may cost.
#[derive(Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    query: QueryArgs,
    /// Largest epsilon allowed
    #[arg(long)]
    epsilon: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `keyhush privacy cohort`.
///
/// A model tolerates noise in proportion to the cohort, so the ratio z/m is held fixed: give it as --noise-ratio, or as a pair that works,
/// --noise-multiplier with --cohort. The answer is the smallest cohort that is enough. With --fixed-noise, the noise multiplier is held fixed
/// instead, and the answer is the largest cohort.
#[derive(Args)]
pub(crate) struct CohortArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Noise multiplier divided by the cohort, z/m, to hold fixed
    #[arg(long, value_name = "Z/M", conflicts_with_all = ["noise_multiplier", "cohort", "fixed_noise"])]
    noise_ratio: Option<f64>,
    /// Hold the noise multiplier fixed instead
    #[arg(long, conflicts_with = "cohort", requires = "noise_multiplier")]
    fixed_noise: bool,
}

impl TargetArgs {
    fn print<T>(&self, query: &Query, event: &PrivacyEvent, found: &Calibrated<T>, value: Found) -> anyhow::Result<()> {
        let mut answer = Answer::new(&found.judgement, event, query.delta()?, query.group());
        answer.found = Some(value);
        answer.print(self.json)
    }
}

pub(crate) fn noise(args: &TargetArgs) -> anyhow::Result<()> {
    let query = args.query.query();
    let (event, found) = solve::noise(&query, args.epsilon)?;
    args.print(&query, &event, &found, Found::NoiseMultiplier(found.value.get()))
}

pub(crate) fn rounds(args: &TargetArgs) -> anyhow::Result<()> {
    let query = args.query.query();
    let (event, found) = solve::rounds(&query, args.epsilon)?;
    args.print(&query, &event, &found, Found::Rounds(found.value))
}

pub(crate) fn cohort(args: &CohortArgs) -> anyhow::Result<()> {
    let TargetArgs { query, epsilon, .. } = &args.target;
    let query = query.query();
    if args.fixed_noise {
        let (event, found) = solve::largest_cohort(&query, *epsilon)?;
        return args.target.print(&query, &event, &found, Found::Cohort(found.value));
    }
    let ratio = solve::noise_ratio(&query, args.noise_ratio)?;
    let (event, found) = solve::smallest_cohort(&query, *epsilon, ratio)?;
    let value = Found::CohortAndNoise { cohort: found.value, noise_multiplier: found.value as f64 * ratio };
    args.target.print(&query, &event, &found, value)
}
