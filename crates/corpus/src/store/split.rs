//! Splits users, never posts, into training and held-out ones, by a hash of their tag and a salt.
//!
//! Which part a user is in depends on nobody else, so it stays when others come and go.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::UserTag;

/// A part of the users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Those whose text a model learns from.
    Train,
    /// Those by whom choices are made.
    Validation,
    /// Those by whom the result is judged.
    Test,
}

/// The split of users. Shares are per thousand; the rest trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub struct Split(Raw);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    salt: u64,
    validation_per_mille: u32,
    test_per_mille: u32,
}

/// Shares that leave nobody to train on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{validation} of 1000 users for validation and {test} for testing leave none for training")]
pub struct SplitError {
    validation: u32,
    test: u32,
}

impl Split {
    /// A split with a salt; another salt gives another split.
    ///
    /// # Errors
    /// When the shares leave nobody to train on.
    pub fn new(salt: u64, validation_per_mille: u32, test_per_mille: u32) -> Result<Self, SplitError> {
        if u64::from(validation_per_mille) + u64::from(test_per_mille) >= 1000 {
            return Err(SplitError { validation: validation_per_mille, test: test_per_mille });
        }
        Ok(Self(Raw { salt, validation_per_mille, test_per_mille }))
    }

    /// The part that a user is in.
    #[must_use]
    pub fn part(&self, tag: UserTag) -> Part {
        let mixed = mix(mix(tag.0 as u64 ^ self.0.salt) ^ (tag.0 >> 64) as u64);
        let point = ((u128::from(mixed) * 1000) >> 64) as u32;
        if point < self.0.test_per_mille {
            Part::Test
        } else if point < self.0.test_per_mille + self.0.validation_per_mille {
            Part::Validation
        } else {
            Part::Train
        }
    }
}

impl TryFrom<Raw> for Split {
    type Error = SplitError;

    fn try_from(raw: Raw) -> Result<Self, SplitError> {
        Self::new(raw.salt, raw.validation_per_mille, raw.test_per_mille)
    }
}

impl From<Split> for Raw {
    fn from(split: Split) -> Self {
        split.0
    }
}

/// The finaliser of SplitMix64.
const fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_as_asked_and_salts_differ() {
        let tags: Vec<UserTag> = (0..20_000).map(|i| UserTag::of(&format!("user {i}"))).collect();
        let split = Split::new(1, 50, 100).unwrap();
        let count = |split: Split, part| tags.iter().filter(|tag| split.part(**tag) == part).count();
        assert!((1800..2200).contains(&count(split, Part::Test)));
        assert!((850..1150).contains(&count(split, Part::Validation)));
        let other = Split::new(2, 50, 100).unwrap();
        assert!(tags.iter().any(|tag| split.part(*tag) != other.part(*tag)));
    }

    /// Written down once: a user who changed parts between versions would be trained on and tested with.
    #[test]
    fn users_stay_where_they_are() {
        let split = Split::new(7, 200, 300).unwrap();
        let part = |i: u32| match split.part(UserTag::of(&format!("user {i}"))) {
            Part::Train => 'a',
            Part::Validation => 'v',
            Part::Test => 't',
        };
        assert_eq!((0..20).map(part).collect::<String>(), "taavavavtvtttaaaaava");
    }

    #[test]
    fn a_split_that_leaves_nobody_is_refused_from_json_too() {
        assert!(Split::new(0, 500, 500).is_err());
        let json = r#"{"salt":1,"validation_per_mille":600,"test_per_mille":400}"#;
        assert!(serde_json::from_str::<Split>(json).is_err());
        let split = Split::new(1, 50, 100).unwrap();
        assert_eq!(serde_json::from_str::<Split>(&serde_json::to_string(&split).unwrap()).unwrap(), split);
    }
}
