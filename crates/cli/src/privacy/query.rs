//! A question about a run as flags.

use clap::{Args, ValueEnum, builder::TypedValueParser};
use privacy::{
    AccountantKind, Adjacency,
    query::{Mechanism, Query},
};

use crate::choices::named;

/// The mechanisms, as flags name them.
fn mechanisms() -> impl TypedValueParser<Value = Mechanism> {
    named(Mechanism::all().map(|mechanism| (mechanism, mechanism.name(), mechanism.about())))
}

/// The accountants, as flags name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccountantName {
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

impl From<AccountantName> for AccountantKind {
    fn from(accountant: AccountantName) -> Self {
        match accountant {
            AccountantName::Moments => Self::Moments,
            AccountantName::Rdp => Self::Rdp,
            AccountantName::Pld => Self::Pld,
            AccountantName::Zcdp => Self::Zcdp,
            AccountantName::Best => Self::Best,
        }
    }
}

/// The neighbouring relations, as flags name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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

/// A run and what is asked about it; what the fields mean together is the library's business.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct QueryArgs {
    /// What adds the noise, and who takes part.
    #[arg(long, value_parser = mechanisms())]
    mechanism: Option<Mechanism>,
    /// Who judges [default: best]
    #[arg(long, value_enum)]
    accountant: Option<AccountantName>,
    /// The probability that a user takes part in a round (or give --population and --cohort)
    #[arg(long, value_name = "Q")]
    sampling_rate: Option<f64>,
    /// All users
    #[arg(long, value_name = "USERS")]
    population: Option<u64>,
    /// Users in a round (on average, for poisson)
    #[arg(long, value_name = "USERS")]
    cohort: Option<u64>,
    /// Standard deviation of the noise / L2 sensitivity (the clip norm C; under replace-one adjacency, hence for
    /// fixed-size, 2C)
    #[arg(long, short = 'z', value_name = "Z")]
    noise_multiplier: Option<f64>,
    /// Discrete Gaussian noise of this parameter instead, in grid steps; goes with --sensitivity
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    sigma: Option<f64>,
    /// L2 sensitivity in grid steps, with --sigma
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    sensitivity: Option<f64>,
    /// Rounds of the run
    #[arg(long)]
    rounds: Option<u64>,
    /// The delta of the guarantee
    #[arg(long)]
    delta: Option<f64>,
    /// MinS: rounds strictly between two participations of a user
    #[arg(long, value_name = "ROUNDS", help_heading = "Correlated noise")]
    min_separation: Option<u64>,
    /// MaxP: the most participations of a user over the whole run
    #[arg(long, value_name = "TIMES", help_heading = "Correlated noise")]
    max_participations: Option<u64>,
    /// Rounds between restarts, such as 128,1024,1024 (for all correlated noise)
    #[arg(
        long,
        visible_alias = "segment-sizes",
        value_delimiter = ',',
        value_name = "ROUNDS",
        help_heading = "Correlated noise"
    )]
    tree_sizes: Option<Vec<u64>>,
    /// Trees are completed: padded with empty rounds to a power of two before a restart
    #[arg(long, num_args = 0..=1, default_missing_value = "true", help_heading = "Correlated noise")]
    completed: Option<bool>,
    /// The first column of C (mechanisms with bands)
    #[arg(long, value_delimiter = ',', value_name = "C0,C1,...", help_heading = "Correlated noise")]
    coefficients: Option<Vec<f64>>,
    /// The decay of each buffer of C (mechanisms with buffers)
    #[arg(long, value_delimiter = ',', value_name = "D,...", help_heading = "Correlated noise")]
    buffer_decay: Option<Vec<f64>>,
    /// The weight of each buffer of C (mechanisms with buffers)
    #[arg(long, value_delimiter = ',', value_name = "W,...", help_heading = "Correlated noise")]
    output_scale: Option<Vec<f64>>,
    /// Bands of C, where it is made as a run would: without --coefficients
    #[arg(long, value_name = "COUNT", help_heading = "Correlated noise")]
    bands: Option<usize>,
    /// Buffers of C, where it is made as a run would: without --buffer-decay and --output-scale
    #[arg(long, value_name = "COUNT", help_heading = "Correlated noise")]
    buffers: Option<usize>,
    /// Variance of the Skellam noise in a coordinate (of one participant's, for distributed-skellam)
    #[arg(long, value_name = "STEPS^2", help_heading = "Integer noise")]
    variance: Option<f64>,
    /// L1 sensitivity in grid steps (skellam)
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    l1_sensitivity: Option<f64>,
    /// L2 sensitivity in grid steps (skellam)
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    l2_sensitivity: Option<f64>,
    /// The fewest honest participants whose noise is in the sum (distributed-skellam)
    #[arg(long, value_name = "USERS", help_heading = "Integer noise")]
    honest_survivors: Option<u64>,
    /// The rho of a release that is known by nothing else (zcdp)
    #[arg(long)]
    rho: Option<f64>,
    /// What makes two datasets neighbours [default: as the mechanism's analysis has it]
    #[arg(long, value_enum)]
    adjacency: Option<AdjacencyName>,
    /// Protect so many users together, such as the devices of one person
    #[arg(long, value_name = "USERS")]
    group: Option<u32>,
}

impl QueryArgs {
    /// The question. Lists of events come in batches only.
    pub(crate) fn query(&self) -> Query {
        Query {
            mechanism: self.mechanism,
            accountant: self.accountant.map(Into::into),
            sampling_rate: self.sampling_rate,
            population: self.population,
            cohort: self.cohort,
            noise_multiplier: self.noise_multiplier,
            sigma: self.sigma,
            sensitivity: self.sensitivity,
            rounds: self.rounds,
            delta: self.delta,
            min_separation: self.min_separation,
            max_participations: self.max_participations,
            tree_sizes: self.tree_sizes.clone(),
            completed: self.completed,
            coefficients: self.coefficients.clone(),
            buffer_decay: self.buffer_decay.clone(),
            output_scale: self.output_scale.clone(),
            bands: self.bands,
            buffers: self.buffers,
            variance: self.variance,
            l1_sensitivity: self.l1_sensitivity,
            l2_sensitivity: self.l2_sensitivity,
            honest_survivors: self.honest_survivors,
            rho: self.rho,
            adjacency: self.adjacency.map(Into::into),
            group: self.group,
            events: None,
        }
    }
}
