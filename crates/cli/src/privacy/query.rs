//! A question about a run, as flags or as a line of a batch, and the event that it describes.

use clap::{Args, ValueEnum};
use privacy::{
    AccountantKind, Adjacency, Delta, MinSeparation, Noise, NoiseMatrix, NoiseMultiplier, Participation, PrivacyEvent,
    Rho, SamplingRate, Segment, event::DiscreteGaussian,
};
use serde::Deserialize;

use crate::failure::BadInput;

/// What adds the noise, and who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mechanism {
    /// Gaussian noise in every round, every user in every round.
    Gaussian,
    /// Gaussian noise on cohorts into which each user comes independently.
    Poisson,
    /// Gaussian noise on cohorts of a fixed size.
    FixedSize,
    /// Binary-tree noise (DP-FTRL) under participation limits.
    Tree,
    /// Banded Toeplitz noise (BandMF) under participation limits.
    Banded,
    /// Buffered linear Toeplitz noise (BLT) under participation limits.
    Blt,
    /// Skellam noise on integer vectors.
    Skellam,
    /// Skellam noise added by the participants themselves under secure aggregation.
    DistributedSkellam,
    /// Something known only by its rho.
    Zcdp,
    /// Something released without privacy: costs infinity.
    NonPrivate,
}

impl Mechanism {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
    }

    fn is_correlated(self) -> bool {
        matches!(self, Self::Tree | Self::Banded | Self::Blt)
    }

    /// The adjacencies that may be assumed when none is named. Replace-one is only assumed where nothing else is
    /// possible, for it changes what the noise multiplier is relative to.
    fn assumable(self) -> &'static [Adjacency] {
        match self {
            Self::FixedSize => &[Adjacency::ReplaceOne],
            Self::Tree | Self::Banded | Self::Blt => &[Adjacency::ZeroOut],
            _ => &[Adjacency::AddOrRemove, Adjacency::ZeroOut],
        }
    }
}

/// The accountants, as flags name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Accountant {
    /// The moments accountant of the first papers.
    Moments,
    /// Renyi differential privacy, the order optimised.
    Rdp,
    /// Privacy-loss distributions.
    Pld,
    /// Zero-concentrated differential privacy and exact Gaussian curves.
    Zcdp,
    /// The tightest that is valid.
    Best,
}

impl From<Accountant> for AccountantKind {
    fn from(accountant: Accountant) -> Self {
        match accountant {
            Accountant::Moments => Self::Moments,
            Accountant::Rdp => Self::Rdp,
            Accountant::Pld => Self::Pld,
            Accountant::Zcdp => Self::Zcdp,
            Accountant::Best => Self::Best,
        }
    }
}

/// The neighbouring relations, as flags name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AdjacencyName {
    /// One user's data is added or removed; the sensitivity is the clip norm C.
    AddOrRemove,
    /// One user's data becomes zeros; the sensitivity is C.
    ZeroOut,
    /// One user's data is replaced; the sensitivity is 2C.
    ReplaceOne,
}

impl From<AdjacencyName> for Adjacency {
    fn from(name: AdjacencyName) -> Self {
        match name {
            AdjacencyName::AddOrRemove => Self::AddOrRemove,
            AdjacencyName::ZeroOut => Self::ZeroOut,
            AdjacencyName::ReplaceOne => Self::ReplaceOne,
        }
    }
}

