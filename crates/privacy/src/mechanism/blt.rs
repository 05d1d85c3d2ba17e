//! Buffered linear Toeplitz noise: a few buffers replace all bands.
//!
//! Dvijotham et al. 2024 (arXiv:2404.16706) and McMahan, Xu and Zhang 2024 (arXiv:2408.08868): C with `c_0 = 1` and
//! `c_i = sum_j w_j d_j^(i-1)` needs, for `n = C^-1 Z`, only the buffers `b_j <- d_j b_j + n_t` and
//! `n_t = Z_t - sum_j w_j b_j`. On the lattice of rule P4: Z is a discrete Gaussian on the multiples of 2^-k, buffers are
//! fixed-point numbers with k fractional bits, and `n_t = floor(Z_t - sum_j round(w_j b_j) + 1/2)` is an integer.
//!
//! **Why it is private.** The powers `d_j^i` have no last digit, so buffers are rounded, and `x + n` is not exactly a
//! function of `C x + Z`. Write `S(n)` for the rounded `sum_j w_j b_j` computed from integers n; rounding moves it by at
//! most `eta` from the true one, whatever n is. With y = x + n the release,
//!
//! ```text
//! y_t = floor(V_t - S_t(y) + 1/2),   V_t = Z_t + mu_t,   mu_t = x_t + S_t(y) - S_t(y - x)
//! ```
//!
//! so y is a function of V alone, step by step. `mu` is on the lattice of Z and within `2 eta` of `(C x)_t` in each
//! coordinate, whatever was released before; for neighbours x and x' the means of V therefore differ by at most
//! `|C (x - x')| + 4 eta sqrt(rounds * dimension)` in all, and an adaptively chosen Gaussian whose total shift is so
//! bounded is no worse than a fixed one (Denisov et al. 2022, Theorem 2.1; the filter of Smith and Thakurta 2022 for
//! shifts that depend on what was released). That slack, some 10^-8 of the sensitivity, is added to the event's
//! sensitivity: there is nothing left to add to epsilon or delta.

#[cfg(test)]
mod bound;

use super::{
    MechanismError, StreamingMatrix, TOEPLITZ,
    draws::{CHUNK, Draw, Draws},
};
use crate::{
    encoding::layout::Layout,
    step_keys::StepNoise,
    workers::{self, Workers},
};

/// The most fractional bits of noise and buffers.
const MOST_FRACTIONAL_BITS: u32 = 40;
/// Fractional bits of the parameters.
const PARAMETER_BITS: u32 = 62;
/// Buffers stay below this, or the step fails.
const LARGEST: i64 = 1 << 61;

/// The buffers.
#[derive(Debug)]
pub(super) struct Blt {
    draws: Draws,
    fractional_bits: u32,
    parameters: Vec<Parameters>,
    /// For each chunk, one vector of its length for each buffer.
    buffers: Vec<Vec<i64>>,
}

/// Decay and output scale of one buffer, in units of 2^-62.
#[derive(Debug, Clone, Copy)]
struct Parameters {
    decay: i64,
    scale: i64,
}

/// A number of [0, 1] in units of 2^-62, if it is a multiple of that.
fn fixed_point(value: f64) -> Option<i64> {
    let one = (1i64 << PARAMETER_BITS) as f64;
    let scaled = value * one;
    (scaled == libm::rint(scaled) && (0.0..=one).contains(&scaled)).then_some(scaled as i64)
}

/// `a * b` for b in units of 2^-62, to the nearest integer.
#[inline]
fn multiply(a: i64, b: i64) -> i64 {
    ((i128::from(a) * i128::from(b) + (1 << (PARAMETER_BITS - 1))) >> PARAMETER_BITS) as i64
}

/// Fractional bits that leave the buffers room: 5 bits above 1 sigma for the noise, the rest for what they gather.
pub(super) fn fractional_bits(layout: &Layout) -> u32 {
    let largest = layout.segments().iter().map(|s| s.sigma).max().unwrap_or(1).max(1);
    54u32.saturating_sub(largest.ilog2()).min(MOST_FRACTIONAL_BITS)
}

