//! A question about a run, field by field as a user gives it, and the event it describes.
//!
//! Flags, lines of a batch and rows of an experiment are all read into a [`Query`]. What contradicts itself, is missing or has
//! no meaning is refused with the name of its field. [`solve`] has the questions in which one field is sought.

mod mechanism;
pub mod solve;

use serde::Deserialize;
use thiserror::Error;

use crate::{
    AccountError, AccountantKind, Adjacency, Delta, Judgement, MinSeparation, Noise, NoiseMatrix, NoiseMultiplier,
    Participation, PrivacyEvent, Rho, SamplingRate, Segment, UnitError,
    calibrate::CalibrateError,
    design::{Design, Size, SizeOf},
    event::DiscreteGaussian,
    factorization::{Objective, Setting},
};

pub use mechanism::Mechanism;

/// A question that cannot be meant, or has no answer.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum QueryError {
    /// A field that the question needs.
    #[error("{field} is missing: {why}")]
    Missing {
        /// The field, in snake case.
        field: &'static str,
        /// Why the field is needed.
        why: String,
    },
    /// A field that has no meaning here.
    #[error("{field} cannot be used with {with}")]
    OutOfPlace {
        /// The field, in snake case.
        field: &'static str,
        /// What it cannot be used with.
        with: String,
    },
    /// Fields that contradict each other, or an impossible value.
    #[error("{field}: {problem}")]
    Wrong {
        /// The field, in snake case.
        field: &'static str,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A value outside its range.
    #[error("{field} {problem}")]
    Illegal {
        /// The field, in snake case.
        field: &'static str,
        /// What is required instead.
        problem: String,
    },
    /// An error in one event of a list.
    #[error("event {number}: {error}")]
    Event {
        /// The number of the event, from 1.
        number: usize,
        /// The underlying error.
        error: Box<QueryError>,
    },
    /// Nothing happened, so that nothing can be published about it.
    #[error("nothing was released")]
    NothingReleased,
    /// Rho says nothing about such a release.
    #[error("a release without privacy has no rho")]
    NonPrivate,
    /// What happened is not concentrated.
    #[error("this run has no rho; ask for its epsilon")]
    NoRho,
    /// A run that is not judged.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// A target that nothing meets, or everything.
    #[error(transparent)]
    Calibrate(CalibrateError),
}

impl QueryError {
    fn wrong(field: &'static str, problem: impl std::fmt::Display) -> Self {
        Self::Wrong { field, problem: problem.to_string() }
    }

    fn illegal(field: &'static str, error: &UnitError) -> Self {
        Self::Illegal { field, problem: error.problem() }
    }
}

/// A run and what is asked about it. Flags are these names in kebab case, batch fields in snake case.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Query {
    /// What adds the noise, and who takes part.
    pub mechanism: Option<Mechanism>,
    /// The accountant; the best of them by default.
    pub accountant: Option<AccountantKind>,
    /// The probability that a user takes part in a round, or of a population and a cohort.
    pub sampling_rate: Option<f64>,
    /// The number of users in the population.
    pub population: Option<u64>,
    /// Users in a round (on average, for poisson).
    pub cohort: Option<u64>,
    /// Standard deviation of the noise / L2 sensitivity (the clip norm C; under replace-one adjacency, hence for
    /// fixed-size, 2C).
    pub noise_multiplier: Option<f64>,
    /// Discrete Gaussian noise of this parameter instead, in grid steps; goes with `sensitivity`.
    pub sigma: Option<f64>,
    /// L2 sensitivity in grid steps, with `sigma`.
    pub sensitivity: Option<f64>,
    /// Rounds of the run.
    pub rounds: Option<u64>,
    /// The delta of the guarantee.
    pub delta: Option<f64>,
    /// MinS: rounds strictly between two participations of a user.
    pub min_separation: Option<u64>,
    /// MaxP: the most participations of a user over the whole run.
    pub max_participations: Option<u64>,
    /// Rounds between restarts, such as 128,1024,1024 (for all correlated noise).
    #[serde(alias = "segment_sizes")]
    pub tree_sizes: Option<Vec<u64>>,
    /// Trees are completed: padded with empty rounds to a power of two before a restart.
    pub completed: Option<bool>,
    /// The first column of C, of a mechanism with bands.
    pub coefficients: Option<Vec<f64>>,
    /// The decay of each buffer of C, of a mechanism with buffers.
    pub buffer_decay: Option<Vec<f64>>,
    /// The weight of each buffer of C, of a mechanism with buffers.
    pub output_scale: Option<Vec<f64>>,
    /// The bands of C, where a run would make it: without `coefficients`.
    pub bands: Option<usize>,
    /// The buffers of C, where a run would make it: without `buffer_decay` and `output_scale`.
    pub buffers: Option<usize>,
    /// Variance of the Skellam noise in a coordinate (of one participant's, for distributed-skellam).
    pub variance: Option<f64>,
    /// L1 sensitivity in grid steps (skellam).
    pub l1_sensitivity: Option<f64>,
    /// L2 sensitivity in grid steps (skellam).
    pub l2_sensitivity: Option<f64>,
    /// The fewest honest participants whose noise is in the sum (distributed-skellam).
    pub honest_survivors: Option<u64>,
    /// The rho of a release that is known by nothing else (zcdp).
    pub rho: Option<f64>,
    /// What makes two datasets neighbours; as the mechanism's analysis has it by default.
    pub adjacency: Option<Adjacency>,
    /// Protect so many users together, such as the devices of one person.
    pub group: Option<u32>,
    /// Events that compose, each with fields of its own; in batches only.
    pub events: Option<Vec<Query>>,
}

