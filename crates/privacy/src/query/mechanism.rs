//! What can be asked about, by name: independent noise on different cohorts, every correlated noise of the registry
//! ([`DESIGNS`]), and what is known by other numbers.

use serde::{Deserialize, Deserializer, de::Error};

use crate::{
    Adjacency,
    design::{DESIGNS, Design},
};

/// The noise mechanism, and how users take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// Gaussian noise in every round, every user in every round.
    Gaussian,
    /// Gaussian noise on cohorts into which each user comes independently.
    Poisson,
    /// Gaussian noise on cohorts of a fixed size.
    FixedSize,
    /// Correlated noise (DP-FTRL) under participation limits.
    Correlated(&'static Design),
    /// Skellam noise on integer vectors.
    Skellam,
    /// Skellam noise, added by the participants under secure aggregation.
    DistributedSkellam,
    /// Something known only by its rho.
    Zcdp,
    /// Something released without privacy: has infinite epsilon.
    NonPrivate,
}

impl Mechanism {
    /// All of them, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = Self> {
        let sampled = [Self::Gaussian, Self::Poisson, Self::FixedSize].into_iter();
        let others = [Self::Skellam, Self::DistributedSkellam, Self::Zcdp, Self::NonPrivate];
        sampled.chain(DESIGNS.into_iter().map(Self::Correlated)).chain(others)
    }

    /// A description for help texts.
    #[must_use]
    pub fn about(self) -> String {
        let about = match self {
            Self::Gaussian => "Gaussian noise, every user in every round",
            Self::Poisson => "Gaussian noise, each user sampled independently",
            Self::FixedSize => "Gaussian noise, cohorts of a fixed size",
            Self::Correlated(design) => return format!("Under participation limits: {}", design.about),
            Self::Skellam => "Skellam noise on integer vectors",
            Self::DistributedSkellam => "Skellam noise, added by the participants under secure aggregation",
            Self::Zcdp => "A release of which only rho is known",
            Self::NonPrivate => "A release without privacy: epsilon is infinite",
        };
        about.to_owned()
    }

    /// The name used in files, flags and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gaussian => "gaussian",
            Self::Poisson => "poisson",
            Self::FixedSize => "fixed-size",
            Self::Correlated(design) => design.name,
            Self::Skellam => "skellam",
            Self::DistributedSkellam => "distributed-skellam",
            Self::Zcdp => "zcdp",
            Self::NonPrivate => "non-private",
        }
    }

    /// The correlated noise, if it is.
    pub(super) const fn design(self) -> Option<&'static Design> {
        match self {
            Self::Correlated(design) => Some(design),
            _ => None,
        }
    }

    /// The adjacencies that may be assumed when none is named. Replace-one is only assumed where nothing else is
    /// possible, for it changes what the noise multiplier is relative to.
    pub(super) const fn assumable(self) -> &'static [Adjacency] {
        match self {
            Self::FixedSize => &[Adjacency::ReplaceOne],
            Self::Correlated(_) => &[Adjacency::ZeroOut],
            _ => &[Adjacency::AddOrRemove, Adjacency::ZeroOut],
        }
    }
}

impl<'de> Deserialize<'de> for Mechanism {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let said = String::deserialize(deserializer)?;
        Self::all().find(|mechanism| mechanism.name() == said).ok_or_else(|| {
            let names: Vec<String> = Self::all().map(|mechanism| format!("`{}`", mechanism.name())).collect();
            D::Error::custom(format!("unknown variant `{said}`, expected one of {}", names.join(", ")))
        })
    }
}
