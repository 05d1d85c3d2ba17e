//! Composes privacy-loss distributions by FFT, in stages, with bounds on all floating-point errors.
//!
//! Laws are *tilted*: each mass is multiplied by `e^(theta l) / M(theta)`, which moves the bulk of the composed law to
//! the epsilon that is sought, so that round-off is relative to delta and not to 1.
//!
//! A run of T releases needs a lattice fine enough for one release and a window wide enough for T. In *stages* it
//! needs both only for a part: compose n releases on a fine lattice, connect the dots onto a lattice coarser by about
//! sqrt(n) (that adds as much variance over the whole run as the fine lattice did), compose those, and so on.
//!
//! Computed is a circular convolution. Mass above the window would come back at its lower end, where it counts for
//! too little: it is bounded beforehand (Chernoff) and counted as unbounded loss. Mass below comes back at the upper
//! end, where it counts for too much: harmless for an upper bound, and bounded for a lower one.

use fourier::Complex;

/// A tilted law on the lattice.
#[derive(Debug, Clone)]
pub(super) struct Law {
    /// Lattice index and tilted mass.
    pub(super) points: Vec<(i64, f64)>,
    /// L2 norm of the difference from the exact law.
    pub(super) error: f64,
}

impl Law {
    fn l2_norm(&self) -> f64 {
        libm::sqrt(interleaved_sum(&self.points, |(_, p)| p * p))
    }

    /// Total mass; tilted laws have about 1.
    fn total(&self) -> f64 {
        interleaved_sum(&self.points, |(_, p)| *p)
    }

    /// Connects the dots onto a lattice coarser by `ratio`; `step` is the present one.
    pub(super) fn coarsen(&self, ratio: i64, step: f64, tilt: f64) -> Self {
        if ratio == 1 {
            return self.clone();
        }
        // The part of a mass `part` fine steps above a coarse point that moves to the coarse point above, and what
        // tilting makes of the two parts.
        let width = ratio as f64 * step;
        let splits: Vec<(f64, f64)> = (0..ratio)
            .map(|part| {
                let above = part as f64 * step;
                let up = libm::expm1(-above) / libm::expm1(-width);
                ((1.0 - up) * libm::exp(-tilt * above), up * libm::exp(tilt * (width - above)))
            })
            .collect();
        let mut points: Vec<(i64, f64)> = Vec::with_capacity(self.points.len() / ratio as usize + 2);
        for &(index, mass) in &self.points {
            let coarse = index.div_euclid(ratio);
            let (down, up) = splits[index.rem_euclid(ratio) as usize];
            add(&mut points, coarse, mass * down);
            add(&mut points, coarse + 1, mass * up);
        }
        let spread = libm::sqrt(2.0 * (ratio as f64 + 1.0)) * libm::exp(tilt * width);
        Self { points, error: self.error * spread + 4.0 * f64::EPSILON * self.l2_norm() }
    }
}

/// A sum in eight strands, which do not have to wait for each other.
fn interleaved_sum<T>(items: &[T], value: impl Fn(&T) -> f64) -> f64 {
    let (blocks, rest) = items.as_chunks::<8>();
    let mut strands = [0.0; 8];
    for block in blocks {
        strands.iter_mut().zip(block).for_each(|(strand, item)| *strand += value(item));
    }
    strands.iter().sum::<f64>() + rest.iter().map(value).sum::<f64>()
}

/// Adds to the last or the last but one point, or appends; points come in ascending order.
fn add(points: &mut Vec<(i64, f64)>, index: i64, mass: f64) {
    let near = points.len().saturating_sub(2);
    if let Some(point) = points[near..].iter_mut().find(|p| p.0 == index) {
        point.1 += mass;
    } else {
        points.push((index, mass));
    }
}

/// A law together with its transform.
pub(super) struct Transformed {
    spectrum: Vec<Complex<f64>>,
    /// L2 error of the law.
    inherited: f64,
    /// What the transform added to the error of each coefficient.
    own: f64,
    total: f64,
}

/// The circle of lattice points on which a stage computes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circle {
    pub(super) size: usize,
}

