//! The steps of LSTM and CIFG layers, which have cell states besides their outputs.

use super::Layer;
use crate::{
    kernels::{
        KernelPath,
        cell::{Backward, Forward},
        matrix::{Into, Left},
    },
    model::config::Cell,
};

impl Layer {
    /// One time step, once the gates hold their sums.
    pub(super) fn forward_cells(&mut self, path: KernelPath, at: usize, rows: usize) {
        let (gate_row, units, show) = (self.gate_row, self.units, self.show);
        let gates = &mut self.gates[at * gate_row..(at + rows) * gate_row];
        let (cell_before, cell) = self.cells[at * units..(at + 2 * rows) * units].split_at_mut(rows * units);
        let tanh_cell = &mut self.tanh_cells[at * units..(at + rows) * units];
        let after = &mut self.shown[(at + rows) * show..(at + 2 * rows) * show];
        let coupled = self.cell == Cell::Cifg;
        let Some(projection) = &self.projection else {
            path.compute(Forward { units, gate_row, coupled, gates, cell_before, cell, tanh_cell, shown: after });
            return;
        };
        let shown = &mut self.unit_values[at * units..(at + rows) * units];
        path.compute(Forward { units, gate_row, coupled, gates, cell_before, cell, tanh_cell, shown });
        let values = Left { values: shown, row: units, column: 1 };
        projection.forward.multiply(path, rows, values, after, show, Into::Set);
    }

    /// One time step back: the gradients of the gates' sums and of the cells before.
    pub(super) fn backward_cells(&mut self, path: KernelPath, at: usize, rows: usize) {
        let (gate_row, units, show) = (self.gate_row, self.units, self.show);
        let d_shown = &self.d_shown[at * show..(at + rows) * show];
        let d_units = match &self.projection {
            None => d_shown,
            Some(projection) => {
                let d_shown = Left { values: d_shown, row: show, column: 1 };
                projection.back.multiply(path, rows, d_shown, &mut self.d_units, units, Into::Set);
                &self.d_units[..rows * units]
            }
        };
        path.compute(Backward {
            units,
            gate_row,
            coupled: self.cell == Cell::Cifg,
            gates: &self.gates[at * gate_row..(at + rows) * gate_row],
            cell_before: &self.cells[at * units..(at + rows) * units],
            tanh_cell: &self.tanh_cells[at * units..(at + rows) * units],
            d_units,
            d_cell: &mut self.d_cells[..rows * units],
            d_gates: &mut self.d_gates[at * gate_row..(at + rows) * gate_row],
        });
    }
}
