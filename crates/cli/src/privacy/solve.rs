//! `keyhush privacy noise | rounds | cohort`: what a target needs.

use clap::Args;
use privacy::{
    Epsilon, NoiseMultiplier, PrivacyEvent,
    calibrate::{CalibrateError, Calibrated, Target},
};

use super::{
    answer::{Answer, Found},
    query::{Mechanism, Query},
};
use crate::failure::BadInput;

/// A run with something missing, and what it may cost.
#[derive(Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    query: Query,
    /// The most that the run may cost
    #[arg(long)]
    epsilon: f64,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `keyhush privacy cohort`.
///
/// The noise that a model bears grows with the cohort it averages over, so the ratio z / m is held fixed: give it as
/// --noise-ratio, or as a pair that works, --noise-multiplier with --cohort. Found is the smallest cohort that will do.
/// With --fixed-noise the noise multiplier stays as it is, and found is the largest cohort.
#[derive(Args)]
pub(crate) struct CohortArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Noise multiplier per user of a cohort, z / m, to be held fixed
    #[arg(long, value_name = "Z/M", conflicts_with_all = ["noise_multiplier", "cohort", "fixed_noise"])]
    noise_ratio: Option<f64>,
    /// Hold the noise multiplier fixed instead
    #[arg(long, conflicts_with = "cohort", requires = "noise_multiplier")]
    fixed_noise: bool,
}

impl TargetArgs {
    fn target(&self) -> Result<Target, BadInput> {
        target(&self.query, self.epsilon)
    }

    fn print<T>(&self, event: &PrivacyEvent, found: &Calibrated<T>, value: Found) -> anyhow::Result<()> {
        let mut answer = Answer::new(&found.judgement, event, self.query.delta()?, self.query.group());
        answer.found = Some(value);
        answer.print(self.json)
    }
}

fn target(query: &Query, epsilon: f64) -> Result<Target, BadInput> {
    Ok(Target {
        epsilon: Epsilon::new(epsilon).map_err(|e| BadInput::illegal("epsilon", &e))?,
        delta: query.delta()?,
        accountant: query.accountant(),
        group: query.group(),
    })
}

fn refused(error: CalibrateError) -> BadInput {
    match error {
        CalibrateError::Target { .. } => BadInput::wrong("epsilon", error),
        other => BadInput::Refused(other.to_string()),
    }
}

/// The event for each candidate, once it is known that a first one can be made at all.
fn family<T: Copy>(
    first: T,
    make: impl Fn(T) -> Result<PrivacyEvent, BadInput>,
) -> Result<impl Fn(T) -> PrivacyEvent, BadInput> {
    make(first)?;
    Ok(move |value: T| make(value).unwrap_or_else(|error| PrivacyEvent::NonPrivate { what: error.to_string() }))
}

fn refuse_given(given: bool, field: &'static str, command: &str) -> Result<(), BadInput> {
    if given {
        Err(BadInput::OutOfPlace { field, with: format!("`keyhush privacy {command}`, which solves for it") })
    } else {
        Ok(())
    }
}

pub(crate) fn noise(args: &TargetArgs) -> anyhow::Result<()> {
    let (event, found) = find_noise(&args.query, args.epsilon)?;
    args.print(&event, &found, Found::NoiseMultiplier(found.value.get()))
}

/// The least noise multiplier.
pub(crate) fn find_noise(query: &Query, epsilon: f64) -> Result<(PrivacyEvent, Calibrated<NoiseMultiplier>), BadInput> {
    refuse_given(query.noise_multiplier.is_some(), "noise_multiplier", "noise")?;
    refuse_given(query.sigma.is_some(), "sigma", "noise")?;
    if let Some(
        mechanism @ (Mechanism::Skellam | Mechanism::DistributedSkellam | Mechanism::Zcdp | Mechanism::NonPrivate),
    ) = query.mechanism
    {
        return Err(BadInput::wrong("mechanism", format!("{mechanism:?} has no noise multiplier")));
    }
    let with = |z: f64| Query { noise_multiplier: Some(z), ..query.clone() }.event();
    let events = family(1.0, with)?;
    let found = target(query, epsilon)?.noise_multiplier(|z| events(z.get())).map_err(refused)?;
    Ok((events(found.value.get()), found))
}