impl Circle {
    /// The smallest even size with small factors that is at least `points`.
    pub(super) fn at_least(points: f64) -> Option<Self> {
        if points.is_nan() || points > (1u64 << 22) as f64 {
            return None;
        }
        let wanted = (points as usize).max(64);
        let power = wanted.next_power_of_two();
        let size = [power / 8 * 5, power / 4 * 3, power].into_iter().find(|s| *s >= wanted).unwrap_or(power);
        Some(Self { size })
    }

    /// The error of a transform, generously: of each coefficient relative to the sum of the moduli, and of the whole in
    /// L2 norm relative to it.
    fn transform_error(self) -> f64 {
        6.0 * libm::log2(self.size as f64) * 0.5 * f64::EPSILON
    }

    pub(super) fn transform(self, law: &Law) -> Transformed {
        let mut input = vec![0.0; self.size];
        for &(index, mass) in &law.points {
            input[index.rem_euclid(self.size as i64) as usize] += mass;
        }
        let spectrum = fourier::forward(&mut input);
        let total = law.total();
        Transformed { spectrum, inherited: law.error, own: self.transform_error() * total, total }
    }

    /// The product of powers of laws, read off the window of `self.size` points that ends at `top`.
    pub(super) fn compose(self, factors: &[(&Transformed, u64)], top: i64) -> Law {
        let mut product: Vec<Complex<f64>> = Vec::new();
        factors.iter().for_each(|(factor, times)| multiply_power(&mut product, &factor.spectrum, *times));
        // Every factor has modulus at most its total, which is 1 up to the discretisation's excess.
        let growth: f64 = factors.iter().map(|(f, n)| libm::pow(f.total.max(1.0), *n as f64)).product();
        let error: f64 = factors
            .iter()
            .map(|(f, n)| *n as f64 * (f.inherited * growth + 1.01 * f.own * quotient_norm(&product, &f.spectrum, *n)))
            .sum();
        let multiplications: f64 = factors.iter().map(|(_, n)| *n as f64).sum();
        let output = fourier::inverse(&mut product);
        let scale = 1.0 / self.size as f64;
        let bottom = top - self.size as i64 + 1;
        let (wrapped, straight) = output.split_at(bottom.rem_euclid(self.size as i64) as usize);
        let masses = straight.iter().chain(wrapped).map(|mass| (mass * scale).max(0.0));
        let points: Vec<(i64, f64)> = (bottom..).zip(masses).collect();
        let mut law = Law { points, error };
        // A complex product is off by at most sqrt(5) units in the last place.
        law.error += (4.0 * multiplications * f64::EPSILON + self.transform_error()) * law.l2_norm();
        law
    }
}

/// The L2 norm of the signal whose transform is `product / factor`: that of the composition with one factor less.
fn quotient_norm(product: &[Complex<f64>], factor: &[Complex<f64>], times: u64) -> f64 {
    // Where the factor vanishes, the quotient does too when there is more of it, and otherwise is at most 1.
    let vanishing = if times == 1 { 1.0 } else { 0.0 };
    let pairs: Vec<(f64, f64)> = product.iter().zip(factor).map(|(p, f)| (p.norm_sqr(), f.norm_sqr())).collect();
    let sum = interleaved_sum(&pairs, |(p, f)| if *f > NEGLIGIBLE { p / f } else { vanishing });
    // Half of the spectrum of a real signal of length N is here.
    libm::sqrt(sum / (product.len() - 1) as f64)
}

/// Moduli below this are taken for 0; it is far below what round-off is allowed for.
const NEGLIGIBLE: f64 = 1e-30;

/// How many coefficients are raised to a power at once.
const BLOCK: usize = 32;

/// `product *= base^times`; an empty product is 1.
fn multiply_power(product: &mut Vec<Complex<f64>>, base: &[Complex<f64>], times: u64) {
    if product.is_empty() {
        product.resize(base.len(), Complex::new(1.0, 0.0));
    }
    for (product, base) in product.chunks_mut(BLOCK).zip(base.chunks(BLOCK)) {
        let mut block = Block::load(base);
        if block.raise(times) {
            block.multiply_into(product);
        } else {
            product.fill(Complex::new(0.0, 0.0));
        }
    }
}

