//! Privacy events: what happened to users' data, as values.
//!
//! A [`PrivacyEvent`] records a release; accountants judge it; calibration only searches. The meaning of a variant
//! never changes once written, because ledgers hold them: new facts get new variants. Each doc comment below is
//! enough to write an accountant from. An event that a reader does not know is refused by name, by serde when it is
//! read and by each accountant when it is judged.

mod noise;
mod scaled;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::noise::{DiscreteGaussian, JointDiscreteGaussian, Noise};
use crate::{
    participation::{Participation, ParticipationError},
    units::{Rho, UnitError},
};

/// The adjacency: what makes two datasets neighbours. A guarantee without it means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adjacency {
    /// One user's whole data is added or removed. Sensitivity of a sum clipped to C: C.
    AddOrRemove,
    /// One user's whole data is replaced by zero contributions, the number of users unchanged (Kairouz et al. 2021,
    /// Definition 1.1). Sensitivity of a sum clipped to C: C.
    ZeroOut,
    /// One user's whole data is replaced by another's. Sensitivity of a sum clipped to C: 2C.
    ReplaceOne,
}

impl Adjacency {
    /// The name used in files, flags and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AddOrRemove => "add-or-remove",
            Self::ZeroOut => "zero-out",
            Self::ReplaceOne => "replace-one",
        }
    }
}

impl std::fmt::Display for Adjacency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The strategy matrix C of a correlated-noise mechanism: it releases a function of `C x + Z`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NoiseMatrix {
    /// A row for each complete node of a binary tree over the rounds of a segment, in units of one node's noise
    /// (Kairouz et al. 2021).
    Tree,
    /// Lower-triangular Toeplitz with this first column, zero after it (Choquette-Choo et al. 2023).
    Banded {
        /// The first column of C, not of its inverse.
        coefficients: Vec<f64>,
    },
    /// Lower-triangular Toeplitz with `c_0 = 1`, `c_i = sum_j output_scale_j * buffer_decay_j^(i-1)`: a buffered
    /// linear Toeplitz matrix (Dvijotham et al. 2024; McMahan et al. 2024). These describe C, not its inverse.
    Blt {
        /// The decay of each buffer, at least 0 and below 1.
        buffer_decay: Vec<f64>,
        /// The weight of each buffer, not negative.
        output_scale: Vec<f64>,
    },
}

impl NoiseMatrix {
    /// The name used in files, flags and answers.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Banded { .. } => "banded",
            Self::Blt { .. } => "blt",
        }
    }
}

/// The rounds between two restarts of a correlated-noise mechanism (rule P7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Rounds in which users take part.
    pub rounds: u64,
    /// The size to which tree completion padded the tree with empty rounds; the nodes that it completes are released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_to: Option<u64>,
}

impl Segment {
    /// A segment without completion.
    #[must_use]
    pub const fn of(rounds: u64) -> Self {
        Self { rounds, completed_to: None }
    }

    /// A tree padded to the next power of two.
    #[must_use]
    pub const fn completed(rounds: u64) -> Self {
        Self { rounds, completed_to: rounds.checked_next_power_of_two() }
    }
}

