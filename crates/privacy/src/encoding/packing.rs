//! Packs a user's integers into the bytes of a report, at fixed widths just above the bounds of the layout.
//!
//! Each segment has lanes of one width, in two's complement, and begins with a whole byte; lane i has the bits from i b on, the lowest
//! bit of the lowest byte first. Widths follow from the layout alone, so a size tells nothing of what was typed (rule P26). Bits after the last
//! lane of a segment are zero: an integer vector has one way to be written.
//!
//! Eight lanes of b bits are b bytes: that is what is read and written at a time, by code of its own for each width. Where a report has few
//! coordinates of an update, the first segment has pairs instead ([`super::pairs`]).

use std::ops::Range;

use zeroize::Zeroize;

use super::{
    EncodingError,
    layout::{Layout, LayoutSegment, SegmentKind},
    pairs::{MOST_PAIR_BITS, Pairs},
};

/// Lanes that begin and end with whole bytes, whatever their width.
pub(super) const GROUP: usize = 8;
/// Groups that are unpacked at a time, on the stack.
const BLOCK: usize = 64;
/// The widest lane: that of the integers themselves.
const MOST_BITS: usize = 32;

/// The packing of a layout's integers in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing(Vec<Lanes>);

/// A segment's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lanes {
    kind: SegmentKind,
    len: usize,
    bits: usize,
    /// Where only some coordinates are in the report.
    pairs: Option<Pairs>,
}

impl From<&LayoutSegment> for Lanes {
    fn from(segment: &LayoutSegment) -> Self {
        // With a bit for the sign.
        let bits = (u32::BITS - segment.largest.leading_zeros() + 1) as usize;
        Self { kind: segment.kind, len: segment.len, bits: bits.min(MOST_BITS), pairs: None }
    }
}

impl Lanes {
    const fn bytes(&self) -> usize {
        if let Some(pairs) = &self.pairs {
            return pairs.bytes();
        }
        // 2^31 lanes of 32 bits, in groups: no product here needs more than 32 bits before it is one of bytes.
        self.len / GROUP * self.bits + (self.len % GROUP * self.bits).div_ceil(8)
    }

    /// Bytes of eight lanes, or of eight pairs.
    const fn group_bytes(&self) -> usize {
        match &self.pairs {
            Some(pairs) => pairs.width(),
            None => self.bits,
        }
    }
}

impl From<&Layout> for Packing {
    fn from(layout: &Layout) -> Self {
        Self(layout.segments().iter().map(Lanes::from).collect())
    }
}

impl Packing {
    /// The same with so many coordinates of the update, each with its place; the others are zero.
    pub(super) fn with_few(mut self, count: usize) -> Self {
        if let Some(lanes) = self.0.first_mut() {
            lanes.pairs = Some(Pairs::new(count, lanes.len, lanes.bits));
        }
        self
    }

