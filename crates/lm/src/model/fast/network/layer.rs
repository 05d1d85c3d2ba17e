//! One recurrent layer that only reads: LSTM, CIFG or GRU, one token of some sequences at a time.

use pulp::{Simd, WithSimd};

use crate::{
    kernels::{
        KernelPath,
        activation::{sigmoid, tanh},
        cell::Forward,
        matrix::{Into, Left, Product, padded},
    },
    model::{
        config::{Cell, ModelConfig},
        parameters::{ParameterLayout, Role},
    },
};

/// Weights in the form that the kernels like: the gates side by side, rows padded.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    cell: Cell,
    /// What enters from below, without padding.
    input: usize,
    /// Units and what is shown of them, without padding.
    hidden: usize,
    shown: usize,
    /// `[input, then shown][gate][unit]`.
    kernel: Vec<f32>,
    bias: Vec<f32>,
    /// `[unit][shown]`.
    projection: Option<Vec<f32>>,
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
            gates: most(|layer| layer.bias.len()),
            cells: most(Layer::units),
            tanh_cells: most(Layer::units),
            units: most(Layer::units),
        }
    }

    /// What enters a layer from below. What a row has less than the layer takes, a user's context, is zero.
    pub(super) fn enter<'a>(&mut self, layer: &Layer, below: impl Iterator<Item = &'a [f32]>) {
        for (entered, row) in self.entered.chunks_exact_mut(layer.entered()).zip(below) {
            entered[..row.len()].copy_from_slice(row);
            entered[row.len()..layer.input].fill(0.0);
        }
    }
}

impl Layer {
    pub(super) fn new(config: &ModelConfig, layer: usize, layout: &ParameterLayout, parameters: &[f32]) -> Self {
        let (input, hidden, shown) = (config.layer_input(layer), config.hidden, config.shown());
        let (units, gates) = (padded(hidden), config.cell.gates());
        let wide = gates.len() * units;
        let (mut kernel, mut bias) = (vec![0.0; (input + shown) * wide], vec![0.0; wide]);
        for (n, gate) in gates.iter().copied().enumerate() {
            let from = &parameters[layout.range(Role::GateKernel { layer, gate })];
            for (to, from) in kernel.chunks_exact_mut(wide).zip(from.chunks_exact(hidden)) {
                to[n * units..][..hidden].copy_from_slice(from);
            }
            bias[n * units..][..hidden].copy_from_slice(&parameters[layout.range(Role::GateBias { layer, gate })]);
        }
        let projection = config.recurrent_projection.map(|size| {
            let from = parameters[layout.range(Role::Projection { layer })].chunks_exact(size);
            let mut projection = vec![0.0; hidden * padded(size)];
            let rows = projection.chunks_exact_mut(padded(size)).zip(from);
            rows.for_each(|(to, from)| to[..size].copy_from_slice(from));
            projection
        });
        Self { cell: config.cell, input, hidden, shown, kernel, bias, projection }
    }

    const fn entered(&self) -> usize {
        self.input + self.shown
    }

    fn units(&self) -> usize {
        padded(self.hidden)
    }

    /// One token of each row, which has entered; the state moves on.
    pub(super) fn step(&self, path: KernelPath, rows: usize, state: &mut State, scratch: &mut Scratch) {
        let entered = scratch.entered.chunks_exact_mut(self.entered());
        for (entered, shown) in entered.zip(state.shown_rows(rows)) {
            entered[self.input..].copy_from_slice(shown);
        }
        for gates in scratch.gates.chunks_exact_mut(self.bias.len()).take(rows) {
            gates.copy_from_slice(&self.bias);
        }
        match self.cell {
            Cell::Lstm | Cell::Cifg => self.step_with_cells(path, rows, state, scratch),
            Cell::Gru => self.step_gru(path, rows, state, scratch),
        }
    }

