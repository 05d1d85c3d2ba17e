//! Designs of correlated noise by name: the strategy matrix and its size.
//!
//! A [`Design`] is all that settings, `keyhush init`, the command line, proposals and the statement say of a mechanism, and how its
//! matrix is made. What the matrix costs and how its noise is drawn follow from the matrix alone ([`crate::sensitivity`],
//! [`crate::mechanism`]), so a new set of coefficients is a file here and a line in [`DESIGNS`].
//!
//! | module         | its matrix                                                  |
//! |----------------|-------------------------------------------------------------|
//! | `tree`         | a binary tree (DP-FTRL)                                     |
//! | `banded`       | the best Toeplitz matrix with so many bands                 |
//! | `blt`          | the best buffered linear Toeplitz matrix                    |
//! | `square_root`  | the square root of the prefix sums, cut to so many bands    |

mod banded;
mod blt;
mod square_root;
mod tree;

use std::fmt;

use crate::{
    event::NoiseMatrix,
    factorization::{Factorization, FactorizationError, Objective, Setting},
};

/// All of them, in the order in which they are shown.
pub const DESIGNS: [&Design; 4] = [&tree::TREE, &banded::BANDED, &blt::BLT, &square_root::SQUARE_ROOT];

/// The one with which others are compared.
pub const TREE: &Design = &tree::TREE;

/// Correlated noise of a kind.
pub struct Design {
    /// Its name in settings and flags.
    pub name: &'static str,
    /// In the statement of a guarantee.
    pub title: &'static str,
    /// A short name for sentences.
    pub short: &'static str,
    /// A description for help texts.
    pub about: &'static str,
    /// How large its matrix is, where somebody has to say.
    pub size: Option<Size>,
    /// Whether it can be completed with empty rounds before a restart.
    pub completes: bool,
    /// Whether it is tried where a target is given and no mechanism.
    pub proposed: bool,
    /// The matrix, where it is the same for all rounds and limits.
    pub fixed: Option<NoiseMatrix>,
    /// Makes the matrix of a size for some rounds and limits.
    make: fn(&Setting, usize, Objective) -> Result<Factorization, FactorizationError>,
}

/// The size of a matrix, as a setting.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Bands or buffers.
    pub of: SizeOf,
    /// What is taken by default; none where it must be said.
    pub default: Option<usize>,
    /// A usual number, as an example.
    pub usual: usize,
    /// Advice on how many to use.
    pub advice: &'static str,
    /// What is proposed where participations of a user are so far apart.
    pub proposed: fn(distance: u64) -> usize,
}

/// The quantity that gives a matrix its size; settings and flags have these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeOf {
    /// Coefficients of the first column.
    Bands,
    /// Buffers, each of which fades at its own rate.
    Buffers,
}

impl SizeOf {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Bands, Self::Buffers];

    /// Its name in settings and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bands => "bands",
            Self::Buffers => "buffers",
        }
    }
}

impl Design {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        DESIGNS.into_iter().find(|design| design.name == name)
    }

    /// The matrix for some rounds and limits. The size is not looked at where there is none.
    ///
    /// # Errors
    /// When there is no such matrix.
    pub fn matrix(
        &self,
        setting: &Setting,
        size: usize,
        objective: Objective,
    ) -> Result<Factorization, FactorizationError> {
        (self.make)(setting, size, objective)
    }
}

impl PartialEq for Design {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Design {}

impl fmt::Debug for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{participation::Participation, units::MinSeparation};

    fn setting(rounds: u64, distance: u64) -> Setting {
        let separation = MinSeparation::distance(distance).unwrap();
        Setting::new(rounds, Participation::MinSeparation { separation, max_participations: 5 }).unwrap()
    }

    #[test]
    fn names_are_distinct_and_all_that_is_said_is_there() {
        let names: BTreeSet<&str> = DESIGNS.iter().map(|design| design.name).collect();
        assert_eq!(names.len(), DESIGNS.len());
        for design in DESIGNS {
            assert_eq!(Design::named(design.name), Some(design));
            assert!([design.title, design.short, design.about].iter().all(|words| !words.is_empty()));
        }
        assert_eq!(Design::named("none"), None);
    }

    /// Each makes a matrix that the accountants take and that beats independent noise; what is proposed can be made.
    #[test]
    fn every_design_makes_a_matrix_for_any_limits() {
        for design in DESIGNS {
            for (rounds, distance) in [(1, 1), (64, 8), (100, 100), (200, 40)] {
                let setting = setting(rounds, distance);
                let size = design.size.map_or(0, |size| (size.proposed)(distance));
                let found = design.matrix(&setting, size, Objective::Mean).unwrap();
                assert!(found.errors.mean().is_finite(), "{design:?}");
                if rounds > 1 {
                    let independent = crate::factorization::independent(&setting).mean();
                    assert!(found.errors.mean() < independent, "{design:?}, {rounds} rounds, {distance} apart");
                }
                let completes = matches!(found.matrix, NoiseMatrix::Tree);
                assert_eq!(design.completes, completes, "{design:?}");
                assert!(design.fixed.as_ref().is_none_or(|matrix| *matrix == found.matrix), "{design:?}");
                // Rule P5: only then is the sensitivity exact; and the exact stream takes nothing else.
                if let NoiseMatrix::Banded { coefficients } = &found.matrix {
                    assert!(coefficients[0] == 1.0 && coefficients.is_sorted_by(|a, b| a >= b), "{design:?}");
                    assert!(coefficients.iter().all(|c| *c >= 0.0), "{design:?}");
                }
            }
            let none = design.matrix(&setting(10, 2), 0, Objective::Max);
            assert_eq!(none.is_err(), design.size.is_some(), "{design:?}: a matrix without a size");
        }
    }
}