/// Coefficients with their parts apart, so that the compiler can work on several at once.
struct Block {
    re: [f64; BLOCK],
    im: [f64; BLOCK],
}

impl Block {
    fn load(values: &[Complex<f64>]) -> Self {
        let mut block = Self { re: [0.0; BLOCK], im: [0.0; BLOCK] };
        for (i, value) in values.iter().enumerate() {
            (block.re[i], block.im[i]) = (value.re, value.im);
        }
        block
    }

    /// Raises all to a power by repeated squaring; false when nothing is left of them.
    fn raise(&mut self, times: u64) -> bool {
        let mut result = Self { re: [1.0; BLOCK], im: [0.0; BLOCK] };
        let mut rest = times;
        while rest > 0 {
            let largest = (0..BLOCK).map(|i| self.re[i] * self.re[i] + self.im[i] * self.im[i]).fold(0.0, f64::max);
            if largest < NEGLIGIBLE * NEGLIGIBLE {
                return false;
            }
            // Among larger ones a vanishing one must not become subnormal, which takes a hundred times as long.
            for i in 0..BLOCK {
                let keep = self.re[i].abs() + self.im[i].abs() > NEGLIGIBLE * NEGLIGIBLE;
                (self.re[i], self.im[i]) = if keep { (self.re[i], self.im[i]) } else { (0.0, 0.0) };
            }
            if rest & 1 == 1 {
                result.multiply(self);
            }
            let copy = Self { re: self.re, im: self.im };
            self.multiply(&copy);
            rest >>= 1;
        }
        *self = result;
        true
    }

    fn multiply(&mut self, by: &Self) {
        for i in 0..BLOCK {
            let (re, im) = (self.re[i], self.im[i]);
            self.re[i] = re * by.re[i] - im * by.im[i];
            self.im[i] = re * by.im[i] + im * by.re[i];
        }
    }

    fn multiply_into(&self, product: &mut [Complex<f64>]) {
        for (i, value) in product.iter_mut().enumerate() {
            *value *= Complex::new(self.re[i], self.im[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composition_equals_direct_convolution() {
        let law = Law { points: vec![(-3, 0.2), (0, 0.5), (4, 0.3)], error: 0.0 };
        let mut direct = std::collections::BTreeMap::from([(0i64, 1.0f64)]);
        for _ in 0..7 {
            let mut next = std::collections::BTreeMap::new();
            for (i, p) in &direct {
                for (j, q) in &law.points {
                    *next.entry(i + j).or_insert(0.0) += p * q;
                }
            }
            direct = next;
        }
        let circle = Circle::at_least(60.0).unwrap();
        let composed = circle.compose(&[(&circle.transform(&law), 7)], 30);
        let mut squared = 0.0;
        for (i, p) in &composed.points {
            let difference = p - direct.get(i).copied().unwrap_or(0.0);
            squared += difference * difference;
        }
        assert!(libm::sqrt(squared) <= composed.error, "{} {}", libm::sqrt(squared), composed.error);
        assert!(composed.error < 1e-13);
    }

    #[test]
    fn coarsening_preserves_both_masses() {
        let (step, tilt) = (0.01, 3.0);
        let law = Law { points: (-20..33).map(|i| (i, 0.01 + 0.001 * i as f64 * i as f64)).collect(), error: 0.0 };
        let coarse = law.coarsen(8, step, tilt);
        let untilted = |law: &Law, step: f64, power: f64| -> f64 {
            law.points.iter().map(|(i, p)| p * libm::exp(-(tilt + power) * *i as f64 * step)).sum()
        };
        for power in [0.0, 1.0] {
            let (fine, rough) = (untilted(&law, step, power), untilted(&coarse, 8.0 * step, power));
            assert!((fine / rough - 1.0).abs() < 1e-12, "{fine} {rough}");
        }
    }
}
