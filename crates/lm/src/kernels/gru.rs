//! The elementwise parts of GRU cells, forward and backward, for the rows of one time step.
//!
//! A row of `gates` holds update, reset and candidate one after the other, each `units` numbers long (padded). Forward there
//! are two parts, with a product between them that needs the first: the state that the reset gate lets the candidate see.
//! Backward it is the other way round. The equations are those of [`crate::model::reference`].

use pulp::{Simd, WithSimd};

use super::activation::{quiet, sigmoid, tanh};

/// Forward, first: opens update and reset gate, and resets the state.
pub(crate) struct Reset<'a> {
    /// Padded units of a gate.
    pub(crate) units: usize,
    /// How far the gates of two rows are apart.
    pub(crate) gate_row: usize,
    /// Sums in, activated gates out; the candidate stays as it is.
    pub(crate) gates: &'a mut [f32],
    /// The state before the step.
    pub(crate) before: &'a [f32],
    /// The state that the candidate sees.
    pub(crate) seen: &'a mut [f32],
}

impl WithSimd for Reset<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let units = self.units;
        let states = self.before.chunks_exact(units).zip(self.seen.chunks_exact_mut(units));
        for (gates, (before, seen)) in self.gates.chunks_exact_mut(self.gate_row).zip(states) {
            let (gates, _) = S::as_mut_simd_f32s(&mut gates[..2 * units]);
            gates.iter_mut().for_each(|g| *g = sigmoid(simd, *g));
            let reset = &gates[gates.len() / 2..];
            let (before, seen) = (S::as_simd_f32s(before).0, S::as_mut_simd_f32s(seen).0);
            for ((seen, before), reset) in seen.iter_mut().zip(before).zip(reset) {
                *seen = quiet(simd, simd.mul_f32s(*reset, *before));
            }
        }
    }
}

/// Forward, second: the candidate, and the state after the step.
pub(crate) struct Update<'a> {
    /// Padded units of a gate.
    pub(crate) units: usize,
    /// How far the gates of two rows are apart.
    pub(crate) gate_row: usize,
    /// The candidate's sums in, the candidate out.
    pub(crate) gates: &'a mut [f32],
    /// The state before the step.
    pub(crate) before: &'a [f32],
    /// The state after it.
    pub(crate) shown: &'a mut [f32],
}

impl WithSimd for Update<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let units = self.units;
        let states = self.before.chunks_exact(units).zip(self.shown.chunks_exact_mut(units));
        for (gates, (before, shown)) in self.gates.chunks_exact_mut(self.gate_row).zip(states) {
            let (update, rest) = gates.split_at_mut(units);
            let (update, candidate) = (S::as_simd_f32s(update).0, S::as_mut_simd_f32s(&mut rest[units..2 * units]).0);
            let (before, shown) = (S::as_simd_f32s(before).0, S::as_mut_simd_f32s(shown).0);
            for j in 0..update.len() {
                candidate[j] = tanh(simd, candidate[j]);
                let after = simd.mul_add_e_f32s(update[j], simd.sub_f32s(candidate[j], before[j]), before[j]);
                shown[j] = quiet(simd, after);
            }
        }
    }
}

/// What the backward parts share.
pub(crate) struct Backward<'a> {
    /// Padded units of a gate.
    pub(crate) units: usize,
    /// How far the gates of two rows are apart.
    pub(crate) gate_row: usize,
    /// Activated gates.
    pub(crate) gates: &'a [f32],
    /// The state before the step.
    pub(crate) before: &'a [f32],
    /// Gradients of the gates' sums.
    pub(crate) d_gates: &'a mut [f32],
}

/// Backward, first: from the gradient of the state to those of the update gate's and the candidate's sums.
pub(crate) struct UpdateBackward<'a> {
    /// Gates and state.
    pub(crate) common: Backward<'a>,
    /// Gradient of the state after the step.
    pub(crate) d_shown: &'a [f32],
}

impl WithSimd for UpdateBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Backward { units, gate_row, gates, before, d_gates } = self.common;
        let one = simd.splat_f32s(1.0);
        let states = before.chunks_exact(units).zip(self.d_shown.chunks_exact(units));
        for ((gates, d_gates), (before, d_shown)) in
            gates.chunks_exact(gate_row).zip(d_gates.chunks_exact_mut(gate_row)).zip(states)
        {
            let (gates, d_gates) = (S::as_simd_f32s(gates).0, S::as_mut_simd_f32s(d_gates).0);
            let (before, d_shown) = (S::as_simd_f32s(before).0, S::as_simd_f32s(d_shown).0);
            let lanes = before.len();
            for j in 0..lanes {
                let (z, n) = (gates[j], gates[2 * lanes + j]);
                let through_z = simd.mul_f32s(d_shown[j], simd.mul_f32s(z, simd.sub_f32s(one, z)));
                d_gates[j] = quiet(simd, simd.mul_f32s(through_z, simd.sub_f32s(n, before[j])));
                let through_n = simd.mul_f32s(d_shown[j], z);
                d_gates[2 * lanes + j] = quiet(simd, simd.mul_f32s(through_n, simd.sub_f32s(one, simd.mul_f32s(n, n))));
            }
        }
    }
}

/// Backward, second: from the gradient of what the candidate saw to that of the reset gate's sums and of the state before.
pub(crate) struct ResetBackward<'a> {
    /// Gates and state.
    pub(crate) common: Backward<'a>,
    /// Gradient of the state after the step.
    pub(crate) d_shown: &'a [f32],
    /// Gradient of what the candidate saw in; out: of the state before the step, but for what comes through the gates' sums.
    pub(crate) d_seen: &'a mut [f32],
}

impl WithSimd for ResetBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Backward { units, gate_row, gates, before, d_gates } = self.common;
        let one = simd.splat_f32s(1.0);
        let gradients = self.d_shown.chunks_exact(units).zip(self.d_seen.chunks_exact_mut(units));
        let rows = gates.chunks_exact(gate_row).zip(d_gates.chunks_exact_mut(gate_row)).zip(before.chunks_exact(units));
        for (((gates, d_gates), before), (d_shown, d_seen)) in rows.zip(gradients) {
            let (gates, d_gates) = (S::as_simd_f32s(gates).0, S::as_mut_simd_f32s(d_gates).0);
            let (before, d_shown) = (S::as_simd_f32s(before).0, S::as_simd_f32s(d_shown).0);
            let (d_seen, _) = S::as_mut_simd_f32s(d_seen);
            let lanes = before.len();
            for j in 0..lanes {
                let (z, r) = (gates[j], gates[lanes + j]);
                let through_r = simd.mul_f32s(d_seen[j], simd.mul_f32s(r, simd.sub_f32s(one, r)));
                d_gates[lanes + j] = quiet(simd, simd.mul_f32s(through_r, before[j]));
                let kept = simd.mul_f32s(d_shown[j], simd.sub_f32s(one, z));
                d_seen[j] = quiet(simd, simd.mul_add_e_f32s(d_seen[j], r, kept));
            }
        }
    }
}