pub(crate) fn rounds(args: &TargetArgs) -> anyhow::Result<()> {
    let (event, found) = find_rounds(&args.query, args.epsilon)?;
    args.print(&event, &found, Found::Rounds(found.value))
}

/// The most rounds.
pub(crate) fn find_rounds(query: &Query, epsilon: f64) -> Result<(PrivacyEvent, Calibrated<u64>), BadInput> {
    refuse_given(query.rounds.is_some(), "rounds", "rounds")?;
    refuse_given(query.tree_sizes.is_some(), "tree_sizes", "rounds")?;
    let with = |rounds: u64| Query { rounds: Some(rounds), ..query.clone() }.event();
    let events = family(1, with)?;
    let found = target(query, epsilon)?.rounds(&events).map_err(refused)?;
    Ok((events(found.value), found))
}

pub(crate) fn cohort(args: &CohortArgs) -> anyhow::Result<()> {
    let TargetArgs { query, epsilon, .. } = &args.target;
    if args.fixed_noise {
        let population = population(query)?;
        let with = |m: u64| Query { cohort: Some(m), ..query.clone() }.event();
        let events = family(1, with)?;
        let found = args.target.target()?.largest_cohort(population, &events).map_err(refused)?;
        return args.target.print(&events(found.value), &found, Found::Cohort(found.value));
    }
    let ratio = noise_ratio(query, args.noise_ratio)?;
    let (event, found) = find_cohort(query, *epsilon, ratio)?;
    let value = Found::CohortAndNoise { cohort: found.value, noise_multiplier: found.value as f64 * ratio };
    args.target.print(&event, &found, value)
}

/// The population from which a cohort is sought, once it is known that one can be.
fn population(query: &Query) -> Result<u64, BadInput> {
    let population = query
        .population
        .ok_or_else(|| BadInput::Missing { field: "population", why: "a cohort is drawn from it".into() })?;
    refuse_given(query.sampling_rate.is_some(), "sampling_rate", "cohort")?;
    if !matches!(query.mechanism, Some(Mechanism::Poisson | Mechanism::FixedSize)) {
        return Err(BadInput::wrong("mechanism", "a cohort matters to poisson and fixed-size; give one of them"));
    }
    Ok(population)
}

/// The smallest cohort whose noise multiplier is so many times its size.
pub(crate) fn find_cohort(
    query: &Query,
    epsilon: f64,
    ratio: f64,
) -> Result<(PrivacyEvent, Calibrated<u64>), BadInput> {
    let population = population(query)?;
    let with = |m: u64| Query { cohort: Some(m), noise_multiplier: Some(m as f64 * ratio), ..query.clone() }.event();
    let events = family(1, with)?;
    let found = target(query, epsilon)?.smallest_cohort(population, &events).map_err(refused)?;
    Ok((events(found.value), found))
}

/// Noise multiplier per user of a cohort: as it is given, or of a pair that works.
pub(crate) fn noise_ratio(query: &Query, given: Option<f64>) -> Result<f64, BadInput> {
    match (given, query.noise_multiplier, query.cohort) {
        (Some(ratio), ..) => Ok(ratio),
        (None, Some(z), Some(m)) if m > 0 => Ok(z / m as f64),
        (None, Some(_), Some(_)) => Err(BadInput::wrong("cohort", "must be at least 1")),
        (None, Some(_), None) => Err(BadInput::Missing {
            field: "cohort",
            why: "the ratio of noise to cohort is held fixed; say at which cohort the noise multiplier is meant, or --fixed-noise".into(),
        }),
        (None, None, _) => Err(BadInput::Missing {
            field: "noise_ratio",
            why: "give it, or --noise-multiplier with the --cohort at which it is meant".into(),
        }),
    }
}