impl Query {
    /// The accountant.
    #[must_use]
    pub fn accountant(&self) -> AccountantKind {
        self.accountant.unwrap_or(AccountantKind::Best)
    }

    /// How many users are protected together.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.group.unwrap_or(1)
    }

    /// The delta, checked against the population where one is given.
    ///
    /// # Errors
    /// When there is none, it is no delta, or it permits releasing somebody's data outright.
    pub fn delta(&self) -> Result<Delta, QueryError> {
        let delta = required(self.delta, "delta", || "give the delta of the guarantee".into())?;
        let delta = Delta::new(delta).map_err(|e| QueryError::illegal("delta", &e))?;
        let populations =
            self.population.iter().chain(self.events.iter().flatten().filter_map(|e| e.population.as_ref()));
        for population in populations {
            if delta.get() > 1.0 / *population as f64 {
                return Err(QueryError::wrong(
                    "delta",
                    format!(
                        "{delta} is above 1/population = {}, which would permit publishing a user's data; choose a smaller one",
                        1.0 / *population as f64
                    ),
                ));
            }
        }
        Ok(delta)
    }

    /// The cost of the run.
    ///
    /// # Errors
    /// When something is missing, contradicts itself or has no meaning, and where the accountant does not judge such runs.
    pub fn judge(&self) -> Result<Judgement, QueryError> {
        let (event, delta) = (self.event()?, self.delta()?);
        Ok(self.accountant().judge_group(&event, delta, self.group())?)
    }

    /// The cost of the run by the rho of Xu et al. 2023, rounded to two decimals before it is converted (rule P8): the judgement
    /// and both rhos, as it is and as it was rounded. Optimistic where that rounds down, so nothing is claimed from below.
    ///
    /// # Errors
    /// As [`Query::judge`], and where the run has no rho or it rounds to nothing.
    pub fn judge_as_published(&self) -> Result<(Judgement, f64, f64), QueryError> {
        let (event, delta) = (self.event()?, self.delta()?);
        let (rho, adjacency) = rho_of(&event, self.group())?;
        let published = (rho * 100.0).round() / 100.0;
        let adjacency = adjacency.ok_or(QueryError::NothingReleased)?;
        let z = NoiseMultiplier::new(1.0 / (2.0 * published).sqrt())
            .map_err(|_| QueryError::wrong("as_published", format!("rho {rho} rounds to {published}")))?;
        let rounded = PrivacyEvent::gaussian(adjacency, z);
        let judgement = AccountantKind::Zcdp.judge(&rounded, delta)?;
        Ok((Judgement { epsilon_lower: None, ..judgement }, rho, published))
    }

    /// The rho of the run, and the adjacency under which it is meant.
    ///
    /// # Errors
    /// When something is missing, contradicts itself or has no meaning, and where the run has no rho.
    pub fn rho(&self) -> Result<(f64, Option<Adjacency>), QueryError> {
        let event = self.event()?;
        if let PrivacyEvent::NonPrivate { .. } = event {
            return Err(QueryError::NonPrivate);
        }
        rho_of(&event, self.group())
    }

    /// Epsilon at so many rounds, in the order given; the other fields stay.
    ///
    /// # Errors
    /// As [`Query::judge`].
    pub fn over_rounds(&self, accountant: AccountantKind, rounds: &[u64]) -> Result<Vec<(u64, f64)>, QueryError> {
        let at = |rounds: &u64| {
            let query = Self { rounds: Some(*rounds), accountant: Some(accountant), ..self.clone() };
            Ok((*rounds, query.judge()?.epsilon.get()))
        };
        rounds.iter().map(at).collect()
    }

    /// The event, under an adjacency that all parts admit.
    ///
    /// # Errors
    /// When something is missing, contradicts itself or has no meaning.
    pub fn event(&self) -> Result<PrivacyEvent, QueryError> {
        let Some(events) = &self.events else {
            return self.single_event(self.assumed_adjacency(&[self])?);
        };
        if self.mechanism.is_some() {
            return Err(QueryError::OutOfPlace {
                field: "mechanism",
                with: "events; put it into one of the events".into(),
            });
        }
        if events.is_empty() {
            return Err(QueryError::wrong("events", "the list is empty"));
        }
        for (i, event) in events.iter().enumerate() {
            event.refuse_in_list(i)?;
        }
        let adjacency = self.assumed_adjacency(&events.iter().collect::<Vec<_>>())?;
        let events = events
            .iter()
            .enumerate()
            .map(|(i, e)| {
                e.single_event(adjacency).map_err(|error| QueryError::Event { number: i + 1, error: Box::new(error) })
            })
            .collect::<Result<_, _>>()?;
        Ok(PrivacyEvent::Compose { events })
    }

    /// What belongs beside the list of events, not into it.
    fn refuse_in_list(&self, i: usize) -> Result<(), QueryError> {
        let with = || format!("event {} of a list; put it next to the list, not inside", i + 1);
        for (given, field) in [
            (self.accountant.is_some(), "accountant"),
            (self.delta.is_some(), "delta"),
            (self.group.is_some(), "group"),
            (self.events.is_some(), "events"),
        ] {
            if given {
                return Err(QueryError::OutOfPlace { field, with: with() });
            }
        }
        Ok(())
    }

    /// The adjacency of events that do not name one: the first that all of them admit.
    fn assumed_adjacency(&self, events: &[&Query]) -> Result<Adjacency, QueryError> {
        let named = self.adjacency.or_else(|| events.iter().find_map(|e| e.adjacency));
        let candidates: &[Adjacency] = match &named {
            Some(named) => std::slice::from_ref(named),
            None => &[Adjacency::AddOrRemove, Adjacency::ZeroOut, Adjacency::ReplaceOne],
        };
        let admits = |adjacency: &Adjacency| {
            named.is_some() || events.iter().filter_map(|e| e.mechanism).all(|m| m.assumable().contains(adjacency))
        };
        candidates.iter().copied().find(admits).ok_or_else(|| {
            let names: Vec<String> = events
                .iter()
                .filter_map(|e| e.mechanism)
                .map(|m| format!("{} uses {}", m.name(), m.assumable()[0]))
                .collect();
            QueryError::wrong(
                "adjacency",
                format!("these events do not compose, because they have no adjacency in common: {}", names.join(", ")),
            )
        })
    }

    fn single_event(&self, assumed: Adjacency) -> Result<PrivacyEvent, QueryError> {
        let mechanism = required(self.mechanism, "mechanism", || "give the noise mechanism".into())?;
        self.refuse_strangers(mechanism)?;
        let adjacency = self.adjacency.unwrap_or(assumed);
        let repeated = |event: PrivacyEvent| Ok(event.times(self.rounds()?));
        match mechanism {
            Mechanism::Gaussian => repeated(PrivacyEvent::Gaussian { adjacency, noise: self.noise()? }),
            Mechanism::Poisson => {
                let participation = Participation::Poisson { rate: self.rate()? };
                repeated(PrivacyEvent::SampledGaussian { adjacency, participation, noise: self.noise()? })
            }
            Mechanism::FixedSize => {
                let participation = self.fixed_size()?;
                repeated(PrivacyEvent::SampledGaussian { adjacency, participation, noise: self.noise()? })
            }
            Mechanism::Correlated(design) => {
                let (segments, participation) = (self.segments()?, self.limits()?);
                let matrix = self.matrix(design, &segments, participation)?;
                let noise = self.noise()?;
                Ok(PrivacyEvent::CorrelatedGaussian { adjacency, matrix, segments, participation, noise })
            }
            Mechanism::Skellam => repeated(PrivacyEvent::Skellam {
                adjacency,
                variance: self.need(self.variance, "variance", mechanism)?,
                l1_sensitivity: self.need(self.l1_sensitivity, "l1_sensitivity", mechanism)?,
                l2_sensitivity: self.need(self.l2_sensitivity, "l2_sensitivity", mechanism)?,
            }),
            Mechanism::DistributedSkellam => repeated(PrivacyEvent::DistributedSkellam {
                adjacency,
                local_variance: self.need(self.variance, "variance", mechanism)?,
                honest_survivors: self.need(self.honest_survivors, "honest_survivors", mechanism)?,
                l1_sensitivity: self.need(self.l1_sensitivity, "l1_sensitivity", mechanism)?,
                l2_sensitivity: self.need(self.l2_sensitivity, "l2_sensitivity", mechanism)?,
            }),
            Mechanism::Zcdp => {
                let rho = self.need(self.rho, "rho", mechanism)?;
                Ok(PrivacyEvent::Zcdp { adjacency, rho: Rho::new(rho).map_err(|e| QueryError::illegal("rho", &e))? })
            }
            Mechanism::NonPrivate => Ok(PrivacyEvent::NonPrivate { what: "a release without privacy".into() }),
        }
    }

    /// Fields that the mechanism does not use are refused: they were probably meant for something else.
    fn refuse_strangers(&self, mechanism: Mechanism) -> Result<(), QueryError> {
        use Mechanism::{DistributedSkellam, FixedSize, NonPrivate, Poisson, Skellam, Zcdp};
        let sampled = matches!(mechanism, Poisson | FixedSize);
        let skellam = matches!(mechanism, Skellam | DistributedSkellam);
        let gaussian = !skellam && !matches!(mechanism, Zcdp | NonPrivate);
        let (design, correlated) = (mechanism.design(), mechanism.design().is_some());
        let counts = |of| design.and_then(|design| design.size).is_some_and(|size| size.of == of);
        let fields = [
            ("sampling_rate", self.sampling_rate.is_some(), sampled),
            ("cohort", self.cohort.is_some(), sampled || correlated),
            ("noise_multiplier", self.noise_multiplier.is_some(), gaussian),
            ("sigma", self.sigma.is_some(), gaussian),
            ("sensitivity", self.sensitivity.is_some(), gaussian),
            ("rounds", self.rounds.is_some(), gaussian || skellam),
            ("min_separation", self.min_separation.is_some(), correlated),
            ("max_participations", self.max_participations.is_some(), correlated),
            ("tree_sizes", self.tree_sizes.is_some(), correlated),
            ("completed", self.completed.is_some(), design.is_some_and(|design| design.completes)),
            ("coefficients", self.coefficients.is_some(), counts(SizeOf::Bands)),
            ("bands", self.bands.is_some(), counts(SizeOf::Bands)),
            ("buffer_decay", self.buffer_decay.is_some(), counts(SizeOf::Buffers)),
            ("output_scale", self.output_scale.is_some(), counts(SizeOf::Buffers)),
            ("buffers", self.buffers.is_some(), counts(SizeOf::Buffers)),
            ("variance", self.variance.is_some(), skellam),
            ("l1_sensitivity", self.l1_sensitivity.is_some(), skellam),
            ("l2_sensitivity", self.l2_sensitivity.is_some(), skellam),
            ("honest_survivors", self.honest_survivors.is_some(), mechanism == DistributedSkellam),
            ("rho", self.rho.is_some(), mechanism == Zcdp),
        ];
        match fields.into_iter().find(|(_, given, known)| *given && !known) {
            Some((field, ..)) => Err(QueryError::OutOfPlace { field, with: format!("mechanism {}", mechanism.name()) }),
            None => Ok(()),
        }
    }

    fn need<T>(&self, value: Option<T>, field: &'static str, mechanism: Mechanism) -> Result<T, QueryError> {
        required(value, field, || format!("mechanism {} needs it", mechanism.name()))
    }

    fn rounds(&self) -> Result<u64, QueryError> {
        match required(self.rounds, "rounds", || "give the number of rounds".into())? {
            0 => Err(QueryError::wrong("rounds", "must be at least 1")),
            rounds => Ok(rounds),
        }
    }

    fn noise(&self) -> Result<Noise, QueryError> {
        match (self.noise_multiplier, self.sigma, self.sensitivity) {
            (Some(z), None, None) => {
                NoiseMultiplier::new(z).map(Noise::Gaussian).map_err(|e| QueryError::illegal("noise_multiplier", &e))
            }
            (None, Some(sigma), Some(sensitivity)) => DiscreteGaussian::new(sigma, sensitivity)
                .map(Noise::DiscreteGaussian)
                .map_err(|e| QueryError::illegal("sigma", &e)),
            (None, Some(_), None) => Err(QueryError::Missing { field: "sensitivity", why: "needed with sigma".into() }),
            (None, None, Some(_)) => Err(QueryError::Missing { field: "sigma", why: "needed with sensitivity".into() }),
            (Some(_), ..) => Err(QueryError::OutOfPlace {
                field: "noise_multiplier",
                with: "sigma and sensitivity; give one or the other".into(),
            }),
            (None, None, None) => {
                Err(QueryError::Missing { field: "noise_multiplier", why: "give the amount of noise".into() })
            }
        }
    }

    fn cohort_of_population(&self) -> Result<Option<(u64, u64)>, QueryError> {
        match (self.cohort, self.population) {
            (Some(cohort), Some(population)) => {
                Participation::FixedSize { population, cohort }.check().map_err(|e| QueryError::wrong("cohort", e))?;
                Ok(Some((cohort, population)))
            }
            (Some(_), None) if self.sampling_rate.is_none() => {
                Err(QueryError::Missing { field: "population", why: "needed with a cohort".into() })
            }
            _ => Ok(None),
        }
    }

    fn rate(&self) -> Result<SamplingRate, QueryError> {
        let unit = |field: &'static str, q: f64| SamplingRate::new(q).map_err(|e| QueryError::illegal(field, &e));
        match (self.sampling_rate, self.cohort_of_population()?) {
            (Some(q), Some((cohort, population))) => {
                let implied = cohort as f64 / population as f64;
                if (q / implied - 1.0).abs() > 1e-9 {
                    return Err(QueryError::wrong(
                        "sampling_rate",
                        format!("{q} contradicts a cohort of {cohort} of {population}, which is {implied}"),
                    ));
                }
                unit("sampling_rate", q)
            }
            (Some(q), None) => unit("sampling_rate", q),
            (None, Some((cohort, population))) => unit("cohort", cohort as f64 / population as f64),
            (None, None) => Err(QueryError::Missing {
                field: "sampling_rate",
                why: "give it, or the population and the cohort".into(),
            }),
        }
    }

    fn fixed_size(&self) -> Result<Participation, QueryError> {
        /// A bare sampling rate is a cohort out of so many.
        const OUT_OF: u64 = 1_000_000_000_000;
        let rate = self.rate()?.get();
        Ok(match self.cohort_of_population()? {
            Some((cohort, population)) => Participation::FixedSize { population, cohort },
            None => Participation::FixedSize { population: OUT_OF, cohort: (rate * OUT_OF as f64).ceil() as u64 },
        })
    }

    /// The matrix that is given, or the one that a run would have.
    fn matrix(
        &self,
        design: &'static Design,
        segments: &[Segment],
        participation: Participation,
    ) -> Result<NoiseMatrix, QueryError> {
        if let Some(matrix) = &design.fixed {
            return Ok(matrix.clone());
        }
        let of = design.size.map(|size| size.of);
        if let Some(given) = self.given_matrix(Mechanism::Correlated(design))? {
            return match of.map(|of| (of.name(), self.size(of))) {
                Some((field, Some(_))) => {
                    Err(QueryError::OutOfPlace { field, with: "coefficients; give one or the other".into() })
                }
                _ => Ok(given),
            };
        }
        let size = match design.size {
            None => 0,
            Some(Size { of, default, advice, .. }) => {
                let size = self.size(of).or(default);
                required(size, of.name(), || format!("{advice}; or give the coefficients themselves"))?
            }
        };
        let field = of.map_or("mechanism", SizeOf::name);
        let wrong = |e: &dyn std::fmt::Display| QueryError::wrong(field, e);
        let longest = segments.iter().map(|segment| segment.rounds).max().unwrap_or(1);
        let setting = Setting::new(longest, participation).map_err(|e| wrong(&e))?;
        Ok(design.matrix(&setting, size, Objective::Mean).map_err(|e| wrong(&e))?.matrix)
    }

    /// The size that is said.
    fn size(&self, of: SizeOf) -> Option<usize> {
        match of {
            SizeOf::Bands => self.bands,
            SizeOf::Buffers => self.buffers,
        }
    }

    /// The matrix whose numbers are said, all of them.
    fn given_matrix(&self, mechanism: Mechanism) -> Result<Option<NoiseMatrix>, QueryError> {
        if let Some(coefficients) = self.coefficients.clone() {
            return Ok(Some(NoiseMatrix::Banded { coefficients }));
        }
        if self.buffer_decay.is_none() && self.output_scale.is_none() {
            return Ok(None);
        }
        Ok(Some(NoiseMatrix::Blt {
            buffer_decay: self.need(self.buffer_decay.clone(), "buffer_decay", mechanism)?,
            output_scale: self.need(self.output_scale.clone(), "output_scale", mechanism)?,
        }))
    }

    fn segments(&self) -> Result<Vec<Segment>, QueryError> {
        let sizes = match (&self.tree_sizes, self.rounds) {
            (Some(sizes), Some(rounds)) if sizes.iter().map(|s| u128::from(*s)).sum::<u128>() != u128::from(rounds) => {
                return Err(QueryError::wrong(
                    "tree_sizes",
                    format!("do not add up to {rounds} rounds; give one or the other"),
                ));
            }
            (Some(sizes), _) => sizes.clone(),
            (None, _) => vec![self.rounds()?],
        };
        let segment = if self.completed == Some(true) { Segment::completed } else { Segment::of };
        Ok(sizes.into_iter().map(segment).collect())
    }

    fn limits(&self) -> Result<Participation, QueryError> {
        let rounds = self
            .tree_sizes
            .as_ref()
            .map_or(self.rounds.unwrap_or(0), |sizes| sizes.iter().fold(0, |sum: u64, s| sum.saturating_add(*s)));
        let participation = match (self.min_separation, self.max_participations) {
            (None, Some(1)) => Participation::Once,
            (separation, max_participations) => Participation::MinSeparation {
                separation: MinSeparation::rounds_between(required(separation, "min_separation", || {
                    "the cost of correlated noise depends on participation limits; 0 means no minimum separation".into()
                })?)
                .map_err(|e| QueryError::illegal("min_separation", &e))?,
                // Without a limit of its own, the separation alone limits how often a user can come.
                max_participations: max_participations.unwrap_or(rounds),
            },
        };
        participation.check().map_err(|e| QueryError::wrong("max_participations", e))?;
        if let (Some(population), Some(cohort)) = (self.population, self.cohort) {
            participation.check_feasible(population, cohort, rounds).map_err(|e| QueryError::wrong("population", e))?;
        }
        Ok(participation)
    }
}

