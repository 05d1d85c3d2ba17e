//! `[local]`: how users train in a round.

use super::keys::{ByKind, Section, Usual, Visit, key};

/// Local training (McMahan et al. 2018, Algorithm 1).
#[derive(Debug, Clone, PartialEq)]
pub struct Local {
    /// FedAvg or FedSGD.
    pub algorithm: LocalAlgorithm,
    /// B: sequences per batch (posts, for tags).
    pub batch: usize,
    /// Tokens per sequence, for language models. Which model is trained may only be known from its folder, so the learner requires or
    /// refuses it.
    pub unroll: Option<usize>,
    /// eta: the learning rate.
    pub learning_rate: f32,
    /// The most tokens that are read per user; all by default.
    pub most_tokens: Option<usize>,
}

/// The local algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LocalAlgorithm {
    /// A step for every batch.
    Fedavg {
        /// E: passes over the text; 1 by default.
        epochs: Option<u32>,
        /// The weight of the squared norm of the update in the loss.
        update_penalty: f32,
    },
    /// One step, along the gradient of one batch.
    FedsgdBatch,
    /// One step, along the gradient of all text.
    FedsgdAll,
}

const FEDAVG: &str = "fedavg";
const FEDSGD_BATCH: &str = "fedsgd-batch";
const FEDSGD_ALL: &str = "fedsgd-all";

impl Section for Local {
    fn unsaid() -> Self {
        let algorithm = LocalAlgorithm::Fedavg { epochs: None, update_penalty: 0.0 };
        Self { algorithm, batch: 0, unroll: None, learning_rate: 0.0, most_tokens: None }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let algorithm =
            key("algorithm", "\"fedavg\"", "\"fedavg\": one step per batch; \"fedsgd\": one step per round");
        visit.choose(&algorithm, self, Usual::Written(FEDAVG));
        if let LocalAlgorithm::Fedavg { epochs, .. } = &mut self.algorithm {
            visit.may(&key("epochs", "1", "E: passes over a user's text"), epochs);
        }
        visit.need(&key("batch", "8", "B: sequences per batch"), &mut self.batch);
        visit.may(&key("unroll", "10", "tokens per sequence; language models only"), &mut self.unroll);
        visit.need(&key("learning_rate", "2.0", "eta: learning rate of the users"), &mut self.learning_rate);
        visit
            .may(&key("most_tokens", "400", "most tokens that are read per user; default: all"), &mut self.most_tokens);
        let penalty = key("update_penalty", "0.01", "weight of the squared norm of the update in the loss");
        match &mut self.algorithm {
            LocalAlgorithm::Fedavg { update_penalty, .. } => visit.or(&penalty, update_penalty, 0.0),
            LocalAlgorithm::FedsgdBatch | LocalAlgorithm::FedsgdAll => {
                visit.idle(
                    &penalty,
                    0.0_f32,
                    "algorithm = \"fedavg\": FedSGD takes one step, from a point where the penalty is zero",
                );
            }
        }
    }
}

impl ByKind for Local {
    fn kinds() -> Vec<&'static str> {
        vec![FEDAVG, FEDSGD_BATCH, FEDSGD_ALL]
    }

    fn kind_name(&self) -> &'static str {
        match self.algorithm {
            LocalAlgorithm::Fedavg { .. } => FEDAVG,
            LocalAlgorithm::FedsgdBatch => FEDSGD_BATCH,
            LocalAlgorithm::FedsgdAll => FEDSGD_ALL,
        }
    }

    fn turn(&mut self, kind: &str) -> bool {
        self.algorithm = match kind {
            FEDAVG => LocalAlgorithm::Fedavg { epochs: None, update_penalty: 0.0 },
            FEDSGD_BATCH => LocalAlgorithm::FedsgdBatch,
            FEDSGD_ALL => LocalAlgorithm::FedsgdAll,
            _ => return false,
        };
        true
    }
}
