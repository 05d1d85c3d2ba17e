//! Inference in the output layer: from the last hidden layer to log-probabilities of all entries.
//!
//! For a test set the vocabulary is walked in tiles: the logits of some tokens with a tile of entries are computed while
//! the tile is in the cache, and turned so that every token has a line. For a keyboard there is one token: its logits are
//! one dot product for each entry.

use pulp::{Simd, WithSimd};

use super::layer::pad_rows;
use crate::{
    kernels::{
        KernelPath,
        activation::exp2,
        matrix::{Into, Left, Product, padded},
        transpose::transpose,
    },
    model::{
        config::ModelConfig,
        parameters::{ParameterLayout, Role},
    },
};

/// Entries of the vocabulary that are worked on at a time.
const TILE: usize = 96;

/// What stands between the last layer and the vocabulary.
#[derive(Debug, Clone)]
pub(super) struct Output {
    vocabulary: usize,
    /// What the last layer shows and what meets the vocabulary, without padding.
    shown: usize,
    size: usize,
    dense: Option<Dense>,
    /// Padded; empty for none.
    bias: Vec<f32>,
}

/// `[shown][size]` and `[size]`, padded.
#[derive(Debug, Clone)]
struct Dense {
    kernel: Vec<f32>,
    bias: Vec<f32>,
}

/// Tokens that wait for their predictions, and room for them.
#[derive(Debug)]
pub(super) struct Lines {
    /// Which sequence and position each is.
    waiting: Vec<(usize, usize)>,
    most: usize,
    /// What meets the vocabulary, `[token][size]`, padded; and the same turned.
    out: Vec<f32>,
    turned: Vec<f32>,
    tile: Vec<f32>,
    /// `[token][entry]`, padded.
    lines: Vec<f32>,
}

impl Lines {
    /// How many more tokens may wait.
    pub(super) const fn room(&self) -> usize {
        self.most - self.waiting.len()
    }
}

impl Output {
    pub(super) fn new(config: &ModelConfig, layout: &ParameterLayout, parameters: &[f32]) -> Self {
        let (shown, size) = (config.shown(), config.output());
        let with_padding = |from: &[f32]| {
            let mut to = vec![0.0; padded(from.len())];
            to[..from.len()].copy_from_slice(from);
            to
        };
        let dense = config.dense.map(|_| Dense {
            kernel: pad_rows(&parameters[layout.range(Role::DenseKernel)], size),
            bias: with_padding(&parameters[layout.range(Role::DenseBias)]),
        });
        let bias = with_padding(&parameters[layout.range(Role::OutputBias)]);
        Self { vocabulary: config.vocabulary, shown, size, dense, bias }
    }

    /// Room for so many tokens.
    pub(super) fn lines(&self, tokens: usize) -> Lines {
        let zeros = |len: usize| vec![0.0; len];
        Lines {
            waiting: Vec::with_capacity(tokens),
            most: tokens,
            out: zeros(tokens * padded(self.size)),
            turned: zeros(self.size * padded(tokens)),
            tile: zeros(TILE * padded(tokens)),
            lines: zeros(tokens * padded(self.vocabulary)),
        }
    }

    /// Writes what meets the vocabulary for padded rows of what the last layer shows.
    fn meet(&self, path: KernelPath, shown: &[f32], out: &mut [f32]) {
        let (show, width) = (padded(self.shown), padded(self.size));
        let rows = shown.len() / show;
        match &self.dense {
            None => out[..rows * width].copy_from_slice(shown),
            Some(dense) => {
                out.chunks_exact_mut(width).take(rows).for_each(|out| out.copy_from_slice(&dense.bias));
                let a = Left { values: shown, row: show, column: 1 };
                let (k, b) = (self.shown, &dense.kernel);
                path.compute(Product {
                    m: rows,
                    n: width,
                    k,
                    a,
                    b,
                    b_row: width,
                    c: out,
                    c_row: width,
                    into: Into::Add,
                });
            }
        }
    }

    /// Lets tokens wait: what the last layer shows for them, and who they are.
    pub(super) fn append(
        &self,
        path: KernelPath,
        shown: &[f32],
        who: impl Iterator<Item = (usize, usize)>,
        lines: &mut Lines,
    ) {
        let start = lines.waiting.len() * padded(self.size);
        self.meet(path, shown, &mut lines.out[start..]);
        lines.waiting.extend(who);
    }

