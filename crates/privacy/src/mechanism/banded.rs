//! Banded Toeplitz noise, on one lattice.
//!
//! Choquette-Choo et al. 2023 ("(Amplified) Banded Matrix Factorization", arXiv:2306.08153): noise `C^-1 Z` for a
//! lower-triangular Toeplitz C with few bands. Privacy is in `C x + Z`, and only if nothing but that is released: with
//! real coefficients and integer noise the fractional parts reveal the sum without noise. So (rule P4)
//!
//! - the coefficients are multiples of 2^-24, and the sensitivity is computed for those;
//! - Z is a discrete Gaussian on the multiples of 2^-24;
//! - what is added is the integer `n_t = floor(Z_t - sum_(s>=1) c_s n_(t-s) + 1/2)`.
//!
//! Then `x_t + n_t = floor((C x + Z)_t - sum_(s>=1) c_s (x + n)_(t-s) + 1/2)`: a function of `C x + Z` and what was released
//! before. The state is the last `bands - 1` vectors n. It is never written anywhere: with what was released it would reveal
//! the sums (rule P20).

use pulp::Arch;

use super::{
    MechanismError, StreamingMatrix, TOEPLITZ,
    draws::{CHUNK, Draw, Draws},
};
use crate::{
    encoding::layout::Layout,
    step_keys::StepNoise,
    workers::{self, Workers},
};

/// Coefficients and noise are multiples of `2^-FRACTIONAL_BITS`.
pub const FRACTIONAL_BITS: u32 = 24;

/// The noise of the last steps.
#[derive(Debug)]
pub(super) struct Banded {
    draws: Draws,
    /// c_1, c_2, ... in units of 2^-24.
    coefficients: Vec<i32>,
    /// For each chunk, `coefficients.len()` vectors of its length, as a ring.
    history: Vec<Vec<i32>>,
    /// Steps since the restart.
    steps: u64,
}

/// A coefficient in units of 2^-24, if it is a multiple of that and at most 1.
fn fixed_point(coefficient: f64) -> Option<i32> {
    let scaled = coefficient * f64::from(1 << FRACTIONAL_BITS);
    (scaled == libm::rint(scaled) && (0.0..=f64::from(1 << FRACTIONAL_BITS)).contains(&scaled)).then_some(scaled as i32)
}

impl Banded {
    pub(super) fn init(layout: &Layout, coefficients: &[f64]) -> Result<Self, MechanismError> {
        let fixed = coefficients.iter().map(|c| fixed_point(*c)).collect::<Option<Vec<_>>>();
        let fixed = fixed.ok_or(MechanismError::OffLattice { bits: FRACTIONAL_BITS })?;
        match fixed.split_first() {
            Some((&first, rest)) if first == 1 << FRACTIONAL_BITS => {
                let draws = Draws::new(layout, FRACTIONAL_BITS)?;
                let history = draws.chunks.iter().map(|c| vec![0; c.coordinates.len() * rest.len()]).collect();
                Ok(Self { draws, coefficients: rest.to_vec(), history, steps: 0 })
            }
            _ => Err(MechanismError::FirstCoefficient),
        }
    }

    /// Bytes of the vectors that are kept.
    pub(super) fn memory(layout: &Layout, bands: usize) -> u64 {
        bands.saturating_sub(1) as u64 * layout.len() as u64 * size_of::<i32>() as u64
    }
}

impl StreamingMatrix for Banded {
    fn next(
        &mut self,
        noise: &StepNoise,
        position: [u64; 3],
        values: &mut [i64],
        workers: &dyn Workers,
    ) -> Result<(), MechanismError> {
        let [stream, segment, round] = position;
        let draw = Draw::at(noise, &[TOEPLITZ, stream, segment, round]);
        let Self { draws, coefficients, history, steps } = self;
        let (bands, steps_before) = (coefficients.len(), *steps);
        workers::each(workers, draws.cut(values).zip(history), |number, (values, ring)| {
            let mut exact = [0; CHUNK];
            let len = values.len();
            let exact = &mut exact[..len];
            draws.fill(&draw, number, exact);
            for (back, coefficient) in (1..=steps_before.min(bands as u64)).zip(&*coefficients) {
                let slot = ((steps_before - back) % bands as u64) as usize * len;
                subtract_scaled(exact, *coefficient, &ring[slot..slot + len]);
            }
            let newest = if bands == 0 {
                &mut [][..]
            } else {
                let slot = (steps_before % bands as u64) as usize * len;
                &mut ring[slot..slot + len]
            };
            round_and_add(exact, values, newest)
        })?;
        *steps += 1;
        Ok(())
    }

    fn restart(&mut self) {
        self.steps = 0;
    }
}

/// `exact -= coefficient * noise`, without overflow: |noise| < 2^31, coefficients at most 2^24, fewer than 2^8 of them
/// near 1; the sum of all stays below 2^62 for every column whose sum is below 2^7, which `init` of the plan checks.
fn subtract_scaled(exact: &mut [i64], coefficient: i32, noise: &[i32]) {
    let coefficient = i64::from(coefficient);
    Arch::new().dispatch(|| {
        exact.iter_mut().zip(noise).for_each(|(e, n)| *e -= coefficient * i64::from(*n));
    });
}

fn round_and_add(exact: &[i64], values: &mut [i64], newest: &mut [i32]) -> Result<(), MechanismError> {
    const HALF: i64 = 1 << (FRACTIONAL_BITS - 1);
    let rounded = |e: i64| (e + HALF) >> FRACTIONAL_BITS;
    exact.iter().zip(values).for_each(|(e, v)| *v += rounded(*e));
    for (e, newest) in exact.iter().zip(newest) {
        *newest = i32::try_from(rounded(*e)).map_err(|_| MechanismError::Overflow)?;
    }
    Ok(())
}