/// A run and what is asked about it. Flags are these names in kebab case, batch fields in snake case.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Query {
    /// What adds the noise, and who takes part.
    #[arg(long, value_enum)]
    pub(crate) mechanism: Option<Mechanism>,
    /// Who judges [default: best]
    #[arg(long, value_enum)]
    pub(crate) accountant: Option<Accountant>,
    /// The probability that a user takes part in a round (or give --population and --cohort)
    #[arg(long, value_name = "Q")]
    pub(crate) sampling_rate: Option<f64>,
    /// All users
    #[arg(long, value_name = "USERS")]
    pub(crate) population: Option<u64>,
    /// Users in a round (on average, for poisson)
    #[arg(long, value_name = "USERS")]
    pub(crate) cohort: Option<u64>,
    /// Standard deviation of the noise / L2 sensitivity (the clip norm C; under replace-one adjacency, hence for
    /// fixed-size, 2C)
    #[arg(long, short = 'z', value_name = "Z")]
    pub(crate) noise_multiplier: Option<f64>,
    /// Discrete Gaussian noise of this parameter instead, in grid steps; goes with --sensitivity
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    pub(crate) sigma: Option<f64>,
    /// L2 sensitivity in grid steps, with --sigma
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    pub(crate) sensitivity: Option<f64>,
    /// Rounds of the run
    #[arg(long)]
    pub(crate) rounds: Option<u64>,
    /// The delta of the guarantee
    #[arg(long)]
    pub(crate) delta: Option<f64>,
    /// MinS: rounds strictly between two participations of a user
    #[arg(long, value_name = "ROUNDS", help_heading = "Correlated noise")]
    pub(crate) min_separation: Option<u64>,
    /// MaxP: the most participations of a user over the whole run
    #[arg(long, value_name = "TIMES", help_heading = "Correlated noise")]
    pub(crate) max_participations: Option<u64>,
    /// Rounds between restarts, such as 128,1024,1024 (for banded and blt too)
    #[arg(
        long,
        visible_alias = "segment-sizes",
        value_delimiter = ',',
        value_name = "ROUNDS",
        help_heading = "Correlated noise"
    )]
    #[serde(alias = "segment_sizes")]
    pub(crate) tree_sizes: Option<Vec<u64>>,
    /// Trees are completed: padded with empty rounds to a power of two before a restart
    #[arg(long, num_args = 0..=1, default_missing_value = "true", help_heading = "Correlated noise")]
    pub(crate) completed: Option<bool>,
    /// The first column of C (banded)
    #[arg(long, value_delimiter = ',', value_name = "C0,C1,...", help_heading = "Correlated noise")]
    pub(crate) coefficients: Option<Vec<f64>>,
    /// The decay of each buffer of C (blt)
    #[arg(long, value_delimiter = ',', value_name = "D,...", help_heading = "Correlated noise")]
    pub(crate) buffer_decay: Option<Vec<f64>>,
    /// The weight of each buffer of C (blt)
    #[arg(long, value_delimiter = ',', value_name = "W,...", help_heading = "Correlated noise")]
    pub(crate) output_scale: Option<Vec<f64>>,
    /// Variance of the Skellam noise in a coordinate (of one participant's, for distributed-skellam)
    #[arg(long, value_name = "STEPS^2", help_heading = "Integer noise")]
    pub(crate) variance: Option<f64>,
    /// L1 sensitivity in grid steps (skellam)
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    pub(crate) l1_sensitivity: Option<f64>,
    /// L2 sensitivity in grid steps (skellam)
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    pub(crate) l2_sensitivity: Option<f64>,
    /// The fewest honest participants whose noise is in the sum (distributed-skellam)
    #[arg(long, value_name = "USERS", help_heading = "Integer noise")]
    pub(crate) honest_survivors: Option<u64>,
    /// The rho of a release that is known by nothing else (zcdp)
    #[arg(long)]
    pub(crate) rho: Option<f64>,
    /// What makes two datasets neighbours [default: as the mechanism's analysis has it]
    #[arg(long, value_enum)]
    pub(crate) adjacency: Option<AdjacencyName>,
    /// Protect so many users together, such as the devices of one person
    #[arg(long, value_name = "USERS")]
    pub(crate) group: Option<u32>,
    /// Events that compose, each with fields of its own; in batches only
    #[arg(skip)]
    pub(crate) events: Option<Vec<Query>>,
}

impl Query {
    pub(crate) fn accountant(&self) -> AccountantKind {
        self.accountant.map_or(AccountantKind::Best, AccountantKind::from)
    }

