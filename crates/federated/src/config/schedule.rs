//! `[schedule]`: changes during a run, and the large run that a small one stands in for.

use super::keys::{Section, Visit, key};

/// A change from some round on. What is not set stays as it was.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    /// The first round, from 0.
    pub from: u64,
    /// S: the bound on an update.
    pub clip_norm: Option<f64>,
    /// z: the standard deviation over the sensitivity.
    pub noise_multiplier: Option<f64>,
    /// Users per round.
    pub cohort: Option<u64>,
    /// The users' learning rate.
    pub local_learning_rate: Option<f32>,
    /// E: how often users read their text.
    pub local_epochs: Option<u32>,
    /// The server's learning rate.
    pub server_learning_rate: Option<f32>,
}

/// The large run that a small one stands in for (McMahan et al. 2018, section 3; rule P16).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandsFor {
    /// Its population.
    pub population: u64,
    /// Its users per round.
    pub cohort: u64,
}

impl Section for Change {
    fn unsaid() -> Self {
        Self::default()
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.need(&key("from", "75", "first round of the change, counted from 0"), &mut self.from);
        visit.may(&key("clip_norm", "0.5", "S; the noise scales with it, at the same z"), &mut self.clip_norm);
        let z = key("noise_multiplier", "2.0", "z; not with correlated noise");
        visit.may(&z, &mut self.noise_multiplier);
        visit.may(&key("cohort", "1000", "users per round; only with sampling, or without noise"), &mut self.cohort);
        visit.may(&key("local_learning_rate", "0.5", "learning rate of the users"), &mut self.local_learning_rate);
        visit.may(
            &key("local_epochs", "1", "E: how often users read their text; only with \"fedavg\""),
            &mut self.local_epochs,
        );
        visit.may(&key("server_learning_rate", "0.5", "learning rate of the server"), &mut self.server_learning_rate);
    }
}

impl Section for StandsFor {
    fn unsaid() -> Self {
        Self { population: 0, cohort: 0 }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.need(&key("population", "100_000_000", "population of the large run"), &mut self.population);
        visit.need(&key("cohort", "5000", "its users per round"), &mut self.cohort);
    }
}
