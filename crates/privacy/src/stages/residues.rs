//! Converts integers to residues mod 2^b for secure aggregation, and sums back.
//!
//! A user's integers are shifted so that none is negative (Xu et al. 2023, Algorithm 2), and the sum is shifted back by as
//! many users as survived, never by as many as were expected. The modulus is for the largest number of inputs that a round
//! may accept (rule P19): then no sum wraps, and it is the integer sum to the bit.
//!
//! Noise that users add themselves has no bound. A noised vector wraps, which is post-processing: privacy does not depend
//! on b. The sum is read as the number in the middle, from -2^(b-1) on, which is right unless the noise of all of them
//! reaches farther than [`DistributedNoise`] does in one of 2^61 coordinates.

use zeroize::{Zeroize, Zeroizing};

use super::{Encoded, Sum, encoded::MOST_USERS};
use crate::{
    encoding::{
        DistributedNoise, Encoding, EncodingError, EncodingId,
        layout::{HALF_BIT, LayoutSegment, SegmentKind},
    },
    noise::SkellamSampler,
    rng::RandomWords,
};

/// The widest residues.
const MOST_BITS: u32 = 32;

/// Converts the vectors of a round to residues mod 2^b, and residues to a sum.
///
/// A round whose users add the noise themselves:
///
/// ```
/// use keyhush_privacy::{
///     Adjacency, ClipNorm, NoiseMultiplier, Participation, Segment,
///     encoding::{DistributedNoise, Encoding, NoisePlan, Survivors, VectorPlan},
///     mechanism::{Correlation, Mechanism, MechanismPlan},
///     rng::{NoiseKey, NoiseSource, Purpose, Randomness},
///     stages::{ClipBit, ClipRule, Clipping, Contribution, Residues, Update},
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clip = ClipNorm::new(0.5)?;
/// let encoding = Encoding::new(VectorPlan::of_update(3, 12), clip, None, Adjacency::ZeroOut)?;
/// let wanted = NoisePlan::of_update(NoiseMultiplier::new(1.0)?);
/// let survivors = Survivors { least: 3, corrupted: 1 };
/// let noise = DistributedNoise::new(&encoding, &wanted, Adjacency::ZeroOut, survivors)?;
/// let residues = Residues::with_noise(&encoding, 4, &noise)?;
///
/// // Each user, on a device of its own.
/// let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::None)?;
/// let mut sum = vec![0u32; residues.len()];
/// for user in 0..4u64 {
///     let own = NoiseSource::from(NoiseKey::generate()?);
///     let mut rounding = own.stream(Purpose::Rounding, &[user]).chunk(0);
///     let clipped = Update::new(vec![0.1, -0.2, 0.0]).clip(&clipping, Contribution::default())?;
///     let encoded = clipped.encode(&encoding, &mut rounding)?;
///     let vector = residues.noised(encoded, &mut own.stream(Purpose::UserNoise, &[user]).chunk(0))?;
///     // Secure aggregation adds mod 2^b.
///     sum.iter_mut().zip(vector.iter()).for_each(|(s, v)| *s = s.wrapping_add(*v) & residues.largest());
/// }
///
/// // The server, which never held a sum without noise.
/// let plan = MechanismPlan {
///     stream: 0,
///     adjacency: Adjacency::ZeroOut,
///     participation: Participation::Once,
///     correlation: Correlation::Independent,
///     segments: vec![Segment::of(1000)],
///     distributed: Some(noise),
/// };
/// let mut mechanism = Mechanism::init(plan, encoding.layout(), Randomness::Secret)?;
/// let released = mechanism.release_noised(residues.noised_sum(&sum, 4)?)?;
/// assert_eq!(released.update(&encoding)?.len(), 3); // (0.4, -0.8, 0.0) plus noise of standard deviation 0.7
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Residues {
    encoding: Encoding,
    noise: Option<DistributedNoise>,
    most_inputs: u64,
    bits: u32,
    shifts: Vec<Shift>,
}

/// How the coordinates of a segment are shifted: `v` becomes `v / unit + shift`.
#[derive(Debug, Clone, Copy)]
struct Shift {
    len: usize,
    /// What all values are a multiple of.
    unit: i64,
    shift: i64,
    /// The largest shifted value.
    largest: u64,
}

impl Shift {
    /// Without noise: clip bits are -h, 0 or h, weights and counts are not negative, and the rest goes both ways.
    fn of(segment: &LayoutSegment) -> Self {
        let (len, most) = (segment.len, i64::from(segment.largest));
        match segment.kind {
            SegmentKind::ClipBit => Self { len, unit: HALF_BIT.into(), shift: 1, largest: 2 },
            SegmentKind::Weight | SegmentKind::Counts => Self { len, unit: 1, shift: 0, largest: most as u64 },
            SegmentKind::Update | SegmentKind::Quotient => Self { len, unit: 1, shift: most, largest: 2 * most as u64 },
        }
    }