    /// The bytes of a vector.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Lanes::bytes).sum()
    }

    /// The bits of a coordinate of the update.
    #[must_use]
    pub fn update_bits(&self) -> usize {
        self.0.first().map_or(0, |lanes| lanes.bits)
    }

    /// Those of a vector's bytes that lie in a range; the vector keeps the bounds of the layout.
    pub(crate) fn pack(&self, values: &[i32], range: Range<usize>) -> Vec<u8> {
        let mut packed = Vec::with_capacity(range.len() + MOST_BITS);
        let (mut values, mut start) = (values, 0);
        for lanes in &self.0 {
            let (here, rest) = values.split_at(lanes.len);
            let end = start + lanes.bytes();
            let wanted = range.start.clamp(start, end) - start..range.end.clamp(start, end) - start;
            match &lanes.pairs {
                _ if wanted.is_empty() => {}
                Some(pairs) => packed.extend_from_slice(&pairs.pack(here)[wanted]),
                None => pack_lanes(lanes.bits, here, wanted, &mut packed),
            }
            (values, start) = (rest, end);
        }
        packed
    }

    /// Where the integers of a vector's bytes come to lie as the bytes come.
    pub(crate) fn unpacking(&self) -> Unpacking {
        self.unpacking_into(Vec::new())
    }

    /// The same, in memory that was used before. What is in it goes.
    pub(crate) fn unpacking_into(&self, mut values: Vec<i32>) -> Unpacking {
        values.clear();
        // The last lanes of a segment are unpacked as eight.
        values.reserve_exact(self.0.iter().map(|lanes| lanes.len).sum::<usize>() + GROUP);
        let left = self.0.first().map_or(0, Lanes::bytes);
        let held = Vec::with_capacity(MOST_PAIR_BITS);
        Unpacking { packing: self.clone(), values, segment: 0, start: 0, left, held, pairs: 0, taken: 0 }
    }

    /// The integers of a vector's bytes. Whether they keep their bounds is not looked at.
    pub(crate) fn unpack(&self, bytes: &[u8]) -> Result<Vec<i32>, EncodingError> {
        let mut unpacking = self.unpacking();
        unpacking.take(bytes)?;
        unpacking.finish()
    }
}

/// Integers of bytes that come in pieces. What has come is wiped from memory when this is dropped.
pub(crate) struct Unpacking {
    packing: Packing,
    values: Vec<i32>,
    /// The segment that the next byte is of, where its integers begin, and how many of its bytes are to come.
    segment: usize,
    start: usize,
    left: usize,
    /// Bytes that are no whole group yet.
    held: Vec<u8>,
    /// Pairs that have come.
    pairs: usize,
    /// Bytes that have come.
    taken: usize,
}

/// How far an [`Unpacking`] was, so that it can go back there.
pub(crate) struct Reached {
    values: usize,
    segment: usize,
    start: usize,
    left: usize,
    held: Vec<u8>,
    pairs: usize,
    taken: usize,
}

impl Drop for Reached {
    fn drop(&mut self) {
        self.held.zeroize();
    }
}

impl Unpacking {
    /// How much has been unpacked.
    pub(crate) fn reached(&self) -> Reached {
        let Self { segment, start, left, pairs, taken, .. } = *self;
        Reached { values: self.values.len(), segment, start, left, held: self.held.clone(), pairs, taken }
    }

    /// Goes back to where it was: what has come since then has not.
    pub(crate) fn back_to(&mut self, reached: &Reached) {
        self.values[reached.values..].zeroize();
        self.values.truncate(reached.values);
        self.held.zeroize();
        self.held.extend_from_slice(&reached.held);
        (self.segment, self.start, self.left, self.pairs, self.taken) =
            (reached.segment, reached.start, reached.left, reached.pairs, reached.taken);
    }

