//! The fast implementation of the models of [`super::reference`]: vector kernels, no allocation in the loop.
//!
//! [`Trainer`] holds a model in the layout that the kernels like (gates side by side, weights in panels, transposed copies
//! of what is read backwards) together with all the memory that a step needs. `load` takes the flat vector, `step` is one
//! step of SGD on a batch, `store` gives the vector back. One thread trains one user; the same path gives the same bits
//! every time. [`Network`] is a model that predicts and does not learn.
//!
//! What it does differently from the textbook: the softmax is never normalised over the vocabulary, only over tokens, since
//! `dO = (e^T emb) / s` and `dE = e (o / s)`; no maximum is subtracted unless a sum leaves the safe range; updates are folded
//! into the products; the vocabulary is walked once per step, with the update of the step before. bench/local_training measures
//! what that gives beside PyTorch and JAX.

mod layer;
mod network;
mod output;
mod packed;
mod soft;
mod state;
#[cfg(test)]
mod subnormal;

pub use self::{
    network::{Network, NetworkError},
    soft::SoftLabels,
};

use self::{
    layer::Layer,
    output::{Output, Towards},
    packed::Table,
};
use super::{
    batch::Batch,
    config::{ConfigError, ModelConfig},
    dropout::Masks,
    parameters::{ParameterLayout, Role},
};
use crate::kernels::{KernelPath, matrix::padded};

/// A model that learns, and what it needs to do so.
#[derive(Debug, Clone)]
pub struct Trainer {
    config: ModelConfig,
    layout: ParameterLayout,
    path: KernelPath,
    rows: usize,
    steps: usize,
    embedding: Table,
    layers: Vec<Layer>,
    /// What the last layer showed and the gradient of that, with units left out; used with dropout only.
    top: Vec<f32>,
    d_top: Vec<f32>,
    output: Output,
}

/// Why the fast path cannot train a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrainerError {
    /// The model cannot be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// This machine does not have the instructions.
    #[error("this machine does not support {}", path.name())]
    Path {
        /// The requested kernels.
        path: KernelPath,
    },
}

impl Trainer {
    /// A trainer for batches of at most `rows` sequences and `steps` tokens each.
    ///
    /// # Errors
    /// When the model cannot be built or has no fast path here.
    pub fn new(config: &ModelConfig, rows: usize, steps: usize, path: KernelPath) -> Result<Self, TrainerError> {
        let layout = ParameterLayout::new(config)?;
        if !path.is_available() {
            return Err(TrainerError::Path { path });
        }
        let (rows, steps) = (rows.max(1), steps.max(1));
        let layers = (0..config.layers).map(|l| Layer::new(config, l, rows, steps)).collect();
        let top = vec![0.0; if config.dropout.is_some() { rows * steps * padded(config.shown()) } else { 0 }];
        Ok(Self {
            config: config.clone(),
            path,
            rows,
            steps,
            embedding: Table::new(config.vocabulary, config.embedding),
            layers,
            d_top: top.clone(),
            top,
            output: Output::new(config, rows * steps),
            layout,
        })
    }

    /// The path that its kernels take.
    #[must_use]
    pub const fn path(&self) -> KernelPath {
        self.path
    }

    /// Takes these parameters, and forgets what was read.
    ///
    /// # Panics
    /// When there are not as many as the model has.
    pub fn load(&mut self, parameters: &[f32]) {
        assert_eq!(parameters.len(), self.layout.len(), "the parameters are not those of the model");
        self.embedding.load(&parameters[self.layout.range(Role::Embedding)]);
        self.layers.iter_mut().for_each(|l| l.load(self.path, &self.layout, parameters));
        self.output.load(self.path, &self.layout, parameters);
        self.forget();
    }

    /// Forgets what was read: the next batch starts a new reading.
    pub fn forget(&mut self) {
        self.layers.iter_mut().for_each(Layer::forget);
    }

    /// Makes the moves that wait for the next step (see [`output`]).
    fn settle(&mut self) {
        let tied = self.config.tied.then_some(&mut self.embedding);
        self.output.settle(self.path, tied);
    }

    /// Writes the parameters as they are now.
    ///
    /// # Panics
    /// When there is not as much room as the model needs.
    pub fn store(&mut self, parameters: &mut [f32]) {
        assert_eq!(parameters.len(), self.layout.len(), "the parameters are not those of the model");
        self.settle();
        self.embedding.store(&mut parameters[self.layout.range(Role::Embedding)]);
        self.layers.iter().for_each(|l| l.store(&self.layout, parameters));
        self.output.store(&self.layout, parameters);
    }

    /// One step of SGD on a batch: the mean loss over the targets that count goes down. Returns the summed loss.
    ///
    /// # Panics
    /// When the batch is larger than the trainer was made for, or names an entry that the vocabulary does not have.
    pub fn step(&mut self, batch: &Batch<'_>, learning_rate: f32) -> f32 {
        self.step_without(batch, learning_rate, None)
    }

