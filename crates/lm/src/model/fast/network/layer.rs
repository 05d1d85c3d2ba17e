//! Inference in one recurrent layer: LSTM, CIFG or GRU, one token of some sequences at a time.
//!
//! Of many sequences, the weights are packed first: products want the gates side by side and rows padded. For a keyboard's
//! one sequence they are used where they lie, so that they are in memory once.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::{
    kernels::{
        KernelPath,
        cell::Forward,
        gru::{Reset, Update},
        matrix::{Into, Left, Product, padded},
    },
    model::{
        config::{Cell, Gate, ModelConfig},
        parameters::{ParameterLayout, Role},
    },
};

/// The sizes of a layer, and where its weights lie in the flat vector.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    cell: Cell,
    /// What enters from below, without padding.
    input: usize,
    /// Units and what is shown of them, without padding.
    hidden: usize,
    shown: usize,
    gates: Vec<GatePlace>,
    projection: Option<Range<usize>>,
}

/// A kernel, `[input, then shown][unit]`, and a bias.
#[derive(Debug, Clone)]
struct GatePlace {
    kernel: Range<usize>,
    bias: Range<usize>,
}

/// The weights of a layer.
#[derive(Debug, Clone)]
pub(super) enum Weights {
    /// As they lie in the flat vector: for one row.
    InPlace,
    /// As the kernels like them: for many rows.
    Packed(Packed),
}

/// The gates side by side, rows padded.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    /// `[input, then shown][gate][unit]`.
    kernel: Vec<f32>,
    /// `[unit][shown]`; empty without a projection.
    projection: Vec<f32>,
}

/// What is carried along sequences: `[row][unit]` and `[row][shown]`, padded.
#[derive(Debug, Clone)]
pub(super) struct State {
    cells: Vec<f32>,
    shown: Vec<f32>,
    width: usize,
    size: usize,
}

/// Room for a step, the same for all layers.
#[derive(Debug, Clone)]
pub(super) struct Scratch {
    /// `[row][input, then shown]`, without padding between rows.
    entered: Vec<f32>,
    gates: Vec<f32>,
    cells: Vec<f32>,
    tanh_cells: Vec<f32>,
    units: Vec<f32>,
}

impl State {
    pub(super) fn zero(layer: &Layer, rows: usize) -> Self {
        let width = padded(layer.shown);
        let cells = if layer.cell == Cell::Gru { 0 } else { rows * padded(layer.hidden) };
        Self { cells: vec![0.0; cells], shown: vec![0.0; rows * width], width, size: layer.shown }
    }

    /// What the first rows show, padded.
    pub(super) fn shown(&self, rows: usize) -> &[f32] {
        &self.shown[..rows * self.width]
    }

    /// The same row by row, without padding.
    pub(super) fn shown_rows(&self, rows: usize) -> impl Iterator<Item = &[f32]> {
        self.shown(rows).chunks_exact(self.width).map(|row| &row[..self.size])
    }
}

impl Scratch {
    pub(super) fn new(layers: &[Layer], rows: usize) -> Self {
        let most = |size: fn(&Layer) -> usize| vec![0.0; rows * layers.iter().map(size).max().unwrap_or(0)];
        Self {
            entered: most(Layer::entered),
            gates: most(Layer::wide),
            cells: most(Layer::units),
            tanh_cells: most(Layer::units),
            units: most(Layer::units),
        }
    }

    /// What enters a layer from below, and beside it a user's context; what is not known of it is zero.
    pub(super) fn enter<'a>(&mut self, layer: &Layer, below: impl Iterator<Item = &'a [f32]>, contexts: &[&[f32]]) {
        let contexts = contexts.iter().copied().chain(std::iter::repeat(&[][..]));
        for ((entered, row), context) in self.entered.chunks_exact_mut(layer.entered()).zip(below).zip(contexts) {
            let (own, beside) = entered[..layer.input].split_at_mut(row.len());
            own.copy_from_slice(row);
            beside.fill(0.0);
            beside.iter_mut().zip(context).for_each(|(to, known)| *to = *known);
        }
    }
}

