//! How many of the declared users exist in the data, and how missing ones affect a run.
//!
//! The population is declared and not measured (rule P11), so nothing that is released depends on how many exist. The person
//! who starts a run must know it nevertheless: with settings for a million and a store of a thousand, rounds of hundreds would have
//! nobody in them. These are exact counts of people's data: they are for the terminal, and for files of simulations alone (rule P12).

use ledger::Unit;
use serde::Serialize;

use crate::{
    config::{Config, ConfigError, EstimatorKind},
    numbers::grouped,
};

/// More declared users than this times those who are there are refused, unless the settings say that it is meant.
const TOO_MANY_TIMES: u64 = 2;

/// How many of the declared users exist.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Presence {
    /// Users, or posts where those are the units, as `participation.population` declares them.
    pub declared: u64,
    /// How many there are to train on.
    pub there: u64,
    /// Users who are held out for evaluation, and not trained on.
    pub held_out: u64,
    /// How many of the cohort of the first round are there, on average.
    pub expected_in_a_round: f64,
    #[serde(skip)]
    cohort: u64,
    #[serde(skip)]
    units: &'static str,
    /// Whether the sum is divided by the planned cohort, regardless of who takes part.
    #[serde(skip)]
    fixed: bool,
    #[serde(skip)]
    is_meant: bool,
}

impl Presence {
    pub(super) fn new(config: &Config, there: u64, held_out: u64) -> Self {
        let (declared, cohort) = (config.participation.population, config.cohort(0));
        Self {
            declared,
            there,
            held_out,
            expected_in_a_round: cohort as f64 * there as f64 / declared.max(1) as f64,
            cohort,
            units: if config.unit == Unit::Example { "posts" } else { "users" },
            fixed: matches!(config.estimator.kind, EstimatorKind::Fixed { .. }),
            is_meant: config.participation.allows_absent(),
        }
    }

    /// Whether less than half of those who were declared are there.
    #[must_use]
    pub const fn is_sparse(&self) -> bool {
        self.declared > self.there.saturating_mul(TOO_MANY_TIMES)
    }

    /// Refuses a run most of whose users are not there, unless its settings say that it is meant.
    ///
    /// # Errors
    /// The key that declares too many.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.is_meant || !self.is_sparse() {
            return Ok(());
        }
        let Self { declared, there, units, cohort, .. } = *self;
        let why = format!(
            "{} {units} are declared, but only {} exist{}: a round of {} would have {} of them on average. Declare about as many as exist, such as {}, and adjust participation.cohort; or, if most are meant to be absent, set participation.allow_absent = true",
            grouped(declared),
            grouped(there),
            self.held_out_words(),
            grouped(cohort),
            few(self.expected_in_a_round),
            grouped(about(there)),
        );
        Err(ConfigError::new("participation.population", why))
    }

    /// How many are there, and what that does, in a sentence for the terminal.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { declared, there, units, cohort, .. } = *self;
        if there == declared {
            return format!("all {} declared {units} exist{}", grouped(declared), self.held_out_words());
        }
        let share = 100.0 * there as f64 / declared.max(1) as f64;
        let step = if self.fixed {
            format!(
                " but is still divided by {}; the model moves {} % as far per round, with the full noise",
                grouped(cohort),
                few(share)
            )
        } else {
            String::new()
        };
        format!(
            "{} of the {} declared {units} exist{}; the others contribute nothing, so a round of {} has {} on average{step}",
            grouped(there),
            grouped(declared),
            self.held_out_words(),
            grouped(cohort),
            few(self.expected_in_a_round),
        )
    }

    fn held_out_words(&self) -> String {
        match self.held_out {
            0 => String::new(),
            held_out => format!(" ({} more are held out for evaluation)", grouped(held_out)),
        }
    }
}

/// A number of people on average: with a decimal where it is small.
pub(super) fn few(number: f64) -> String {
    match number {
        n if n < 0.1 => format!("{n:.2}"),
        n if n < 9.95 => format!("{n:.1}"),
        n => grouped(libm::round(n) as u64),
    }
}

/// At least so many, in two digits: what is declared is not to be the exact count.
fn about(number: u64) -> u64 {
    let mut unit = 1;
    while number.div_ceil(unit) > 99 {
        unit *= 10;
    }
    number.div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{SimulatedUsers, first_run};

    fn presence(population: u64, there: u64, allow_absent: bool) -> Presence {
        let mut config = first_run().unwrap();
        config.participation.population = population;
        config.participation.simulated = Some(SimulatedUsers { vanish: None, allow_absent });
        Presence::new(&config, there, 131)
    }

    /// The settings of `keyhush init` beside a store of 1,315 people: rounds of 500 had nobody in them, and nothing said so.
    #[test]
    fn p11_more_than_twice_as_many_declared_as_there_are_is_refused_unless_it_is_meant() {
        let refused = presence(1_000_000, 1_184, false).check().unwrap_err();
        assert_eq!(refused.key, "participation.population");
        assert_eq!(
            refused.problem,
            "1,000,000 users are declared, but only 1,184 exist (131 more are held out for evaluation): a round of 500 would have 0.6 of them on average. Declare about as many as exist, such as 1,200, and adjust participation.cohort; or, if most are meant to be absent, set participation.allow_absent = true"
        );
        assert!(presence(1_000_000, 1_184, true).check().is_ok());
        assert!(presence(2_368, 1_184, false).check().is_ok(), "twice as many is not more than twice as many");
        assert!(presence(2_369, 1_184, false).check().is_err());
        assert!(presence(1_184, 1_184, false).check().is_ok());
    }

    #[test]
    fn what_is_missing_is_said_with_what_it_does() {
        assert_eq!(
            presence(2_000, 1_184, false).words(),
            "1,184 of the 2,000 declared users exist (131 more are held out for evaluation); the others contribute nothing, so a round of 500 has 296 on average but is still divided by 500; the model moves 59 % as far per round, with the full noise"
        );
        assert_eq!(
            presence(1_184, 1_184, false).words(),
            "all 1,184 declared users exist (131 more are held out for evaluation)"
        );
    }

    #[test]
    fn what_is_proposed_is_at_least_as_many_and_not_the_exact_count() {
        assert_eq!([1, 99, 101, 1_184, 1_200, 9_757].map(about), [1, 99, 110, 1_200, 1_200, 9_800]);
    }
}
