//! A rounded floating-point normal, for simulations only.
//!
//! Box and Muller 1958 in single precision, written so that it vectorises: the logarithm and the two trigonometric
//! functions are short polynomials. Its low bits and its tails (nothing beyond 6.7 sigma) are not those of a normal, and a
//! release with it has no guarantee: runs that use it are marked [`crate::rng::Randomness::SimulatedFloatingPoint`].

use crate::rng::RandomWords;

/// Draws fast, approximate normal integers.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedGaussian {
    sigma: u64,
}

/// Pairs drawn at a time.
const PAIRS: usize = 64;

impl SimulatedGaussian {
    /// A normal of this standard deviation, rounded to integers.
    #[must_use]
    pub const fn new(sigma: u64) -> Self {
        Self { sigma }
    }

    /// Fills a slice with independent draws.
    pub fn fill(&self, words: &mut RandomWords, out: &mut [i64]) {
        let sigma = self.sigma as f64;
        let mut normals = [0.0f32; 2 * PAIRS];
        for block in out.chunks_mut(2 * PAIRS) {
            let mut uniform = [0u64; PAIRS];
            uniform.iter_mut().for_each(|u| *u = words.next_word());
            pulp::Arch::new().dispatch(|| {
                pairs(&uniform, &mut normals);
                block.iter_mut().zip(&normals).for_each(|(o, n)| *o = (f64::from(*n) * sigma).round_ties_even() as i64);
            });
        }
    }
}

/// Two normals from each word: `r cos(2 pi v)` and `r sin(2 pi v)` with `r = sqrt(-2 ln u)`.
#[inline(always)]
fn pairs(uniform: &[u64; PAIRS], normals: &mut [f32; 2 * PAIRS]) {
    let (cosines, sines) = normals.split_at_mut(PAIRS);
    for ((word, cosine), sine) in uniform.iter().zip(cosines).zip(sines) {
        let u = (((*word >> 32) as u32 >> 8) as i32 + 1) as f32 * (1.0 / 16_777_216.0);
        let turn = ((*word as u32 >> 8) as i32) as f32 * (1.0 / 16_777_216.0);
        let radius = (-2.0 * ln(u)).sqrt();
        let (c, s) = cos_sin(turn);
        *cosine = radius * c;
        *sine = radius * s;
    }
}

/// The natural logarithm of a number in (0, 1], within 1e-5: exponent, and the series of `2 artanh` for the rest.
#[inline(always)]
fn ln(x: f32) -> f32 {
    let bits = x.to_bits();
    let exponent = ((bits >> 23) as i32 - 127) as f32;
    let mantissa = f32::from_bits(bits & 0x007f_ffff | 0x3f80_0000);
    let t = (mantissa - std::f32::consts::SQRT_2) / (mantissa + std::f32::consts::SQRT_2);
    let t2 = t * t;
    let series = 2.0 * t * (1.0 + t2 * (1.0 / 3.0 + t2 * (0.2 + t2 * (1.0 / 7.0))));
    (exponent + 0.5) * std::f32::consts::LN_2 + series
}

/// Cosine and sine of a part of a turn in [0, 1), within 1e-5: both of the distance to the half turn, by their series.
#[inline(always)]
fn cos_sin(turn: f32) -> (f32, f32) {
    // The angle a in [-pi, pi) is halved twice: series in [-pi/4, pi/4), then two doublings.
    let a = (turn - 0.5) * std::f32::consts::FRAC_PI_2;
    let a2 = a * a;
    let s = a * (1.0 - a2 * (1.0 / 6.0 - a2 * (1.0 / 120.0 - a2 * (1.0 / 5040.0))));
    let c = 1.0 - a2 * (0.5 - a2 * (1.0 / 24.0 - a2 * (1.0 / 720.0 - a2 * (1.0 / 40320.0))));
    let (s, c) = (2.0 * s * c, c * c - s * s);
    (c * c - s * s, 2.0 * s * c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polynomials_are_what_they_stand_for() {
        for i in 1..=1000 {
            let x = i as f32 / 1000.0;
            assert!((f64::from(ln(x)) - libm::log(f64::from(x))).abs() < 2e-5, "ln {x}: {}", ln(x));
            let angle = (f64::from(x) - 0.5) * std::f64::consts::TAU;
            let (c, s) = cos_sin(x);
            let off = (f64::from(c) - libm::cos(angle)).abs().max((f64::from(s) - libm::sin(angle)).abs());
            assert!(off < 2e-5, "{x}: {off}");
        }
    }
}
