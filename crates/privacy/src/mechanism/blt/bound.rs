//! Bounds the effect of rounding the buffers, against the exact matrix: the proof in the header of `blt` relies on it.

use num_bigint::BigInt;

use super::*;
use crate::{
    encoding::{Encoding, NoisePlan, VectorPlan},
    event::Adjacency,
    units::{ClipNorm, NoiseMultiplier},
};

const COORDINATES: usize = 64;
const ROUNDS: u32 = 300;

fn layout() -> Layout {
    let noise = NoisePlan::of_update(NoiseMultiplier::new(3.0).unwrap());
    let plan = VectorPlan::of_update(COORDINATES, 10);
    let clip = ClipNorm::new(1.0).unwrap();
    Encoding::new(plan, clip, Some(&noise), Adjacency::ZeroOut).unwrap().layout().clone()
}

/// Integers as large as noise, the same in every run.
fn noise(round: u32, coordinate: usize) -> i64 {
    let mut x = (u64::from(round) << 32 | coordinate as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 40) as i64 - (1 << 23)) >> 10
}

/// The farthest that `sum_j w_j b_j` is from the true one, in grid steps, over all rounds and coordinates.
fn farthest(parameters: &[Parameters], bits: u32) -> f64 {
    let mut buffers = vec![0; COORDINATES * parameters.len()];
    // The same buffers in units of 2^-(bits + 62 t), where nothing is rounded.
    let mut exact = vec![BigInt::ZERO; COORDINATES * parameters.len()];
    let mut farthest = 0.0f64;
    for round in 0..ROUNDS {
        let n: Vec<i64> = (0..COORDINATES).map(|i| noise(round, i)).collect();
        decay_and_add(&n, &mut buffers, parameters, bits).unwrap();
        for (j, p) in parameters.iter().enumerate() {
            for (i, n) in n.iter().enumerate() {
                let b = &mut exact[j * COORDINATES + i];
                *b = &*b * p.decay + (BigInt::from(*n) << (bits + PARAMETER_BITS * (round + 1)));
            }
        }
        let mut sums = vec![0; COORDINATES];
        subtract_outputs(&mut sums, &buffers, parameters);
        let unit = PARAMETER_BITS * (round + 2);
        for (i, sum) in sums.iter().enumerate() {
            let all: BigInt = parameters.iter().enumerate().map(|(j, p)| &exact[j * COORDINATES + i] * p.scale).sum();
            let off = all + (BigInt::from(*sum) << unit);
            // Twenty more bits than a unit of the buffers has.
            let off: BigInt = off >> (unit - 20);
            farthest = farthest.max((i64::try_from(off).unwrap() as f64).abs() * 2.0f64.powi(-20 - bits as i32));
        }
    }
    farthest
}

#[test]
fn p4_rounding_the_buffers_stays_within_the_bound_that_is_paid_for() {
    let layout = layout();
    let bits = fractional_bits(&layout);
    // One buffer that forgets at once and one that remembers all rounds, and what is between them.
    for (decay, scale) in
        [(vec![0.5], vec![0.5]), (vec![0.999_999_9], vec![0.062_5]), (vec![0.998, 0.9, 0.3], vec![0.1, 0.2, 0.4])]
    {
        let lattice = |v: &f64| (v * 2.0f64.powi(40)).round() * 2.0f64.powi(-40);
        let [decay, scale] = [decay, scale].map(|v| v.iter().map(lattice).collect::<Vec<f64>>());
        let parameters: Vec<Parameters> = decay
            .iter()
            .zip(&scale)
            .map(|(d, s)| Parameters { decay: fixed_point(*d).unwrap(), scale: fixed_point(*s).unwrap() })
            .collect();
        let rounds = u64::from(ROUNDS);
        let slack = Blt::slack(&layout, &decay, &scale, rounds, COORDINATES);
        let eta = slack / (4.0 * ((ROUNDS as usize * COORDINATES) as f64).sqrt());
        let off = farthest(&parameters, bits);
        assert!(off <= eta, "{decay:?}: off by {off:e}, and {eta:e} is paid for");
        assert!(off > eta / 1000.0, "{decay:?}: {off:e} of {eta:e}: the bound says nothing");
    }
}
