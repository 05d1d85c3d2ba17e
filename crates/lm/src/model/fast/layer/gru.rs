//! The steps of a GRU layer: the candidate's sums need the reset gate first, so its weights are stored separately.

use super::{Layer, Panels};
use crate::kernels::{
    KernelPath,
    gru::{Backward, Reset, ResetBackward, Update, UpdateBackward},
    matrix::{Into, Left},
};

/// What a GRU has beside other layers.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// Kernel rows for the state that the candidate sees, and their transpose.
    pub(super) from_seen: Panels,
    pub(super) from_seen_back: Panels,
    /// Hidden state at each token.
    pub(super) seen: Vec<f32>,
    d_seen: Vec<f32>,
}

impl Candidate {
    pub(super) fn new(units: usize, rows: usize, steps: usize) -> Self {
        Self {
            from_seen: Panels::new(units, units),
            from_seen_back: Panels::new(units, units),
            seen: vec![0.0; rows * steps * units],
            d_seen: vec![0.0; rows * units],
        }
    }
}

impl Layer {
    /// One time step, once the gates hold what comes from below and what update and reset gate get from before.
    pub(super) fn forward_gru(&mut self, path: KernelPath, at: usize, rows: usize) {
        let (gate_row, units) = (self.gate_row, self.units);
        let Some(candidate) = &mut self.candidate else { return };
        let gates = &mut self.gates[at * gate_row..(at + rows) * gate_row];
        let (before, shown) = self.shown[at * units..(at + 2 * rows) * units].split_at_mut(rows * units);
        let seen = &mut candidate.seen[at * units..(at + rows) * units];
        path.compute(Reset { units, gate_row, gates, before, seen });
        let seen = Left { values: seen, row: units, column: 1 };
        candidate.from_seen.multiply(path, rows, seen, &mut gates[2 * units..], gate_row, Into::Add);
        path.compute(Update { units, gate_row, gates, before, shown });
    }

    /// One time step back: the gradients of the gates' sums, and of the state before but for what comes through update and
    /// reset gate.
    pub(super) fn backward_gru(&mut self, path: KernelPath, at: usize, rows: usize) {
        let (gate_row, units) = (self.gate_row, self.units);
        let Some(candidate) = &mut self.candidate else { return };
        let (earlier, d_shown) = self.d_shown.split_at_mut(at * units);
        let d_shown = &d_shown[..rows * units];
        let gates = &self.gates[at * gate_row..(at + rows) * gate_row];
        let before = &self.shown[at * units..(at + rows) * units];
        let d_gates = &mut self.d_gates[at * gate_row..(at + rows) * gate_row];
        path.compute(UpdateBackward { common: Backward { units, gate_row, gates, before, d_gates }, d_shown });
        let d_seen = &mut candidate.d_seen[..rows * units];
        let d_candidate = Left { values: &d_gates[2 * units..], row: gate_row, column: 1 };
        candidate.from_seen_back.multiply(path, rows, d_candidate, d_seen, units, Into::Set);
        path.compute(ResetBackward { common: Backward { units, gate_row, gates, before, d_gates }, d_shown, d_seen });
        if at > 0 {
            let d_before = &mut earlier[(at - rows) * units..];
            d_before.iter_mut().zip(d_seen.iter()).for_each(|(d, s)| *d += s);
        }
    }
}