    /// The next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), EncodingError> {
        let mut bytes = bytes;
        self.taken += bytes.len();
        while let Some(lanes) = self.packing.0.get(self.segment).copied() {
            let (here, rest) = bytes.split_at(bytes.len().min(self.left));
            self.left -= here.len();
            self.unpack(lanes, here)?;
            if self.left > 0 {
                return Ok(());
            }
            self.end_segment(lanes)?;
            bytes = rest;
        }
        if bytes.is_empty() { Ok(()) } else { Err(self.bytes()) }
    }

    /// The bytes that have come.
    pub(crate) const fn taken(&self) -> usize {
        self.taken
    }

    /// The integers that have come.
    pub(crate) fn values(&self) -> &[i32] {
        &self.values
    }

    /// All integers, once all bytes have come.
    pub(crate) fn finish(mut self) -> Result<Vec<i32>, EncodingError> {
        if self.segment < self.packing.0.len() {
            return Err(self.bytes());
        }
        Ok(std::mem::take(&mut self.values))
    }

    fn bytes(&self) -> EncodingError {
        EncodingError::Bytes { expected: self.packing.bytes(), got: self.taken }
    }

    /// Bytes of one segment: those that make whole groups with what is held, and the rest is held.
    fn unpack(&mut self, lanes: Lanes, bytes: &[u8]) -> Result<(), EncodingError> {
        let (group, mut bytes) = (lanes.group_bytes(), bytes);
        if !self.held.is_empty() {
            let (missing, rest) = bytes.split_at((group - self.held.len()).min(bytes.len()));
            self.held.extend_from_slice(missing);
            if self.held.len() < group {
                return Ok(());
            }
            self.unpack_held(lanes)?;
            bytes = rest;
        }
        let (groups, rest) = bytes.split_at(bytes.len() / group * group);
        self.unpack_groups(lanes, groups)?;
        self.held.extend_from_slice(rest);
        Ok(())
    }

    fn unpack_held(&mut self, lanes: Lanes) -> Result<(), EncodingError> {
        let held = std::mem::take(&mut self.held);
        let unpacked = self.unpack_groups(lanes, &held);
        self.held = held;
        self.held.clear();
        unpacked
    }

    /// Bytes of whole groups.
    fn unpack_groups(&mut self, lanes: Lanes, bytes: &[u8]) -> Result<(), EncodingError> {
        let Some(pairs) = lanes.pairs else {
            unpack_groups(lanes.bits, bytes, &mut self.values);
            return Ok(());
        };
        for group in bytes.chunks(pairs.width()) {
            let count = (pairs.count - self.pairs).min(GROUP);
            self.pairs += count;
            pairs.unpack(group, count, self.start, &mut self.values).ok_or_else(|| EncodingError::Bound {
                segment: lanes.kind,
                problem: "its coordinates are not in the order of their places, or there is data after the last"
                    .to_owned(),
            })?;
        }
        Ok(())
    }

    /// Lanes beyond the last are not there, and zero; so are coordinates beyond the last pair.
    fn end_segment(&mut self, lanes: Lanes) -> Result<(), EncodingError> {
        if !self.held.is_empty() {
            self.held.resize(lanes.group_bytes(), 0);
            self.unpack_held(lanes)?;
        }
        let end = self.start + lanes.len;
        if lanes.pairs.is_some() {
            self.values.resize(end, 0);
        }
        if self.values[end..].iter().any(|value| *value != 0) {
            let problem = "there is data after its last coordinate".to_owned();
            return Err(EncodingError::Bound { segment: lanes.kind, problem });
        }
        self.values.truncate(end);
        (self.segment, self.start) = (self.segment + 1, end);
        self.left = self.packing.0.get(self.segment).map_or(0, Lanes::bytes);
        Ok(())
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        self.values.zeroize();
        self.held.zeroize();
    }
}