/// A privacy event: what happened to users' data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PrivacyEvent {
    /// Something was computed from users' data and released without privacy. Costs infinity.
    NonPrivate {
        /// A description of what was released.
        what: String,
    },
    /// One release of a vector plus Gaussian noise, every user taking part.
    Gaussian {
        /// What makes neighbours here.
        adjacency: Adjacency,
        /// The noise, per unit of sensitivity.
        noise: Noise,
    },
    /// One release of the sum over a random cohort plus Gaussian noise. The cohort is drawn afresh, by
    /// [`Participation::Poisson`] (adjacency add-or-remove or zero-out) or [`Participation::FixedSize`] (adjacency
    /// replace-one, the noise relative to 2C), and is not revealed.
    SampledGaussian {
        /// What makes neighbours here.
        adjacency: Adjacency,
        /// How the cohort was drawn.
        participation: Participation,
        /// The noise, per unit of sensitivity.
        noise: Noise,
    },
    /// All releases of a run of correlated noise: functions of `C x + Z` with `x` the per-round sums and `Z`
    /// independent, `noise` relative to the sensitivity of one round's sum. Restarted mechanisms have a segment each;
    /// the participation limits hold across segments ([`Participation::MinSeparation`] or [`Participation::Once`]).
    CorrelatedGaussian {
        /// What makes neighbours here.
        adjacency: Adjacency,
        /// The strategy matrix C of each segment.
        matrix: NoiseMatrix,
        /// The rounds between restarts.
        segments: Vec<Segment>,
        /// The limits that were enforced.
        participation: Participation,
        /// The noise, per unit of sensitivity of a round's sum.
        noise: Noise,
    },
    /// One release of an integer vector plus Skellam noise of the given variance in each coordinate, every user
    /// taking part (Agarwal, Kairouz and Liu 2021).
    Skellam {
        /// What makes neighbours here.
        adjacency: Adjacency,
        /// Variance of the noise in a coordinate, in squared grid steps.
        variance: f64,
        /// L1 sensitivity in grid steps.
        l1_sensitivity: f64,
        /// L2 sensitivity in grid steps.
        l2_sensitivity: f64,
    },
    /// One release of a securely aggregated integer vector to which each participant added Skellam noise itself.
    /// Counted is the noise of `honest_survivors` alone: the fewest honest participants that the protocol's
    /// threshold lets a round close with.
    DistributedSkellam {
        /// What makes neighbours here.
        adjacency: Adjacency,
        /// Variance of one participant's noise in a coordinate, in squared grid steps.
        local_variance: f64,
        /// The fewest honest participants whose noise is in the sum.
        honest_survivors: u64,
        /// L1 sensitivity in grid steps.
        l1_sensitivity: f64,
        /// L2 sensitivity in grid steps.
        l2_sensitivity: f64,
    },
    /// All rounds of a run of fresh noise whose users take part within limits ([`Participation::MinSeparation`] or
    /// [`Participation::Once`]): each round is `event` for users who take part in it, and nothing for all others. It
    /// costs `event` as often as a user can take part in so many rounds; nothing is amplified.
    LimitedRounds {
        /// How many rounds there were.
        rounds: u64,
        /// The limits that were enforced.
        participation: Participation,
        /// One round, for a user who takes part in it.
        event: Box<PrivacyEvent>,
    },
    /// Something known only by its zCDP parameter.
    Zcdp {
        /// What makes neighbours here.
        adjacency: Adjacency,
        /// The parameter.
        rho: Rho,
    },
    /// The same event, independently, many times.
    Repeat {
        /// The number of repetitions.
        times: u64,
        /// The repeated event.
        event: Box<PrivacyEvent>,
    },
    /// Several events, each possibly chosen by looking at the releases before it.
    Compose {
        /// What happened, in order.
        events: Vec<PrivacyEvent>,
    },
}

/// An event that contradicts itself or that cannot be composed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum EventError {
    /// Events under different adjacencies (rule P2).
    #[error("events under different adjacencies do not compose: {first} and {second}")]
    MixedAdjacencies {
        /// The adjacency met first.
        first: Adjacency,
        /// The one that differs.
        second: Adjacency,
    },
    /// An adjacency that the event's analysis does not cover.
    #[error("{event} is not defined under {adjacency} adjacency; it needs {needs}")]
    Adjacency {
        /// The event.
        event: &'static str,
        /// The adjacency given.
        adjacency: Adjacency,
        /// The adjacency or participation that is needed.
        needs: &'static str,
    },
    /// A participation that the event's analysis does not cover.
    #[error("{event} needs {needs} participation")]
    ParticipationKind {
        /// The event.
        event: &'static str,
        /// The adjacency or participation that is needed.
        needs: &'static str,
    },
    /// The participation contradicts itself.
    #[error(transparent)]
    Participation(#[from] ParticipationError),
    /// A number outside its range.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A strategy matrix or segment list without meaning.
    #[error("{matrix}: {problem}")]
    Matrix {
        /// The matrix.
        matrix: &'static str,
        /// A description of the problem.
        problem: String,
    },
    /// More repetitions than can be counted.
    #[error("the number of repetitions is too large")]
    TooMany,
}

