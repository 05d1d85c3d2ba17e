//! One recurrent layer: LSTM or CIFG, with or without a recurrent projection.
//!
//! | here      | shape                 | what                                                             |
//! |-----------|-----------------------|------------------------------------------------------------------|
//! | `from_x`  | input x gates * units | kernel rows for what enters from below                           |
//! | `from_h`  | shown x gates * units | kernel rows for what the layer showed before                     |
//! | `shown`   | (steps + 1) * rows    | what was shown; the first rows are carried over                  |
//! | `d_gates` | tokens x gates * units | gradients of the gates' sums                                    |

use super::{
    apply_mask,
    super::{
        config::{Cell, ModelConfig},
        parameters::{ParameterLayout, Role},
        reference::Batch,
    },
    packed::Table,
};
use crate::kernels::{
    KernelPath,
    cell::{Backward, Forward},
    matrix::{Into, Left, Product, padded, transpose},
    rows::SubtractRows,
};

/// Weights, carried state and the memory of a step.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    layer: usize,
    cell: Cell,
    /// Sizes without padding: input, units, shown.
    sizes: [usize; 3],
    /// The same, padded.
    input: usize,
    units: usize,
    show: usize,
    from_x: Vec<f32>,
    from_h: Vec<f32>,
    bias: Vec<f32>,
    from_x_back: Vec<f32>,
    from_h_back: Vec<f32>,
    projection: Option<Projection>,
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
    forward: Table,
    back: Vec<f32>,
}

impl Layer {
    pub(super) fn new(config: &ModelConfig, layer: usize, rows: usize, steps: usize) -> Self {
        let sizes = [config.layer_input(layer), config.hidden, config.shown()];
        let [input, units, show] = sizes.map(padded);
        let wide = config.cell.gates().len() * units;
        let tokens = rows * steps;
        let zeros = |len: usize| vec![0.0; len];
        let projection = config.recurrent_projection.map(|size| Projection {
            forward: Table::new(units, size),
            back: zeros(show * units),
        });
        Self {
            layer,
            cell: config.cell,
            sizes,
            input,
            units,
            show,
            from_x: zeros(input * wide),
            from_h: zeros(show * wide),
            bias: zeros(wide),
            from_x_back: zeros(wide * input),
            from_h_back: zeros(wide * show),
            x: zeros(tokens * input),
            gates: zeros(tokens * wide),
            cells: zeros((tokens + rows) * units),
            tanh_cells: zeros(tokens * units),
            unit_values: zeros(if projection.is_some() { tokens * units } else { 0 }),
            shown: zeros((tokens + rows) * show),
            d_gates: zeros(tokens * wide),
            d_shown: zeros(tokens * show),
            d_units: zeros(rows * units),
            d_cells: zeros(rows * units),
            d_x: zeros(tokens * input),
            projection,
            carried_rows: 0,
        }
    }

