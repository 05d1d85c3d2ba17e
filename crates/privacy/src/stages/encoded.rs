//! One user's encoded integers, and the sum of many.

use std::ops::Range;

use zeroize::Zeroize;

use super::Released;
use crate::{
    encoding::{Encoding, EncodingError, EncodingId, Measured, Packing, Reached, Unpacking, layout::Layout},
    event::PrivacyEvent,
    rng::Randomness,
    workers::{self, Alone, Workers},
};

/// Coordinates that one worker looks at at a time.
const PIECE: usize = 1 << 14;

/// Users that a sum takes at most, so that no coordinate overflows.
pub(super) const MOST_USERS: u64 = 1 << 31;

/// Integers on the grid, every bound of the layout checked exactly. They are wiped from memory when this is dropped; `Debug` shows the length and
/// nothing else.
pub struct Encoded {
    pub(super) values: Vec<i32>,
    pub(super) id: EncodingId,
    packing: Packing,
}

impl Encoded {
    /// Integers from elsewhere become `Encoded` here and nowhere else: length, norm and every other bound are checked.
    ///
    /// # Errors
    /// Which bound does not hold.
    pub fn of(values: Vec<i32>, encoding: &Encoding) -> Result<Self, EncodingError> {
        let measured = Measured::of(&values, encoding.layout());
        Self::measured(values, &measured, encoding)
    }

    /// The same of integers that were measured as they came.
    fn measured(values: Vec<i32>, measured: &Measured, encoding: &Encoding) -> Result<Self, EncodingError> {
        // From here on the values are wiped when this fails.
        let encoded = Self { values, id: encoding.id(), packing: encoding.packing() };
        encoding.check(&encoded.values, measured)?;
        Ok(encoded)
    }

    /// The same of bytes, packed as [`Packing`] says.
    ///
    /// # Errors
    /// When there are more or fewer than the encoding has, or which bound does not hold.
    pub fn check(bytes: &[u8], encoding: &Encoding) -> Result<Self, EncodingError> {
        Self::of(encoding.packing().unpack(bytes)?, encoding)
    }

    /// The bytes that [`Encoded::check`] takes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes_in(0..self.bytes())
    }

    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.packing.bytes()
    }

    /// The bytes in a range.
    #[must_use]
    pub fn bytes_in(&self, range: Range<usize>) -> Vec<u8> {
        self.packing.pack(&self.values, range)
    }

    /// The integers; secure aggregation masks them as [`Residues`](super::Residues).
    #[must_use]
    pub fn values(&self) -> &[i32] {
        &self.values
    }

    /// Its memory, wiped, for the integers of somebody else.
    #[must_use]
    pub fn wiped(mut self) -> Spare {
        let mut values = std::mem::take(&mut self.values);
        values.fill(0);
        Spare(values)
    }
}

impl Drop for Encoded {
    fn drop(&mut self) {
        self.values.zeroize();
    }
}

/// Memory that integers lay in, wiped: fresh memory costs as much as reading a report into it.
pub struct Spare(Vec<i32>);

impl Spare {
    /// Its size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<i32>()
    }
}

impl std::fmt::Debug for Spare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spare({} bytes)", self.bytes())
    }
}

impl std::fmt::Debug for Encoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Encoded({} integers)", self.values.len())
    }
}

/// One user's integers whose bytes come in pieces: they are unpacked and measured as they come, and checked when all are there. What has come is
/// wiped from memory when this is dropped.
pub struct Arriving {
    unpacking: Unpacking,
    measured: Measured,
    encoding: Encoding,
}

impl Arriving {
    /// Nothing yet, of this encoding.
    #[must_use]
    pub fn new(encoding: &Encoding) -> Self {
        Self::of(encoding.packing().unpacking(), encoding)
    }

    /// The same, in memory that is there.
    #[must_use]
    pub fn within(encoding: &Encoding, spare: Spare) -> Self {
        Self::of(encoding.packing().unpacking_into(spare.0), encoding)
    }

    fn of(unpacking: Unpacking, encoding: &Encoding) -> Self {
        Self { unpacking, measured: Measured::nothing(encoding.layout()), encoding: encoding.clone() }
    }

    /// How far it is, to go back there if what comes next breaks off.
    #[must_use]
    pub fn so_far(&self) -> SoFar {
        SoFar { reached: self.unpacking.reached(), measured: self.measured.clone() }
    }

    /// Goes back to where it was: what has come since then is wiped, and can come again.
    pub fn back_to(&mut self, so_far: &SoFar) {
        self.unpacking.back_to(&so_far.reached);
        self.measured.clone_from(&so_far.measured);
    }

    /// The next bytes of those that [`Encoded::check`] takes.
    ///
    /// # Errors
    /// When there are more than the encoding has, or some that no integer has.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), EncodingError> {
        self.unpacking.take(bytes)?;
        self.measured.go_on(self.unpacking.values());
        Ok(())
    }

    /// How many bytes have come.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.unpacking.taken()
    }

    /// The integers, if all have come and every bound holds.
    ///
    /// # Errors
    /// Otherwise.
    pub fn finish(self) -> Result<Encoded, EncodingError> {
        Encoded::measured(self.unpacking.finish()?, &self.measured, &self.encoding)
    }
}

/// The progress of unpacking integers.
pub struct SoFar {
    reached: Reached,
    measured: Measured,
}

impl std::fmt::Debug for SoFar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SoFar")
    }
}

impl std::fmt::Debug for Arriving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arriving({} bytes)", self.taken())
    }
}

/// The integer sum over a cohort: the same bits in any order. Not `Clone`, since it is released once; `Debug` shows the
/// length and nothing else.
pub struct Sum {
    pub(super) values: Vec<i64>,
    pub(super) id: EncodingId,
    layout: Layout,
    pub(super) users: u64,
    /// Whether any part of it came by [`Sum::assertion`].
    pub(super) asserted: bool,
}

