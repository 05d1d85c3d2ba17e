//! The elementwise parts of LSTM and CIFG cells, forward and backward, for the rows of one time step.
//!
//! A row of `gates` holds the gates one after the other, each `units` numbers long (padded): input, forget (LSTM only),
//! candidate, output. The equations are those of [`crate::model::reference`].

use pulp::{Simd, WithSimd};

use super::activation::{quiet, sigmoid, tanh};

/// Applies the activations in place and computes cells and units.
pub(crate) struct Forward<'a> {
    /// Padded units of a gate.
    pub(crate) units: usize,
    /// How far the gates of two rows are apart.
    pub(crate) gate_row: usize,
    /// Whether the forget gate is `1 - input`.
    pub(crate) coupled: bool,
    /// `[row][gate][unit]`: sums in, activated gates out.
    pub(crate) gates: &'a mut [f32],
    /// Cells before the step.
    pub(crate) cell_before: &'a [f32],
    /// Cells after it.
    pub(crate) cell: &'a mut [f32],
    /// Their hyperbolic tangents.
    pub(crate) tanh_cell: &'a mut [f32],
    /// The outputs of the units.
    pub(crate) shown: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let units = self.units;
        let rows = self.gates.chunks_exact_mut(self.gate_row).zip(self.cell_before.chunks_exact(units));
        let outs = self.cell.chunks_exact_mut(units).zip(self.tanh_cell.chunks_exact_mut(units));
        for (((gates, before), (cell, tanh_cell)), shown) in rows.zip(outs).zip(self.shown.chunks_exact_mut(units)) {
            let (input, rest) = gates.split_at_mut(units);
            let (forget, rest) = if self.coupled { (&mut [][..], rest) } else { rest.split_at_mut(units) };
            let (candidate, rest) = rest.split_at_mut(units);
            let output = &mut rest[..units];
            let (input, candidate, output) =
                (vectors_mut::<S>(input), vectors_mut::<S>(candidate), vectors_mut::<S>(output));
            let forget = vectors_mut::<S>(forget);
            let (before, cell) = (S::as_simd_f32s(before).0, vectors_mut::<S>(cell));
            let (tanh_cell, shown) = (vectors_mut::<S>(tanh_cell), vectors_mut::<S>(shown));
            for j in 0..input.len() {
                let i = sigmoid(simd, input[j]);
                let f = match forget.get_mut(j) {
                    Some(f) => {
                        *f = sigmoid(simd, *f);
                        *f
                    }
                    None => simd.sub_f32s(simd.splat_f32s(1.0), i),
                };
                let g = tanh(simd, candidate[j]);
                let o = sigmoid(simd, output[j]);
                let c = quiet(simd, simd.mul_add_e_f32s(f, before[j], simd.mul_f32s(i, g)));
                let t = tanh(simd, c);
                (input[j], candidate[j], output[j], cell[j], tanh_cell[j]) = (i, g, o, c, t);
                shown[j] = quiet(simd, simd.mul_f32s(o, t));
            }
        }
    }
}

/// From the gradient of the units to the gradients of the gates' sums; the cells' gradient goes one step back.
pub(crate) struct Backward<'a> {
    /// Padded units of a gate.
    pub(crate) units: usize,
    /// How far the gates of two rows are apart.
    pub(crate) gate_row: usize,
    /// Whether the forget gate is `1 - input`.
    pub(crate) coupled: bool,
    /// Activated gates.
    pub(crate) gates: &'a [f32],
    /// Cells before the step.
    pub(crate) cell_before: &'a [f32],
    /// Hyperbolic tangents of the cells after it.
    pub(crate) tanh_cell: &'a [f32],
    /// Gradient of the units.
    pub(crate) d_units: &'a [f32],
    /// Gradient of the cells after the step in, of those before it out.
    pub(crate) d_cell: &'a mut [f32],
    /// Gradients of the gates' sums.
    pub(crate) d_gates: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let units = self.units;
        let rows = self.gates.chunks_exact(self.gate_row).zip(self.d_gates.chunks_exact_mut(self.gate_row));
        let cells = self.cell_before.chunks_exact(units).zip(self.tanh_cell.chunks_exact(units));
        let ins = self.d_units.chunks_exact(units).zip(self.d_cell.chunks_exact_mut(units));
        let one = simd.splat_f32s(1.0);
        let slope = |s: S::f32s| simd.mul_f32s(s, simd.sub_f32s(one, s));
        let quiet = |x: S::f32s| quiet(simd, x);
        for (((gates, d_gates), (before, tanh_cell)), (d_units, d_cell)) in rows.zip(cells).zip(ins) {
            let gate = |n: usize| S::as_simd_f32s(&gates[n * units..(n + 1) * units]).0;
            let (candidate_at, output_at) = if self.coupled { (1, 2) } else { (2, 3) };
            let (input, candidate, output) = (gate(0), gate(candidate_at), gate(output_at));
            let forget = if self.coupled { &[][..] } else { gate(1) };
            let (before, tanh_cell) = (S::as_simd_f32s(before).0, S::as_simd_f32s(tanh_cell).0);
            let (d_units, d_cell) = (S::as_simd_f32s(d_units).0, vectors_mut::<S>(d_cell));
            let d_gates = vectors_mut::<S>(d_gates);
            let lanes = input.len();
            for j in 0..lanes {
                let (i, g, o, t) = (input[j], candidate[j], output[j], tanh_cell[j]);
                let d_output = simd.mul_f32s(simd.mul_f32s(d_units[j], t), slope(o));
                let through = simd.sub_f32s(one, simd.mul_f32s(t, t));
                let d_c = simd.mul_add_e_f32s(simd.mul_f32s(d_units[j], o), through, d_cell[j]);
                let d_candidate = simd.mul_f32s(simd.mul_f32s(d_c, i), simd.sub_f32s(one, simd.mul_f32s(g, g)));
                d_gates[candidate_at * lanes + j] = quiet(d_candidate);
                d_gates[output_at * lanes + j] = quiet(d_output);
                match forget.get(j) {
                    Some(f) => {
                        d_gates[j] = quiet(simd.mul_f32s(simd.mul_f32s(d_c, g), slope(i)));
                        d_gates[lanes + j] = quiet(simd.mul_f32s(simd.mul_f32s(d_c, before[j]), slope(*f)));
                        d_cell[j] = quiet(simd.mul_f32s(d_c, *f));
                    }
                    None => {
                        let d_input = simd.mul_f32s(d_c, simd.sub_f32s(g, before[j]));
                        d_gates[j] = quiet(simd.mul_f32s(d_input, slope(i)));
                        d_cell[j] = quiet(simd.mul_f32s(d_c, simd.sub_f32s(one, i)));
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn vectors_mut<S: Simd>(values: &mut [f32]) -> &mut [S::f32s] {
    S::as_mut_simd_f32s(values).0
}
