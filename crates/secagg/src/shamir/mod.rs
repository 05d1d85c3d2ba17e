//! Shamir's secret sharing: any `threshold` holders can reconstruct a secret, and fewer learn nothing about it.
//!
//! A secret of 32 bytes is cut into five limbs, four of 52 bits and the last of 48, each the value at 0 of its own random
//! polynomial of degree `threshold - 1` over the field of 2^61 - 1. Holder x, from 1 on, gets the five values at x.
//!
//! [`reconstruct`] trusts the shares; [`correct`] finds and names wrong ones. Neither can know a secret that the dealer
//! never dealt, or that too many holders changed together: compare what comes out with a public key or a commitment.

mod decode;
mod field;

use std::fmt;

use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use self::field::{Element, Horner, invert_all};
use crate::entropy::{Entropy, NoRandomness};

pub use self::decode::{Decoded, correct};

/// The number of limbs of a secret.
const LIMBS: usize = 5;
/// The bits of each limb but the last.
const LIMB_BITS: usize = 52;
/// The bits of the last limb.
const LAST_LIMB_BITS: usize = 256 - (LIMBS - 1) * LIMB_BITS;
/// Draws of random coefficients before the source of randomness is taken for broken: one in 2^50 has to be repeated.
const DRAWS: usize = 4;

/// One number of the field for each limb.
type Limbs = [Element; LIMBS];

/// Why a secret cannot be shared or reconstructed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShamirError {
    /// The threshold is out of range.
    #[error("the threshold must be from 1 to the number of shares, {holders}; got {threshold}")]
    Threshold {
        /// The shares that are to be enough.
        threshold: usize,
        /// The number of shares.
        holders: usize,
    },
    /// Below the threshold.
    #[error("{shares} shares are too few; {threshold} are needed")]
    TooFewShares {
        /// The shares at hand.
        shares: usize,
        /// The shares needed.
        threshold: usize,
    },
    /// The secret itself is the value at 0.
    #[error("a share has holder 0; holders are numbered from 1")]
    HolderZero,
    /// Two shares have the same holder.
    #[error("two shares have holder {0}; pass one share of each holder")]
    DuplicateHolder(u32),
    /// The bytes are not those of a share.
    #[error("a share has {0} bytes, expected {size}", size = Share::SIZE)]
    ShareLength(usize),
    /// The bytes are not those of a share.
    #[error("a share has a number outside the field of 2^61 - 1")]
    OutsideField,
    /// The shares do not come from a secret of 32 bytes.
    #[error("the shares do not give a secret of 32 bytes: some are wrong, or were dealt incorrectly")]
    NotASecret,
    /// More wrong shares than can be told from the right ones.
    #[error("more than {correctable} of {shares} shares are wrong; the secret cannot be recovered")]
    TooManyWrong {
        /// The shares at hand.
        shares: usize,
        /// The wrong shares that could have been corrected.
        correctable: usize,
    },
    /// Nothing can be hidden without randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// Random bytes do not look like this.
    #[error("the source of randomness repeats the same bits; it is broken, do not use it")]
    StuckRandomness,
}

/// One holder's share of a secret. It is wiped from memory when dropped, and is not shown by `Debug`.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Share {
    limbs: Limbs,
}

impl Share {
    /// The bytes of a share.
    pub const SIZE: usize = LIMBS * 8;

    /// The share as it travels: the five numbers, little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; Self::SIZE]> {
        let mut bytes = Zeroizing::new([0; Self::SIZE]);
        for (chunk, limb) in bytes.as_chunks_mut().0.iter_mut().zip(self.limbs) {
            *chunk = limb.number().to_le_bytes();
        }
        bytes
    }

    /// The share of these bytes.
    ///
    /// # Errors
    /// When there are not [`Share::SIZE`] of them, or a number is outside the field.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ShamirError> {
        let (numbers, []) = bytes.as_chunks() else { return Err(ShamirError::ShareLength(bytes.len())) };
        let numbers: &[_; LIMBS] = numbers.try_into().map_err(|_| ShamirError::ShareLength(bytes.len()))?;
        let mut share = Self { limbs: [Element::ZERO; LIMBS] };
        for (limb, number) in share.limbs.iter_mut().zip(numbers) {
            *limb = Element::new(u64::from_le_bytes(*number)).ok_or(ShamirError::OutsideField)?;
        }
        Ok(share)
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Share")
    }
}

/// Deals a secret to holders 1, 2, .. `holders`: the shares, in this order.
///
/// # Errors
/// When the threshold is 0 or above the number of holders, or there is no randomness.
pub fn deal(
    secret: &[u8; 32],
    threshold: usize,
    holders: usize,
    entropy: &mut dyn Entropy,
) -> Result<Vec<Share>, ShamirError> {
    let bad_threshold = ShamirError::Threshold { threshold, holders };
    let last = u32::try_from(holders).map_err(|_| bad_threshold.clone())?;
    if threshold == 0 || threshold > holders {
        return Err(bad_threshold);
    }
    let mut coefficients = Zeroizing::new(vec![[Element::ZERO; LIMBS]; threshold]);
    coefficients[0] = split(secret);
    draw(&mut coefficients[1..], entropy)?;
    Ok((1..=last).map(|x| Share { limbs: evaluate(&coefficients, x) }).collect())
}

