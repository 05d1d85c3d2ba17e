//! The modulus of a sum, 2^b: large enough that no sum can wrap, and no larger than a word.

use thiserror::Error;

/// The most bits: those of a word.
pub const MOST_BITS: u32 = 32;

/// 2^b, with b from 1 to 32. The sum it was made for cannot wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Modulus {
    bits: u32,
}

/// A modulus that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModulusError {
    /// There is nothing to add.
    #[error("the number of inputs is 0; give the largest number of inputs that the round may accept")]
    NoInputs,
    /// More than a word holds.
    #[error(
        "a sum of {inputs} inputs up to {largest}{} needs {needed} bits, but at most {MOST_BITS} are supported; use a coarser grid, a rotation, or fewer inputs",
        if *reach == 0 { String::new() } else { format!(", with noise up to {reach}") }
    )]
    TooLarge {
        /// The largest input.
        largest: u32,
        /// The most inputs.
        inputs: u32,
        /// The most noise in the sum.
        reach: u64,
        /// Bits that the sum needs.
        needed: u32,
    },
    /// A sum could wrap.
    #[error("sums mod 2^{bits} could overflow; at least {needed} bits are needed")]
    Wraps {
        /// The proposed number of bits.
        bits: u32,
        /// The number of bits that the sum needs.
        needed: u32,
    },
    /// Not the bits of a word.
    #[error("a modulus must have from 1 to {MOST_BITS} bits, got {bits}")]
    Bits {
        /// The proposed number of bits.
        bits: u32,
    },
}

impl Modulus {
    /// The least for sums of at most `most_inputs` inputs from 0 to `largest`.
    ///
    /// # Errors
    /// When there are no inputs, or their sum needs more than 32 bits.
    pub fn new(largest: u32, most_inputs: u32) -> Result<Self, ModulusError> {
        Self::with_noise(largest, most_inputs, 0)
    }

    /// The least for such a sum with noise from -`reach` to `reach` in it: from -`reach` to
    /// `largest * most_inputs + reach` no two sums have the same residue. A residue above that range is of a sum below
    /// zero.
    ///
    /// # Errors
    /// When there are no inputs, or their sum needs more than 32 bits.
    pub fn with_noise(largest: u32, most_inputs: u32, reach: u64) -> Result<Self, ModulusError> {
        if most_inputs == 0 {
            return Err(ModulusError::NoInputs);
        }
        let widest = u128::from(largest) * u128::from(most_inputs) + 2 * u128::from(reach);
        let needed = (u128::BITS - widest.leading_zeros()).max(1);
        if needed > MOST_BITS {
            return Err(ModulusError::TooLarge { largest, inputs: most_inputs, reach, needed });
        }
        Ok(Self { bits: needed })
    }

    /// The one that somebody proposes for sums of at most `most_inputs` inputs from 0 to `largest`.
    ///
    /// # Errors
    /// When a sum could wrap, or there is no such modulus.
    pub fn from_bits(bits: u32, largest: u32, most_inputs: u32) -> Result<Self, ModulusError> {
        Self::new(largest, most_inputs)?.widened(bits)
    }

    /// The one of so many bits, in place of this one.
    ///
    /// # Errors
    /// When it is smaller, so that the sum could wrap, or there is no such modulus.
    pub fn widened(self, bits: u32) -> Result<Self, ModulusError> {
        match bits {
            _ if bits == 0 || bits > MOST_BITS => Err(ModulusError::Bits { bits }),
            _ if bits < self.bits => Err(ModulusError::Wraps { bits, needed: self.bits }),
            _ => Ok(Self { bits }),
        }
    }

    /// b.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// 2^b - 1: the largest residue, and the bits of all.
    #[must_use]
    pub fn mask(self) -> u32 {
        u32::MAX >> (MOST_BITS - self.bits)
    }

