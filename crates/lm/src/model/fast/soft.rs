//! Training towards soft labels: other models' predictions for a batch, with or without its targets (Popov et al. 2018).
//!
//! | the paper                               | here                                                                          |
//! |-----------------------------------------|-------------------------------------------------------------------------------|
//! | `y* = lambda 1{w_t} + (1 - lambda) p_g` | [`Trainer::add_probabilities`] of the teacher with the share `1 - lambda`, then [`Trainer::step_towards`] with `truth = lambda` (equations 1 and 2) |
//! | `y* = 1/N sum_k p(w \| theta_k)`        | the same of N teachers, each with the share `1/N`, and `truth = 0` (equation 4)  |

use super::{Trainer, output::Towards};
use crate::model::batch::Batch;

/// Shares of all entries of the vocabulary for each token of a batch. All trainers of one model and one size of batches understand it.
#[derive(Debug, Clone, PartialEq)]
pub struct SoftLabels {
    /// `[entry][token]`.
    values: Vec<f32>,
    /// How far two entries are apart.
    row: usize,
}

impl SoftLabels {
    /// Nothing is said of any token.
    pub fn clear(&mut self) {
        self.values.fill(0.0);
    }
}

impl Trainer {
    /// Room for the soft labels of a batch.
    #[must_use]
    pub fn soft_labels(&self) -> SoftLabels {
        let row = self.output.row();
        SoftLabels { values: vec![0.0; self.config.vocabulary * row], row }
    }

    /// Reads a batch and adds a share of what the model predicts; nothing is learned.
    ///
    /// # Panics
    /// As [`Self::step`], or when the labels are for another model or size of batches.
    pub fn add_probabilities(&mut self, batch: &Batch<'_>, share: f32, to: &mut SoftLabels) {
        self.check_labels(to);
        self.loss(batch);
        self.output.add_probabilities(batch.inputs.len(), share, &mut to.values);
    }

    /// One step of SGD on a batch towards its targets, with the share `truth`, and soft labels, which have the rest. Returns the summed
    /// cross-entropy.
    ///
    /// # Panics
    /// As [`Self::step`], or when the labels are for another model or size of batches.
    pub fn step_towards(&mut self, batch: &Batch<'_>, learning_rate: f32, truth: f32, labels: &SoftLabels) -> f32 {
        self.check_labels(labels);
        self.learn(batch, learning_rate, None, Some(Towards { truth, labels: &labels.values }))
    }

    fn check_labels(&self, labels: &SoftLabels) {
        let (row, values) = (self.output.row(), self.config.vocabulary * self.output.row());
        assert!((labels.row, labels.values.len()) == (row, values), "the soft labels are for another model");
    }
}