/// The secret of the first `threshold` shares, each with the number of its holder. All are taken to be right.
///
/// # Errors
/// When there are too few shares, two of one holder or one of holder 0, or they do not give a secret of 32 bytes.
pub fn reconstruct(shares: &[(u32, &Share)], threshold: usize) -> Result<Zeroizing<[u8; 32]>, ShamirError> {
    check(shares, threshold)?;
    let shares = &shares[..threshold];
    // With 0 among the points, the weighted sum of the values of a polynomial of degree below `threshold` is zero.
    let points = [0].into_iter().chain(shares.iter().map(|&(x, _)| x)).map(Element::from).collect::<Vec<_>>();
    let weights = weights(&points);
    let scale = -weights[0].inverse();
    let mut limbs = Zeroizing::new([Element::ZERO; LIMBS]);
    for ((_, share), &weight) in shares.iter().zip(&weights[1..]) {
        for (sum, &value) in limbs.iter_mut().zip(&share.limbs) {
            *sum = *sum + weight * value;
        }
    }
    limbs.iter_mut().for_each(|limb| *limb = *limb * scale);
    join(&limbs)
}

/// Refuses what cannot be the shares of one secret.
fn check(shares: &[(u32, &Share)], threshold: usize) -> Result<(), ShamirError> {
    if threshold == 0 {
        return Err(ShamirError::Threshold { threshold, holders: shares.len() });
    }
    if shares.len() < threshold {
        return Err(ShamirError::TooFewShares { shares: shares.len(), threshold });
    }
    let mut holders: Vec<u32> = shares.iter().map(|&(x, _)| x).collect();
    holders.sort_unstable();
    if holders[0] == 0 {
        return Err(ShamirError::HolderZero);
    }
    match holders.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ShamirError::DuplicateHolder(pair[0])),
        None => Ok(()),
    }
}

/// The limbs of a secret, the lowest first, the bytes being those of a little-endian number.
fn split(secret: &[u8; 32]) -> Limbs {
    let mut limbs = [Element::ZERO; LIMBS];
    for (i, limb) in limbs.iter_mut().enumerate() {
        let mut window = Zeroizing::new([0; 8]);
        let (start, shift) = (i * LIMB_BITS / 8, i * LIMB_BITS % 8);
        let end = secret.len().min(start + 8);
        window[..end - start].copy_from_slice(&secret[start..end]);
        let number = u64::from_le_bytes(*window) >> shift & ((1 << LIMB_BITS) - 1);
        *limb = Element::new(number).unwrap_or_default(); // never the default: 52 bits are below the prime
    }
    limbs
}

/// The secret of its limbs.
fn join(limbs: &Limbs) -> Result<Zeroizing<[u8; 32]>, ShamirError> {
    let mut secret = Zeroizing::new([0; 32]);
    let mut excess = 0;
    for (i, limb) in limbs.iter().enumerate() {
        excess |= limb.number() >> if i + 1 == LIMBS { LAST_LIMB_BITS } else { LIMB_BITS };
        let (start, shift) = (i * LIMB_BITS / 8, i * LIMB_BITS % 8);
        let window = Zeroizing::new((limb.number() << shift).to_le_bytes());
        secret[start..].iter_mut().zip(window.iter()).for_each(|(byte, w)| *byte |= w);
    }
    if excess == 0 { Ok(secret) } else { Err(ShamirError::NotASecret) }
}

/// Fills with uniform numbers of the field, zero being one of them. All are drawn again should one not be in the field.
fn draw(coefficients: &mut [Limbs], entropy: &mut dyn Entropy) -> Result<(), ShamirError> {
    let mut bytes = Zeroizing::new(vec![0; coefficients.len() * Share::SIZE]);
    for _ in 0..DRAWS {
        entropy.fill(&mut bytes)?;
        let bits = bytes.as_chunks().0.iter().map(|&b| u64::from_le_bytes(b));
        let mut all = coefficients.as_flattened_mut().iter_mut().zip(bits);
        if all.all(|(c, bits)| Element::from_random_bits(bits).map(|e| *c = e).is_some()) {
            return Ok(());
        }
    }
    Err(ShamirError::StuckRandomness)
}

/// The values at x of the five polynomials, their constant terms first.
fn evaluate(coefficients: &[Limbs], x: u32) -> Limbs {
    let mut sums = [Horner::default(); LIMBS];
    for limbs in coefficients.iter().rev() {
        for (sum, &c) in sums.iter_mut().zip(limbs) {
            *sum = sum.step(x, c);
        }
    }
    sums.map(Horner::end)
}

/// For each of distinct points, one over the product of its differences to the others.
fn weights(points: &[Element]) -> Vec<Element> {
    let mut products = vec![Element::ONE; points.len()];
    for (j, &other) in points.iter().enumerate() {
        for (i, (product, &point)) in products.iter_mut().zip(points).enumerate() {
            if i != j {
                *product = *product * (point - other);
            }
        }
    }
    invert_all(&mut products);
    products
}
