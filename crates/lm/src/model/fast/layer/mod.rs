//! One recurrent layer: LSTM or CIFG, with or without a recurrent projection, or GRU.
//!
//! | here      | shape                  | what                                                            |
//! |-----------|------------------------|-----------------------------------------------------------------|
//! | `from_x`  | input x gates * units  | kernel rows for what enters from below                          |
//! | `from_h`  | shown x gates * units  | kernel rows for what the layer showed before                    |
//! | `shown`   | (steps + 1) * rows     | what was shown; the first rows are carried over                 |
//! | `d_gates` | tokens x gates * units | gradients of the gates' sums                                    |
//!
//! Of a GRU, `from_h` has update and reset gate only. What is read backwards has a transposed copy, rewritten after every step.

mod cells;
mod gru;

use self::gru::Candidate;
use super::{
    super::{
        batch::Batch,
        config::{Cell, Gate, ModelConfig},
        parameters::{ParameterLayout, Role},
    },
    apply_mask,
    packed::Panels,
};
use crate::kernels::{
    KernelPath,
    matrix::{Into, Left, padded},
    rows::SubtractRows,
};

/// Weights, carried state and the memory of a step.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    layer: usize,
    cell: Cell,
    /// Sizes without padding: input, units, shown.
    sizes: [usize; 3],
    /// Width of the input, padded.
    input: usize,
    units: usize,
    show: usize,
    /// How far the gates of two tokens are apart: an odd number of cache lines, so that tokens do not compete for places.
    gate_row: usize,
    from_x: Panels,
    from_h: Panels,
    bias: Vec<f32>,
    from_x_back: Panels,
    from_h_back: Panels,
    projection: Option<Projection>,
    candidate: Option<Candidate>,
    x: Vec<f32>,
    gates: Vec<f32>,
    cells: Vec<f32>,
    tanh_cells: Vec<f32>,
    unit_values: Vec<f32>,
    shown: Vec<f32>,
    d_gates: Vec<f32>,
    d_shown: Vec<f32>,
    d_units: Vec<f32>,
    d_cells: Vec<f32>,
    d_x: Vec<f32>,
    carried_rows: usize,
}

#[derive(Debug, Clone)]
struct Projection {
    forward: Panels,
    back: Panels,
}

impl Layer {
    pub(super) fn new(config: &ModelConfig, layer: usize, rows: usize, steps: usize) -> Self {
        let sizes = [config.layer_input(layer), config.hidden, config.shown()];
        let [input, units, show] = sizes.map(padded);
        let wide = config.cell.gates().len() * units;
        let gate_row = odd_lines(wide);
        let from_before = if config.cell == Cell::Gru { 2 * units } else { wide };
        let tokens = rows * steps;
        let zeros = |len: usize| vec![0.0; len];
        let projection = config.recurrent_projection.map(|size| Projection {
            forward: Panels::new(units, padded(size)),
            back: Panels::new(padded(size), units),
        });
        Self {
            layer,
            cell: config.cell,
            sizes,
            input,
            units,
            show,
            gate_row,
            from_x: Panels::new(input, wide),
            from_h: Panels::new(show, from_before),
            bias: zeros(gate_row),
            from_x_back: Panels::new(wide, input),
            from_h_back: Panels::new(from_before, show),
            x: zeros(tokens * input),
            gates: zeros(tokens * gate_row),
            cells: zeros((tokens + rows) * units),
            tanh_cells: zeros(tokens * units),
            unit_values: zeros(if projection.is_some() { tokens * units } else { 0 }),
            shown: zeros((tokens + rows) * show),
            d_gates: zeros(tokens * gate_row),
            d_shown: zeros(tokens * show),
            d_units: zeros(rows * units),
            d_cells: zeros(rows * units),
            d_x: zeros(tokens * input),
            projection,
            candidate: (config.cell == Cell::Gru).then(|| Candidate::new(units, rows, steps)),
            carried_rows: 0,
        }
    }

    /// The padded size of what enters.
    pub(super) const fn input(&self) -> usize {
        self.input
    }

    /// What was shown at each token, `[token][unit]`.
    pub(super) fn shown(&self, tokens: usize) -> &[f32] {
        let start = self.carried_rows * self.show;
        &self.shown[start..start + tokens * self.show]
    }

    /// The gradient of what entered.
    pub(super) fn d_input(&self, tokens: usize) -> &[f32] {
        &self.d_x[..tokens * self.input]
    }