impl PrivacyEvent {
    /// Gaussian noise, every user taking part.
    #[must_use]
    pub fn gaussian(adjacency: Adjacency, noise: impl Into<Noise>) -> Self {
        Self::Gaussian { adjacency, noise: noise.into() }
    }

    /// Gaussian noise on a Poisson-sampled cohort, under add-or-remove adjacency.
    #[must_use]
    pub fn poisson(rate: crate::units::SamplingRate, noise: impl Into<Noise>) -> Self {
        Self::SampledGaussian {
            adjacency: Adjacency::AddOrRemove,
            participation: Participation::Poisson { rate },
            noise: noise.into(),
        }
    }

    /// This event `times` times.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self::Repeat { times, event: Box::new(self) }
    }

    /// The name by which an accountant refuses it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NonPrivate { .. } => "non_private",
            Self::Gaussian { .. } => "gaussian",
            Self::SampledGaussian { participation: Participation::FixedSize { .. }, .. } => {
                "fixed-size sampled gaussian"
            }
            Self::SampledGaussian { .. } => "poisson-sampled gaussian",
            Self::CorrelatedGaussian { matrix, .. } => matrix.name(),
            Self::Skellam { .. } => "skellam",
            Self::DistributedSkellam { .. } => "distributed skellam",
            Self::LimitedRounds { .. } => "limited rounds",
            Self::Zcdp { .. } => "zcdp",
            Self::Repeat { .. } => "repeat",
            Self::Compose { .. } => "compose",
        }
    }

    /// The event taken apart into single releases and how often each happened, all checked and under one adjacency
    /// (rule P2). Every accountant starts here.
    ///
    /// # Errors
    /// The first contradiction that is met.
    pub fn flatten(&self) -> Result<Flattened<'_>, EventError> {
        let mut flat = Flattened { adjacency: None, leaves: Vec::new(), non_private: None };
        flat.add(self, 1)?;
        Ok(flat)
    }

    pub(crate) fn has_discrete_noise(&self) -> bool {
        match self {
            Self::Gaussian { noise, .. }
            | Self::SampledGaussian { noise, .. }
            | Self::CorrelatedGaussian { noise, .. } => !matches!(noise, Noise::Gaussian(_)),
            _ => false,
        }
    }

    fn adjacency(&self) -> Option<Adjacency> {
        match *self {
            Self::Gaussian { adjacency, .. }
            | Self::SampledGaussian { adjacency, .. }
            | Self::CorrelatedGaussian { adjacency, .. }
            | Self::Skellam { adjacency, .. }
            | Self::DistributedSkellam { adjacency, .. }
            | Self::Zcdp { adjacency, .. } => Some(adjacency),
            Self::NonPrivate { .. } | Self::LimitedRounds { .. } | Self::Repeat { .. } | Self::Compose { .. } => None,
        }
    }

    /// How users come to take part, wherever the event says so.
    #[must_use]
    pub fn participations(&self) -> Vec<Participation> {
        match self {
            Self::SampledGaussian { participation, .. } | Self::CorrelatedGaussian { participation, .. } => {
                vec![*participation]
            }
            Self::LimitedRounds { participation, event, .. } => {
                std::iter::once(*participation).chain(event.participations()).collect()
            }
            Self::Repeat { event, .. } => event.participations(),
            Self::Compose { events } => events.iter().flat_map(Self::participations).collect(),
            _ => Vec::new(),
        }
    }

    fn check(&self) -> Result<(), EventError> {
        match self {
            Self::SampledGaussian { adjacency, participation, .. } => {
                participation.check()?;
                check_sampling(*adjacency, participation)
            }
            Self::CorrelatedGaussian { matrix, segments, participation, .. } => {
                check_correlated(matrix, segments, participation)
            }
            Self::Skellam { variance, l1_sensitivity, l2_sensitivity, .. } => {
                check_skellam("variance", *variance, *l1_sensitivity, *l2_sensitivity)
            }
            Self::DistributedSkellam { local_variance, honest_survivors, l1_sensitivity, l2_sensitivity, .. } => {
                if *honest_survivors == 0 {
                    return Err(UnitError::Zero { unit: "honest_survivors", got: 0 }.into());
                }
                check_skellam("local_variance", *local_variance, *l1_sensitivity, *l2_sensitivity)
            }
            _ => Ok(()),
        }
    }
}

