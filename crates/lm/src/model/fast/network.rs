//! A trained model that predicts, many sequences side by side.

use super::{super::reference::Batch, Trainer, TrainerError};
use crate::{kernels::KernelPath, language_model::LanguageModel, model::config::ModelConfig, vocabulary::EOS};

/// Sequences that are read side by side.
const ROWS: usize = 16;
/// Tokens of each that are read at a time.
const STEPS: usize = 8;

/// A model that predicts and does not learn.
#[derive(Debug, Clone)]
pub struct Network {
    model: Trainer,
}

impl Network {
    /// A model with these parameters.
    ///
    /// # Errors
    /// When the model cannot be built or has no fast path here.
    ///
    /// # Panics
    /// When there are not as many parameters as the model has.
    pub fn new(config: &ModelConfig, parameters: &[f32], path: KernelPath) -> Result<Self, TrainerError> {
        let mut model = Trainer::new(config, ROWS, STEPS, path)?;
        model.load(parameters);
        Ok(Self { model })
    }

    /// Reads at most [`ROWS`] sequences to their ends.
    fn read_some(
        &self,
        first: usize,
        sequences: &[&[u32]],
        spare: &mut (Trainer, Vec<f32>),
        visit: &mut dyn FnMut(usize, usize, &[f32]),
    ) {
        let (model, log_probabilities) = spare;
        model.forget();
        let (rows, vocabulary) = (sequences.len(), self.model.config.vocabulary);
        let longest = sequences.iter().map(|s| s.len()).max().unwrap_or(0);
        let mut inputs = Vec::with_capacity(ROWS * STEPS);
        for start in (0..longest).step_by(STEPS) {
            inputs.clear();
            for position in start..(start + STEPS).min(longest) {
                inputs.extend(sequences.iter().map(|s| s.get(position).copied().unwrap_or(EOS)));
            }
            let batch = Batch { rows, inputs: &inputs, targets: &[], context: &[] };
            model.predict(&batch, log_probabilities);
            for (token, line) in log_probabilities.chunks_exact(vocabulary).take(inputs.len()).enumerate() {
                let (row, position) = (token % rows, start + token / rows);
                if position < sequences[row].len() {
                    visit(first + row, position, line);
                }
            }
        }
    }
}

impl LanguageModel for Network {
    fn vocabulary(&self) -> usize {
        self.model.config.vocabulary
    }

    fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
        let mut spare = (self.model.clone(), vec![0.0; ROWS * STEPS * self.vocabulary()]);
        for (n, some) in sequences.chunks(ROWS).enumerate() {
            self.read_some(n * ROWS, some, &mut spare, visit);
        }
    }
}