    pub(super) fn load(&mut self, path: KernelPath, layout: &ParameterLayout, parameters: &[f32]) {
        let [input, hidden, shown] = self.sizes;
        let units = self.units;
        for (n, gate) in self.cell.gates().iter().copied().enumerate() {
            let kernel = &parameters[layout.range(Role::GateKernel { layer: self.layer, gate })];
            for (row, from) in kernel.chunks_exact(hidden).enumerate() {
                match (row.checked_sub(input), &mut self.candidate) {
                    (None, _) => self.from_x.set(row, n * units, from),
                    (Some(row), Some(candidate)) if gate == Gate::Candidate => candidate.from_seen.set(row, 0, from),
                    (Some(row), _) => self.from_h.set(row, n * units, from),
                }
            }
            let bias = &parameters[layout.range(Role::GateBias { layer: self.layer, gate })];
            self.bias[n * units..][..hidden].copy_from_slice(bias);
        }
        if let Some(projection) = &mut self.projection {
            let values = &parameters[layout.range(Role::Projection { layer: self.layer })];
            values.chunks_exact(shown).enumerate().for_each(|(row, from)| projection.forward.set(row, 0, from));
        }
        self.refresh_copies(path);
    }

    pub(super) fn store(&self, layout: &ParameterLayout, parameters: &mut [f32]) {
        let [input, hidden, shown] = self.sizes;
        let units = self.units;
        for (n, gate) in self.cell.gates().iter().copied().enumerate() {
            let kernel = &mut parameters[layout.range(Role::GateKernel { layer: self.layer, gate })];
            for (row, to) in kernel.chunks_exact_mut(hidden).enumerate() {
                match (row.checked_sub(input), &self.candidate) {
                    (None, _) => self.from_x.get(row, n * units, to),
                    (Some(row), Some(candidate)) if gate == Gate::Candidate => candidate.from_seen.get(row, 0, to),
                    (Some(row), _) => self.from_h.get(row, n * units, to),
                }
            }
            let bias = &mut parameters[layout.range(Role::GateBias { layer: self.layer, gate })];
            bias.copy_from_slice(&self.bias[n * units..][..hidden]);
        }
        if let Some(projection) = &self.projection {
            let values = &mut parameters[layout.range(Role::Projection { layer: self.layer })];
            values.chunks_exact_mut(shown).enumerate().for_each(|(row, to)| projection.forward.get(row, 0, to));
        }
    }

    /// Rewrites the transposed copies after the weights changed.
    fn refresh_copies(&mut self, path: KernelPath) {
        self.from_x_back.set_transposed(path, &self.from_x);
        self.from_h_back.set_transposed(path, &self.from_h);
        if let Some(projection) = &mut self.projection {
            projection.back.set_transposed(path, &projection.forward);
        }
        if let Some(candidate) = &mut self.candidate {
            candidate.from_seen_back.set_transposed(path, &candidate.from_seen);
        }
    }

    pub(super) fn forget(&mut self) {
        self.cells.fill(0.0);
        self.shown.fill(0.0);
        self.carried_rows = 0;
    }

    /// What `rows` sequences carry to the next batch: their cells and what was shown, padded.
    pub(super) fn carried(&mut self, rows: usize) -> [&mut [f32]; 2] {
        [&mut self.cells[..rows * self.units], &mut self.shown[..rows * self.show]]
    }

    /// Reads embeddings, with the context after each: `read` writes that of an entry, padded.
    pub(super) fn read_rows(&mut self, batch: &Batch<'_>, read: impl Fn(usize, &mut [f32])) {
        let embedding = self.sizes[0] - batch.context.len();
        for (x, id) in self.x.chunks_exact_mut(self.input).zip(batch.inputs) {
            read(*id as usize, &mut x[..padded(embedding)]);
            x[embedding..][..batch.context.len()].copy_from_slice(batch.context);
        }
    }

    pub(super) fn read_layer(&mut self, below: &Self, tokens: usize) {
        self.x[..tokens * self.input].copy_from_slice(below.shown(tokens));
    }

    /// Leaves units out of what entered.
    pub(super) fn leave_out(&mut self, mask: &[f32]) {
        apply_mask(&mut self.x, mask, self.sizes[0]);
    }

    /// Leaves the same units out of its gradient.
    pub(super) fn leave_out_gradient(&mut self, mask: &[f32]) {
        apply_mask(&mut self.d_x, mask, self.sizes[0]);
    }