    /// With noise, which lies on the grid itself and goes both ways.
    fn noised(segment: &LayoutSegment) -> Self {
        let most = i64::from(segment.largest);
        Self { len: segment.len, unit: 1, shift: most, largest: 2 * most as u64 }
    }
}

impl Residues {
    /// For rounds of at most `most_inputs` users, whose sums get their noise later.
    ///
    /// # Errors
    /// When sums need more than 32 bits.
    pub fn new(encoding: &Encoding, most_inputs: u64) -> Result<Self, EncodingError> {
        let shifts: Vec<Shift> = encoding.layout().segments().iter().map(Shift::of).collect();
        let most = shifts.iter().map(|s| s.largest as f64 * most_inputs as f64).fold(0.0, f64::max);
        let bits = bits_for(most, most_inputs)?;
        Ok(Self { encoding: encoding.clone(), noise: None, most_inputs, bits, shifts })
    }

    /// For rounds of at most `most_inputs` users, who add the noise themselves.
    ///
    /// # Errors
    /// When the noise is for another layout or for more users, or sums need more than 32 bits.
    pub fn with_noise(encoding: &Encoding, most_inputs: u64, noise: &DistributedNoise) -> Result<Self, EncodingError> {
        if noise.layout() != encoding.layout() {
            return Err(EncodingError::Mixed);
        }
        let least = noise.survivors().least;
        if least > most_inputs {
            return Err(EncodingError::Survivors { got: least, least, most: most_inputs });
        }
        let shifts = encoding.layout().segments().iter().map(Shift::noised).collect();
        let farthest = |(segment, variance): (&LayoutSegment, u64)| {
            f64::from(segment.largest) * most_inputs as f64 + DistributedNoise::reach(variance, most_inputs)
        };
        let bits = bits_for(noise.segments().map(farthest).fold(0.0, f64::max) * 2.0, most_inputs)?;
        Ok(Self { encoding: encoding.clone(), noise: Some(noise.clone()), most_inputs, bits, shifts })
    }

    /// b: the modulus is 2^b.
    #[must_use]
    pub const fn bits(&self) -> u32 {
        self.bits
    }

    /// The largest residue that a user sends.
    #[must_use]
    pub fn largest(&self) -> u32 {
        match self.noise {
            None => self.shifts.iter().map(|s| s.largest as u32).max().unwrap_or(0),
            Some(_) => self.mask(),
        }
    }

