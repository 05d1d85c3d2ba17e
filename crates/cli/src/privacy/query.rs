//! The flags that describe a run to the accountant.

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
    /// Moments accountant, as in the first papers.
    Moments,
    /// Renyi differential privacy, with the best order.
    Rdp,
    /// Privacy-loss distributions.
    Pld,
    /// Zero-concentrated differential privacy and exact Gaussian curves.
    Zcdp,
    /// The tightest accountant that is valid.
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
    /// Noise mechanism, and how users take part
    #[arg(long, value_parser = mechanisms())]
    mechanism: Option<Mechanism>,
    /// Privacy accountant [default: best]
    #[arg(long, value_enum)]
    accountant: Option<AccountantName>,
    /// Probability that a user takes part in a round (or give --population and --cohort)
    #[arg(long, value_name = "Q")]
    sampling_rate: Option<f64>,
    /// Number of users in the population
    #[arg(long, value_name = "USERS")]
    population: Option<u64>,
    /// Number of users per round (the mean, for poisson)
    #[arg(long, value_name = "USERS")]
    cohort: Option<u64>,
    /// Standard deviation of the noise divided by the L2 sensitivity: the clip norm C, or 2C under replace-one adjacency (and so for
    /// fixed-size)
    #[arg(long, short = 'z', value_name = "Z")]
    noise_multiplier: Option<f64>,
    /// Discrete Gaussian noise with this parameter, in grid steps, instead of --noise-multiplier; needs --sensitivity
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    sigma: Option<f64>,
    /// L2 sensitivity in grid steps; needs --sigma
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    sensitivity: Option<f64>,
    /// Number of rounds
    #[arg(long)]
    rounds: Option<u64>,
    /// Delta of the guarantee
    #[arg(long)]
    delta: Option<f64>,
    /// Minimum rounds strictly between two participations of a user, MinS
    #[arg(long, value_name = "ROUNDS", help_heading = "Correlated noise")]
    min_separation: Option<u64>,
    /// Most participations of a user over the whole run, MaxP
    #[arg(long, value_name = "TIMES", help_heading = "Correlated noise")]
    max_participations: Option<u64>,
    /// Rounds between restarts, such as 128,1024,1024 (correlated noise)
    #[arg(
        long,
        visible_alias = "segment-sizes",
        value_delimiter = ',',
        value_name = "ROUNDS",
        help_heading = "Correlated noise"
    )]
    tree_sizes: Option<Vec<u64>>,
    /// Complete each tree: pad it with empty rounds to a power of two before a restart
    #[arg(long, num_args = 0..=1, default_missing_value = "true", help_heading = "Correlated noise")]
    completed: Option<bool>,
    /// First column of the matrix C (mechanisms with bands)
    #[arg(long, value_delimiter = ',', value_name = "C0,C1,...", help_heading = "Correlated noise")]
    coefficients: Option<Vec<f64>>,
    /// Decay of each buffer of C (mechanisms with buffers)
    #[arg(long, value_delimiter = ',', value_name = "D,...", help_heading = "Correlated noise")]
    buffer_decay: Option<Vec<f64>>,
    /// Weight of each buffer of C (mechanisms with buffers)
    #[arg(long, value_delimiter = ',', value_name = "W,...", help_heading = "Correlated noise")]
    output_scale: Option<Vec<f64>>,
    /// Number of bands of C, if it is computed as for a run: without --coefficients
    #[arg(long, value_name = "COUNT", help_heading = "Correlated noise")]
    bands: Option<usize>,
    /// Number of buffers of C, if it is computed as for a run: without --buffer-decay and --output-scale
    #[arg(long, value_name = "COUNT", help_heading = "Correlated noise")]
    buffers: Option<usize>,
    /// Variance of the Skellam noise per coordinate (of one participant, for distributed-skellam)
    #[arg(long, value_name = "STEPS^2", help_heading = "Integer noise")]
    variance: Option<f64>,
    /// L1 sensitivity in grid steps (skellam)
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    l1_sensitivity: Option<f64>,
    /// L2 sensitivity in grid steps (skellam)
    #[arg(long, value_name = "STEPS", help_heading = "Integer noise")]
    l2_sensitivity: Option<f64>,
    /// Fewest honest participants whose noise is in the sum (distributed-skellam)
    #[arg(long, value_name = "USERS", help_heading = "Integer noise")]
    honest_survivors: Option<u64>,
    /// zCDP parameter rho of a release, if nothing else is known about it (zcdp)
    #[arg(long)]
    rho: Option<f64>,
    /// Adjacency: when two datasets are neighbours [default: that of the mechanism's analysis]
    #[arg(long, value_enum)]
    adjacency: Option<AdjacencyName>,
    /// Group privacy: protect this many users together, such as the devices of one person
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