impl Layer {
    pub(super) fn new(config: &ModelConfig, layer: usize, layout: &ParameterLayout) -> Self {
        let place = |gate: &Gate| GatePlace {
            kernel: layout.range(Role::GateKernel { layer, gate: *gate }),
            bias: layout.range(Role::GateBias { layer, gate: *gate }),
        };
        Self {
            cell: config.cell,
            input: config.layer_input(layer),
            hidden: config.hidden,
            shown: config.shown(),
            gates: config.cell.gates().iter().map(place).collect(),
            projection: config.recurrent_projection.map(|_| layout.range(Role::Projection { layer })),
        }
    }

    /// The weights for many rows.
    pub(super) fn pack(&self, parameters: &[f32]) -> Packed {
        let (units, wide) = (self.units(), self.wide());
        let mut kernel = vec![0.0; self.entered() * wide];
        for (n, gate) in self.gates.iter().enumerate() {
            let from = parameters[gate.kernel.clone()].chunks_exact(self.hidden);
            for (to, from) in kernel.chunks_exact_mut(wide).zip(from) {
                to[n * units..][..self.hidden].copy_from_slice(from);
            }
        }
        let projection = self.projection.clone().map_or(&[][..], |place| &parameters[place]);
        Packed { kernel, projection: pad_rows(projection, self.shown) }
    }

    const fn entered(&self) -> usize {
        self.input + self.shown
    }

    fn units(&self) -> usize {
        padded(self.hidden)
    }

    fn wide(&self) -> usize {
        self.gates.len() * self.units()
    }

    /// One token of each row, which has entered; the state moves on.
    pub(super) fn step(&self, by: &Step<'_>, rows: usize, state: &mut State, scratch: &mut Scratch) {
        let entered = scratch.entered.chunks_exact_mut(self.entered());
        for (entered, shown) in entered.zip(state.shown_rows(rows)) {
            entered[self.input..].copy_from_slice(shown);
        }
        for gates in scratch.gates.chunks_exact_mut(self.wide()).take(rows) {
            for (sums, gate) in gates.chunks_exact_mut(self.units()).zip(&self.gates) {
                sums[..self.hidden].copy_from_slice(&by.parameters[gate.bias.clone()]);
                sums[self.hidden..].fill(0.0);
            }
        }
        match self.cell {
            Cell::Lstm | Cell::Cifg => self.step_with_cells(by, rows, state, scratch),
            Cell::Gru => self.step_gru(by, rows, state, scratch),
        }
    }

    /// Adds the product of what entered with the kernel of some gates to their sums.
    fn add_product(&self, by: &Step<'_>, rows: usize, gates: Range<usize>, scratch: &mut Scratch) {
        let (wide, units, k) = (self.wide(), self.units(), self.entered());
        match &by.weights {
            Weights::InPlace => {
                for n in gates {
                    let (vector, matrix) = (&scratch.entered[..k], &by.parameters[self.gates[n].kernel.clone()]);
                    by.path.compute(VectorMatrix {
                        vector,
                        matrix,
                        to: &mut scratch.gates[n * units..][..self.hidden],
                    });
                }
            }
            Weights::Packed(packed) => {
                let (at, n) = (gates.start * units, gates.len() * units);
                let a = Left { values: &scratch.entered, row: k, column: 1 };
                let (b, c) = (&packed.kernel[at..], &mut scratch.gates[at..]);
                by.path.compute(Product { m: rows, n, k, a, b, b_row: wide, c, c_row: wide, into: Into::Add });
            }
        }
    }

    fn step_with_cells(&self, by: &Step<'_>, rows: usize, state: &mut State, scratch: &mut Scratch) {
        let (wide, units) = (self.wide(), self.units());
        self.add_product(by, rows, 0..self.gates.len(), scratch);
        let gates = &mut scratch.gates[..rows * wide];
        let coupled = self.cell == Cell::Cifg;
        let (cell_before, cell) = (&state.cells[..rows * units], &mut scratch.cells[..rows * units]);
        let tanh_cell = &mut scratch.tanh_cells[..rows * units];
        let shown = match self.projection {
            None => &mut state.shown[..rows * units],
            Some(_) => &mut scratch.units[..rows * units],
        };
        by.path.compute(Forward { units, gate_row: wide, coupled, gates, cell_before, cell, tanh_cell, shown });
        state.cells[..rows * units].copy_from_slice(&scratch.cells[..rows * units]);
        if let Some(place) = &self.projection {
            self.project(by, rows, place, state, scratch);
        }
    }