    /// As [`Self::step`], with units left out as the masks say.
    ///
    /// # Panics
    /// As [`Self::step`], or when the masks are not those of the batch.
    pub fn step_without(&mut self, batch: &Batch<'_>, learning_rate: f32, masks: Option<&Masks>) -> f32 {
        self.learn(batch, learning_rate, masks, None)
    }

    fn learn(
        &mut self,
        batch: &Batch<'_>,
        learning_rate: f32,
        masks: Option<&Masks>,
        soft: Option<Towards<'_>>,
    ) -> f32 {
        let tokens = batch.inputs.len();
        assert!(batch.rows <= self.rows && tokens <= self.rows * self.steps, "the batch is larger than the trainer");
        self.forward(batch, masks);
        let mut shown = self.layers.last().map_or(&[][..], |l| l.shown(tokens));
        if let Some(masks) = masks {
            self.top[..shown.len()].copy_from_slice(shown);
            apply_mask(&mut self.top[..shown.len()], &masks[self.config.layers], self.config.shown());
            shown = &self.top[..shown.len()];
        }
        let table = if self.config.tied { Some(&mut self.embedding) } else { None };
        let loss = self.output.learn(self.path, batch, shown, table, soft, learning_rate);
        self.backward(batch, learning_rate, masks);
        if self.config.unit_norm && !self.config.tied {
            self.embedding.normalise_rows(self.path);
        }
        loss
    }

    /// Reads a batch; the state moves on.
    fn forward(&mut self, batch: &Batch<'_>, masks: Option<&Masks>) {
        for n in 0..self.layers.len() {
            let (below, above) = self.layers.split_at_mut(n);
            let layer = &mut above[0];
            match below.last() {
                None if self.config.tied => {
                    layer.read_rows(batch, |id, row| self.output.read_settled(self.path, &self.embedding, id, row));
                }
                None => layer.read_rows(batch, |id, row| row.copy_from_slice(self.embedding.padded_row(id))),
                Some(below) => layer.read_layer(below, batch.inputs.len()),
            }
            if let Some(masks) = masks {
                layer.leave_out(&masks[n]);
            }
            layer.forward(self.path, batch.rows, batch.inputs.len());
        }
    }

    /// Reads a batch and returns its summed loss; nothing is learned.
    ///
    /// # Panics
    /// As [`Self::step`].
    pub fn loss(&mut self, batch: &Batch<'_>) -> f32 {
        let tokens = batch.inputs.len();
        assert!(batch.rows <= self.rows && tokens <= self.rows * self.steps, "the batch is larger than the trainer");
        self.forward(batch, None);
        let shown = self.layers.last().map_or(&[][..], |l| l.shown(tokens));
        let tied = self.config.tied.then_some(&mut self.embedding);
        let loss = self.output.measure(self.path, batch, shown, tied);
        self.layers.iter_mut().for_each(|l| l.carry(batch.rows, tokens));
        loss
    }

    fn backward(&mut self, batch: &Batch<'_>, learning_rate: f32, masks: Option<&Masks>) {
        let tokens = batch.inputs.len();
        if let Some(masks) = masks {
            let d_top = self.output.d_input(tokens);
            self.d_top[..d_top.len()].copy_from_slice(d_top);
            apply_mask(&mut self.d_top[..d_top.len()], &masks[self.config.layers], self.config.shown());
        }
        for n in (0..self.layers.len()).rev() {
            let (below, above) = self.layers.split_at_mut(n + 1);
            let layer = &mut below[n];
            let d_output = || if masks.is_some() { &self.d_top[..] } else { self.output.d_input(tokens) };
            let d_shown = above.first().map_or_else(d_output, |l| l.d_input(tokens));
            layer.backward(self.path, batch.rows, tokens, d_shown, learning_rate);
            if let Some(masks) = masks {
                layer.leave_out_gradient(&masks[n]);
            }
        }
        if let Some(first) = self.layers.first() {
            let width = first.input();
            let gradients = first.d_input(tokens).chunks_exact(width);
            for (id, gradient) in batch.inputs.iter().zip(gradients) {
                let row = self.embedding.row_mut(*id as usize);
                row.iter_mut().zip(gradient).for_each(|(w, d)| *w -= learning_rate * d);
            }
        }
    }
}

/// Multiplies padded rows by the factors of their units.
fn apply_mask(values: &mut [f32], mask: &[f32], width: usize) {
    for (row, factors) in values.chunks_exact_mut(padded(width)).zip(mask.chunks_exact(width)) {
        row.iter_mut().zip(factors).for_each(|(v, m)| *v *= m);
    }
}
