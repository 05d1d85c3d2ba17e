//! The output: an optional dense layer, then a softmax over the vocabulary and its loss.
//!
//! The vocabulary is walked in tiles. For a tile of entries the logits of all tokens are computed, raised to a power and
//! added up, and their product with the tile is added to the gradient, while all of it is in the cache.

use super::{
    super::{
        config::ModelConfig,
        parameters::{ParameterLayout, Role},
        reference::Batch,
    },
    packed::Table,
};
use crate::kernels::{
    KernelPath,
    matrix::{Into, Left, Product, padded, transpose},
    softmax::{ExpAndSum, SumPowers, largest},
};

/// Entries of the vocabulary that are worked on at a time.
const TILE: usize = 96;
/// Sums outside of this are computed again with the largest logit taken off.
const SAFE: std::ops::RangeInclusive<f32> = 1e-25..=1e25;

/// Weights of the output and the memory of a step.
#[derive(Debug, Clone)]
pub(super) struct Output {
    vocabulary: usize,
    /// Padded sizes: what the last layer shows, what meets the vocabulary.
    show: usize,
    width: usize,
    dense: Option<Dense>,
    /// The output embedding, where it is not the input's.
    own: Option<Table>,
    bias: Vec<f32>,
    /// The same in units of ln 2.
    bias_bits: Vec<f32>,
    out: Vec<f32>,
    /// The output transposed, in units of ln 2: `[width][token]`.
    out_back: Vec<f32>,
    /// Unnormalised probabilities, `[entry][token]`.
    powers: Vec<f32>,
    sums: Vec<f32>,
    shift: Vec<f32>,
    d_out: Vec<f32>,
    d_in: Vec<f32>,
}

#[derive(Debug, Clone)]
struct Dense {
    forward: Table,
    back: Vec<f32>,
    bias: Vec<f32>,
}

impl Output {
    pub(super) fn new(config: &ModelConfig, tokens: usize) -> Self {
        let (show, width) = (padded(config.shown()), padded(config.output()));
        let zeros = |len: usize| vec![0.0; len];
        let dense = config.dense.map(|size| Dense {
            forward: Table::new(show, size),
            back: zeros(width * show),
            bias: zeros(width),
        });
        let biases = if config.output_bias { config.vocabulary } else { 0 };
        let row = padded(tokens);
        Self {
            vocabulary: config.vocabulary,
            show,
            width,
            own: (!config.tied).then(|| Table::new(config.vocabulary, config.output())),
            bias: zeros(biases),
            bias_bits: zeros(biases),
            out: zeros(tokens * width),
            out_back: zeros(width * row),
            powers: zeros(config.vocabulary * row),
            sums: zeros(row),
            shift: zeros(row),
            d_out: zeros(tokens * width),
            d_in: zeros(if dense.is_some() { tokens * show } else { 0 }),
            dense,
        }
    }

    pub(super) fn load(&mut self, layout: &ParameterLayout, parameters: &[f32]) {
        if let Some(own) = &mut self.own {
            own.load(&parameters[layout.range(Role::OutputEmbedding)]);
        }
        if let Some(dense) = &mut self.dense {
            dense.forward.load(&parameters[layout.range(Role::DenseKernel)]);
            let bias = &parameters[layout.range(Role::DenseBias)];
            dense.bias[..bias.len()].copy_from_slice(bias);
            transpose(&dense.forward.values, self.width, self.show, self.width, &mut dense.back, self.show);
        }
        self.bias.copy_from_slice(&parameters[layout.range(Role::OutputBias)]);
    }

    pub(super) fn store(&self, layout: &ParameterLayout, parameters: &mut [f32]) {
        if let Some(own) = &self.own {
            own.store(&mut parameters[layout.range(Role::OutputEmbedding)]);
        }
        if let Some(dense) = &self.dense {
            let range = layout.range(Role::DenseKernel);
            let columns = layout.range(Role::DenseBias).len();
            for (row, to) in parameters[range].chunks_exact_mut(columns).enumerate() {
                to.copy_from_slice(dense.forward.row(row));
            }
            let range = layout.range(Role::DenseBias);
            parameters[range].copy_from_slice(&dense.bias[..columns]);
        }
        parameters[layout.range(Role::OutputBias)].copy_from_slice(&self.bias);
    }

    /// The gradient of what the last layer showed.
    pub(super) fn d_input(&self, tokens: usize) -> &[f32] {
        match self.dense {
            Some(_) => &self.d_in[..tokens * self.show],
            None => &self.d_out[..tokens * self.width],
        }
    }

    /// Loss and gradients; the weights move against their gradients. `tied` is the input's embedding where it is this one's.
    pub(super) fn learn(
        &mut self,
        path: KernelPath,
        batch: &Batch<'_>,
        shown: &[f32],
        tied: Option<&mut Table>,
        rate: f32,
    ) -> f32 {
        let tokens = batch.inputs.len();
        self.compute_output(path, shown, tokens);
        let mut own = self.own.take();
        let loss = match tied.or(own.as_mut()) {
            Some(table) => {
                self.sum_powers_safely(path, table, tokens);
                let loss = self.loss(table, batch);
                self.finish_gradient(table, batch);
                self.move_table(path, table, batch, rate);
                loss
            }
            None => 0.0,
        };
        self.own = own;
        self.back_through_dense(path, shown, tokens, rate);
        loss
    }