    pub(crate) fn group(&self) -> u32 {
        self.group.unwrap_or(1)
    }

    /// The delta, checked against the population where one is given.
    pub(crate) fn delta(&self) -> Result<Delta, BadInput> {
        let delta = required(self.delta, "delta", || "the guarantee has no meaning without it".into())?;
        let delta = Delta::new(delta).map_err(|e| BadInput::illegal("delta", &e))?;
        let populations =
            self.population.iter().chain(self.events.iter().flatten().filter_map(|e| e.population.as_ref()));
        for population in populations {
            if delta.get() > 1.0 / *population as f64 {
                return Err(BadInput::wrong(
                    "delta",
                    format!(
                        "{delta} is above 1/population = {}, which permits releasing somebody's data outright; choose a smaller one",
                        1.0 / *population as f64
                    ),
                ));
            }
        }
        Ok(delta)
    }

    /// What happened, under an adjacency that all of it admits.
    pub(crate) fn event(&self) -> Result<PrivacyEvent, BadInput> {
        let Some(events) = &self.events else {
            return self.single_event(self.assumed_adjacency(&[self])?);
        };
        if self.mechanism.is_some() {
            return Err(BadInput::OutOfPlace { field: "mechanism", with: "events; put it into one of them".into() });
        }
        if events.is_empty() {
            return Err(BadInput::wrong("events", "the list is empty"));
        }
        for (i, event) in events.iter().enumerate() {
            event.refuse_in_list(i)?;
        }
        let adjacency = self.assumed_adjacency(&events.iter().collect::<Vec<_>>())?;
        let events = events
            .iter()
            .enumerate()
            .map(|(i, e)| {
                e.single_event(adjacency).map_err(|error| BadInput::Refused(format!("event {}: {error}", i + 1)))
            })
            .collect::<Result<_, _>>()?;
        Ok(PrivacyEvent::Compose { events })
    }

    /// What belongs beside the list of events, not into it.
    fn refuse_in_list(&self, i: usize) -> Result<(), BadInput> {
        let with = || format!("event {} of a list; it belongs beside the list", i + 1);
        for (given, field) in [
            (self.accountant.is_some(), "accountant"),
            (self.delta.is_some(), "delta"),
            (self.group.is_some(), "group"),
            (self.events.is_some(), "events"),
        ] {
            if given {
                return Err(BadInput::OutOfPlace { field, with: with() });
            }
        }
        Ok(())
    }

