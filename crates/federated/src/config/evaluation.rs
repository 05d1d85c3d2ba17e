//! When the model is measured and kept.

use super::keys::{Head, Section, Visit, head, key};

/// When accuracy is measured, and on how many held-out users.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Rounds between evaluations; there is one before the first round and one after the last.
    pub every: u64,
    /// Held-out users, at most.
    pub users: u64,
    /// Tokens of all of them that are predicted, at most.
    pub most_tokens: usize,
    /// The run ends when this top-1 accuracy is reached; the budget must then be a filter (rule P14).
    pub stop_at_accuracy: Option<f64>,
    /// Devices measure models too, on their own text, with limits on participation and noise of their own.
    pub devices: Option<DeviceEvaluation>,
}

/// Evaluation by devices: releases of their own, paid for in the run's ledger beside those of training. All of it is declared.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceEvaluation {
    /// Rounds between evaluations by devices; there is one after the last round.
    pub every: u64,
    /// The report goal.
    pub cohort: u64,
    /// MinS: evaluations strictly between two of one device.
    pub min_separation: u64,
    /// MaxP: the most evaluations of one device.
    pub max_participations: u64,
    /// z of each evaluation; none with `privacy.mechanism = "none"`, and never missing otherwise.
    pub noise_multiplier: Option<f64>,
    /// Tokens of one device that are predicted at most; posts, where tags are learned. It bounds what a device counts.
    pub most_tokens: u64,
}

/// When the state is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Rounds between checkpoints. A crash loses no release: what the ledger has is applied again.
    pub every: u64,
}

impl Default for Evaluation {
    fn default() -> Self {
        Self { every: 10, users: 200, most_tokens: 20_000, stop_at_accuracy: None, devices: None }
    }
}

const BY_DEVICES: Head =
    head("devices", "Devices measure models on their own text, with limits and noise of their own (docs/TRAINING.md).");

impl Section for Evaluation {
    fn unsaid() -> Self {
        Self::default()
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let usual = Self::default();
        let every = key("every", "10", "rounds; also before the first and after the last");
        visit.or(&every, &mut self.every, usual.every);
        visit.or(&key("users", "200", "held-out users, at most"), &mut self.users, usual.users);
        let tokens = key("most_tokens", "20_000", "tokens of all of them, at most");
        visit.or(&tokens, &mut self.most_tokens, usual.most_tokens);
        let stop = key("stop_at_accuracy", "0.2", "end there; needs privacy.max_epsilon, as a filter");
        visit.may(&stop, &mut self.stop_at_accuracy);
        visit.maybe(&BY_DEVICES, Some(&mut self.devices), "");
    }
}

impl Section for DeviceEvaluation {
    fn unsaid() -> Self {
        Self { every: 0, cohort: 0, min_separation: 0, max_participations: 0, noise_multiplier: None, most_tokens: 0 }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.need(&key("every", "50", "rounds; also after the last"), &mut self.every);
        visit.need(&key("cohort", "500", "the report goal"), &mut self.cohort);
        let between = key("min_separation", "0", "MinS: evaluations between two of one device");
        visit.need(&between, &mut self.min_separation);
        let most = key("max_participations", "2", "MaxP: the most evaluations of one device");
        visit.need(&most, &mut self.max_participations);
        let z = key("noise_multiplier", "4.0", "z of each; its cost adds to that of training");
        visit.may(&z, &mut self.noise_multiplier);
        let tokens = key("most_tokens", "200", "tokens of one device that are predicted, at most");
        visit.need(&tokens, &mut self.most_tokens);
    }
}

impl Section for Checkpoint {
    fn unsaid() -> Self {
        Self { every: 10 }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.or(&key("every", "10", "rounds"), &mut self.every, 10);
    }
}