/// Calls the code of a width.
macro_rules! of_width {
    ($bits:expr, $call:ident $arguments:tt) => {
        of_width!($bits, $call $arguments, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    ($bits:expr, $call:ident $arguments:tt, $($width:literal)*) => {
        match $bits {
            $($width => $call::<$width> $arguments,)*
            _ => $call::<32> $arguments,
        }
    };
}

fn pack_lanes(bits: usize, values: &[i32], wanted: Range<usize>, packed: &mut Vec<u8>) {
    of_width!(bits, pack_as(values, wanted, packed));
}

/// Appends the integers of whole groups.
fn unpack_groups(bits: usize, bytes: &[u8], values: &mut Vec<i32>) {
    of_width!(bits, unpack_as(bytes, values));
}

/// Appends those bytes of the lanes that are wanted. A function of its own for each width: in one with all of them little is inlined.
#[inline(never)]
fn pack_as<const BITS: usize>(values: &[i32], wanted: Range<usize>, packed: &mut Vec<u8>) {
    let first = wanted.start / BITS;
    let from = packed.len() + wanted.start - first * BITS;
    let values = &values[first * GROUP..(wanted.end.div_ceil(BITS) * GROUP).min(values.len())];
    let start = packed.len();
    let (groups, rest) = values.as_chunks::<GROUP>();
    groups.iter().for_each(|group| packed.extend_from_slice(&pack_group::<BITS>(group)));
    if !rest.is_empty() {
        let mut group = [0; GROUP];
        group[..rest.len()].copy_from_slice(rest);
        packed.extend_from_slice(&pack_group::<BITS>(&group));
    }
    packed.truncate(from + wanted.len());
    packed.drain(start..from);
}

#[inline(never)]
fn unpack_as<const BITS: usize>(bytes: &[u8], values: &mut Vec<i32>) {
    let mut block = [[0; GROUP]; BLOCK];
    for groups in bytes.as_chunks::<BITS>().0.chunks(BLOCK) {
        block.iter_mut().zip(groups).for_each(|(lanes, group)| *lanes = unpack_group::<BITS>(group));
        values.extend_from_slice(block[..groups.len()].as_flattened());
    }
}

#[inline(always)]
fn pack_group<const BITS: usize>(values: &[i32; GROUP]) -> [u8; BITS] {
    let mut bytes = [0; BITS];
    let (mut held, mut holds, mut at) = (0u64, 0, 0);
    for value in values {
        held |= u64::from(*value as u32 & (u32::MAX >> (MOST_BITS - BITS))) << holds;
        holds += BITS;
        if holds >= 32 {
            bytes[at..at + 4].copy_from_slice(&(held as u32).to_le_bytes());
            (held, holds, at) = (held >> 32, holds - 32, at + 4);
        }
    }
    bytes[at..].copy_from_slice(&held.to_le_bytes()[..BITS - at]);
    bytes
}

#[inline(always)]
fn unpack_group<const BITS: usize>(bytes: &[u8; BITS]) -> [i32; GROUP] {
    let mut lanes = [0; GROUP];
    for (lane, value) in lanes.iter_mut().enumerate() {
        // Eight bytes that hold the lane and lie within the group, or all of a group that has fewer.
        let start = (lane * BITS / 8).min(BITS.saturating_sub(8));
        let shift = lane * BITS - start * 8;
        let word = match bytes[start..].first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        // Up, so that the sign is the highest bit, and down with it.
        *value = ((word << (64 - BITS - shift)) as i64 >> (64 - BITS)) as i32;
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packing(segments: &[(usize, u32)]) -> Packing {
        let segment = |(len, largest): &(usize, u32)| LayoutSegment {
            kind: SegmentKind::Update,
            len: *len,
            norm_squared: 0,
            largest: *largest,
            sigma: 0,
        };
        Packing::from(&Layout { segments: segments.iter().map(segment).collect() })
    }

    /// Bit by bit, as the header says.
    fn slowly(packing: &Packing, values: &[i32]) -> Vec<u8> {
        let (mut bytes, mut values) = (Vec::new(), values.iter());
        for lanes in &packing.0 {
            let start = bytes.len();
            bytes.resize(start + (lanes.len * lanes.bits).div_ceil(8), 0);
            for lane in 0..lanes.len {
                let value = values.next().unwrap();
                for bit in 0..lanes.bits {
                    let to = lane * lanes.bits + bit;
                    bytes[start + to / 8] |= ((value >> bit & 1) as u8) << (to % 8);
                }
            }
        }
        bytes
    }

    #[test]
    fn every_width_and_length_comes_back_as_it_went() {
        let mut word = 7u64;
        for bits in 1..31 {
            for len in [1, 2, 7, 8, 9, 15, 16, 17, 100] {
                let most = (1u32 << bits) - 1;
                let packing = packing(&[(len, most), (1, 1 << 15), (3, 100)]);
                assert_eq!(packing.update_bits(), bits + 1);
                let mut draw = |most: u32| {
                    word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    ((word >> 32) % (2 * u64::from(most) + 1)) as i64 - i64::from(most)
                };
                let mut values: Vec<i32> = (0..len).map(|_| draw(most) as i32).collect();
                values[0] = -(most as i32);
                values.extend([1 << 15, 100, -100, 3]);
                let all = packing.pack(&values, 0..packing.bytes());
                assert_eq!(all, slowly(&packing, &values), "{bits} {len}");
                assert_eq!(packing.unpack(&all).unwrap(), values, "{bits} {len}");
                for pieces in [1, 3, 7] {
                    let mut unpacking = packing.unpacking();
                    all.chunks(pieces).for_each(|piece| unpacking.take(piece).unwrap());
                    assert_eq!(unpacking.taken(), all.len());
                    assert_eq!(unpacking.finish().unwrap(), values, "{bits} {len}, in pieces of {pieces}");
                }
                for start in [0, 1, 3, all.len() / 2, all.len() - 1, all.len()] {
                    for end in [start, start + 1, all.len() - 1, all.len()].map(|end| end.clamp(start, all.len())) {
                        assert_eq!(packing.pack(&values, start..end), all[start..end], "{bits} {len} {start} {end}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_broke_off_comes_again_from_where_it_began() {
        let packing = packing(&[(21, 1 << 20), (1, 1 << 15), (3, 100)]);
        let values: Vec<i32> = (0..25).map(|i| (i * 37) % 101 - 50).collect();
        let all = packing.pack(&values, 0..packing.bytes());
        for (from, to) in [(0, 1), (0, all.len()), (5, 30), (23, 62), (58, 61), (all.len() - 1, all.len())] {
            let mut unpacking = packing.unpacking();
            unpacking.take(&all[..from]).unwrap();
            let reached = unpacking.reached();
            // Other bytes than those that come in the end, and more of them than once.
            for cut in [from, (from + to) / 2, to] {
                let other: Vec<u8> = all[from..cut].iter().map(|byte| byte ^ 1).collect();
                _ = unpacking.take(&other);
                unpacking.back_to(&reached);
                assert_eq!(unpacking.taken(), from);
            }
            unpacking.take(&all[from..]).unwrap();
            assert_eq!(unpacking.finish().unwrap(), values, "{from} to {to}");
        }
    }

    #[test]
    fn few_coordinates_come_back_as_they_went_and_have_one_size() {
        for (len, count) in [(1, 1), (2, 1), (9, 8), (100, 9), (100, 100), (1000, 17), (70_000, 3)] {
            for bits in [1, 7, 20, 31] {
                let packing = packing(&[(len, (1 << bits) - 1), (1, 1 << 15), (3, 100)]).with_few(count);
                for there in [0, 1, count / 2, count] {
                    let mut values = vec![0; len + 4];
                    (0..there)
                        .for_each(|n| values[n * len / count] = if n % 2 == 0 { -1 } else { i32::MAX >> (31 - bits) });
                    values[len..].copy_from_slice(&[-(1 << 15), 100, -100, 3]);
                    let all = packing.pack(&values, 0..packing.bytes());
                    let places = usize::BITS - (len - 1).leading_zeros();
                    let expected = (count * (places as usize + bits + 1)).div_ceil(8) + 3 + 3;
                    assert_eq!((all.len(), packing.bytes()), (expected, expected), "{len} {count} {bits} {there}");
                    assert_eq!(packing.unpack(&all).unwrap(), values, "{len} {count} {bits} {there}");
                    for pieces in [1, 3, 7] {
                        let mut unpacking = packing.unpacking();
                        for piece in all.chunks(pieces) {
                            // What broke off comes again.
                            let reached = unpacking.reached();
                            let other: Vec<u8> = piece.iter().map(|byte| byte ^ 1).collect();
                            _ = unpacking.take(&other);
                            unpacking.back_to(&reached);
                            unpacking.take(piece).unwrap();
                        }
                        assert_eq!(unpacking.finish().unwrap(), values, "{len} {count} {bits}, in pieces of {pieces}");
                    }
                    for (start, end) in [(0, 1), (1, 5), (all.len() - 3, all.len()), (2, all.len())] {
                        assert_eq!(packing.pack(&values, start..end), all[start..end]);
                    }
                }
            }
        }
    }

    #[test]
    fn pairs_that_nobody_packs_are_refused() {
        // Five places, in three bits, of integers in two: pairs of five bits.
        let packing = packing(&[(5, 1)]).with_few(2);
        let bytes = |pairs: [u16; 2], after: u16| (pairs[0] | pairs[1] << 5 | after << 10).to_le_bytes();
        assert_eq!(packing.unpack(&bytes([1 | 1 << 3, 4 | 3 << 3], 0)).unwrap(), [0, 1, 0, 0, -1]);
        for (pairs, after) in [([4, 1], 0), ([1, 1], 0), ([1, 5], 0), ([1, 7], 0), ([0, 4], 1), ([0, 4], 1 << 5)] {
            assert!(packing.unpack(&bytes(pairs, after)).is_err(), "{pairs:?} {after}");
        }
        assert!(packing.unpack(&bytes([0, 4], 0)[..1]).is_err() && packing.unpack(&[0, 4, 0]).is_err());
        // Whatever comes, in whatever pieces: refused, or a vector with as few coordinates as there are pairs.
        let mut word = 3u64;
        for (len, count, most) in [(5, 2, 1), (300, 9, 1 << 20), (70_000, 11, u32::MAX >> 1)] {
            let packing = self::packing(&[(len, most), (1, 1 << 15)]).with_few(count);
            for _ in 0..500 {
                let mut unpacking = packing.unpacking();
                let mut left = packing.bytes();
                let taken = loop {
                    word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let piece = ((word >> 60) as usize + 1).min(left);
                    // Small places come early, so that not all is refused at the first pair.
                    let byte = if word >> 33 & 3 == 0 { (word >> 40) as u8 } else { 0 };
                    left -= piece;
                    if unpacking.take(&vec![byte; piece]).is_err() {
                        break false;
                    }
                    if left == 0 {
                        break true;
                    }
                };
                if taken && let Ok(values) = unpacking.finish() {
                    assert_eq!(values.len(), len + 1);
                    assert!(values[..len].iter().filter(|v| **v != 0).count() <= count);
                }
            }
        }
    }

    #[test]
    fn widths_are_no_wider_than_bounds_ask_for() {
        for (largest, bits) in
            [(1, 2), (2, 3), (3, 3), (1 << 15, 17), (1 << 20, 22), ((1 << 21) - 1, 22), (1 << 28, 30)]
        {
            assert_eq!(packing(&[(1, largest)]).update_bits(), bits, "{largest}");
        }
        // Neighbours do not share a byte.
        assert_eq!(packing(&[(3, 3), (1, 1), (8, 1)]).bytes(), 2 + 1 + 2);
        assert_eq!(packing(&[(2_400_000, 1 << 20)]).bytes(), 6_600_000);
    }

    #[test]
    fn what_is_behind_the_last_lane_is_refused() {
        for len in 1..=16 {
            for bits in [2, 3, 7, 8, 9, 22] {
                let packing = packing(&[(len, (1 << (bits - 1)) - 1)]);
                let zeros = vec![0; packing.bytes()];
                assert_eq!(packing.unpack(&zeros).unwrap(), vec![0; len]);
                for bit in 0..8 * zeros.len() {
                    let mut bytes = zeros.clone();
                    bytes[bit / 8] |= 1 << (bit % 8);
                    assert_eq!(packing.unpack(&bytes).is_ok(), bit < len * bits, "{len} lanes of {bits}, bit {bit}");
                }
                assert!(packing.unpack(&zeros[1..]).is_err() && packing.unpack(&[&zeros[..], &[0]].concat()).is_err());
            }
        }
    }
}