    fn project(&self, by: &Step<'_>, rows: usize, place: &Range<usize>, state: &mut State, scratch: &Scratch) {
        match &by.weights {
            Weights::InPlace => {
                state.shown.fill(0.0);
                let (vector, matrix) = (&scratch.units[..self.hidden], &by.parameters[place.clone()]);
                by.path.compute(VectorMatrix { vector, matrix, to: &mut state.shown[..self.shown] });
            }
            Weights::Packed(packed) => {
                let (k, width) = (self.hidden, padded(self.shown));
                let a = Left { values: &scratch.units, row: self.units(), column: 1 };
                let (b, c) = (&packed.projection, &mut state.shown);
                by.path.compute(Product { m: rows, n: width, k, a, b, b_row: width, c, c_row: width, into: Into::Set });
            }
        }
    }

    fn step_gru(&self, by: &Step<'_>, rows: usize, state: &mut State, scratch: &mut Scratch) {
        let (wide, units) = (self.wide(), self.units());
        self.add_product(by, rows, 0..2, scratch);
        let (gates, before) = (&mut scratch.gates[..rows * wide], &state.shown[..rows * units]);
        by.path.compute(Reset { units, gate_row: wide, gates, before, seen: &mut scratch.units[..rows * units] });
        let entered = scratch.entered.chunks_exact_mut(self.entered());
        for (entered, seen) in entered.zip(scratch.units.chunks_exact(units)).take(rows) {
            entered[self.input..].copy_from_slice(&seen[..self.hidden]);
        }
        self.add_product(by, rows, 2..3, scratch);
        let (gates, shown) = (&mut scratch.gates[..rows * wide], &mut scratch.units[..rows * units]);
        by.path.compute(Update { units, gate_row: wide, gates, before, shown });
        state.shown[..rows * units].copy_from_slice(shown);
    }
}

/// What a step is computed with.
pub(super) struct Step<'a> {
    pub(super) path: KernelPath,
    pub(super) parameters: &'a [f32],
    pub(super) weights: Weights,
}

/// A matrix with its rows padded.
pub(super) fn pad_rows(matrix: &[f32], columns: usize) -> Vec<f32> {
    let padding = padded(columns) - columns;
    let rows = matrix.chunks_exact(columns);
    rows.flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0.0, padding))).collect()
}

/// `to += vector matrix`, the matrix row by row as it is.
struct VectorMatrix<'a> {
    vector: &'a [f32],
    matrix: &'a [f32],
    to: &'a mut [f32],
}

impl WithSimd for VectorMatrix<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let columns = self.to.len();
        let (to, to_rest) = S::as_mut_simd_f32s(self.to);
        // Four rows at a time, so that sums are read and written a fourth as often.
        let fours = self.vector.chunks_exact(4).zip(self.matrix.chunks_exact(4 * columns));
        for (factors, rows) in fours {
            let rows: [&[f32]; 4] = std::array::from_fn(|r| &rows[r * columns..][..columns]);
            let [a, b, c, d] = rows.map(S::as_simd_f32s);
            let f: [S::f32s; 4] = std::array::from_fn(|i| simd.splat_f32s(factors[i]));
            for ((((to, a), b), c), d) in to.iter_mut().zip(a.0).zip(b.0).zip(c.0).zip(d.0) {
                let even = simd.mul_add_e_f32s(f[0], *a, simd.mul_f32s(f[1], *b));
                let odd = simd.mul_add_e_f32s(f[2], *c, simd.mul_f32s(f[3], *d));
                *to = simd.add_f32s(*to, simd.add_f32s(even, odd));
            }
            for (i, to) in to_rest.iter_mut().enumerate() {
                *to += factors[0] * a.1[i] + factors[1] * b.1[i] + factors[2] * c.1[i] + factors[3] * d.1[i];
            }
        }
        let done = self.vector.len() / 4 * 4;
        for (factor, row) in self.vector[done..].iter().zip(self.matrix[done * columns..].chunks_exact(columns)) {
            let (row, row_rest) = S::as_simd_f32s(row);
            let f = simd.splat_f32s(*factor);
            to.iter_mut().zip(row).for_each(|(to, a)| *to = simd.mul_add_e_f32s(f, *a, *to));
            to_rest.iter_mut().zip(row_rest).for_each(|(to, a)| *to += factor * a);
        }
    }
}