fn check_sampling(adjacency: Adjacency, participation: &Participation) -> Result<(), EventError> {
    match participation {
        Participation::Poisson { .. } if adjacency == Adjacency::ReplaceOne => {
            Err(EventError::Adjacency { event: "poisson sampling", adjacency, needs: "add-or-remove or zero-out" })
        }
        Participation::FixedSize { .. } if adjacency != Adjacency::ReplaceOne => {
            Err(EventError::Adjacency { event: "fixed-size sampling", adjacency, needs: "replace-one" })
        }
        Participation::Poisson { .. } | Participation::FixedSize { .. } => Ok(()),
        Participation::MinSeparation { .. } | Participation::Once => {
            Err(EventError::ParticipationKind { event: "sampled gaussian", needs: "poisson or fixed-size" })
        }
    }
}

/// Refuses limits that are none, and rounds that say themselves who takes part in them.
fn check_limited(participation: &Participation, round: &PrivacyEvent) -> Result<(), EventError> {
    participation.check()?;
    if !matches!(participation, Participation::MinSeparation { .. } | Participation::Once) {
        return Err(EventError::ParticipationKind { event: "limited rounds", needs: "minimum-separation or once" });
    }
    match round.participations()[..] {
        [] => Ok(()),
        _ => Err(EventError::ParticipationKind { event: "each of limited rounds", needs: "no other" }),
    }
}

/// Refuses a run of correlated noise that contradicts itself.
pub(crate) fn check_correlated(
    matrix: &NoiseMatrix,
    segments: &[Segment],
    participation: &Participation,
) -> Result<(), EventError> {
    participation.check()?;
    if !matches!(participation, Participation::MinSeparation { .. } | Participation::Once) {
        return Err(EventError::ParticipationKind { event: matrix.name(), needs: "minimum-separation or once" });
    }
    check_segments(matrix, segments)?;
    check_matrix(matrix)
}

/// Refuses segments without rounds, or completed to less than they are.
pub(crate) fn check_segments(matrix: &NoiseMatrix, segments: &[Segment]) -> Result<(), EventError> {
    let refuse = |problem: String| Err(EventError::Matrix { matrix: matrix.name(), problem });
    if segments.is_empty() {
        return refuse("there must be at least one segment".into());
    }
    for segment in segments {
        if segment.rounds == 0 {
            return refuse("a segment must have at least one round".into());
        }
        if let Some(size) = segment.completed_to {
            if *matrix != NoiseMatrix::Tree {
                return refuse("only a tree can be completed".into());
            }
            if size < segment.rounds {
                return refuse(format!("a tree of {} rounds cannot be completed to {size}", segment.rounds));
            }
        }
    }
    let total = segments.iter().try_fold(0u64, |sum, s| sum.checked_add(s.completed_to.unwrap_or(s.rounds)));
    if total.is_none() { Err(EventError::TooMany) } else { Ok(()) }
}

