//! Inference with a trained model: on a test set, many sequences side by side, or on a keyboard's text, token by token.
//!
//! It keeps the flat vector of parameters and reads everything large where it lies, so that a keyboard has its model in
//! memory once, and nothing that only training needs. For a test set the layers are copied into the form that products
//! like. A user's context, where the model takes one, is zero unless it is given ([`Network::read_knowing`]).

mod layer;
mod output;
mod reader;

use std::ops::Range;

use thiserror::Error;

use self::{
    layer::{Layer, Scratch, State, Step, Weights},
    output::Output,
};
use crate::{
    kernels::KernelPath,
    language_model::{LanguageModel, Reader},
    model::{
        config::{ConfigError, ModelConfig},
        parameters::{ParameterLayout, Role},
    },
};

/// Sequences that are read side by side.
const ROWS: usize = 32;
/// Tokens whose predictions are computed at a time.
const TOKENS: usize = 64;

/// A model that predicts and does not learn.
#[derive(Debug, Clone)]
pub struct Network {
    config: ModelConfig,
    path: KernelPath,
    parameters: Vec<f32>,
    embedding: Range<usize>,
    output_embedding: Range<usize>,
    layers: Vec<Layer>,
    output: Output,
}

/// Why a model cannot predict here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NetworkError {
    /// What another learner made.
    #[error("this model was trained by the learner {learner:?} and does not predict words")]
    NoLanguageModel {
        /// The learner's name.
        learner: String,
    },
    /// The model cannot be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// This machine does not have the instructions.
    #[error("this machine does not support {}", path.name())]
    Path {
        /// The requested kernels.
        path: KernelPath,
    },
    /// Another number of parameters than the model has.
    #[error("expected {want} parameters, got {got}")]
    Length {
        /// What the configuration asks for.
        want: usize,
        /// The value given.
        got: usize,
    },
}

impl Network {
    /// A model with these parameters.
    ///
    /// # Errors
    /// When the model cannot be built, this machine does not have the path, or there are not as many parameters as the model
    /// has.
    pub fn new(config: &ModelConfig, parameters: Vec<f32>, path: KernelPath) -> Result<Self, NetworkError> {
        let layout = ParameterLayout::new(config)?;
        if !path.is_available() {
            return Err(NetworkError::Path { path });
        }
        if parameters.len() != layout.len() {
            return Err(NetworkError::Length { want: layout.len(), got: parameters.len() });
        }
        Ok(Self {
            path,
            embedding: layout.range(Role::Embedding),
            output_embedding: layout.output_embedding(),
            layers: (0..config.layers).map(|layer| Layer::new(config, layer, &layout)).collect(),
            output: Output::new(config, &layout, &parameters),
            parameters,
            config: config.clone(),
        })
    }

    /// The path that its kernels take.
    #[must_use]
    pub const fn path(&self) -> KernelPath {
        self.path
    }

    fn embedding(&self, id: u32) -> &[f32] {
        let size = self.config.embedding;
        &self.parameters[self.embedding.clone()][id as usize * size..][..size]
    }

    fn output_embedding(&self) -> &[f32] {
        &self.parameters[self.output_embedding.clone()]
    }

    /// Reads one more token of each of the first rows, each with its user's context; returns what the last layer shows, padded
    /// rows.
    fn step<'a>(
        &self,
        by: &[Step<'_>],
        inputs: &[u32],
        contexts: &[&[f32]],
        state: &'a mut [State],
        scratch: &mut Scratch,
    ) -> &'a [f32] {
        for (n, (layer, by)) in self.layers.iter().zip(by).enumerate() {
            let (below, own) = state.split_at_mut(n);
            match below.last() {
                None => scratch.enter(layer, inputs.iter().map(|id| self.embedding(*id)), contexts),
                Some(below) => scratch.enter(layer, below.shown_rows(inputs.len()), &[]),
            }
            layer.step(by, inputs.len(), &mut own[0], scratch);
        }
        state.last().map_or(&[], |top| top.shown(inputs.len()))
    }

    /// What each layer computes with.
    fn steps(&self, weights: impl Fn(&Layer) -> Weights) -> Vec<Step<'_>> {
        let step = |layer| Step { path: self.path, parameters: &self.parameters, weights: weights(layer) };
        self.layers.iter().map(step).collect()
    }

    fn states(&self, rows: usize) -> Vec<State> {
        self.layers.iter().map(|layer| State::zero(layer, rows)).collect()
    }
}

impl Network {
    /// As [`LanguageModel::read`], with the context of each sequence's user; without one, and where there are fewer, it is zero.
    /// The longest sequences come first, so that those that continue are always the first rows.
    pub fn read_knowing(&self, sequences: &[&[u32]], contexts: &[&[f32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        order.sort_by_key(|s| std::cmp::Reverse(sequences[*s].len()));
        let by = self.steps(|layer| Weights::Packed(layer.pack(&self.parameters)));
        let mut scratch = Scratch::new(&self.layers, ROWS);
        let mut lines = self.output.lines(TOKENS);
        for some in order.chunks(ROWS) {
            let mut state = self.states(some.len());
            let longest = sequences[some[0]].len();
            let known: Vec<&[f32]> = some.iter().map(|s| contexts.get(*s).copied().unwrap_or_default()).collect();
            for position in 0..longest {
                let going = some.iter().take_while(|s| sequences[**s].len() > position).count();
                let inputs: Vec<u32> = some[..going].iter().map(|s| sequences[*s][position]).collect();
                let shown = self.step(&by, &inputs, &known[..going], &mut state, &mut scratch);
                if lines.room() < going {
                    self.output.finish(self.path, self.output_embedding(), &mut lines, visit);
                }
                self.output.append(self.path, shown, some[..going].iter().map(|s| (*s, position)), &mut lines);
            }
        }
        self.output.finish(self.path, self.output_embedding(), &mut lines, visit);
    }
}

impl LanguageModel for Network {
    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
        self.read_knowing(sequences, &[], visit);
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(reader::NetworkReader::new(self))
    }
}
