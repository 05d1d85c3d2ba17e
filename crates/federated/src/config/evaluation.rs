//! `[evaluation]` and `[checkpoint]`: when the model is evaluated and saved.

use super::keys::{Head, Section, Visit, head, key};

/// When accuracy is measured, and on how many held-out users.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Rounds between evaluations; there is one before the first round and one after the last.
    pub every: u64,
    /// Held-out users, at most.
    pub users: u64,
    /// Tokens that are predicted at most, all users together.
    pub most_tokens: usize,
    /// The run stops when it reaches this top-1 accuracy; the budget must then be a filter (rule P14).
    pub stop_at_accuracy: Option<f64>,
    /// Devices evaluate models too, on their own text, with their own noise and limits on participation.
    pub devices: Option<DeviceEvaluation>,
}

/// Evaluation by devices: additional releases, whose cost the run's ledger adds to that of training. Everything is declared.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceEvaluation {
    /// Rounds between evaluations by devices; there is one after the last round.
    pub every: u64,
    /// The report goal.
    pub cohort: u64,
    /// MinS: evaluations strictly between two by the same device.
    pub min_separation: u64,
    /// MaxP: the most evaluations by one device.
    pub max_participations: u64,
    /// z of each evaluation; absent with `privacy.mechanism = "none"`, required otherwise.
    pub noise_multiplier: Option<f64>,
    /// The most tokens of one device that are predicted (posts, for tags). It bounds what a device counts.
    pub most_tokens: u64,
}

/// When the state is saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Rounds between checkpoints. A crash loses no release: what the ledger has recorded is applied again.
    pub every: u64,
}

impl Default for Evaluation {
    fn default() -> Self {
        Self { every: 10, users: 200, most_tokens: 20_000, stop_at_accuracy: None, devices: None }
    }
}

const BY_DEVICES: Head =
    head("devices", "Devices evaluate models on their own text, with their own limits and noise (docs/TRAINING.md).");

impl Section for Evaluation {
    fn unsaid() -> Self {
        Self::default()
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let usual = Self::default();
        let every =
            key("every", "10", "rounds between evaluations; also one before the first round and one after the last");
        visit.or(&every, &mut self.every, usual.every);
        visit.or(&key("users", "200", "most held-out users"), &mut self.users, usual.users);
        let tokens = key("most_tokens", "20_000", "most tokens evaluated, over all held-out users");
        visit.or(&tokens, &mut self.most_tokens, usual.most_tokens);
        let stop = key("stop_at_accuracy", "0.2", "stop at this accuracy; needs privacy.max_epsilon, used as a filter");
        visit.may(&stop, &mut self.stop_at_accuracy);
        visit.maybe(&BY_DEVICES, Some(&mut self.devices), "");
    }
}

impl Section for DeviceEvaluation {
    fn unsaid() -> Self {
        Self { every: 0, cohort: 0, min_separation: 0, max_participations: 0, noise_multiplier: None, most_tokens: 0 }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.need(&key("every", "50", "in rounds; also after the last"), &mut self.every);
        visit.need(&key("cohort", "500", "the report goal: devices per evaluation"), &mut self.cohort);
        let between = key("min_separation", "0", "MinS: evaluations between two by the same device");
        visit.need(&between, &mut self.min_separation);
        let most = key("max_participations", "2", "MaxP: most evaluations by one device");
        visit.need(&most, &mut self.max_participations);
        let z = key("noise_multiplier", "4.0", "z of each evaluation; its cost is added to that of training");
        visit.may(&z, &mut self.noise_multiplier);
        let tokens = key("most_tokens", "200", "most tokens of one device that are predicted");
        visit.need(&tokens, &mut self.most_tokens);
    }
}

impl Section for Checkpoint {
    fn unsaid() -> Self {
        Self { every: 10 }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.or(&key("every", "10", "rounds between checkpoints"), &mut self.every, 10);
    }
}