fn check_matrix(matrix: &NoiseMatrix) -> Result<(), EventError> {
    let refuse = |problem: String| Err(EventError::Matrix { matrix: matrix.name(), problem });
    match matrix {
        NoiseMatrix::Tree => Ok(()),
        NoiseMatrix::Banded { coefficients } => {
            if let Some(bad) = coefficients.iter().find(|c| !(c.is_finite() && **c >= 0.0)) {
                return refuse(format!("coefficients must be finite and not negative, got {bad}"));
            }
            match coefficients.first() {
                Some(first) if *first > 0.0 => Ok(()),
                Some(first) => refuse(format!("the first coefficient must be above 0, got {first}")),
                None => refuse("coefficients must not be empty".into()),
            }
        }
        NoiseMatrix::Blt { buffer_decay, output_scale } => {
            if buffer_decay.len() != output_scale.len() {
                return refuse(format!(
                    "buffer_decay has {} entries and output_scale {}",
                    buffer_decay.len(),
                    output_scale.len()
                ));
            }
            if let Some(bad) = buffer_decay.iter().find(|d| !(**d >= 0.0 && **d < 1.0)) {
                return refuse(format!("buffer_decay must be at least 0 and below 1, got {bad}"));
            }
            if let Some(bad) = output_scale.iter().find(|s| !(s.is_finite() && **s >= 0.0)) {
                return refuse(format!("output_scale must be finite and not negative, got {bad}"));
            }
            Ok(())
        }
    }
}

fn check_skellam(unit: &'static str, variance: f64, l1: f64, l2: f64) -> Result<(), EventError> {
    let range = "finite and above 0";
    for (unit, got) in [(unit, variance), ("l1_sensitivity", l1), ("l2_sensitivity", l2)] {
        if !(got.is_finite() && got > 0.0) {
            return Err(UnitError::OutOfRange { unit, range, got }.into());
        }
    }
    // On integer vectors |x|^2 >= |x|, so l1 <= l2^2; and l1 >= l2 always.
    if l1 < l2 {
        return Err(UnitError::OutOfRange { unit: "l1_sensitivity", range: "at least l2_sensitivity", got: l1 }.into());
    }
    Ok(())
}

/// An event taken apart; see [`PrivacyEvent::flatten`].
#[derive(Debug, Clone, PartialEq)]
pub struct Flattened<'a> {
    /// The one adjacency of all leaves; none when there are no leaves.
    pub adjacency: Option<Adjacency>,
    /// Each single release and how often it happened.
    pub leaves: Vec<(&'a PrivacyEvent, u64)>,
    /// What was released without privacy, if anything was.
    pub non_private: Option<&'a str>,
}

impl<'a> Flattened<'a> {
    fn add(&mut self, event: &'a PrivacyEvent, times: u64) -> Result<(), EventError> {
        match event {
            PrivacyEvent::Compose { events } => events.iter().try_for_each(|e| self.add(e, times)),
            PrivacyEvent::Repeat { times: inner, event } => {
                self.add(event, times.checked_mul(*inner).ok_or(EventError::TooMany)?)
            }
            PrivacyEvent::LimitedRounds { rounds, participation, event } => {
                check_limited(participation, event)?;
                let most = participation.most_participations(*rounds);
                self.add(event, times.checked_mul(most).ok_or(EventError::TooMany)?)
            }
            PrivacyEvent::NonPrivate { what } => {
                if times > 0 {
                    self.non_private.get_or_insert(what);
                }
                Ok(())
            }
            leaf => self.add_leaf(leaf, times),
        }
    }

    fn add_leaf(&mut self, leaf: &'a PrivacyEvent, times: u64) -> Result<(), EventError> {
        leaf.check()?;
        let adjacency = leaf.adjacency().expect("a leaf has an adjacency");
        let first = *self.adjacency.get_or_insert(adjacency);
        if first != adjacency {
            return Err(EventError::MixedAdjacencies { first, second: adjacency });
        }
        if times == 0 {
            return Ok(());
        }
        match self.leaves.iter_mut().find(|(known, _)| *known == leaf) {
            Some((_, count)) => *count = count.checked_add(times).ok_or(EventError::TooMany)?,
            None => self.leaves.push((leaf, times)),
        }
        Ok(())
    }
}