impl Blt {
    pub(super) fn init(layout: &Layout, buffer_decay: &[f64], output_scale: &[f64]) -> Result<Self, MechanismError> {
        let one = |(d, s): (&f64, &f64)| Some(Parameters { decay: fixed_point(*d)?, scale: fixed_point(*s)? });
        let parameters = buffer_decay.iter().zip(output_scale).map(one).collect::<Option<Vec<_>>>();
        let parameters = parameters.ok_or(MechanismError::OffLattice { bits: PARAMETER_BITS })?;
        let fractional_bits = fractional_bits(layout);
        let draws = Draws::new(layout, fractional_bits)?;
        let buffers = draws.chunks.iter().map(|c| vec![0; c.coordinates.len() * parameters.len()]).collect();
        Ok(Self { draws, fractional_bits, parameters, buffers })
    }

    /// Bytes of the buffers.
    pub(super) fn memory(layout: &Layout, buffers: usize) -> u64 {
        buffers as u64 * layout.len() as u64 * size_of::<i64>() as u64
    }

    /// What rounding the buffers adds to the sensitivity of a segment of so many coordinates over all rounds, in grid
    /// steps: `4 eta sqrt(rounds * len)`.
    pub(super) fn slack(layout: &Layout, buffer_decay: &[f64], output_scale: &[f64], rounds: u64, len: usize) -> f64 {
        // Each step rounds a buffer by at most half a unit, of which d, d^2, ... is left later, and each product by half.
        let gathered = |d: f64| (1.0 / (1.0 - d)).min(rounds as f64);
        let units: f64 = buffer_decay.iter().zip(output_scale).map(|(d, s)| 0.5 * s * gathered(*d) + 0.5).sum();
        let eta = units * libm::exp2(-f64::from(fractional_bits(layout)));
        4.0 * eta * libm::sqrt(rounds as f64 * len as f64) * (1.0 + 1e-9)
    }
}

impl StreamingMatrix for Blt {
    fn next(
        &mut self,
        noise: &StepNoise,
        position: [u64; 3],
        values: &mut [i64],
        workers: &dyn Workers,
    ) -> Result<(), MechanismError> {
        let [stream, segment, round] = position;
        let draw = Draw::at(noise, &[TOEPLITZ, stream, segment, round]);
        let Self { draws, fractional_bits, parameters, buffers } = self;
        workers::each(workers, draws.cut(values).zip(buffers), |number, (values, buffers)| {
            let mut exact = [0; CHUNK];
            let exact = &mut exact[..values.len()];
            draws.fill(&draw, number, exact);
            subtract_outputs(exact, buffers, parameters);
            round_all(exact, *fractional_bits);
            values.iter_mut().zip(&*exact).for_each(|(v, n)| *v += n);
            decay_and_add(exact, buffers, parameters, *fractional_bits)
        })
    }

    fn restart(&mut self) {
        self.buffers.iter_mut().for_each(|b| b.fill(0));
    }
}

fn subtract_outputs(exact: &mut [i64], buffers: &[i64], parameters: &[Parameters]) {
    for (buffer, p) in buffers.chunks_exact(exact.len()).zip(parameters) {
        exact.iter_mut().zip(buffer).for_each(|(e, b)| *e -= multiply(*b, p.scale));
    }
}

fn round_all(exact: &mut [i64], fractional_bits: u32) {
    let half = (1 << fractional_bits) >> 1;
    exact.iter_mut().for_each(|e| *e = (*e + half) >> fractional_bits);
}

fn decay_and_add(
    noise: &[i64],
    buffers: &mut [i64],
    parameters: &[Parameters],
    fractional_bits: u32,
) -> Result<(), MechanismError> {
    let mut largest = 0;
    for (buffer, p) in buffers.chunks_exact_mut(noise.len()).zip(parameters) {
        for (b, n) in buffer.iter_mut().zip(noise) {
            *b = multiply(*b, p.decay) + (n << fractional_bits);
            largest |= b.unsigned_abs();
        }
    }
    if largest >= LARGEST.unsigned_abs() { Err(MechanismError::Overflow) } else { Ok(()) }
}
