//! `[estimator]`: what the sum of a round is divided by.

use super::keys::{ByKind, Section, Usual, Visit, key};

/// What the sum is divided by (McMahan et al. 2018, section 2; rule P10).
#[derive(Debug, Clone, PartialEq)]
pub struct Estimator {
    /// The denominator.
    pub kind: EstimatorKind,
    /// w_hat: a user with this many tokens has weight 1, one with fewer a share of it; by default, everybody has weight 1.
    pub full_weight_tokens: Option<f64>,
}

/// The denominator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EstimatorKind {
    /// The expected weight of a round, q W; under DP-FTRL the report goal.
    Fixed {
        /// W: the declared total weight of all users; the population, if all weights are 1.
        total_weight: Option<f64>,
    },
    /// The weight of the round, at least q W_min.
    Clipped {
        /// W_min: the declared lower bound on the total weight; the population, if all weights are 1.
        least_total_weight: Option<f64>,
    },
    /// The actual weight of the round: the baseline, without privacy.
    Average,
}

const FIXED: &str = "fixed";
const CLIPPED: &str = "clipped";
const AVERAGE: &str = "average";

impl EstimatorKind {
    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed { .. } => FIXED,
            Self::Clipped { .. } => CLIPPED,
            Self::Average => AVERAGE,
        }
    }
}

impl Section for Estimator {
    fn unsaid() -> Self {
        Self { kind: EstimatorKind::Fixed { total_weight: None }, full_weight_tokens: None }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let kind = key("kind", "\"fixed\"", "divide by the expected, bounded or actual weight");
        visit.choose(&kind, self, Usual::Written(FIXED));
        let full = key("full_weight_tokens", "200.0", "w_hat: users with fewer tokens weigh less than 1");
        visit.may(&full, &mut self.full_weight_tokens);
        match &mut self.kind {
            EstimatorKind::Fixed { total_weight } => {
                visit.may(&key("total_weight", "800_000.0", "W: total weight of all users, declared"), total_weight);
            }
            EstimatorKind::Clipped { least_total_weight } => {
                let least = key("least_total_weight", "500_000.0", "W_min: lower bound on the total weight, declared");
                visit.may(&least, least_total_weight);
            }
            EstimatorKind::Average => {}
        }
    }
}

impl ByKind for Estimator {
    fn kinds() -> Vec<&'static str> {
        vec![FIXED, CLIPPED, AVERAGE]
    }

    fn kind_name(&self) -> &'static str {
        self.kind.name()
    }

    fn turn(&mut self, kind: &str) -> bool {
        self.kind = match kind {
            FIXED => EstimatorKind::Fixed { total_weight: None },
            CLIPPED => EstimatorKind::Clipped { least_total_weight: None },
            AVERAGE => EstimatorKind::Average,
            _ => return false,
        };
        true
    }
}
