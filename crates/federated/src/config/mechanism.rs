//! Which noise, by name: none, independent, or correlated by one of the [`privacy::design`]s.

use privacy::design::{DESIGNS, Design, SizeOf, TREE};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Privacy;

/// Which noise.
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

/// What settings can say; a design that is registered is one of them.
const NAMES: [&str; 2 + DESIGNS.len()] = {
    let mut names = [GAUSSIAN; 2 + DESIGNS.len()];
    let mut design = 0;
    while design < DESIGNS.len() {
        names[1 + design] = DESIGNS[design].name;
        design += 1;
    }
    names[1 + DESIGNS.len()] = NONE;
    names
};

impl MechanismKind {
    /// DP-FTRL's tree, with which others are compared.
    pub const TREE: Self = Self::Correlated(TREE);

    /// All that add noise.
    pub fn noises() -> impl Iterator<Item = Self> {
        [Self::Gaussian].into_iter().chain(DESIGNS.into_iter().map(Self::Correlated))
    }

    /// The one that settings call so.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            NONE => Some(Self::None),
            GAUSSIAN => Some(Self::Gaussian),
            other => Design::named(other).map(Self::Correlated),
        }
    }

    /// In settings and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => NONE,
            Self::Gaussian => GAUSSIAN,
            Self::Correlated(design) => design.name,
        }
    }

    /// In a sentence.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::None => "no noise",
            Self::Gaussian => "independent noise",
            Self::Correlated(design) => design.short,
        }
    }

    /// In a line of help: who takes part, and which noise.
    #[must_use]
    pub fn about(self) -> String {
        match self {
            Self::None => "No noise: the baseline, at an infinite epsilon".to_owned(),
            Self::Gaussian => "Users drawn at random, independent noise (McMahan et al. 2018)".to_owned(),
            Self::Correlated(design) => format!("Users as they come, {}", design.about),
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

impl Privacy {
    /// What was said of the size of the matrix.
    #[must_use]
    pub const fn size(&self, of: SizeOf) -> Option<usize> {
        match of {
            SizeOf::Bands => self.bands,
            SizeOf::Buffers => self.buffers,
        }
    }

    /// Says how large the matrix is.
    pub const fn set_size(&mut self, of: SizeOf, size: Option<usize>) {
        match of {
            SizeOf::Bands => self.bands = size,
            SizeOf::Buffers => self.buffers = size,
        }
    }
}

impl Serialize for MechanismKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for MechanismKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::named(&name).ok_or_else(|| de::Error::unknown_variant(&name, &NAMES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_it_is_written() {
        for name in NAMES {
            let kind: MechanismKind = serde_json::from_str(&format!("{name:?}")).unwrap();
            assert_eq!(kind.name(), name);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{name:?}"));
            assert!(!kind.short().is_empty() && !kind.about().is_empty());
        }
        let error = serde_json::from_str::<MechanismKind>("\"forest\"").unwrap_err().to_string();
        assert!(error.contains("forest") && NAMES.iter().all(|name| error.contains(name)), "{error}");
        assert_eq!(MechanismKind::noises().count() + 1, NAMES.len());
    }
}
