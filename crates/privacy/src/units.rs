//! The quantities of a guarantee, as types that cannot hold an illegal value.
//!
//! Every unit has a private field and one fallible constructor; deserialisation goes through that constructor, so a
//! bad value is refused where it enters and nobody re-checks one. The error carries what was refused. Arithmetic
//! exists only where it means something: a [`MinSeparation`] is made by rounds or by distance, and an epsilon cannot
//! be multiplied by a delta.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// A value that its unit does not admit.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum UnitError {
    /// The value lies outside the unit's range.
    #[error("{unit} must be {range}, got {got}")]
    OutOfRange {
        /// The unit, as its field is called in files and flags.
        unit: &'static str,
        /// The legal range in words.
        range: &'static str,
        /// The refused value.
        got: f64,
    },
    /// A count that must be at least one.
    #[error("{unit} must be at least 1, got {got}")]
    Zero {
        /// The unit, as its field is called in files and flags.
        unit: &'static str,
        /// The refused value.
        got: u64,
    },
}

impl UnitError {
    /// The problem without the unit's name, for callers who name the field themselves.
    #[must_use]
    pub fn problem(&self) -> String {
        match self {
            Self::OutOfRange { range, got, .. } => format!("must be {range}, got {got}"),
            Self::Zero { got, .. } => format!("must be at least 1, got {got}"),
        }
    }
}

/// Defines a unit over `f64`: constructor, accessor, `Display`, and serde through the constructor.
macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $field:literal, $range:literal, |$v:ident| $legal:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            #[doc = concat!("Admits a value that is ", $range, ".")]
            ///
            /// # Errors
            /// [`UnitError::OutOfRange`] with the value that was refused.
            pub fn new($v: f64) -> Result<Self, UnitError> {
                if $legal {
                    Ok(Self($v))
                } else {
                    Err(UnitError::OutOfRange { unit: $field, range: $range, got: $v })
                }
            }

            /// The value.
            #[must_use]
            pub const fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = UnitError;
            fn try_from(v: f64) -> Result<Self, UnitError> {
                Self::new(v)
            }
        }

        impl From<$name> for f64 {
            fn from(unit: $name) -> f64 {
                unit.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

unit! {
    /// The failure probability of an (epsilon, delta) guarantee.
    Delta, "delta", "above 0 and below 1", |v| v > 0.0 && v < 1.0
}
unit! {
    /// The parameter of zero-concentrated differential privacy (Bun and Steinke 2016).
    Rho, "rho", "finite and 0 or more", |v| v.is_finite() && v >= 0.0
}
unit! {
    /// Standard deviation of the noise divided by the L2 sensitivity of what is released, under the event's
    /// adjacency (rule P1). No accountant ever sees a clip norm.
    NoiseMultiplier, "noise_multiplier", "finite and above 0", |v| v.is_finite() && v > 0.0
}
unit! {
    /// An L2 bound on one user's update.
    ClipNorm, "clip_norm", "finite and above 0", |v| v.is_finite() && v > 0.0
}
unit! {
    /// How far one user can move what is released, in L2 norm.
    Sensitivity, "sensitivity", "finite and above 0", |v| v.is_finite() && v > 0.0
}
unit! {
    /// The probability with which each user takes part in a round.
    SamplingRate, "sampling_rate", "above 0 and at most 1", |v| v > 0.0 && v <= 1.0
}

/// The privacy loss bound of an (epsilon, delta) guarantee: not negative, possibly infinite.
///
/// Infinity is a legal answer (that of a release without noise) and is written as the string `"infinity"`, because
/// JSON has no such number.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Epsilon(f64);

impl Epsilon {
    /// The price of a release without privacy.
    pub const INFINITE: Self = Self(f64::INFINITY);
    /// The price of nothing.
    pub const ZERO: Self = Self(0.0);

    /// Admits a value that is not negative; infinity is legal, NaN is not.
    ///
    /// # Errors
    /// [`UnitError::OutOfRange`] with the value that was refused.
    pub fn new(v: f64) -> Result<Self, UnitError> {
        if v >= 0.0 { Ok(Self(v)) } else { Err(UnitError::OutOfRange { unit: "epsilon", range: "0 or more", got: v }) }
    }

    /// An accountant's result: below zero means zero, and a number that could not be computed means infinity.
    pub(crate) fn from_bound(v: f64) -> Self {
        if v.is_nan() { Self::INFINITE } else { Self(v.max(0.0)) }
    }

    /// The value.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Whether this states any guarantee at all.
    #[must_use]
    pub fn is_finite(self) -> bool {
        self.0.is_finite()
    }
}

impl fmt::Display for Epsilon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_finite() { fmt::Display::fmt(&self.0, f) } else { f.write_str("infinity") }
    }
}

impl Serialize for Epsilon {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.is_finite() { s.serialize_f64(self.0) } else { s.serialize_str("infinity") }
    }
}

impl<'de> Deserialize<'de> for Epsilon {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Word(String),
        }
        match Written::deserialize(d)? {
            Written::Number(v) => Self::new(v).map_err(serde::de::Error::custom),
            Written::Word(w) if w == "infinity" => Ok(Self::INFINITE),
            Written::Word(w) => {
                Err(serde::de::Error::custom(format!("epsilon must be a number or \"infinity\", got {w:?}")))
            }
        }
    }
}

/// How a [`MinSeparation`] is written in files: always with its meaning beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SeparationForm {
    RoundsBetween(u64),
    Distance(u64),
}

/// The minimum separation between two participations of one user (rule P6).
///
/// Two meanings circulate: Xu et al. 2023 and TensorFlow Privacy count the rounds strictly *between* two
/// participations; the matrix-factorisation literature and jax_privacy count the *distance* of their indices, which
/// is one more. There is a constructor for each and no conversion from a bare integer. Separation counts released
/// steps of the mechanism, not attempts or hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "SeparationForm", into = "SeparationForm")]
pub struct MinSeparation {
    distance: u64,
}

impl MinSeparation {
    /// At least `min_s` rounds strictly between two participations, as Xu et al. mean MinS; 0 is no limit.
    ///
    /// # Errors
    /// When `min_s + 1` does not fit.
    pub fn rounds_between(min_s: u64) -> Result<Self, UnitError> {
        let distance = min_s.checked_add(1).ok_or(UnitError::OutOfRange {
            unit: "min_separation",
            range: "below 2^64 - 1",
            got: min_s as f64,
        })?;
        Ok(Self { distance })
    }

    /// Indices of two participations at least `b` apart, as the matrix-factorisation papers mean it; 1 is no limit.
    ///
    /// # Errors
    /// When `b` is 0.
    pub fn distance(b: u64) -> Result<Self, UnitError> {
        if b >= 1 { Ok(Self { distance: b }) } else { Err(UnitError::Zero { unit: "distance", got: b }) }
    }

    /// The smallest difference of the indices of two participations.
    #[must_use]
    pub const fn as_distance(self) -> u64 {
        self.distance
    }

    /// The smallest number of rounds strictly between two participations.
    #[must_use]
    pub const fn as_rounds_between(self) -> u64 {
        self.distance - 1
    }
}

impl TryFrom<SeparationForm> for MinSeparation {
    type Error = UnitError;
    fn try_from(w: SeparationForm) -> Result<Self, UnitError> {
        match w {
            SeparationForm::RoundsBetween(s) => Self::rounds_between(s),
            SeparationForm::Distance(b) => Self::distance(b),
        }
    }
}

impl From<MinSeparation> for SeparationForm {
    fn from(m: MinSeparation) -> Self {
        Self::RoundsBetween(m.as_rounds_between())
    }
}
