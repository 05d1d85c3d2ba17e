//! The reference model as a [`LanguageModel`]: slow, and what faster ones are checked against.

use thiserror::Error;

use super::LanguageModel;
use crate::{
    model::{
        config::{ConfigError, ModelConfig},
        parameters::ParameterLayout,
        reference::{Batch, Reference, State},
    },
    vocabulary::BOS,
};

/// A reference model that reads sequences. A user's context, where the model takes one, is zero.
#[derive(Debug, Clone)]
pub struct ReferenceModel {
    config: ModelConfig,
    model: Reference<f32>,
}

/// Parameters that are not the model's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReferenceModelError {
    /// No such model can be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another number of parameters.
    #[error("the model has {want} parameters, got {got}")]
    Length {
        /// What the configuration asks for.
        want: usize,
        /// What was given.
        got: usize,
    },
}

impl ReferenceModel {
    /// A model with these parameters, as [`ParameterLayout`] orders them.
    ///
    /// # Errors
    /// When the configuration cannot be built or has another number of parameters.
    pub fn new(config: ModelConfig, values: Vec<f32>) -> Result<Self, ReferenceModelError> {
        let layout = ParameterLayout::new(&config)?;
        if layout.len() != values.len() {
            return Err(ReferenceModelError::Length { want: layout.len(), got: values.len() });
        }
        Ok(Self { model: Reference::new(config.clone(), layout, values), config })
    }
}

impl LanguageModel for ReferenceModel {
    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
        let rows = sequences.len();
        let context = vec![0.0; self.config.user_context.unwrap_or(0)];
        let targets = vec![Batch::NONE; rows];
        let mut state = State::zero(&self.config, rows);
        let longest = sequences.iter().map(|s| s.len()).max().unwrap_or(0);
        for t in 0..longest {
            let inputs: Vec<u32> = sequences.iter().map(|s| s.get(t).copied().unwrap_or(BOS)).collect();
            let batch = Batch { rows, inputs: &inputs, targets: &targets, context: &context };
            let mut step = self.model.probabilities(&batch, &mut state);
            for (row, values) in step.chunks_exact_mut(self.config.vocabulary).enumerate() {
                if t < sequences[row].len() {
                    values.iter_mut().for_each(|p| *p = libm::logf(*p));
                    visit(row, t, values);
                }
            }
        }
    }
}