impl Sum {
    /// The sum over nobody.
    #[must_use]
    pub fn zero(encoding: &Encoding) -> Self {
        let layout = encoding.layout().clone();
        Self { values: vec![0; layout.len()], id: encoding.id(), layout, users: 0, asserted: false }
    }

    /// Whether it is of so many users. How many it is of it does not say (rule P12).
    #[must_use]
    pub const fn is_of(&self, users: u64) -> bool {
        self.users == users
    }

    /// Adds one user.
    ///
    /// # Errors
    /// When the vector is of another encoding, or the sum is full.
    pub fn add(&mut self, one: &Encoded) -> Result<(), EncodingError> {
        self.admit(one.id, 1)?;
        self.values.iter_mut().zip(&one.values).for_each(|(sum, v)| *sum += i64::from(*v));
        Ok(())
    }

    /// Adds the users of another sum.
    ///
    /// # Errors
    /// When it is of another encoding, or the sum would be too full.
    pub fn merge(&mut self, other: Self) -> Result<(), EncodingError> {
        self.admit(other.id, other.users)?;
        self.values.iter_mut().zip(&other.values).for_each(|(sum, v)| *sum += v);
        self.asserted |= other.asserted;
        Ok(())
    }

    pub(super) fn admit(&mut self, id: EncodingId, users: u64) -> Result<(), EncodingError> {
        if id != self.id {
            return Err(EncodingError::Mixed);
        }
        self.users = (self.users.checked_add(users)).filter(|u| *u <= MOST_USERS).ok_or(EncodingError::TooManyUsers)?;
        Ok(())
    }

    /// A sum whose parts are not at hand: that each was encoded within its bounds is asserted by the caller, not shown.
    /// The one way around [`Encoded`]: for secure aggregation ([`Residues::sum`](super::Residues::sum)), and for an engine whose
    /// parts stay on a card, where the same bounds were checked.
    ///
    /// # Errors
    /// When the length is not the encoding's, or a coordinate is larger than `users` honest users could make it.
    pub fn assertion(values: Vec<i64>, users: u64, encoding: &Encoding) -> Result<Self, EncodingError> {
        Self::assertion_by(values, users, encoding, &Alone)
    }

    /// The same, where workers look at the coordinates.
    ///
    /// # Errors
    /// As [`Self::assertion`]; and when they left something out.
    pub fn assertion_by(
        values: Vec<i64>,
        users: u64,
        encoding: &Encoding,
        workers: &dyn Workers,
    ) -> Result<Self, EncodingError> {
        let layout = encoding.layout().clone();
        // From here on the values are wiped when this fails.
        let mut sum = Self { values, id: encoding.id(), layout, users: 0, asserted: true };
        if sum.values.len() != sum.layout.len() {
            return Err(EncodingError::Length { expected: sum.layout.len(), got: sum.values.len() });
        }
        sum.admit(encoding.id(), users)?;
        sum.check_size(workers)?;
        Ok(sum)
    }

    /// The sum over all processes of one run, by a collective operation. `add` is given the integers of this process and
    /// how many users they are of, and leaves in place of both those of all processes, or what it was given where another
    /// process gets the sum. The one place where integers without noise leave and come back: it is for processes that
    /// trust each other as threads do, each with a sum of the same encoding, and not for a network of strangers.
    ///
    /// # Errors
    /// What `add` says; or that there are more users than a sum takes, or a coordinate is larger than they could make it.
    pub fn across_processes<E: From<EncodingError>>(
        mut self,
        add: impl FnOnce(&mut [i64], &mut u64) -> Result<(), E>,
    ) -> Result<Self, E> {
        add(&mut self.values, &mut self.users)?;
        if self.users > MOST_USERS {
            return Err(EncodingError::TooManyUsers.into());
        }
        self.check_size(&Alone)?;
        Ok(self)
    }

    /// Refuses coordinates that are larger than the users could make them.
    pub(super) fn check_size(&self, workers: &dyn Workers) -> Result<(), EncodingError> {
        let mut start = 0;
        for segment in self.layout.segments() {
            let most = self.users * u64::from(segment.largest);
            let values = &self.values[start..start + segment.len];
            workers::each(workers, values.chunks(PIECE), |_, values| {
                let largest =
                    pulp::Arch::new().dispatch(|| values.iter().fold(0, |most, v| v.unsigned_abs().max(most)));
                if largest <= most {
                    return Ok(());
                }
                // Neither the number of users nor what they added up to is said: both are exact (rule P12).
                let problem = "some coordinate is larger than all users together could make it".to_owned();
                Err(EncodingError::Bound { segment: segment.kind, problem })
            })?;
            start += segment.len;
        }
        Ok(())
    }

    /// The sum as it is, for runs without privacy: the event is [`PrivacyEvent::NonPrivate`] and has infinite epsilon.
    pub fn release_without_privacy(mut self, step: u64, what: &str, randomness: Randomness) -> Released {
        let event = PrivacyEvent::NonPrivate { what: what.to_owned() };
        let values = std::mem::take(&mut self.values);
        Released::new(values, self.layout.clone(), self.id, event, randomness, step)
    }

    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Takes the sum apart for a mechanism, which adds the noise in place.
    pub(crate) fn into_parts(mut self) -> (Vec<i64>, Layout, EncodingId) {
        (std::mem::take(&mut self.values), self.layout.clone(), self.id)
    }
}

impl Drop for Sum {
    fn drop(&mut self) {
        self.values.zeroize();
    }
}

impl std::fmt::Debug for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sum({} integers)", self.values.len())
    }
}