    /// Adds the product of what entered with the kernel of some gates to their sums.
    fn add_product(&self, path: KernelPath, rows: usize, gates: std::ops::Range<usize>, scratch: &mut Scratch) {
        let (wide, units) = (self.bias.len(), self.units());
        let (at, n) = (gates.start * units, gates.len() * units);
        let k = self.entered();
        let a = Left { values: &scratch.entered, row: k, column: 1 };
        let (b, c) = (&self.kernel[at..], &mut scratch.gates[at..]);
        run(path, Product { m: rows, n, k, a, b, b_row: wide, c, c_row: wide, into: Into::Add });
    }

    fn step_with_cells(&self, path: KernelPath, rows: usize, state: &mut State, scratch: &mut Scratch) {
        let (wide, units) = (self.bias.len(), self.units());
        self.add_product(path, rows, 0..self.cell.gates().len(), scratch);
        let gates = &mut scratch.gates[..rows * wide];
        let coupled = self.cell == Cell::Cifg;
        let (cell_before, cell) = (&state.cells[..rows * units], &mut scratch.cells[..rows * units]);
        let tanh_cell = &mut scratch.tanh_cells[..rows * units];
        let shown = match self.projection {
            None => &mut state.shown[..rows * units],
            Some(_) => &mut scratch.units[..rows * units],
        };
        run(path, Forward { units, gate_row: wide, coupled, gates, cell_before, cell, tanh_cell, shown });
        state.cells[..rows * units].copy_from_slice(&scratch.cells[..rows * units]);
        if let Some(projection) = &self.projection {
            let width = padded(self.shown);
            let a = Left { values: &scratch.units, row: units, column: 1 };
            let (k, b, c) = (self.hidden, projection, &mut state.shown);
            run(path, Product { m: rows, n: width, k, a, b, b_row: width, c, c_row: width, into: Into::Set });
        }
    }

    fn step_gru(&self, path: KernelPath, rows: usize, state: &mut State, scratch: &mut Scratch) {
        let (wide, units) = (self.bias.len(), self.units());
        self.add_product(path, rows, 0..2, scratch);
        run(path, OpenGates { gates: &mut scratch.gates[..rows * wide], units });
        let entered = scratch.entered.chunks_exact_mut(self.entered());
        for (entered, gates) in entered.zip(scratch.gates.chunks_exact(wide)).take(rows) {
            let reset = &gates[units..][..self.hidden];
            entered[self.input..].iter_mut().zip(reset).for_each(|(h, r)| *h *= r);
        }
        self.add_product(path, rows, 2..3, scratch);
        let shown = &mut state.shown[..rows * units];
        run(path, Update { gates: &scratch.gates[..rows * wide], units, shown });
    }
}

/// The update and the reset gate of a GRU, `[row][gate][unit]`: sums in, activated gates out.
struct OpenGates<'a> {
    gates: &'a mut [f32],
    units: usize,
}

impl WithSimd for OpenGates<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for gates in self.gates.chunks_exact_mut(3 * self.units) {
            let (gates, _) = S::as_mut_simd_f32s(&mut gates[..2 * self.units]);
            gates.iter_mut().for_each(|g| *g = sigmoid(simd, *g));
        }
    }
}

/// What a GRU shows: `(1 - z) h + z tanh(candidate)`.
struct Update<'a> {
    gates: &'a [f32],
    units: usize,
    shown: &'a mut [f32],
}

impl WithSimd for Update<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.gates.chunks_exact(3 * self.units).zip(self.shown.chunks_exact_mut(self.units));
        for (gates, shown) in rows {
            let (update, _) = S::as_simd_f32s(&gates[..self.units]);
            let (candidate, _) = S::as_simd_f32s(&gates[2 * self.units..]);
            let (shown, _) = S::as_mut_simd_f32s(shown);
            for ((h, z), n) in shown.iter_mut().zip(update).zip(candidate) {
                *h = simd.mul_add_e_f32s(*z, simd.sub_f32s(tanh(simd, *n), *h), *h);
            }
        }
    }
}

/// Runs a kernel; the path was found to be there when the network was made.
pub(super) fn run<W: WithSimd<Output = ()>>(path: KernelPath, op: W) {
    let done = path.run(op);
    debug_assert!(done.is_some());
}
