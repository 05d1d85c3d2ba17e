//! Blocks of 1024 lanes, packed to b bits each, column by column.

use pulp::{Arch, Simd, WithSimd};

use super::MaskError;

/// The lanes of a block: 32 columns of 32.
pub const BLOCK: usize = COLUMNS * COLUMNS;

/// The longest vector: room for the longest rotation, 2^28, and for what stands beside it.
pub const MAX_DIMENSION: usize = 1 << 29;

/// The columns of a block, the words of a row, and the bits of a word.
const COLUMNS: usize = 32;

/// The bits of padding that the server finds zero in every sum that is not spoiled.
const CANARY_BITS: usize = 64;

/// A row of a packed block: one little-endian word of each column.
type Row = [[u8; 4]; COLUMNS];

/// The bytes of a row.
const ROW_BYTES: usize = size_of::<Row>();

/// The length of a vector and of its residues, and what follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    dimension: usize,
    bits: u32,
}

impl Shape {
    /// Vectors of `dimension` residues mod 2^`bits`.
    ///
    /// # Errors
    /// If there is no element or more than [`MAX_DIMENSION`], or if bits are not 1 to 32.
    pub const fn new(dimension: usize, bits: u32) -> Result<Self, MaskError> {
        if dimension == 0 || dimension > MAX_DIMENSION {
            return Err(MaskError::Dimension { got: dimension });
        }
        match check_bits(bits) {
            Ok(_) => Ok(Self { dimension, bits }),
            Err(error) => Err(error),
        }
    }

    /// The number of elements before padding.
    #[must_use]
    pub const fn dimension(&self) -> usize {
        self.dimension
    }

    /// The bits of a residue: b.
    #[must_use]
    pub const fn bits(&self) -> u32 {
        self.bits
    }

    /// The number of lanes: whole blocks, the elements first.
    ///
    /// What follows the elements is the canary: at least 64 bits, zero in every input, and therefore zero in the sum
    /// unless a mask did not cancel.
    #[must_use]
    pub const fn padded(&self) -> usize {
        (self.dimension + CANARY_BITS.div_ceil(self.bits as usize)).next_multiple_of(BLOCK)
    }

    /// The bytes of the packed vector.
    #[must_use]
    pub const fn packed_len(&self) -> usize {
        packed_len(self.padded(), self.bits as usize)
    }

    /// The bytes of so many packed lanes, whole blocks.
    pub(crate) const fn packed_len_of(&self, lanes: usize) -> usize {
        packed_len(lanes, self.bits as usize)
    }
}

/// Appends the packed form of whole blocks, each lane reduced mod 2^b.
///
/// # Errors
/// If lanes are not whole blocks, or bits not 1 to 32; nothing is appended then.
pub fn pack(lanes: &[u32], bits: u32, packed: &mut Vec<u8>) -> Result<(), MaskError> {
    let bits = check_bits(bits)?;
    let start = packed.len();
    packed.resize(start + check_blocks(lanes, bits)?, 0);
    Arch::new().dispatch(Pack { lanes, packed: &mut packed[start..], bits });
    Ok(())
}

/// Adds a packed vector, or whole blocks of one, to the lanes. They wrap: [`reduce`] the sum.
///
/// # Errors
/// If lanes are not whole blocks, the bytes not exactly theirs, or bits not 1 to 32; no lane is changed then.
pub fn add_packed(lanes: &mut [u32], packed: &[u8], bits: u32) -> Result<(), MaskError> {
    let bits = check_lengths(lanes, packed, bits)?;
    unpack_with(lanes, packed, bits, |lane, value| *lane = lane.wrapping_add(value));
    Ok(())
}

/// Takes a packed vector, or whole blocks of one, off the lanes again.
///
/// # Errors
/// As [`add_packed`].
pub fn subtract_packed(lanes: &mut [u32], packed: &[u8], bits: u32) -> Result<(), MaskError> {
    let bits = check_lengths(lanes, packed, bits)?;
    unpack_with(lanes, packed, bits, |lane, value| *lane = lane.wrapping_sub(value));
    Ok(())
}

/// Reduces lanes mod 2^b.
///
/// # Errors
/// If bits are not 1 to 32.
pub fn reduce(lanes: &mut [u32], bits: u32) -> Result<(), MaskError> {
    let mask = mask(check_bits(bits)?);
    lanes.iter_mut().for_each(|lane| *lane &= mask);
    Ok(())
}

/// The largest of some numbers; 0 of none.
#[must_use]
pub fn largest(numbers: &[u32]) -> u32 {
    Arch::new().dispatch(Largest(numbers))
}

/// What [`largest`] runs on the instruction set that was found.
struct Largest<'a>(&'a [u32]);

impl WithSimd for Largest<'_> {
    type Output = u32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> u32 {
        self.0.iter().copied().fold(0, u32::max)
    }
}

/// Calls `op` with every lane and the value packed for it, whose bits from b on are undefined.
///
/// The lengths were checked.
pub(super) fn unpack_with(lanes: &mut [u32], packed: &[u8], bits: usize, op: impl Fn(&mut u32, u32)) {
    Arch::new().dispatch(Unpack { lanes, packed, bits, op });
}

/// The same with the values of two vectors.
pub(super) fn unpack_two_with(lanes: &mut [u32], packed: [&[u8]; 2], bits: usize, op: impl Fn(&mut u32, u32, u32)) {
    Arch::new().dispatch(UnpackTwo { lanes, packed, bits, op });
}