    /// The adjacency of events that do not name one: the first that all of them admit.
    fn assumed_adjacency(&self, events: &[&Query]) -> Result<Adjacency, BadInput> {
        let named = self.adjacency.or_else(|| events.iter().find_map(|e| e.adjacency)).map(Adjacency::from);
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
                .map(|m| format!("{} is judged under {}", m.name(), m.assumable()[0]))
                .collect();
            BadInput::wrong(
                "adjacency",
                format!("these events have no adjacency in common and do not compose: {}", names.join(", ")),
            )
        })
    }

    fn single_event(&self, assumed: Adjacency) -> Result<PrivacyEvent, BadInput> {
        let mechanism = required(self.mechanism, "mechanism", || "say what adds the noise".into())?;
        self.refuse_strangers(mechanism)?;
        let adjacency = self.adjacency.map_or(assumed, Adjacency::from);
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
            Mechanism::Tree | Mechanism::Banded | Mechanism::Blt => Ok(PrivacyEvent::CorrelatedGaussian {
                adjacency,
                matrix: self.matrix(mechanism)?,
                segments: self.segments()?,
                participation: self.limits()?,
                noise: self.noise()?,
            }),
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
                Ok(PrivacyEvent::Zcdp { adjacency, rho: Rho::new(rho).map_err(|e| BadInput::illegal("rho", &e))? })
            }
            Mechanism::NonPrivate => Ok(PrivacyEvent::NonPrivate { what: "a release without privacy".into() }),
        }
    }

    /// Fields that the mechanism has no use for are refused: whoever gave them meant something else.
    fn refuse_strangers(&self, mechanism: Mechanism) -> Result<(), BadInput> {
        use Mechanism::{DistributedSkellam, FixedSize, NonPrivate, Poisson, Skellam, Zcdp};
        let sampled = matches!(mechanism, Poisson | FixedSize);
        let skellam = matches!(mechanism, Skellam | DistributedSkellam);
        let gaussian = !skellam && !matches!(mechanism, Zcdp | NonPrivate);
        let correlated = mechanism.is_correlated();
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
            ("completed", self.completed.is_some(), mechanism == Mechanism::Tree),
            ("coefficients", self.coefficients.is_some(), mechanism == Mechanism::Banded),
            ("buffer_decay", self.buffer_decay.is_some(), mechanism == Mechanism::Blt),
            ("output_scale", self.output_scale.is_some(), mechanism == Mechanism::Blt),
            ("variance", self.variance.is_some(), skellam),
            ("l1_sensitivity", self.l1_sensitivity.is_some(), skellam),
            ("l2_sensitivity", self.l2_sensitivity.is_some(), skellam),
            ("honest_survivors", self.honest_survivors.is_some(), mechanism == DistributedSkellam),
            ("rho", self.rho.is_some(), mechanism == Zcdp),
        ];
        match fields.into_iter().find(|(_, given, known)| *given && !known) {
            Some((field, ..)) => Err(BadInput::OutOfPlace { field, with: format!("mechanism {}", mechanism.name()) }),
            None => Ok(()),
        }
    }

    fn need<T>(&self, value: Option<T>, field: &'static str, mechanism: Mechanism) -> Result<T, BadInput> {
        required(value, field, || format!("mechanism {} needs it", mechanism.name()))
    }

    fn rounds(&self) -> Result<u64, BadInput> {
        match required(self.rounds, "rounds", || "say how long the run is".into())? {
            0 => Err(BadInput::wrong("rounds", "a run has at least one round")),
            rounds => Ok(rounds),
        }
    }

    fn noise(&self) -> Result<Noise, BadInput> {
        match (self.noise_multiplier, self.sigma, self.sensitivity) {
            (Some(z), None, None) => {
                NoiseMultiplier::new(z).map(Noise::Gaussian).map_err(|e| BadInput::illegal("noise_multiplier", &e))
            }
            (None, Some(sigma), Some(sensitivity)) => DiscreteGaussian::new(sigma, sensitivity)
                .map(Noise::DiscreteGaussian)
                .map_err(|e| BadInput::illegal("sigma", &e)),
            (None, Some(_), None) => {
                Err(BadInput::Missing { field: "sensitivity", why: "sigma is relative to it".into() })
            }
            (None, None, Some(_)) => Err(BadInput::Missing { field: "sigma", why: "sensitivity goes with it".into() }),
            (Some(_), ..) => Err(BadInput::OutOfPlace {
                field: "noise_multiplier",
                with: "sigma and sensitivity; give one or the other".into(),
            }),
            (None, None, None) => {
                Err(BadInput::Missing { field: "noise_multiplier", why: "say how much noise is added".into() })
            }
        }
    }

    fn cohort_of_population(&self) -> Result<Option<(u64, u64)>, BadInput> {
        match (self.cohort, self.population) {
            (Some(cohort), Some(population)) => {
                Participation::FixedSize { population, cohort }.check().map_err(|e| BadInput::wrong("cohort", e))?;
                Ok(Some((cohort, population)))
            }
            (Some(_), None) if self.sampling_rate.is_none() => {
                Err(BadInput::Missing { field: "population", why: "a cohort is drawn from it".into() })
            }
            _ => Ok(None),
        }
    }

    fn rate(&self) -> Result<SamplingRate, BadInput> {
        let unit = |field: &'static str, q: f64| SamplingRate::new(q).map_err(|e| BadInput::illegal(field, &e));
        match (self.sampling_rate, self.cohort_of_population()?) {
            (Some(q), Some((cohort, population))) => {
                let implied = cohort as f64 / population as f64;
                if (q / implied - 1.0).abs() > 1e-9 {
                    return Err(BadInput::wrong(
                        "sampling_rate",
                        format!("{q} contradicts a cohort of {cohort} of {population}, which is {implied}"),
                    ));
                }
                unit("sampling_rate", q)
            }
            (Some(q), None) => unit("sampling_rate", q),
            (None, Some((cohort, population))) => unit("cohort", cohort as f64 / population as f64),
            (None, None) => Err(BadInput::Missing {
                field: "sampling_rate",
                why: "give it, or the population and the cohort".into(),
            }),
        }
    }

    fn fixed_size(&self) -> Result<Participation, BadInput> {
        /// A bare sampling rate is a cohort out of so many.
        const OUT_OF: u64 = 1_000_000_000_000;
        let rate = self.rate()?.get();
        Ok(match self.cohort_of_population()? {
            Some((cohort, population)) => Participation::FixedSize { population, cohort },
            None => Participation::FixedSize { population: OUT_OF, cohort: (rate * OUT_OF as f64).ceil() as u64 },
        })
    }

    fn matrix(&self, mechanism: Mechanism) -> Result<NoiseMatrix, BadInput> {
        Ok(match mechanism {
            Mechanism::Banded => {
                NoiseMatrix::Banded { coefficients: self.need(self.coefficients.clone(), "coefficients", mechanism)? }
            }
            Mechanism::Blt => NoiseMatrix::Blt {
                buffer_decay: self.need(self.buffer_decay.clone(), "buffer_decay", mechanism)?,
                output_scale: self.need(self.output_scale.clone(), "output_scale", mechanism)?,
            },
            _ => NoiseMatrix::Tree,
        })
    }

    fn segments(&self) -> Result<Vec<Segment>, BadInput> {
        let sizes = match (&self.tree_sizes, self.rounds) {
            (Some(sizes), Some(rounds)) if sizes.iter().map(|s| u128::from(*s)).sum::<u128>() != u128::from(rounds) => {
                return Err(BadInput::wrong(
                    "tree_sizes",
                    format!("they do not add up to {rounds} rounds; give one or the other"),
                ));
            }
            (Some(sizes), _) => sizes.clone(),
            (None, _) => vec![self.rounds()?],
        };
        let segment = if self.completed == Some(true) { Segment::completed } else { Segment::of };
        Ok(sizes.into_iter().map(segment).collect())
    }

    fn limits(&self) -> Result<Participation, BadInput> {
        let rounds = self
            .tree_sizes
            .as_ref()
            .map_or(self.rounds.unwrap_or(0), |sizes| sizes.iter().fold(0, |sum: u64, s| sum.saturating_add(*s)));
        let participation = match (self.min_separation, self.max_participations) {
            (None, Some(1)) => Participation::Once,
            (separation, max_participations) => Participation::MinSeparation {
                separation: MinSeparation::rounds_between(required(separation, "min_separation", || {
                    "correlated noise is judged by participation limits; 0 means none".into()
                })?)
                .map_err(|e| BadInput::illegal("min_separation", &e))?,
                // Without a limit of its own, the separation alone limits how often a user can come.
                max_participations: max_participations.unwrap_or(rounds),
            },
        };
        participation.check().map_err(|e| BadInput::wrong("max_participations", e))?;
        if let (Some(population), Some(cohort)) = (self.population, self.cohort) {
            participation.check_feasible(population, cohort, rounds).map_err(|e| BadInput::wrong("population", e))?;
        }
        Ok(participation)
    }
}

fn required<T>(value: Option<T>, field: &'static str, why: impl FnOnce() -> String) -> Result<T, BadInput> {
    value.ok_or_else(|| BadInput::Missing { field, why: why() })
}
