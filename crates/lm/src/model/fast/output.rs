//! The output: an optional dense layer, then a softmax over the vocabulary and its loss.
//!
//! The vocabulary is walked in tiles, once per step. A tile of entries first makes the move that the step before left it;
//! then the logits of all tokens are computed, raised to a power and added up, and their product with the tile is added to
//! the gradient, while all of it is in the cache. The move of this step needs the sums over all tiles, so it waits for the
//! next walk ([`Move`]); a row that is read before is moved where it is read.
//!
//! Soft labels (`soft`) cost a second walk: with `q` the label of an entry, `e - s q` stands for `e` in the gradient and in the move.

use super::{
    super::{
        batch::Batch,
        config::ModelConfig,
        parameters::{ParameterLayout, Role},
    },
    packed::{Panels, Table},
};
use crate::kernels::{
    KernelPath,
    activation::QUIET,
    matrix::{Into, Left, Product, padded},
    rows::{Dot, NormaliseRows},
    softmax::{ExpAndSum, largest},
    transpose::transpose,
};

/// Entries of the vocabulary that are worked on at a time.
const TILE: usize = 96;
/// Sums outside of this, 2^-20 to 2^40, are computed again with the largest logit taken off. Within, what is left out below
/// [`SMALLEST`] is nothing beside the sum, and a power divided by the sum is at least 2^-100, not subnormal.
const SAFE: std::ops::RangeInclusive<f32> = 9.536_743e-7..=1.099_511_6e12;

/// Soft labels of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Towards<'a> {
    /// The share of the target.
    pub(super) truth: f32,
    /// The shares of all entries, `[entry][token]`, as far apart as the powers.
    pub(super) labels: &'a [f32],
}

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
    /// How far the rows of what has a column for each token are apart.
    row: usize,
    /// The output transposed, in units of ln 2: `[width][token]`.
    out_back: Vec<f32>,
    /// Unnormalised probabilities, `[entry][token]`.
    powers: Vec<f32>,
    pending: Move,
    /// Whether rows have norm 1 after every move.
    unit_norm: bool,
    sums: Vec<f32>,
    shift: Vec<f32>,
    d_out: Vec<f32>,
    d_in: Vec<f32>,
    /// The product of soft labels and the table, `[token][width]`; empty until there are any.
    label_out: Vec<f32>,
}

/// A move of the table that has not been made: less `powers` times `out`, and less `powers` times `factors` for the bias.
#[derive(Debug, Clone)]
struct Move {
    /// Tokens of the step; 0 if nothing is left to do.
    tokens: usize,
    /// The output times each token's factor, `[token][width]`.
    out: Vec<f32>,
    /// Each token's factor; 0 beyond the last.
    factors: Vec<f32>,
}

#[derive(Debug, Clone)]
struct Dense {
    forward: Panels,
    back: Panels,
    bias: Vec<f32>,
}

