//! Batches, epochs and learning rate: in which order the text is read.

use serde::{Deserialize, Serialize};

use crate::PretrainError;

/// The schedule of training, which must be the same when a run is resumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Times to read the text; 0 writes the model as training would begin with it.
    pub epochs: u32,
    /// Sequences in a batch.
    pub batch: usize,
    /// Tokens of a sequence in a batch.
    pub unroll: usize,
    /// Learning rate of plain SGD on the mean loss of a batch's tokens.
    pub learning_rate: f32,
    /// Epochs before the learning rate begins to fall.
    pub decay_after: u32,
    /// What the learning rate is multiplied with before each later epoch.
    pub decay: f32,
    /// Seed of the first parameters and of dropout.
    pub seed: u64,
    /// The longest gradient of a batch's mean loss; a longer one counts as one so long. None to follow all as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_gradients: Option<f32>,
}

impl Schedule {
    /// Refuses what cannot be walked.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), PretrainError> {
        let sizes = [("batch", self.batch, 1 << 16), ("unroll", self.unroll, 1 << 16)];
        if let Some((field, got, most)) = sizes.into_iter().find(|(_, got, most)| !(1..=*most).contains(got)) {
            return Err(PretrainError::wrong(field, format!("must be from 1 to {most}, got {got}")));
        }
        let clip = self.clip_gradients.map(|clip| ("clip_gradients", clip));
        for (field, rate) in [("learning_rate", self.learning_rate), ("decay", self.decay)].into_iter().chain(clip) {
            if !(rate.is_finite() && rate > 0.0) {
                return Err(PretrainError::wrong(field, format!("must be finite and above 0, got {rate}")));
            }
        }
        Ok(())
    }

    /// The learning rate of an epoch, counted from 1.
    #[must_use]
    pub fn rate(&self, epoch: u32) -> f32 {
        (self.decay_after..epoch).fold(self.learning_rate, |rate, _| rate * self.decay)
    }

    /// The differences from the schedule that a run started with, as flags; epochs may be added, and the clip norm changed.
    #[must_use]
    pub fn difference(&self, begun: &Self) -> Option<String> {
        let pairs = [
            ("batch", begun.batch.to_string(), self.batch.to_string()),
            ("unroll", begun.unroll.to_string(), self.unroll.to_string()),
            ("learning-rate", begun.learning_rate.to_string(), self.learning_rate.to_string()),
            ("decay-after", begun.decay_after.to_string(), self.decay_after.to_string()),
            ("decay", begun.decay.to_string(), self.decay.to_string()),
            ("seed", begun.seed.to_string(), self.seed.to_string()),
        ];
        let differing = pairs.into_iter().find(|(_, before, now)| before != now);
        differing.map(|(flag, before, now)| format!("the run was begun with --{flag} {before}, not {now}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> Schedule {
        Schedule {
            epochs: 6,
            batch: 20,
            unroll: 35,
            learning_rate: 2.0,
            decay_after: 3,
            decay: 0.5,
            seed: 1,
            clip_gradients: None,
        }
    }

    #[test]
    fn the_learning_rate_falls_when_it_should() {
        let rates: Vec<f32> = (1..=6).map(|epoch| schedule().rate(epoch)).collect();
        assert_eq!(rates, [2.0, 2.0, 2.0, 1.0, 0.5, 0.25]);
    }

    #[test]
    fn only_epochs_may_differ() {
        assert_eq!(Schedule { epochs: 9, ..schedule() }.difference(&schedule()), None);
        let other = Schedule { decay: 0.25, ..schedule() }.difference(&schedule());
        assert_eq!(other.as_deref(), Some("the run was begun with --decay 0.5, not 0.25"));
    }
}
