//! Packs the few coordinates of an update that are not zero, each with its place (Deep Gradient Compression, Lin et al. 2017).
//!
//! A pair is the place of a coordinate and its integer, in that order, each at a fixed width, the lowest bit of the lowest byte first. Pairs
//! stand in the order of their places, and there are always as many as were agreed: where fewer coordinates are not zero, the first of those that
//! are stand among them. So a size tells nothing of what was typed (rule P26). Bits after the last pair are zero.
//!
//! Eight pairs of w bits are w bytes, which is a group, as of integers that are sent without places (`packing`).

use super::packing::GROUP;

/// The widest pair: a place and an integer of 32 bits each.
pub(super) const MOST_PAIR_BITS: usize = 64;

/// So many pairs, of the coordinates of an update of some length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pairs {
    /// How many pairs a report has.
    pub(super) count: usize,
    /// Coordinates of the update.
    len: usize,
    /// Bits of an integer.
    bits: usize,
}

impl Pairs {
    pub(super) const fn new(count: usize, len: usize, bits: usize) -> Self {
        Self { count, len, bits }
    }

    /// Bits of the place of a coordinate.
    const fn place_bits(&self) -> usize {
        (usize::BITS - self.len.saturating_sub(1).leading_zeros()) as usize
    }

    /// Bits of a pair, and bytes of eight.
    pub(super) const fn width(&self) -> usize {
        self.place_bits() + self.bits
    }

    pub(super) const fn bytes(&self) -> usize {
        self.count / GROUP * self.width() + (self.count % GROUP * self.width()).div_ceil(8)
    }

    /// All bytes of an update of which at most so many coordinates are not zero.
    pub(super) fn pack(&self, values: &[i32]) -> Vec<u8> {
        let mut zeros = self.count.saturating_sub(nonzero(values));
        let mut bytes = vec![0; self.bytes()];
        let stands =
            |value: i32, zeros: &mut usize| value != 0 || std::mem::replace(zeros, zeros.saturating_sub(1)) > 0;
        let pairs = (0u64..).zip(values).filter(|(_, value)| stands(**value, &mut zeros)).take(self.count);
        for (number, (place, value)) in pairs.enumerate() {
            let integer = u64::from(*value as u32) & ((1 << self.bits) - 1);
            set_bits(&mut bytes, number * self.width(), place | integer << self.place_bits());
        }
        bytes
    }

    /// Appends the coordinates up to the last of so many pairs. None where a place is beyond the update, or does not come after the one before.
    pub(super) fn unpack(&self, group: &[u8], count: usize, start: usize, values: &mut Vec<i32>) -> Option<()> {
        for number in 0..count {
            let pair = bits_at(group, number * self.width(), self.width());
            let place = (pair & ((1 << self.place_bits()) - 1)) as usize;
            let at = start + place;
            if place >= self.len || at < values.len() {
                return None;
            }
            values.resize(at, 0);
            // Up, so that the sign is the highest bit, and down with it.
            let up = 64 - self.bits;
            values.push(((pair >> self.place_bits() << up) as i64 >> up) as i32);
        }
        let is_zero = |at: usize| bits_at(group, at, 1) == 0;
        (count * self.width()..8 * group.len()).all(is_zero).then_some(())
    }
}

/// How many coordinates are not zero.
pub(super) fn nonzero(values: &[i32]) -> usize {
    values.iter().filter(|value| **value != 0).count()
}

fn set_bits(bytes: &mut [u8], at: usize, value: u64) {
    let shifted = u128::from(value) << (at % 8);
    let ahead = shifted.to_le_bytes();
    bytes[at / 8..].iter_mut().zip(ahead).for_each(|(byte, more)| *byte |= more);
}

fn bits_at(bytes: &[u8], at: usize, bits: usize) -> u64 {
    let mut ahead = [0; 16];
    ahead.iter_mut().zip(&bytes[at / 8..]).for_each(|(to, byte)| *to = *byte);
    let shifted = u128::from_le_bytes(ahead) >> (at % 8);
    (shifted & ((1u128 << bits) - 1)) as u64
}

#[cfg(test)]
mod tests {
    use crate::{
        encoding::{Encoding, EncodingError, VectorPlan},
        event::Adjacency,
        stages::{Encoded, Sum},
        units::ClipNorm,
    };

    /// Whoever sends them, every bound is checked, and both forms add up to one sum.
    #[test]
    fn few_coordinates_keep_every_bound_and_are_added_to_all() {
        let plan = VectorPlan { clip_bit: true, ..VectorPlan::of_update(100, 10) };
        let whole = Encoding::new(plan, ClipNorm::new(1.0).unwrap(), None, Adjacency::ZeroOut).unwrap();
        let few = whole.clone().with_few(3).unwrap();
        assert_eq!((few.id(), few.few()), (whole.id(), Some(3)));
        let vector = |pairs: &[(usize, i32)]| {
            let mut values = vec![0; 101];
            pairs.iter().for_each(|(at, value)| values[*at] = *value);
            values
        };
        let honest = vector(&[(7, 400), (8, -3), (99, 1), (100, 1 << 15)]);
        let encoded = Encoded::of(honest.clone(), &few).unwrap();
        // Three pairs of 7 and 12 bits, and a clip bit of 17.
        assert_eq!((encoded.bytes(), encoded.to_bytes().len()), (8 + 3, 8 + 3));
        let arrived = Encoded::check(&encoded.to_bytes(), &few).unwrap();
        assert_eq!(arrived.values(), honest);
        let mut sum = Sum::zero(&whole);
        sum.add(&arrived).unwrap();
        sum.add(&Encoded::of(honest, &whole).unwrap()).unwrap();
        let many = vector(&[(1, 1), (2, 1), (3, 1), (4, 1)]);
        let refused = Encoded::of(many.clone(), &few).unwrap_err();
        assert!(
            matches!(&refused, EncodingError::Bound { problem, .. } if problem.contains("4 coordinates")),
            "{refused}"
        );
        assert!(Encoded::of(many, &whole).is_ok());
        let long = vector(&[(1, 1024), (2, 1024)]);
        let bytes = few.packing().pack(&long, 0..few.packing().bytes());
        assert!(matches!(Encoded::check(&bytes, &few), Err(EncodingError::Bound { .. })), "a norm above the clip");
        let rotated = VectorPlan { rotation_seed: Some([1; 32]), ..VectorPlan::of_update(100, 10) };
        let rotated = Encoding::new(rotated, ClipNorm::new(1.0).unwrap(), None, Adjacency::ZeroOut).unwrap();
        assert!(rotated.with_few(3).is_err() && whole.clone().with_few(0).is_err() && whole.with_few(101).is_err());
    }
}
