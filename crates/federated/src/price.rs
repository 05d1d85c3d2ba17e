//! An epsilon together with its meaning, so that no file states one that does not hold (rule P23).
//!
//! | name in files       | what it is                                                                          |
//! |---------------------|-------------------------------------------------------------------------------------|
//! | `epsilon`           | what is guaranteed: the statement's, or the budget of a filter                      |
//! | `epsilon_so_far`    | what the releases so far cost: the guarantee of a plan that ends there, of no other |
//! | `epsilon_if_secret` | what the same would cost with secret noise: the noise was simulated, and nothing is guaranteed |
//!
//! A rho stands beside it under the same ending.

use ledger::statement::rounded_up;
use privacy::{Epsilon, Rho};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The meaning of an epsilon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The epsilon is guaranteed.
    Guaranteed,
    /// It is what the releases so far cost; a decision to stop there that depends on released values costs the whole plan.
    SoFar,
    /// It would hold if the noise were secret. It was simulated, and anyone who knows the seed can remove it.
    IfSecret,
}

/// An epsilon, its rho where it has one, and what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct Price {
    /// What the numbers mean.
    pub meaning: Meaning,
    /// Epsilon, at the delta of the plan.
    pub epsilon: Epsilon,
    /// The zCDP parameter, where there is one.
    pub rho: Option<Rho>,
}

impl Price {
    /// The note that belongs to the number; empty if it is guaranteed.
    #[must_use]
    pub const fn note(&self) -> &'static str {
        match self.meaning {
            Meaning::Guaranteed => "",
            Meaning::SoFar => "so far",
            Meaning::IfSecret => "if the noise were secret",
        }
    }

    /// The number with what it means, never flattering, and plain where there is no privacy.
    #[must_use]
    pub fn words(&self) -> String {
        match (self.epsilon.is_finite(), self.meaning) {
            (false, _) => "no privacy: infinite".into(),
            (true, Meaning::Guaranteed) => rounded_up(self.epsilon.get()),
            (true, _) => format!("{} {}", rounded_up(self.epsilon.get()), self.note()),
        }
    }
}

/// More than one price, or none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "expected exactly one of epsilon, epsilon_so_far and epsilon_if_secret, got {got}; a rho needs an epsilon of the same kind"
)]
pub struct PriceError {
    got: usize,
}

/// A price as files name it.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Fields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epsilon: Option<Epsilon>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rho: Option<Rho>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epsilon_so_far: Option<Epsilon>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rho_so_far: Option<Rho>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epsilon_if_secret: Option<Epsilon>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rho_if_secret: Option<Rho>,
}

impl From<Price> for Fields {
    fn from(Price { meaning, epsilon, rho }: Price) -> Self {
        let epsilon = Some(epsilon);
        match meaning {
            Meaning::Guaranteed => Self { epsilon, rho, ..Self::default() },
            Meaning::SoFar => Self { epsilon_so_far: epsilon, rho_so_far: rho, ..Self::default() },
            Meaning::IfSecret => Self { epsilon_if_secret: epsilon, rho_if_secret: rho, ..Self::default() },
        }
    }
}

impl TryFrom<Fields> for Price {
    type Error = PriceError;
    fn try_from(fields: Fields) -> Result<Self, PriceError> {
        let all = [
            (Meaning::Guaranteed, fields.epsilon, fields.rho),
            (Meaning::SoFar, fields.epsilon_so_far, fields.rho_so_far),
            (Meaning::IfSecret, fields.epsilon_if_secret, fields.rho_if_secret),
        ];
        let got = all.iter().filter(|(_, epsilon, rho)| epsilon.is_some() || rho.is_some()).count();
        let prices =
            all.into_iter().filter_map(|(meaning, epsilon, rho)| Some(Self { meaning, epsilon: epsilon?, rho }));
        match prices.collect::<Vec<Self>>()[..] {
            [one] if got == 1 => Ok(one),
            _ => Err(PriceError { got }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p23_the_name_says_what_an_epsilon_means() {
        let price = |meaning| Price { meaning, epsilon: Epsilon::new(0.5).unwrap(), rho: Rho::new(0.25).ok() };
        for (meaning, text) in [
            (Meaning::Guaranteed, r#"{"epsilon":0.5,"rho":0.25}"#),
            (Meaning::SoFar, r#"{"epsilon_so_far":0.5,"rho_so_far":0.25}"#),
            (Meaning::IfSecret, r#"{"epsilon_if_secret":0.5,"rho_if_secret":0.25}"#),
        ] {
            assert_eq!(serde_json::to_string(&price(meaning)).unwrap(), text);
            assert_eq!(serde_json::from_str::<Price>(text).unwrap(), price(meaning));
        }
        for evil in ["{}", r#"{"rho":1}"#, r#"{"epsilon":1,"epsilon_if_secret":1}"#, r#"{"epsilon":1,"rho_so_far":1}"#]
        {
            assert!(serde_json::from_str::<Price>(evil).is_err(), "{evil}");
        }
    }

    #[test]
    fn p23_people_read_what_it_means_too() {
        let price = |meaning, epsilon| Price { meaning, epsilon, rho: None };
        let half = Epsilon::new(0.5).unwrap();
        assert_eq!(price(Meaning::Guaranteed, half).words(), "0.50000");
        assert_eq!(price(Meaning::SoFar, half).words(), "0.50000 so far");
        assert_eq!(price(Meaning::IfSecret, half).words(), "0.50000 if the noise were secret");
        assert_eq!(price(Meaning::IfSecret, Epsilon::INFINITE).words(), "no privacy: infinite");
    }
}