impl Output {
    pub(super) fn new(config: &ModelConfig, tokens: usize) -> Self {
        let (show, width) = (padded(config.shown()), padded(config.output()));
        let zeros = |len: usize| vec![0.0; len];
        let dense = config.dense.map(|size| Dense {
            forward: Panels::new(show, padded(size)),
            back: Panels::new(padded(size), show),
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
            row,
            out_back: zeros(width * row),
            powers: zeros(config.vocabulary * row),
            pending: Move { tokens: 0, out: zeros(tokens * width), factors: zeros(row) },
            unit_norm: config.unit_norm,
            sums: zeros(row),
            shift: zeros(row),
            d_out: zeros(tokens * width),
            d_in: zeros(if dense.is_some() { tokens * show } else { 0 }),
            label_out: Vec::new(),
            dense,
        }
    }

    pub(super) fn load(&mut self, path: KernelPath, layout: &ParameterLayout, parameters: &[f32]) {
        if let Some(own) = &mut self.own {
            own.load(&parameters[layout.range(Role::OutputEmbedding)]);
        }
        if let Some(dense) = &mut self.dense {
            let bias = &parameters[layout.range(Role::DenseBias)];
            dense.bias[..bias.len()].copy_from_slice(bias);
            let kernel = parameters[layout.range(Role::DenseKernel)].chunks_exact(bias.len());
            kernel.enumerate().for_each(|(row, from)| dense.forward.set(row, 0, from));
            dense.back.set_transposed(path, &dense.forward);
        }
        self.pending.tokens = 0;
        self.bias.copy_from_slice(&parameters[layout.range(Role::OutputBias)]);
    }

    /// Gives the parameters; nothing may be pending.
    pub(super) fn store(&self, layout: &ParameterLayout, parameters: &mut [f32]) {
        if let Some(own) = &self.own {
            own.store(&mut parameters[layout.range(Role::OutputEmbedding)]);
        }
        if let Some(dense) = &self.dense {
            let range = layout.range(Role::DenseKernel);
            let columns = layout.range(Role::DenseBias).len();
            for (row, to) in parameters[range].chunks_exact_mut(columns).enumerate() {
                dense.forward.get(row, 0, to);
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
        soft: Option<Towards<'_>>,
        rate: f32,
    ) -> f32 {
        let tokens = batch.inputs.len();
        let truth = soft.map_or(1.0, |soft| soft.truth);
        self.compute_output(path, shown, tokens);
        let mut own = self.own.take();
        let loss = tied.or(own.as_mut()).map_or(0.0, |table| {
            self.sum_powers_safely(path, table, tokens);
            let rest = soft.map_or(0.0, |soft| self.take_off(path, table, batch, soft.labels));
            let loss = self.loss(table, batch, truth) - rest;
            self.finish_gradient(table, batch, truth);
            self.move_later(table, batch, rate, truth);
            loss
        });
        self.own = own;
        self.back_through_dense(path, shown, tokens, rate);
        loss
    }

    /// The summed loss of a batch. Whatever is pending moves.
    pub(super) fn measure(
        &mut self,
        path: KernelPath,
        batch: &Batch<'_>,
        shown: &[f32],
        tied: Option<&mut Table>,
    ) -> f32 {
        let tokens = batch.inputs.len();
        self.compute_output(path, shown, tokens);
        let mut own = self.own.take();
        let loss = tied.or(own.as_mut()).map_or(0.0, |table| {
            self.sum_powers_safely(path, table, tokens);
            self.loss(table, batch, 1.0)
        });
        self.own = own;
        loss
    }

    /// Makes the move that is pending, all of it.
    pub(super) fn settle(&mut self, path: KernelPath, tied: Option<&mut Table>) {
        let mut own = self.own.take();
        if let Some(table) = tied.or(own.as_mut()) {
            for start in (0..self.vocabulary).step_by(TILE) {
                self.settle_entries(path, table, start, TILE.min(self.vocabulary - start));
            }
        }
        self.own = own;
        self.pending.tokens = 0;
    }

    /// Writes an entry of the table, padded, as it will be once the pending move is made: the very same bits.
    pub(super) fn read_settled(&self, path: KernelPath, table: &Table, entry: usize, to: &mut [f32]) {
        to.copy_from_slice(table.padded_row(entry));
        self.make_move(path, entry, 1, to);
    }

    fn settle_entries(&mut self, path: KernelPath, table: &mut Table, start: usize, entries: usize) {
        let (tokens, width, row) = (self.pending.tokens, self.width, self.row);
        self.make_move(path, start, entries, &mut table.values[start * width..(start + entries) * width]);
        let factors = &self.pending.factors;
        let powers = &self.powers[start * row..(start + entries) * row];
        if let Some(bias) = self.bias.get_mut(start..start + entries) {
            let factors = &factors[..padded(tokens)];
            for (bias, powers) in bias.iter_mut().zip(powers.chunks_exact(row)) {
                *bias -= path.run(Dot { a: &powers[..factors.len()], b: factors }).unwrap_or(0.0);
            }
        }
    }

    /// Moves padded rows, which stand for entries of the table.
    fn make_move(&self, path: KernelPath, start: usize, entries: usize, rows: &mut [f32]) {
        let Move { tokens: k, out: b, .. } = &self.pending;
        let (k, width, row) = (*k, self.width, self.row);
        if k == 0 {
            return;
        }
        let a = Left { values: &self.powers[start * row..(start + entries) * row], row, column: 1 };
        let into = Into::AddScaled(-1.0);
        path.compute(Product { m: entries, n: width, k, a, b, b_row: width, c: rows, c_row: width, into });
        if self.unit_norm {
            path.compute(NormaliseRows { values: rows, width });
        }
    }

    fn compute_output(&mut self, path: KernelPath, shown: &[f32], tokens: usize) {
        let (show, width) = (self.show, self.width);
        match &self.dense {
            None => self.out[..tokens * width].copy_from_slice(shown),
            Some(dense) => {
                for out in self.out.chunks_exact_mut(width).take(tokens) {
                    out.copy_from_slice(&dense.bias);
                }
                let shown = Left { values: shown, row: show, column: 1 };
                dense.forward.multiply(path, tokens, shown, &mut self.out, width, Into::Add);
            }
        }
        let row = self.row;
        self.out_back.fill(0.0);
        transpose(path, &self.out, width, [tokens, width], &mut self.out_back, row);
        self.out_back.iter_mut().for_each(|o| *o *= std::f32::consts::LOG2_E);
    }

    fn bias_in_bits(&mut self, start: usize, entries: usize) {
        let bias = self.bias.iter().skip(start).take(entries);
        self.bias_bits.iter_mut().skip(start).zip(bias).for_each(|(bits, b)| *bits = b * std::f32::consts::LOG2_E);
    }

    /// Powers, sums and the product with the table; the largest logit is taken off where a sum would not be safe without.
    fn sum_powers_safely(&mut self, path: KernelPath, table: &mut Table, tokens: usize) {
        self.shift.fill(0.0);
        self.sum_powers(path, table, tokens);
        if self.sums[..tokens].iter().all(|s| SAFE.contains(s)) {
            return;
        }
        self.shift.fill(f32::NEG_INFINITY);
        let row = self.row;
        for start in (0..self.vocabulary).step_by(TILE) {
            let entries = TILE.min(self.vocabulary - start);
            self.logits(path, table, start, entries, tokens);
            let bias = self.bias_bits.get(start..start + entries).unwrap_or_default();
            largest(&self.powers[start * row..(start + entries) * row], row, bias, &mut self.shift[..tokens]);
        }
        self.shift[tokens..].fill(0.0);
        self.sum_powers(path, table, tokens);
    }

    fn logits(&mut self, path: KernelPath, table: &Table, start: usize, entries: usize, tokens: usize) {
        let (row, k) = (self.row, self.width);
        let a = Left { values: &table.values[start * table.width..], row: table.width, column: 1 };
        let c = &mut self.powers[start * row..(start + entries) * row];
        let (n, b) = (padded(tokens), &self.out_back);
        path.compute(Product { m: entries, n, k, a, b, b_row: row, c, c_row: row, into: Into::Set });
    }

    /// The walk over the vocabulary.
    fn sum_powers(&mut self, path: KernelPath, table: &mut Table, tokens: usize) {
        let (row, width) = (self.row, self.width);
        self.sums.fill(0.0);
        self.d_out[..tokens * width].fill(0.0);
        for start in (0..self.vocabulary).step_by(TILE) {
            let entries = TILE.min(self.vocabulary - start);
            self.settle_entries(path, table, start, entries);
            self.bias_in_bits(start, entries);
            self.logits(path, table, start, entries, tokens);
            let logits = &mut self.powers[start * row..(start + entries) * row];
            let bias = self.bias_bits.get(start..start + entries).unwrap_or_default();
            let used = padded(tokens);
            let (shift, sums) = (&self.shift[..used], &mut self.sums[..used]);
            path.compute(ExpAndSum { logits, row, bias, shift, sums });
            let a = Left { values: &self.powers[start * row..(start + entries) * row], row: 1, column: row };
            let b = &table.values[start * width..(start + entries) * width];
            let c = &mut self.d_out;
            let into = Into::Add;
            path.compute(Product { m: tokens, n: width, k: entries, a, b, b_row: width, c, c_row: width, into });
        }
        self.pending.tokens = 0;
    }

    /// Takes soft labels off the powers and off their product with the table, in the scale of the sums. Returns the labels' mean of the
    /// logits, summed over what counts.
    fn take_off(&mut self, path: KernelPath, table: &Table, batch: &Batch<'_>, labels: &[f32]) -> f32 {
        let (row, width, tokens) = (self.row, self.width, batch.inputs.len());
        self.label_out.clear();
        self.label_out.resize(tokens * width, 0.0);
        for start in (0..self.vocabulary).step_by(TILE) {
            let entries = TILE.min(self.vocabulary - start);
            let a = Left { values: &labels[start * row..(start + entries) * row], row: 1, column: row };
            let b = &table.values[start * width..(start + entries) * width];
            let (c, into) = (&mut self.label_out, Into::Add);
            path.compute(Product { m: tokens, n: width, k: entries, a, b, b_row: width, c, c_row: width, into });
        }
        for (powers, labels) in self.powers.chunks_exact_mut(row).zip(labels.chunks_exact(row)) {
            let both = powers.iter_mut().zip(labels).zip(&self.sums);
            both.take(tokens).for_each(|((power, label), sum)| *power -= sum * label);
        }
        let mut rest = 0.0;
        for (t, _) in batch.targets.iter().enumerate().filter(|(_, target)| **target != Batch::NONE) {
            let at = t * width..(t + 1) * width;
            let meant = &self.label_out[at.clone()];
            rest += meant.iter().zip(&self.out[at.clone()]).map(|(l, o)| l * o).sum::<f32>();
            rest += self.bias.iter().zip(labels.chunks_exact(row)).map(|(bias, labels)| bias * labels[t]).sum::<f32>();
            let sum = self.sums[t];
            self.d_out[at].iter_mut().zip(meant).for_each(|(d, l)| *d -= sum * l);
        }
        rest
    }

    /// Adds a share of the probabilities that the last reading gave each entry.
    pub(super) fn add_probabilities(&self, tokens: usize, share: f32, to: &mut [f32]) {
        for (to, powers) in to.chunks_exact_mut(self.row).zip(self.powers.chunks_exact(self.row)) {
            let both = to.iter_mut().zip(powers).zip(&self.sums);
            both.take(tokens).for_each(|((to, power), sum)| *to += share * (power / sum));
        }
    }

    /// How far the tokens of one entry and of the next are apart in what has a column for each token.
    pub(super) const fn row(&self) -> usize {
        self.row
    }

    fn loss(&self, table: &Table, batch: &Batch<'_>, truth: f32) -> f32 {
        let mut loss = 0.0;
        for (t, target) in batch.targets.iter().enumerate().filter(|(_, target)| **target != Batch::NONE) {
            let target = *target as usize;
            let out = &self.out[t * self.width..(t + 1) * self.width];
            let logit: f32 = table.row(target).iter().zip(out).map(|(w, o)| w * o).sum();
            let bias = self.bias.get(target).copied().unwrap_or(0.0);
            loss += libm::logf(self.sums[t]) + self.shift[t] * std::f32::consts::LN_2 - truth * logit - truth * bias;
        }
        loss
    }

    /// From `e^T emb` to the gradient of the output: divided by the sum, less the target, times the weight of a token. The
    /// sums become each token's factor of its powers.
    fn finish_gradient(&mut self, table: &Table, batch: &Batch<'_>, truth: f32) {
        let weight = 1.0 / batch.counted().max(1) as f32;
        let pull = weight * truth;
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
            d_out.iter_mut().zip(table.row(*target as usize)).for_each(|(d, w)| *d -= pull * w);
        }
    }

    /// Moves the table and the bias towards the targets, and leaves the rest of the step for later.
    fn move_later(&mut self, table: &mut Table, batch: &Batch<'_>, rate: f32, truth: f32) {
        let (tokens, width) = (batch.inputs.len(), self.width);
        let weight = truth * (1.0 / batch.counted().max(1) as f32);
        for (t, target) in batch.targets.iter().enumerate().filter(|(_, target)| **target != Batch::NONE) {
            let out = &self.out[t * width..(t + 1) * width];
            table.row_mut(*target as usize).iter_mut().zip(out).for_each(|(w, o)| *w += rate * weight * o);
            if let Some(bias) = self.bias.get_mut(*target as usize) {
                *bias += rate * weight;
            }
        }
        let Move { tokens: pending, out: moves, factors } = &mut self.pending;
        *pending = tokens;
        factors.fill(0.0);
        factors.iter_mut().zip(&self.sums[..tokens]).for_each(|(factor, f)| *factor = rate * f);
        let rows = moves.chunks_exact_mut(width).zip(self.out.chunks_exact(width));
        for ((moves, out), factor) in rows.zip(&factors[..tokens]) {
            moves.iter_mut().zip(out).for_each(|(m, o)| *m = quiet(factor * o));
        }
    }

    /// All that products read or write, for the test that looks for subnormal numbers.
    #[cfg(test)]
    pub(super) fn memory(&self) -> Vec<(&'static str, &[f32])> {
        let own = self.own.as_ref().map_or(&[][..], |table| &table.values);
        vec![
            ("output embedding", own),
            ("output", &self.out),
            ("output, transposed", &self.out_back),
            ("powers", &self.powers),
            ("moves", &self.pending.out),
            ("factors", &self.pending.factors),
            ("gradient of the output", &self.d_out),
            ("gradient of what was shown", &self.d_in),
        ]
    }

    fn back_through_dense(&mut self, path: KernelPath, shown: &[f32], tokens: usize, rate: f32) {
        let (show, width) = (self.show, self.width);
        let Some(dense) = &mut self.dense else { return };
        let d_out = &self.d_out[..tokens * width];
        let left = Left { values: d_out, row: width, column: 1 };
        dense.back.multiply(path, tokens, left, &mut self.d_in, show, Into::Set);
        let shown = Left { values: shown, row: 1, column: show };
        dense.forward.add_product(path, tokens, shown, d_out, width, -rate);
        for d in d_out.chunks_exact(width) {
            dense.bias.iter_mut().zip(d).for_each(|(b, d)| *b -= rate * d);
        }
        dense.back.set_transposed(path, &dense.forward);
    }
}

/// The number, or 0 where products with it would come near the subnormal ones.
fn quiet(x: f32) -> f32 {
    if x.abs() < QUIET { 0.0 } else { x }
}