/// The rho of what happened, and the adjacency under which it is meant.
fn rho_of(event: &PrivacyEvent, group: u32) -> Result<(f64, Option<Adjacency>), QueryError> {
    // Any delta will do: rho does not depend on it.
    let delta = Delta::new(1e-6).map_err(|e| QueryError::illegal("delta", &e))?;
    let judgement = AccountantKind::Zcdp.judge_group(event, delta, group)?;
    let rho = judgement.rho.ok_or(QueryError::NoRho)?;
    Ok((rho.get(), judgement.adjacency))
}

fn required<T>(value: Option<T>, field: &'static str, why: impl FnOnce() -> String) -> Result<T, QueryError> {
    value.ok_or_else(|| QueryError::Missing { field, why: why() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(json: &str) -> Query {
        serde_json::from_str(json).unwrap()
    }

    /// McMahan et al. 2018, Table 2.
    #[test]
    fn a_question_is_judged_as_its_event() {
        let asked = query(
            r#"{"mechanism": "poisson", "population": 763430, "cohort": 5000, "noise_multiplier": 1, "rounds": 5000,
                "delta": 1e-9, "accountant": "moments"}"#,
        );
        assert_eq!(format!("{:.3}", asked.judge().unwrap().epsilon.get()), "4.634");
        let points = asked.over_rounds(AccountantKind::Moments, &[1, 5000]).unwrap();
        assert!(points[0].1 < points[1].1 && points[1] == (5000, asked.judge().unwrap().epsilon.get()));
    }

    #[test]
    fn fields_that_cannot_be_meant_are_named() {
        let said = |json: &str| query(json).event().unwrap_err().to_string();
        assert_eq!(said("{}"), "mechanism is missing: give the noise mechanism");
        assert_eq!(
            said(r#"{"mechanism": "gaussian", "rounds": 1, "rho": 1}"#),
            "rho cannot be used with mechanism gaussian"
        );
        assert_eq!(said(r#"{"events": [{"mechanism": "zcdp"}]}"#), "event 1: rho is missing: mechanism zcdp needs it");
        let too_large = query(r#"{"delta": 0.1, "population": 100}"#).delta().unwrap_err().to_string();
        assert!(too_large.starts_with("delta: ") && too_large.contains("above 1/population"), "{too_large}");
    }

    /// What stands in the registry can be asked about, whether it is made here or its numbers are given: the same matrix.
    #[test]
    fn every_design_can_be_asked_about() {
        use crate::design::DESIGNS;
        for design in DESIGNS {
            let mechanism: Mechanism = serde_json::from_value(design.name.into()).unwrap();
            assert_eq!(mechanism, Mechanism::Correlated(design));
            let size = |of| design.size.filter(|size| size.of == of).map(|_| 3);
            let asked = Query {
                mechanism: Some(mechanism),
                bands: size(SizeOf::Bands),
                buffers: size(SizeOf::Buffers),
                ..query(r#"{"min_separation": 7, "max_participations": 4, "noise_multiplier": 2, "delta": 1e-6}"#)
            };
            let asked = Query { rounds: None, tree_sizes: Some(vec![20, 40]), ..asked };
            let event = asked.event().unwrap();
            let PrivacyEvent::CorrelatedGaussian { matrix, segments, participation, .. } = &event else {
                panic!("{design:?}: {event:?}")
            };
            let setting = Setting::new(40, *participation).unwrap();
            assert_eq!(*matrix, design.matrix(&setting, 3, Objective::Mean).unwrap().matrix, "{design:?}");
            assert_eq!(segments.len(), 2);
            let without = Query { bands: None, buffers: None, ..asked.clone() };
            let needs = design.size.is_some_and(|size| size.default.is_none());
            assert_eq!(without.event().is_err(), needs, "{design:?}");
            let given = match matrix.clone() {
                NoiseMatrix::Tree => continue,
                NoiseMatrix::Banded { coefficients } => Query { coefficients: Some(coefficients), ..without },
                NoiseMatrix::Blt { buffer_decay, output_scale } => {
                    Query { buffer_decay: Some(buffer_decay), output_scale: Some(output_scale), ..without }
                }
            };
            assert_eq!(given.event().unwrap(), event, "{design:?}");
            let both = Query { bands: asked.bands, buffers: asked.buffers, ..given };
            assert!(both.event().unwrap_err().to_string().contains("one or the other"), "{design:?}");
        }
    }

    #[test]
    fn what_is_sought_costs_at_most_the_target() {
        let asked = query(r#"{"mechanism": "gaussian", "rounds": 10, "delta": 1e-6}"#);
        let (event, found) = solve::noise(&asked, 2.0).unwrap();
        let answer = Query { noise_multiplier: Some(found.value.get()), ..asked.clone() };
        assert_eq!(answer.event().unwrap(), event);
        assert!(answer.judge().unwrap().epsilon.get() <= 2.0);
        let given = Query { noise_multiplier: Some(1.0), ..asked };
        assert!(matches!(solve::noise(&given, 2.0), Err(QueryError::OutOfPlace { field: "noise_multiplier", .. })));
    }
}
