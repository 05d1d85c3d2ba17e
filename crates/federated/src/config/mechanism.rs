//! Noise mechanisms by name: none, independent, or correlated by one of the [`privacy::design`]s.

use privacy::design::{DESIGNS, Design, TREE};
use serde::{Serialize, Serializer};

/// The noise mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MechanismKind {
    /// None: the baseline, at an infinite epsilon.
    None,
    /// Independent in every round.
    Gaussian,
    /// Correlated over rounds (DP-FTRL).
    Correlated(&'static Design),
}

const NONE: &str = "none";
const GAUSSIAN: &str = "gaussian";

impl MechanismKind {
    /// DP-FTRL's tree, with which others are compared.
    pub const TREE: Self = Self::Correlated(TREE);

    /// All of them, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::noises().chain([Self::None])
    }

    /// All that add noise.
    pub fn noises() -> impl Iterator<Item = Self> {
        [Self::Gaussian].into_iter().chain(DESIGNS.into_iter().map(Self::Correlated))
    }

    /// By its name in settings.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            NONE => Some(Self::None),
            GAUSSIAN => Some(Self::Gaussian),
            other => Design::named(other).map(Self::Correlated),
        }
    }

    /// Its name in settings and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => NONE,
            Self::Gaussian => GAUSSIAN,
            Self::Correlated(design) => design.name,
        }
    }

    /// Its name in a sentence.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::None => "no noise",
            Self::Gaussian => "independent noise",
            Self::Correlated(design) => design.short,
        }
    }

    /// One line of help: who takes part, and which noise.
    #[must_use]
    pub fn about(self) -> String {
        match self {
            Self::None => "No noise: the baseline, at an infinite epsilon".to_owned(),
            Self::Gaussian => "Users sampled at random, independent noise (McMahan et al. 2018)".to_owned(),
            Self::Correlated(design) => format!("Users as they become available, {}", design.about),
        }
    }

    /// How its noise is correlated, if it is.
    #[must_use]
    pub const fn design(self) -> Option<&'static Design> {
        match self {
            Self::None | Self::Gaussian => None,
            Self::Correlated(design) => Some(design),
        }
    }
}

impl Serialize for MechanismKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_that_of_one() {
        for kind in MechanismKind::all() {
            assert_eq!(MechanismKind::named(kind.name()), Some(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
            assert!(!kind.short().is_empty() && !kind.about().is_empty());
        }
        assert_eq!(MechanismKind::named("forest"), None);
        assert_eq!(MechanismKind::all().count(), DESIGNS.len() + 2);
    }
}