    /// The residue of a number. Those of sums and differences that wrapped around a word are right too.
    #[must_use]
    pub fn reduce(self, number: u32) -> u32 {
        number & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(largest: u32, inputs: u32) -> Result<u32, ModulusError> {
        Modulus::new(largest, inputs).map(Modulus::bits)
    }

    #[test]
    fn the_largest_sum_fits_and_one_more_does_not() {
        for b in 1..=32 {
            let most = u32::MAX >> (32 - b);
            assert_eq!(bits(most, 1), Ok(b));
            assert_eq!(bits(1, most), Ok(b));
            if b < 32 {
                assert_eq!(bits(most + 1, 1), Ok(b + 1), "2^{b} needs one more");
            }
        }
        // 2^32 - 1 = 65535 * 65537, and 2^32 = 65536 * 65536.
        assert_eq!(bits(65_535, 65_537), Ok(32));
        let refused = ModulusError::TooLarge { largest: 65_536, inputs: 65_536, reach: 0, needed: 33 };
        assert_eq!(bits(65_536, 65_536), Err(refused));
        assert_eq!(bits(1023, 1025), Ok(20));
        assert_eq!(bits(1024, 1024), Ok(21));
        assert!(matches!(bits(u32::MAX, u32::MAX), Err(ModulusError::TooLarge { needed: 64, .. })));
    }

    #[test]
    fn the_design_has_these_bits() {
        // Inputs from 0 to twice the clip, 147 and 465, of 100, 1000 and 6500 clients.
        assert_eq!([100, 1000, 6500].map(|n| bits(2 * 147, n)), [Ok(15), Ok(19), Ok(21)]);
        assert_eq!([100, 1000, 6500].map(|n| bits(2 * 465, n)), [Ok(17), Ok(20), Ok(23)]);
    }

    #[test]
    fn inputs_of_nothing_still_have_a_bit() {
        assert_eq!(bits(0, 1), Ok(1));
        assert_eq!(bits(0, u32::MAX), Ok(1));
        assert_eq!(bits(5, 0), Err(ModulusError::NoInputs));
    }

    #[test]
    fn noise_takes_room_on_both_sides() {
        let bits = |largest, inputs, reach| Modulus::with_noise(largest, inputs, reach).map(Modulus::bits);
        assert_eq!(bits(1, 1, 127), Ok(8));
        assert_eq!(bits(1, 2, 127), Ok(9));
        assert_eq!(bits(0, 1, 0), Ok(1));
        assert_eq!(bits(0, 1, 1), Ok(2));
        assert_eq!(bits(1, 1, (1 << 31) - 1), Ok(32));
        assert!(matches!(bits(2, 1, (1 << 31) - 1), Err(ModulusError::TooLarge { needed: 33, .. })));
        assert!(matches!(bits(u32::MAX, u32::MAX, u64::MAX), Err(ModulusError::TooLarge { needed: 66, .. })));
        // All sums from the least to the most are different residues.
        let modulus = Modulus::with_noise(3, 5, 8).unwrap();
        let mut residues: Vec<u32> = (-8_i32..=15 + 8).map(|sum| modulus.reduce(sum as u32)).collect();
        residues.sort_unstable();
        residues.dedup();
        assert_eq!((residues.len(), modulus.bits()), (32, 5));
    }

    #[test]
    fn what_could_wrap_cannot_be_made() {
        assert_eq!(Modulus::from_bits(19, 294, 1000), Modulus::new(294, 1000));
        assert_eq!(Modulus::from_bits(25, 294, 1000).map(Modulus::bits), Ok(25));
        assert_eq!(Modulus::from_bits(32, 294, 1000).map(Modulus::bits), Ok(32));
        assert_eq!(Modulus::from_bits(18, 294, 1000), Err(ModulusError::Wraps { bits: 18, needed: 19 }));
        for bits in [0, 33, 64, u32::MAX] {
            assert_eq!(Modulus::from_bits(bits, 294, 1000), Err(ModulusError::Bits { bits }));
        }
        assert!(matches!(Modulus::from_bits(32, 1 << 16, 1 << 16), Err(ModulusError::TooLarge { .. })));
        assert_eq!(Modulus::from_bits(8, 1, 0), Err(ModulusError::NoInputs));
        let noised = Modulus::with_noise(294, 1000, 1 << 20).unwrap();
        assert_eq!(noised.widened(21), Err(ModulusError::Wraps { bits: 21, needed: 22 }));
        assert_eq!(noised.widened(22), Ok(noised));
    }

    #[test]
    fn residues_keep_the_low_bits() {
        for b in 1..=32 {
            let modulus = Modulus { bits: b };
            assert_eq!(u64::from(modulus.mask()), (1_u64 << b) - 1);
            assert_eq!(modulus.reduce(u32::MAX), modulus.mask());
            assert_eq!(modulus.reduce(0), 0);
            assert_eq!(u64::from(modulus.reduce(0xdead_beef)), 0xdead_beef_u64 % (1 << b));
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let refused = Modulus::new(1 << 20, 1 << 20).unwrap_err().to_string();
        assert_eq!(
            refused,
            "a sum of 1048576 inputs up to 1048576 needs 41 bits, but at most 32 are supported; \
             use a coarser grid, a rotation, or fewer inputs"
        );
        let refused = Modulus::with_noise(1, 1, 1 << 40).unwrap_err().to_string();
        assert!(
            refused.starts_with("a sum of 1 inputs up to 1, with noise up to 1099511627776 needs 42 bits"),
            "{refused}"
        );
    }

    proptest! {
        #[test]
        fn it_is_the_least_that_does_not_wrap(
            largest in any::<u32>(),
            inputs in any::<u32>(),
            reach in any::<u64>(),
            shift in (0_u32..32, 0_u32..32, 0_u32..64),
        ) {
            let (largest, inputs, reach) = (largest >> shift.0, (inputs >> shift.1).max(1), reach >> shift.2);
            let widest = u128::from(largest) * u128::from(inputs) + 2 * u128::from(reach);
            match Modulus::with_noise(largest, inputs, reach) {
                Ok(modulus) => {
                    prop_assert!(widest < 1 << modulus.bits());
                    prop_assert!(modulus.bits() == 1 || widest >= 1 << (modulus.bits() - 1));
                }
                Err(ModulusError::TooLarge { .. }) => prop_assert!(widest >= 1 << 32),
                Err(e) => prop_assert!(false, "{e}"),
            }
        }
    }
}
