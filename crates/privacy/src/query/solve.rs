//! Solves a question for one field: the noise, rounds or cohort that a target needs.

use super::{Mechanism, Query, QueryError};
use crate::{
    Epsilon, NoiseMultiplier, PrivacyEvent,
    calibrate::{CalibrateError, Calibrated, Target},
};

/// The solution, and the event of the run that has it.
pub type Found<T> = (PrivacyEvent, Calibrated<T>);

fn target(query: &Query, epsilon: f64) -> Result<Target, QueryError> {
    Ok(Target {
        epsilon: Epsilon::new(epsilon).map_err(|e| QueryError::illegal("epsilon", &e))?,
        delta: query.delta()?,
        accountant: query.accountant(),
        group: query.group(),
    })
}

fn refused(error: CalibrateError) -> QueryError {
    match error {
        CalibrateError::Target { .. } => QueryError::wrong("epsilon", error),
        other => QueryError::Calibrate(other),
    }
}

/// The event for each candidate, once it is known that a first one can be made at all.
fn family<T: Copy>(
    first: T,
    make: impl Fn(T) -> Result<PrivacyEvent, QueryError>,
) -> Result<impl Fn(T) -> PrivacyEvent, QueryError> {
    make(first)?;
    Ok(move |value: T| make(value).unwrap_or_else(|error| PrivacyEvent::NonPrivate { what: error.to_string() }))
}

fn refuse_given(given: bool, field: &'static str, command: &str) -> Result<(), QueryError> {
    if given {
        Err(QueryError::OutOfPlace { field, with: format!("`keyhush privacy {command}`, which solves for it") })
    } else {
        Ok(())
    }
}

/// The least noise multiplier with which a run costs at most epsilon.
///
/// # Errors
/// When the question is not whole, already says how much noise there is, or no noise will do.
pub fn noise(query: &Query, epsilon: f64) -> Result<Found<NoiseMultiplier>, QueryError> {
    refuse_given(query.noise_multiplier.is_some(), "noise_multiplier", "noise")?;
    refuse_given(query.sigma.is_some(), "sigma", "noise")?;
    if let Some(
        mechanism @ (Mechanism::Skellam | Mechanism::DistributedSkellam | Mechanism::Zcdp | Mechanism::NonPrivate),
    ) = query.mechanism
    {
        return Err(QueryError::wrong("mechanism", format!("{} does not use a noise multiplier", mechanism.name())));
    }
    let with = |z: f64| Query { noise_multiplier: Some(z), ..query.clone() }.event();
    let events = family(1.0, with)?;
    let found = target(query, epsilon)?.noise_multiplier(|z| events(z.get())).map_err(refused)?;
    Ok((events(found.value.get()), found))
}

/// The most rounds that cost at most epsilon.
///
/// # Errors
/// When the question is not whole, already says how many rounds there are, or a single one costs more.
pub fn rounds(query: &Query, epsilon: f64) -> Result<Found<u64>, QueryError> {
    refuse_given(query.rounds.is_some(), "rounds", "rounds")?;
    refuse_given(query.tree_sizes.is_some(), "tree_sizes", "rounds")?;
    let with = |rounds: u64| Query { rounds: Some(rounds), ..query.clone() }.event();
    let events = family(1, with)?;
    let found = target(query, epsilon)?.rounds(&events).map_err(refused)?;
    Ok((events(found.value), found))
}

/// The population from which a cohort is sought, once it is known that one can be.
fn population(query: &Query) -> Result<u64, QueryError> {
    let population = query
        .population
        .ok_or_else(|| QueryError::Missing { field: "population", why: "needed with a cohort".into() })?;
    refuse_given(query.sampling_rate.is_some(), "sampling_rate", "cohort")?;
    if !matches!(query.mechanism, Some(Mechanism::Poisson | Mechanism::FixedSize)) {
        return Err(QueryError::wrong("mechanism", "only poisson and fixed-size have a cohort; use one of them"));
    }
    Ok(population)
}

/// The smallest cohort whose noise multiplier is so many times its size, `ratio`, and that costs at most epsilon.
///
/// # Errors
/// When the question is not whole, already says how often a user comes, or no cohort will do.
pub fn smallest_cohort(query: &Query, epsilon: f64, ratio: f64) -> Result<Found<u64>, QueryError> {
    let population = population(query)?;
    let with = |m: u64| Query { cohort: Some(m), noise_multiplier: Some(m as f64 * ratio), ..query.clone() }.event();
    let events = family(1, with)?;
    let found = target(query, epsilon)?.smallest_cohort(population, &events).map_err(refused)?;
    Ok((events(found.value), found))
}

/// The largest cohort that costs at most epsilon when the noise multiplier stays as it is.
///
/// # Errors
/// As [`smallest_cohort`].
pub fn largest_cohort(query: &Query, epsilon: f64) -> Result<Found<u64>, QueryError> {
    let population = population(query)?;
    let with = |m: u64| Query { cohort: Some(m), ..query.clone() }.event();
    let events = family(1, with)?;
    let found = target(query, epsilon)?.largest_cohort(population, &events).map_err(refused)?;
    Ok((events(found.value), found))
}

/// Noise multiplier per user of a cohort: as it is given, or of a pair that works.
///
/// # Errors
/// When neither is given.
pub fn noise_ratio(query: &Query, given: Option<f64>) -> Result<f64, QueryError> {
    match (given, query.noise_multiplier, query.cohort) {
        (Some(ratio), ..) => Ok(ratio),
        (None, Some(z), Some(m)) if m > 0 => Ok(z / m as f64),
        (None, Some(_), Some(_)) => Err(QueryError::wrong("cohort", "must be at least 1")),
        (None, Some(_), None) => Err(QueryError::Missing {
            field: "cohort",
            why: "the ratio of noise to cohort is held fixed; give the cohort that the noise multiplier belongs to, or --fixed-noise".into(),
        }),
        (None, None, _) => Err(QueryError::Missing {
            field: "noise_ratio",
            why: "give it, or --noise-multiplier with the --cohort it belongs to".into(),
        }),
    }
}