    /// The summed loss of a batch.
    pub(super) fn measure(&mut self, path: KernelPath, batch: &Batch<'_>, shown: &[f32], tied: Option<&Table>) -> f32 {
        let tokens = batch.inputs.len();
        self.compute_output(path, shown, tokens);
        let own = self.own.take();
        let loss = match tied.or(own.as_ref()) {
            Some(table) => {
                self.sum_powers_safely(path, table, tokens);
                self.loss(table, batch)
            }
            None => 0.0,
        };
        self.own = own;
        loss
    }

    /// The natural logarithms of the probabilities of all entries, `[token][entry]`.
    pub(super) fn log_probabilities(
        &mut self,
        path: KernelPath,
        shown: &[f32],
        tied: Option<&Table>,
        tokens: usize,
        log_probabilities: &mut [f32],
    ) {
        self.compute_output(path, shown, tokens);
        let own = self.own.take();
        if let Some(table) = tied.or(own.as_ref()) {
            let row = padded(tokens);
            for start in (0..self.vocabulary).step_by(TILE) {
                self.logits(path, table, start, TILE.min(self.vocabulary - start), row);
            }
            transpose(&self.powers, row, self.vocabulary, tokens, log_probabilities, self.vocabulary);
            for line in log_probabilities.chunks_exact_mut(self.vocabulary).take(tokens) {
                self.normalise(path, line);
            }
        }
        self.own = own;
    }

    /// From logits in units of ln 2, without bias, to the natural logarithms of probabilities.
    fn normalise(&mut self, path: KernelPath, line: &mut [f32]) {
        line.iter_mut().zip(&self.bias_bits).for_each(|(l, b)| *l += b);
        let largest = line.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let spare = &mut self.powers[..padded(line.len())];
        spare[..line.len()].copy_from_slice(line);
        spare[line.len()..].fill(f32::NEG_INFINITY);
        let sum = path.run(SumPowers { values: spare, largest }).unwrap_or(1.0);
        let log_sum = largest + libm::log2f(sum);
        line.iter_mut().for_each(|l| *l = (*l - log_sum) * std::f32::consts::LN_2);
    }

    fn compute_output(&mut self, path: KernelPath, shown: &[f32], tokens: usize) {
        let (show, width) = (self.show, self.width);
        match &self.dense {
            None => self.out[..tokens * width].copy_from_slice(shown),
            Some(dense) => {
                for out in self.out.chunks_exact_mut(width).take(tokens) {
                    out.copy_from_slice(&dense.bias);
                }
                let a = Left { values: shown, row: show, column: 1 };
                let (b, c) = (&dense.forward.values, &mut self.out);
                run(path, Product { m: tokens, n: width, k: show, a, b, b_row: width, c, c_row: width, into: Into::Add });
            }
        }
        let row = padded(tokens);
        self.out_back[..width * row].fill(0.0);
        transpose(&self.out, width, tokens, width, &mut self.out_back, row);
        self.out_back[..width * row].iter_mut().for_each(|o| *o *= std::f32::consts::LOG2_E);
        self.bias_bits.iter_mut().zip(&self.bias).for_each(|(bits, b)| *bits = b * std::f32::consts::LOG2_E);
    }

    fn sum_powers_safely(&mut self, path: KernelPath, table: &Table, tokens: usize) {
        let row = padded(tokens);
        self.shift[..row].fill(0.0);
        self.sum_powers(path, table, tokens);
        if self.sums[..tokens].iter().all(|s| SAFE.contains(s)) {
            return;
        }
        self.shift[..row].fill(f32::NEG_INFINITY);
        for start in (0..self.vocabulary).step_by(TILE) {
            let entries = TILE.min(self.vocabulary - start);
            self.logits(path, table, start, entries, row);
            let bias = self.bias_bits.get(start..start + entries).unwrap_or_default();
            largest(&self.powers[start * row..(start + entries) * row], row, bias, &mut self.shift[..row]);
        }
        self.sum_powers(path, table, tokens);
    }

    fn logits(&mut self, path: KernelPath, table: &Table, start: usize, entries: usize, row: usize) {
        let a = Left { values: &table.values[start * table.width..], row: table.width, column: 1 };
        let c = &mut self.powers[start * row..(start + entries) * row];
        let b = &self.out_back;
        run(path, Product { m: entries, n: row, k: self.width, a, b, b_row: row, c, c_row: row, into: Into::Set });
    }