    fn wide(&self) -> usize {
        self.bias.len()
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

    pub(super) fn load(&mut self, layout: &ParameterLayout, parameters: &[f32]) {
        let [input, hidden, shown] = self.sizes;
        let (wide, units) = (self.wide(), self.units);
        for (n, gate) in self.cell.gates().iter().copied().enumerate() {
            let kernel = &parameters[layout.range(Role::GateKernel { layer: self.layer, gate })];
            for (row, from) in kernel.chunks_exact(hidden).enumerate() {
                let (to, row) = if row < input { (&mut self.from_x, row) } else { (&mut self.from_h, row - input) };
                to[row * wide + n * units..][..hidden].copy_from_slice(from);
            }
            let bias = &parameters[layout.range(Role::GateBias { layer: self.layer, gate })];
            self.bias[n * units..][..hidden].copy_from_slice(bias);
        }
        if let Some(projection) = &mut self.projection {
            debug_assert_eq!(shown, projection.forward.row(0).len());
            projection.forward.load(&parameters[layout.range(Role::Projection { layer: self.layer })]);
        }
        self.refresh_copies();
    }

    pub(super) fn store(&self, layout: &ParameterLayout, parameters: &mut [f32]) {
        let [input, hidden, _] = self.sizes;
        let (wide, units) = (self.wide(), self.units);
        for (n, gate) in self.cell.gates().iter().copied().enumerate() {
            let kernel = &mut parameters[layout.range(Role::GateKernel { layer: self.layer, gate })];
            for (row, to) in kernel.chunks_exact_mut(hidden).enumerate() {
                let (from, row) = if row < input { (&self.from_x, row) } else { (&self.from_h, row - input) };
                to.copy_from_slice(&from[row * wide + n * units..][..hidden]);
            }
            let bias = &mut parameters[layout.range(Role::GateBias { layer: self.layer, gate })];
            bias.copy_from_slice(&self.bias[n * units..][..hidden]);
        }
        if let Some(projection) = &self.projection {
            let range = layout.range(Role::Projection { layer: self.layer });
            let mut all = vec![0.0; projection.forward.rows() * self.sizes[2]];
            projection.forward.store(&mut all);
            let len = range.len();
            parameters[range].copy_from_slice(&all[..len]);
        }
    }

    /// Rewrites the transposed copies after the weights changed.
    fn refresh_copies(&mut self) {
        let wide = self.wide();
        transpose(&self.from_x, wide, self.input, wide, &mut self.from_x_back, self.input);
        transpose(&self.from_h, wide, self.show, wide, &mut self.from_h_back, self.show);
        if let Some(projection) = &mut self.projection {
            transpose(&projection.forward.values, self.show, self.units, self.show, &mut projection.back, self.units);
        }
    }

    pub(super) fn forget(&mut self) {
        self.cells.fill(0.0);
        self.shown.fill(0.0);
        self.carried_rows = 0;
    }

    pub(super) fn read_embeddings(&mut self, table: &Table, batch: &Batch<'_>) {
        for (x, id) in self.x.chunks_exact_mut(self.input).zip(batch.inputs) {
            let row = table.row(*id as usize);
            x[..row.len()].copy_from_slice(row);
            x[row.len()..][..batch.context.len()].copy_from_slice(batch.context);
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
        let (wide, units, show) = (self.wide(), self.units, self.show);
        let coupled = self.cell == Cell::Cifg;
        for gates in self.gates.chunks_exact_mut(wide).take(tokens) {
            gates.copy_from_slice(&self.bias);
        }
        let x = Left { values: &self.x, row: self.input, column: 1 };
        let (k, c) = (self.input, &mut self.gates);
        run(path, Product { m: tokens, n: wide, k, a: x, b: &self.from_x, b_row: wide, c, c_row: wide, into: Into::Add });
        for step in 0..tokens / rows {
            let at = step * rows;
            let gates = &mut self.gates[at * wide..(at + rows) * wide];
            let a = Left { values: &self.shown[at * show..(at + rows) * show], row: show, column: 1 };
            let b = &self.from_h;
            run(path, Product { m: rows, n: wide, k: show, a, b, b_row: wide, c: gates, c_row: wide, into: Into::Add });
            let (cell_before, cell) = self.cells[at * units..(at + 2 * rows) * units].split_at_mut(rows * units);
            let tanh_cell = &mut self.tanh_cells[at * units..(at + rows) * units];
            let gates = &mut self.gates[at * wide..(at + rows) * wide];
            let after = &mut self.shown[(at + rows) * show..(at + 2 * rows) * show];
            match &self.projection {
                None => path_run(path, Forward { units, coupled, gates, cell_before, cell, tanh_cell, shown: after }),
                Some(projection) => {
                    let values = &mut self.unit_values[at * units..(at + rows) * units];
                    path_run(path, Forward { units, coupled, gates, cell_before, cell, tanh_cell, shown: values });
                    let a = Left { values, row: units, column: 1 };
                    let b = &projection.forward.values;
                    let product =
                        Product { m: rows, n: show, k: units, a, b, b_row: show, c: after, c_row: show, into: Into::Set };
                    run(path, product);
                }
            }
        }
    }

    /// Back through the batch: `d_shown` is the gradient of what was shown at each token. The weights move against their
    /// gradients.
    pub(super) fn backward(&mut self, path: KernelPath, rows: usize, tokens: usize, d_above: &[f32], rate: f32) {
        let (wide, units, show) = (self.wide(), self.units, self.show);
        let coupled = self.cell == Cell::Cifg;
        self.d_shown[..tokens * show].copy_from_slice(&d_above[..tokens * show]);
        self.d_cells.fill(0.0);
        for step in (0..tokens / rows).rev() {
            let at = step * rows;
            let d_units = match &self.projection {
                None => &self.d_shown[at * show..(at + rows) * show],
                Some(projection) => {
                    let a = Left { values: &self.d_shown[at * show..(at + rows) * show], row: show, column: 1 };
                    let (b, c) = (&projection.back, &mut self.d_units);
                    run(path, Product { m: rows, n: units, k: show, a, b, b_row: units, c, c_row: units, into: Into::Set });
                    &self.d_units[..rows * units]
                }
            };
            let d_gates = &mut self.d_gates[at * wide..(at + rows) * wide];
            path_run(
                path,
                Backward {
                    units,
                    coupled,
                    gates: &self.gates[at * wide..(at + rows) * wide],
                    cell_before: &self.cells[at * units..(at + rows) * units],
                    tanh_cell: &self.tanh_cells[at * units..(at + rows) * units],
                    d_units,
                    d_cell: &mut self.d_cells[..rows * units],
                    d_gates,
                },
            );
            if step > 0 {
                let a = Left { values: &self.d_gates[at * wide..(at + rows) * wide], row: wide, column: 1 };
                let c = &mut self.d_shown[(at - rows) * show..at * show];
                let b = &self.from_h_back;
                run(path, Product { m: rows, n: show, k: wide, a, b, b_row: show, c, c_row: show, into: Into::Add });
            }
        }
        self.learn(path, tokens, rate);
        self.carry(rows, tokens);
    }

    /// The gradient of what entered, and the weights' step.
    fn learn(&mut self, path: KernelPath, tokens: usize, rate: f32) {
        let (wide, units, show, input) = (self.wide(), self.units, self.show, self.input);
        let d_gates = &self.d_gates[..tokens * wide];
        let a = Left { values: d_gates, row: wide, column: 1 };
        let (b, c) = (&self.from_x_back, &mut self.d_x);
        run(path, Product { m: tokens, n: input, k: wide, a, b, b_row: input, c, c_row: input, into: Into::Set });
        let into = Into::AddScaled(-rate);
        let a = Left { values: &self.x, row: 1, column: input };
        let c = &mut self.from_x;
        run(path, Product { m: input, n: wide, k: tokens, a, b: d_gates, b_row: wide, c, c_row: wide, into });
        let a = Left { values: &self.shown, row: 1, column: show };
        let c = &mut self.from_h;
        run(path, Product { m: show, n: wide, k: tokens, a, b: d_gates, b_row: wide, c, c_row: wide, into });
        path.run(SubtractRows { to: &mut self.bias, from: d_gates, rate });
        if let Some(projection) = &mut self.projection {
            let a = Left { values: &self.unit_values, row: 1, column: units };
            let (b, c) = (&self.d_shown[..tokens * show], &mut projection.forward.values);
            run(path, Product { m: units, n: show, k: tokens, a, b, b_row: show, c, c_row: show, into });
        }
        self.refresh_copies();
    }
}

fn run(path: KernelPath, product: Product<'_>) {
    path_run(path, product);
}

/// Runs a kernel; the path was found to be there when the trainer was made.
fn path_run<W: pulp::WithSimd<Output = ()>>(path: KernelPath, op: W) {
    let done = path.run(op);
    debug_assert!(done.is_some());
}