    /// Brings what a batch left to the front, where the next one begins.
    pub(super) fn carry(&mut self, rows: usize, tokens_before: usize) {
        let from = tokens_before;
        self.cells.copy_within(from * self.units..(from + rows) * self.units, 0);
        self.shown.copy_within(from * self.show..(from + rows) * self.show, 0);
    }

    /// Runs over the batch that was read.
    pub(super) fn forward(&mut self, path: KernelPath, rows: usize, tokens: usize) {
        self.carried_rows = rows;
        let (gate_row, show) = (self.gate_row, self.show);
        for gates in self.gates.chunks_exact_mut(gate_row).take(tokens) {
            gates.copy_from_slice(&self.bias);
        }
        let x = Left { values: &self.x, row: self.input, column: 1 };
        self.from_x.multiply(path, tokens, x, &mut self.gates, gate_row, Into::Add);
        for at in (0..tokens).step_by(rows) {
            let gates = &mut self.gates[at * gate_row..(at + rows) * gate_row];
            let before = Left { values: &self.shown[at * show..(at + rows) * show], row: show, column: 1 };
            self.from_h.multiply(path, rows, before, gates, gate_row, Into::Add);
            match self.cell {
                Cell::Lstm | Cell::Cifg => self.forward_cells(path, at, rows),
                Cell::Gru => self.forward_gru(path, at, rows),
            }
        }
    }

    /// Back through the batch: `d_above` is the gradient of what was shown at each token. The weights move against their
    /// gradients.
    pub(super) fn backward(&mut self, path: KernelPath, rows: usize, tokens: usize, d_above: &[f32], rate: f32) {
        let (gate_row, show) = (self.gate_row, self.show);
        self.d_shown[..tokens * show].copy_from_slice(&d_above[..tokens * show]);
        self.d_cells.fill(0.0);
        for at in (0..tokens).step_by(rows).rev() {
            match self.cell {
                Cell::Lstm | Cell::Cifg => self.backward_cells(path, at, rows),
                Cell::Gru => self.backward_gru(path, at, rows),
            }
            if at > 0 {
                let d_gates = Left { values: &self.d_gates[at * gate_row..], row: gate_row, column: 1 };
                let d_before = &mut self.d_shown[(at - rows) * show..at * show];
                self.from_h_back.multiply(path, rows, d_gates, d_before, show, Into::Add);
            }
        }
        self.learn(path, tokens, rate);
        self.carry(rows, tokens);
    }

    /// All that products read or write but the weights, for the test that looks for subnormal numbers.
    #[cfg(test)]
    pub(super) fn memory(&self) -> Vec<(&'static str, &[f32])> {
        vec![
            ("input", &self.x),
            ("gates", &self.gates),
            ("cells", &self.cells),
            ("tanh of cells", &self.tanh_cells),
            ("units", &self.unit_values),
            ("shown", &self.shown),
            ("gradient of gates", &self.d_gates),
            ("gradient of what was shown", &self.d_shown),
            ("gradient of units", &self.d_units),
            ("gradient of cells", &self.d_cells),
            ("gradient of the input", &self.d_x),
        ]
    }

    /// The gradient of what entered, and the weights' step.
    fn learn(&mut self, path: KernelPath, tokens: usize, rate: f32) {
        let (gate_row, units, show, input) = (self.gate_row, self.units, self.show, self.input);
        let d_gates = &self.d_gates[..tokens * gate_row];
        let left = Left { values: d_gates, row: gate_row, column: 1 };
        self.from_x_back.multiply(path, tokens, left, &mut self.d_x, input, Into::Set);
        let x = Left { values: &self.x, row: 1, column: input };
        self.from_x.add_product(path, tokens, x, d_gates, gate_row, -rate);
        let shown = Left { values: &self.shown, row: 1, column: show };
        self.from_h.add_product(path, tokens, shown, d_gates, gate_row, -rate);
        if let Some(Candidate { from_seen, seen, .. }) = &mut self.candidate {
            let seen = Left { values: seen, row: 1, column: units };
            from_seen.add_product(path, tokens, seen, &d_gates[2 * units..], gate_row, -rate);
        }
        path.compute(SubtractRows { to: &mut self.bias, from: d_gates, rate });
        if let Some(projection) = &mut self.projection {
            let values = Left { values: &self.unit_values, row: 1, column: units };
            projection.forward.add_product(path, tokens, values, &self.d_shown, show, -rate);
        }
        self.refresh_copies(path);
    }
}

/// A length, made an odd number of cache lines of 16 numbers.
const fn odd_lines(len: usize) -> usize {
    let padded = padded(len);
    padded + (padded / 16 + 1) % 2 * 16
}