    /// Visits the log-probabilities of all that wait.
    pub(super) fn finish(
        &self,
        path: KernelPath,
        embedding: &[f32],
        lines: &mut Lines,
        visit: &mut dyn FnMut(usize, usize, &[f32]),
    ) {
        let (tokens, width, line) = (lines.waiting.len(), padded(self.size), padded(self.vocabulary));
        let row = padded(tokens);
        transpose(path, &lines.out, width, [tokens, self.size], &mut lines.turned, row);
        for (n, entries) in embedding.chunks(TILE * self.size).enumerate() {
            let a = Left { values: entries, row: self.size, column: 1 };
            let (m, k, b, c) = (entries.len() / self.size, self.size, &lines.turned, &mut lines.tile);
            path.compute(Product { m, n: row, k, a, b, b_row: row, c, c_row: row, into: Into::Set });
            transpose(path, &lines.tile, row, [m, tokens], &mut lines.lines[n * TILE..], line);
        }
        for ((sequence, position), line) in lines.waiting.drain(..).zip(lines.lines.chunks_exact_mut(line)) {
            self.normalise(path, line);
            visit(sequence, position, &line[..self.vocabulary]);
        }
    }

    /// The log-probabilities for one token: what the last layer shows in, a padded line out.
    pub(super) fn one(&self, path: KernelPath, embedding: &[f32], shown: &[f32], out: &mut [f32], line: &mut [f32]) {
        self.meet(path, shown, out);
        path.compute(Dots { rows: embedding, vector: &out[..self.size], to: line });
        self.normalise(path, line);
    }

    fn normalise(&self, path: KernelPath, line: &mut [f32]) {
        line[self.vocabulary..].fill(f32::NEG_INFINITY);
        path.compute(LogSoftmax { line, bias: &self.bias });
    }
}

/// The dot product of each row with one vector.
struct Dots<'a> {
    rows: &'a [f32],
    vector: &'a [f32],
    to: &'a mut [f32],
}

impl WithSimd for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (vector, rest) = S::as_simd_f32s(self.vector);
        for (row, to) in self.rows.chunks_exact(self.vector.len()).zip(self.to.iter_mut()) {
            let (row, row_rest) = S::as_simd_f32s(row);
            // Two sums, so that one need not wait for the other.
            let (mut even, mut odd) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
            let (rows, vectors) = (row.chunks_exact(2), vector.chunks_exact(2));
            if let ([a], [b]) = (rows.remainder(), vectors.remainder()) {
                even = simd.mul_f32s(*a, *b);
            }
            for (a, b) in rows.zip(vectors) {
                even = simd.mul_add_e_f32s(a[0], b[0], even);
                odd = simd.mul_add_e_f32s(a[1], b[1], odd);
            }
            let end: f32 = row_rest.iter().zip(rest).map(|(a, b)| a * b).sum();
            *to = simd.reduce_sum_f32s(simd.add_f32s(even, odd)) + end;
        }
    }
}

/// Logits to the logarithms of probabilities, after a bias was added where there is one. Both are padded; the padding of
/// the line is minus infinity.
struct LogSoftmax<'a> {
    line: &'a mut [f32],
    bias: &'a [f32],
}

impl WithSimd for LogSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (line, _) = S::as_mut_simd_f32s(self.line);
        let (bias, _) = S::as_simd_f32s(self.bias);
        line.iter_mut().zip(bias).for_each(|(l, b)| *l = simd.add_f32s(*l, *b));
        let mut largest = simd.splat_f32s(f32::NEG_INFINITY);
        line.iter().for_each(|l| largest = simd.max_f32s(largest, *l));
        let largest = simd.reduce_max_f32s(largest);
        let (shift, bits) = (simd.splat_f32s(largest), simd.splat_f32s(std::f32::consts::LOG2_E));
        let mut sum = simd.splat_f32s(0.0);
        for l in line.iter() {
            sum = simd.add_f32s(sum, exp2(simd, simd.mul_f32s(simd.sub_f32s(*l, shift), bits)));
        }
        let log_sum = simd.splat_f32s(largest + libm::logf(simd.reduce_sum_f32s(sum)));
        line.iter_mut().for_each(|l| *l = simd.sub_f32s(*l, log_sum));
    }
}