/// The bytes of packed lanes, which are whole blocks.
pub(super) const fn packed_len(lanes: usize, bits: usize) -> usize {
    lanes / BLOCK * ROW_BYTES * bits
}

/// b as a number of rows, if lanes can hold it.
pub(super) const fn check_bits(bits: u32) -> Result<usize, MaskError> {
    match bits {
        1..=32 => Ok(bits as usize),
        got => Err(MaskError::Bits { got }),
    }
}

/// The bytes of packed lanes, if these are whole blocks.
pub(super) fn check_blocks(lanes: &[u32], bits: usize) -> Result<usize, MaskError> {
    match lanes.len() {
        len if len.is_multiple_of(BLOCK) => Ok(packed_len(len, bits)),
        got => Err(MaskError::PartialBlock { got }),
    }
}

/// b as a number of rows, if the bytes are those of the lanes.
fn check_lengths(lanes: &[u32], packed: &[u8], bits: u32) -> Result<usize, MaskError> {
    let bits = check_bits(bits)?;
    let wanted = check_blocks(lanes, bits)?;
    match packed.len() {
        got if got == wanted => Ok(bits),
        got => Err(MaskError::PackedLength { wanted, got }),
    }
}

/// 2^b - 1.
const fn mask(bits: usize) -> u32 {
    u32::MAX >> (COLUMNS - bits)
}

/// Where lane 32 i + l begins in column l: the row, and the bit of its word.
#[inline(always)]
const fn place(i: usize, bits: usize) -> (usize, usize) {
    (i * bits / COLUMNS, i * bits % COLUMNS)
}

/// The rows of all blocks.
#[inline(always)]
fn rows(packed: &[u8]) -> &[Row] {
    packed.as_chunks().0.as_chunks().0
}

/// The words of a row.
#[inline(always)]
fn words(row: &Row) -> [u32; COLUMNS] {
    row.map(u32::from_le_bytes)
}

/// What [`unpack_with`] runs on the instruction set that was found.
pub(super) struct Unpack<'a, F> {
    pub(super) lanes: &'a mut [u32],
    pub(super) packed: &'a [u8],
    pub(super) bits: usize,
    pub(super) op: F,
}

impl<F: Fn(&mut u32, u32)> WithSimd for Unpack<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { lanes, packed, bits, op } = self;
        for (block, rows) in lanes.chunks_exact_mut(BLOCK).zip(rows(packed).chunks_exact(bits)) {
            for (i, lanes) in block.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate() {
                let values = values(rows, i, bits);
                for l in 0..COLUMNS {
                    op(&mut lanes[l], values[l]);
                }
            }
        }
    }
}

/// What [`unpack_two_with`] runs on the instruction set that was found.
struct UnpackTwo<'a, F> {
    lanes: &'a mut [u32],
    packed: [&'a [u8]; 2],
    bits: usize,
    op: F,
}

impl<F: Fn(&mut u32, u32, u32)> WithSimd for UnpackTwo<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { lanes, packed: [a, b], bits, op } = self;
        let rows = rows(a).chunks_exact(bits).zip(rows(b).chunks_exact(bits));
        for (block, (a, b)) in lanes.chunks_exact_mut(BLOCK).zip(rows) {
            for (i, lanes) in block.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate() {
                let (a, b) = (values(a, i, bits), values(b, i, bits));
                for l in 0..COLUMNS {
                    op(&mut lanes[l], a[l], b[l]);
                }
            }
        }
    }
}

/// The 32 values of a block from lane 32 i on.
#[inline(always)]
fn values(rows: &[Row], i: usize, bits: usize) -> [u32; COLUMNS] {
    let (row, shift) = place(i, bits);
    let mut values = words(&rows[row]).map(|word| word >> shift);
    if shift + bits > COLUMNS {
        let high = words(&rows[row + 1]);
        for l in 0..COLUMNS {
            values[l] |= high[l] << (COLUMNS - shift);
        }
    }
    values
}

/// What [`pack`] runs on the instruction set that was found.
pub(super) struct Pack<'a> {
    pub(super) lanes: &'a [u32],
    pub(super) packed: &'a mut [u8],
    pub(super) bits: usize,
}

impl WithSimd for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { lanes, packed, bits } = self;
        let mask = mask(bits);
        let rows = packed.as_chunks_mut().0.as_chunks_mut::<COLUMNS>().0;
        for (block, rows) in lanes.chunks_exact(BLOCK).zip(rows.chunks_exact_mut(bits)) {
            // A row is filled by lanes until one does not fit; what is left of it begins the next.
            let (mut row, mut words, mut filled) = (0, [0; COLUMNS], 0);
            for lanes in block.as_chunks::<COLUMNS>().0 {
                let values = lanes.map(|lane| lane & mask);
                for l in 0..COLUMNS {
                    words[l] |= values[l] << filled;
                }
                filled += bits;
                if filled < COLUMNS {
                    continue;
                }
                rows[row] = words.map(u32::to_le_bytes);
                (row, filled) = (row + 1, filled - COLUMNS);
                words = match filled {
                    0 => [0; COLUMNS],
                    _ => values.map(|value| value >> (bits - filled)),
                };
            }
        }
    }
}