    /// Residues of a vector.
    #[must_use]
    pub fn len(&self) -> usize {
        self.encoding.layout().len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most users that a sum is of.
    #[must_use]
    pub const fn most_inputs(&self) -> u64 {
        self.most_inputs
    }

    /// The fewest users that a sum is of, where they add the noise.
    #[must_use]
    pub fn least_inputs(&self) -> u64 {
        self.noise.as_ref().map_or(0, |noise| noise.survivors().least)
    }

    /// One user's residues, without noise.
    ///
    /// # Errors
    /// When the vector is of another encoding, or users are to add noise.
    pub fn of(&self, one: &Encoded) -> Result<Zeroizing<Vec<u32>>, EncodingError> {
        if self.noise.is_some() {
            return Err(EncodingError::Noised("the users of this round add noise to what they send"));
        }
        self.check_id(one)?;
        let mut residues = Zeroizing::new(Vec::with_capacity(self.len()));
        let mut values = &one.values[..];
        for Shift { len, unit, shift, .. } in &self.shifts {
            let (here, rest) = values.split_at(*len);
            residues.extend(here.iter().map(|v| (i64::from(*v) / unit + shift) as u32));
            values = rest;
        }
        Ok(residues)
    }

    /// One user's residues, with the noise that this user adds; `words` are secret and used for nothing else.
    ///
    /// # Errors
    /// When the vector is of another encoding, or users are not to add noise.
    pub fn noised(&self, mut one: Encoded, words: &mut RandomWords) -> Result<Zeroizing<Vec<u32>>, EncodingError> {
        let Some(noise) = &self.noise else {
            return Err(EncodingError::Noised("the users of this round add no noise"));
        };
        self.check_id(&one)?;
        let mut residues = Zeroizing::new(Vec::with_capacity(self.len()));
        let mut values = &one.values[..];
        for (Shift { len, shift, .. }, variance) in self.shifts.iter().zip(noise.local_variances()) {
            let sampler = SkellamSampler::new(*variance)
                .map_err(|e| EncodingError::Plan { field: "local_variances", problem: e.to_string() })?;
            let (here, rest) = values.split_at(*len);
            let residue = |v: &i32| (i64::from(*v) + shift).wrapping_add(sampler.draw(words)) as u32 & self.mask();
            residues.extend(here.iter().map(residue));
            values = rest;
        }
        one.values.zeroize();
        Ok(residues)
    }

    /// The sum of so many users' residues, each of [`Residues::of`]: the same as the sum of their integers. That they
    /// kept their bounds is asserted, see [`Sum::assertion`].
    ///
    /// # Errors
    /// When these are not residues, there are more users than the modulus is for, they could not add up to this, or they
    /// added noise.
    pub fn sum(&self, residues: &[u32], survivors: u64) -> Result<Sum, EncodingError> {
        if self.noise.is_some() {
            return Err(EncodingError::Noised("the users of this round added noise, so there is only a noised sum"));
        }
        let values = self.shifted_back(residues, survivors, |total, unit| total * unit)?;
        Sum::assertion(values, survivors, &self.encoding)
    }

    /// The sum of so many users' residues, each of [`Residues::noised`]. That their noise is in it is asserted, and that
    /// enough of them are honest. It is the last to refuse a sum of too few: the protocol must not open one.
    ///
    /// # Errors
    /// When these are not residues, there are fewer users than the noise is for or more than the modulus, or they added
    /// no noise.
    pub fn noised_sum(&self, residues: &[u32], survivors: u64) -> Result<NoisedSum, EncodingError> {
        let Some(noise) = &self.noise else {
            return Err(EncodingError::Noised("the users of this round added no noise, so there is only a plain sum"));
        };
        let half = 1i64 << (self.bits - 1);
        let centred = |total: i64, _| (total + half).rem_euclid(2 * half) - half;
        let values = self.shifted_back(residues, survivors, centred)?;
        Ok(NoisedSum { values, id: self.encoding.id(), noise: noise.clone() })
    }

    /// What is left of each residue without the shifts of the survivors, and what `read` makes of it and of the unit.
    fn shifted_back(
        &self,
        residues: &[u32],
        survivors: u64,
        read: impl Fn(i64, i64) -> i64,
    ) -> Result<Vec<i64>, EncodingError> {
        let (expected, got) = (self.len(), residues.len());
        if got != expected {
            return Err(EncodingError::Length { expected, got });
        }
        let (least, most) = (self.least_inputs(), self.most_inputs);
        if !(least..=most).contains(&survivors) {
            return Err(EncodingError::Survivors { got: survivors, least, most });
        }
        if let Some(got) = residues.iter().find(|r| **r > self.mask()) {
            return Err(EncodingError::Residue { got: *got, bits: self.bits });
        }
        let mut values = Vec::with_capacity(expected);
        let mut residues = residues;
        for Shift { len, unit, shift, .. } in &self.shifts {
            let (here, rest) = residues.split_at(*len);
            let all = survivors as i64 * shift;
            values.extend(here.iter().map(|r| read(i64::from(*r) - all, *unit)));
            residues = rest;
        }
        Ok(values)
    }

    fn check_id(&self, one: &Encoded) -> Result<(), EncodingError> {
        if one.id == self.encoding.id() { Ok(()) } else { Err(EncodingError::Mixed) }
    }

    /// The largest residue there is.
    const fn mask(&self) -> u32 {
        u32::MAX >> (MOST_BITS - self.bits)
    }
}

/// The least b with `most + 1 <= 2^b`; up to 2^53, far beyond what is taken, floats are exact.
fn bits_for(most: f64, most_inputs: u64) -> Result<u32, EncodingError> {
    if !(1..=MOST_USERS).contains(&most_inputs) {
        let problem = "must be at least 1 and at most 2^31".to_owned();
        return Err(EncodingError::Plan { field: "most_inputs", problem });
    }
    let bits = (most as u64).checked_ilog2().map_or(1, |b| b + 1);
    if bits > MOST_BITS { Err(EncodingError::Modulus { bits, most_inputs }) } else { Ok(bits) }
}

/// The integer sum over a cohort that was noised before anyone held it. Not `Clone`, since it is released once; `Debug`
/// shows the length and nothing else.
pub struct NoisedSum {
    values: Vec<i64>,
    id: EncodingId,
    noise: DistributedNoise,
}

impl NoisedSum {
    /// Adds another group's sum, whose users added their own full noise: what is in both together is more.
    ///
    /// # Errors
    /// When the other is of another encoding or has other noise.
    pub fn merge(&mut self, other: Self) -> Result<(), EncodingError> {
        if other.id != self.id || other.noise != self.noise {
            return Err(EncodingError::Mixed);
        }
        self.values.iter_mut().zip(&other.values).for_each(|(sum, more)| *sum += more);
        Ok(())
    }

    /// The noise that is in it.
    pub(crate) const fn noise(&self) -> &DistributedNoise {
        &self.noise
    }

    /// Takes the sum apart for a mechanism.
    pub(crate) fn into_parts(self) -> (Vec<i64>, EncodingId) {
        (self.values, self.id)
    }
}

impl std::fmt::Debug for NoisedSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NoisedSum({} integers)", self.values.len())
    }
}
