//! Reconstructs a secret although some shares are wrong: Gao's decoder of Reed-Solomon codes.
//!
//! Shuhong Gao, "A new algorithm for decoding Reed-Solomon codes", 2003. Of the polynomial through all shares and the
//! product of all `X - x`, the extended Euclidean algorithm, stopped half way, gives `f v` and `v`, where f is the dealt
//! polynomial and v is zero at the wrong shares. The time grows with the square of the number of shares. It is not hidden:
//! who decodes learns the secret.

use std::fmt;

use zeroize::Zeroizing;

use super::{LIMBS, Limbs, ShamirError, Share, check, evaluate, field::Element, join, weights};

/// Coefficients, the constant term first, the last one not zero: the polynomial 0 has none.
type Polynomial = Zeroizing<Vec<Element>>;

/// A secret, and who held wrong shares of it.
pub struct Decoded {
    /// The secret.
    pub secret: Zeroizing<[u8; 32]>,
    /// The holders whose shares were wrong, in the order in which they were given.
    pub wrong: Vec<u32>,
}

impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded").field("wrong", &self.wrong).finish_non_exhaustive()
    }
}

/// The secret of all shares, of which up to `(shares.len() - threshold) / 2` may be wrong, and whose are wrong.
///
/// With more wrong shares it fails, unless their holders know enough of the others' shares to agree on a polynomial of
/// their own: compare the secret with a public key or a commitment.
///
/// # Errors
/// As [`super::reconstruct`], and when too many shares are wrong.
pub fn correct(shares: &[(u32, &Share)], threshold: usize) -> Result<Decoded, ShamirError> {
    check(shares, threshold)?;
    let correctable = (shares.len() - threshold) / 2;
    let too_many = ShamirError::TooManyWrong { shares: shares.len(), correctable };
    let points: Vec<Element> = shares.iter().map(|&(x, _)| x.into()).collect();
    let zeros = product(&points);
    let mut coefficients = Zeroizing::new(vec![[Element::ZERO; LIMBS]; threshold]);
    for (limb, through) in interpolate(shares, &points, &zeros).into_iter().enumerate() {
        let polynomial = half_way(&zeros, through, threshold);
        if polynomial.len() > threshold {
            return Err(too_many);
        }
        coefficients.iter_mut().zip(polynomial.iter()).for_each(|(limbs, &c)| limbs[limb] = c);
    }
    let is_wrong = |&&(x, share): &&(u32, &Share)| evaluate(&coefficients, x) != share.limbs;
    let wrong: Vec<u32> = shares.iter().filter(is_wrong).map(|&(x, _)| x).collect();
    if wrong.len() > correctable {
        return Err(too_many);
    }
    Ok(Decoded { secret: join(&coefficients[0])?, wrong })
}

/// The dealt polynomial, if so few shares are wrong that it can be found; otherwise any.
fn half_way(zeros: &Polynomial, through: Polynomial, threshold: usize) -> Polynomial {
    let points = zeros.len() - 1;
    let (mut last, mut rest) = (zeros.clone(), through);
    let (mut last_factor, mut factor) = (Polynomial::default(), Zeroizing::new(vec![Element::ONE]));
    // While the degree is at least half of points + threshold.
    while !rest.is_empty() && 2 * (rest.len() - 1) >= points + threshold {
        let (quotient, remainder) = divide(last, &rest);
        (last, rest) = (rest, remainder);
        let next = minus_product(&last_factor, &quotient, &factor);
        (last_factor, factor) = (factor, next);
    }
    divide(rest, &factor).0
}

/// The product of all `X - x`.
fn product(points: &[Element]) -> Polynomial {
    let mut product = Zeroizing::new(vec![Element::ZERO; points.len() + 1]);
    product[0] = Element::ONE;
    for (degree, &x) in points.iter().enumerate() {
        for i in (0..=degree).rev() {
            product[i + 1] = product[i + 1] + product[i];
            product[i] = -(product[i] * x);
        }
    }
    product
}

/// For each limb, the polynomial through all shares; `zeros` is the product of all `X - x`.
fn interpolate(shares: &[(u32, &Share)], points: &[Element], zeros: &Polynomial) -> [Polynomial; LIMBS] {
    let mut sums: Zeroizing<Vec<Limbs>> = Zeroizing::new(vec![[Element::ZERO; LIMBS]; points.len()]);
    for ((&x, weight), (_, share)) in points.iter().zip(weights(points)).zip(shares) {
        let factors = Zeroizing::new(share.limbs.map(|value| value * weight));
        let mut quotient = Element::ZERO; // a coefficient of zeros / (X - x), the highest first
        for (sum, &zero) in sums.iter_mut().zip(&zeros[1..]).rev() {
            quotient = zero + x * quotient;
            sum.iter_mut().zip(*factors).for_each(|(s, factor)| *s = *s + factor * quotient);
        }
    }
    std::array::from_fn(|limb| trimmed(Zeroizing::new(sums.iter().map(|limbs| limbs[limb]).collect())))
}

/// Quotient and remainder; the divisor is not zero.
fn divide(mut dividend: Polynomial, divisor: &Polynomial) -> (Polynomial, Polynomial) {
    let scale = divisor.last().copied().unwrap_or_default().inverse();
    let mut quotient = Zeroizing::new(vec![Element::ZERO; (dividend.len() + 1).saturating_sub(divisor.len())]);
    for (i, coefficient) in quotient.iter_mut().enumerate().rev() {
        let part = &mut dividend[i..i + divisor.len()];
        *coefficient = part.last().copied().unwrap_or_default() * scale;
        part.iter_mut().zip(divisor.iter()).for_each(|(p, &d)| *p = *p - *coefficient * d);
    }
    (quotient, trimmed(dividend))
}

/// `a - b c`, b and c not being zero.
fn minus_product(a: &Polynomial, b: &Polynomial, c: &Polynomial) -> Polynomial {
    let mut result = Zeroizing::new(vec![Element::ZERO; a.len().max(b.len() + c.len() - 1)]);
    result[..a.len()].copy_from_slice(a);
    for (i, &x) in b.iter().enumerate() {
        result[i..].iter_mut().zip(c.iter()).for_each(|(r, &y)| *r = *r - x * y);
    }
    trimmed(result)
}

/// Without zeros at the end.
fn trimmed(mut polynomial: Polynomial) -> Polynomial {
    while polynomial.last() == Some(&Element::ZERO) {
        polynomial.pop();
    }
    polynomial
}