    fn sum_powers(&mut self, path: KernelPath, table: &Table, tokens: usize) {
        let (row, width) = (padded(tokens), self.width);
        self.sums[..row].fill(0.0);
        self.d_out[..tokens * width].fill(0.0);
        for start in (0..self.vocabulary).step_by(TILE) {
            let entries = TILE.min(self.vocabulary - start);
            self.logits(path, table, start, entries, row);
            let logits = &mut self.powers[start * row..(start + entries) * row];
            let bias = self.bias_bits.get(start..start + entries).unwrap_or_default();
            let (shift, sums) = (&self.shift[..row], &mut self.sums[..row]);
            path.run(ExpAndSum { logits, row, bias, shift, sums });
            let a = Left { values: &self.powers[start * row..(start + entries) * row], row: 1, column: row };
            let b = &table.values[start * width..(start + entries) * width];
            let c = &mut self.d_out;
            run(path, Product { m: tokens, n: width, k: entries, a, b, b_row: width, c, c_row: width, into: Into::Add });
        }
    }

    fn loss(&self, table: &Table, batch: &Batch<'_>) -> f32 {
        let mut loss = 0.0;
        for (t, target) in batch.targets.iter().enumerate().filter(|(_, target)| **target != Batch::NONE) {
            let target = *target as usize;
            let out = &self.out[t * self.width..(t + 1) * self.width];
            let logit: f32 = table.row(target).iter().zip(out).map(|(w, o)| w * o).sum();
            let bias = self.bias.get(target).copied().unwrap_or(0.0);
            loss += libm::logf(self.sums[t]) + self.shift[t] * std::f32::consts::LN_2 - logit - bias;
        }
        loss
    }

    /// From `e^T emb` to the gradient of the output: divided by the sum, less the target, times the weight of a token. The
    /// sums become each token's factor of its powers.
    fn finish_gradient(&mut self, table: &Table, batch: &Batch<'_>) {
        let weight = 1.0 / batch.counted().max(1) as f32;
        for (t, target) in batch.targets.iter().enumerate() {
            let d_out = &mut self.d_out[t * self.width..(t + 1) * self.width];
            if *target == Batch::NONE {
                d_out.fill(0.0);
                self.sums[t] = 0.0;
                continue;
            }
            let factor = weight / self.sums[t];
            self.sums[t] = factor;
            d_out.iter_mut().for_each(|d| *d *= factor);
            d_out.iter_mut().zip(table.row(*target as usize)).for_each(|(d, w)| *d -= weight * w);
        }
    }

    /// The step of the output embedding and of the bias.
    fn move_table(&mut self, path: KernelPath, table: &mut Table, batch: &Batch<'_>, rate: f32) {
        let (tokens, width) = (batch.inputs.len(), self.width);
        let row = padded(tokens);
        let weight = 1.0 / batch.counted().max(1) as f32;
        if !self.bias.is_empty() {
            for (bias, powers) in self.bias.iter_mut().zip(self.powers.chunks_exact(row)) {
                *bias -= rate * powers.iter().zip(&self.sums[..tokens]).map(|(p, f)| p * f).sum::<f32>();
            }
        }
        for (t, target) in batch.targets.iter().enumerate().filter(|(_, target)| **target != Batch::NONE) {
            let out = &self.out[t * width..(t + 1) * width];
            table.row_mut(*target as usize).iter_mut().zip(out).for_each(|(w, o)| *w += rate * weight * o);
            if let Some(bias) = self.bias.get_mut(*target as usize) {
                *bias += rate * weight;
            }
        }
        for (out, factor) in self.out.chunks_exact_mut(width).zip(&self.sums[..tokens]) {
            out.iter_mut().for_each(|o| *o *= factor);
        }
        let a = Left { values: &self.powers, row, column: 1 };
        let (b, c) = (&self.out, &mut table.values);
        let into = Into::AddScaled(-rate);
        run(path, Product { m: self.vocabulary, n: width, k: tokens, a, b, b_row: width, c, c_row: width, into });
    }

    fn back_through_dense(&mut self, path: KernelPath, shown: &[f32], tokens: usize, rate: f32) {
        let (show, width) = (self.show, self.width);
        let Some(dense) = &mut self.dense else { return };
        let a = Left { values: &self.d_out, row: width, column: 1 };
        let (b, c) = (&dense.back, &mut self.d_in);
        run(path, Product { m: tokens, n: show, k: width, a, b, b_row: show, c, c_row: show, into: Into::Set });
        let d_out = &self.d_out[..tokens * width];
        let a = Left { values: shown, row: 1, column: show };
        let (b, c, into) = (d_out, &mut dense.forward.values, Into::AddScaled(-rate));
        run(path, Product { m: show, n: width, k: tokens, a, b, b_row: width, c, c_row: width, into });
        for d in d_out.chunks_exact(width) {
            dense.bias.iter_mut().zip(d).for_each(|(b, d)| *b -= rate * d);
        }
        transpose(&dense.forward.values, width, show, width, &mut dense.back, show);
    }
}

fn run(path: KernelPath, product: Product<'_>) {
    let done = path.run(product);
    debug_assert!(done.is_some());
}
