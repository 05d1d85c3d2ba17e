//! What changes in the midst of a run, and the large run that a small one stands for.

use super::keys::{Section, Visit, key};

/// From a round on, some things are otherwise; what is not said stays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    /// The first round, from 0.
    pub from: u64,
    /// S: the bound on an update.
    pub clip_norm: Option<f64>,
    /// z: the standard deviation over the sensitivity.
    pub noise_multiplier: Option<f64>,
    /// Users of a round.
    pub cohort: Option<u64>,
    /// The users' step.
    pub local_learning_rate: Option<f32>,
    /// E: how often users read their text.
    pub local_epochs: Option<u32>,
    /// The server's step.
    pub server_learning_rate: Option<f32>,
}

/// The large cohort for which a small one stands (McMahan et al. 2018, section 3; rule P16).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandsFor {
    /// Its population.
    pub population: u64,
    /// Its users of a round.
    pub cohort: u64,
}

impl Section for Change {
    fn unsaid() -> Self {
        Self::default()
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.need(&key("from", "75", "the first round, from 0"), &mut self.from);
        visit.may(&key("clip_norm", "0.5", "S; the noise follows it, at the same z"), &mut self.clip_norm);
        let z = key("noise_multiplier", "2.0", "z; not with correlated noise");
        visit.may(&z, &mut self.noise_multiplier);
        visit.may(&key("cohort", "1000", "users of a round; with sampling, or without noise"), &mut self.cohort);
        visit.may(&key("local_learning_rate", "0.5", "the users' step"), &mut self.local_learning_rate);
        visit.may(
            &key("local_epochs", "1", "E: how often users read their text; of \"fedavg\""),
            &mut self.local_epochs,
        );
        visit.may(&key("server_learning_rate", "0.5", "the server's step"), &mut self.server_learning_rate);
    }
}

impl Section for StandsFor {
    fn unsaid() -> Self {
        Self { population: 0, cohort: 0 }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.need(&key("population", "100_000_000", "its population"), &mut self.population);
        visit.need(&key("cohort", "5000", "its users of a round"), &mut self.cohort);
    }
}
