//! Which part of an update a device sends: all of it, the coordinates of a shared mask, or the largest (Deep Gradient Compression, Lin et
//! al. 2017).
//!
//! A device that sends a part may keep the rest for a later round. Deep Gradient Compression does, for every user:
//!
//! | here                  | Lin et al. 2017                          | what it is                                               |
//! |-----------------------|------------------------------------------|----------------------------------------------------------|
//! | `difference`          | G                                        | what local training changed in this round                |
//! | [`Keeping::local_clip`] | gradient clipping                      | G is shortened to this norm before it is added           |
//! | [`Keeping::momentum`], `velocity` | m, U; momentum correction    | U <- m U + G                                             |
//! | `rest`                | V; local gradient accumulation           | V <- V + U                                               |
//! | [`Sends::Largest`]    | the mask: the largest of V are sent      | the others stay in V                                     |
//! | zeros in `velocity`   | momentum factor masking                  | U is forgotten where V was sent                          |
//!
//! They choose the largest of every layer; here it is the largest of the whole update. Fewer coordinates are sent from round to round at
//! the beginning (their warm-up); how many is the server's to say.
//!
//! **Why the guarantee stands.** What leaves is clipped to C after the choice and before it is encoded, as any other update, so one user
//! moves the sum of a round by at most C, whatever was kept. What a user sends in a round then depends on what the same user typed in
//! earlier rounds, on the released models, and on the rounds in which they took part. The first two change nothing: user-level privacy
//! protects all text of a user as one, and every accountant allows a round to depend on what was released before. The third matters
//! where users are sampled. With Poisson sampling, users are drawn independently, so a run without one user gives of what that user would
//! have done no sign at all, and a run with them is, given the past, a mixture over the rounds in which they were drawn: of (1 - q) times
//! the noise, and q times the noise around some vector of norm at most C. Hockey-stick and Renyi divergences are jointly convex (the
//! latter quasi-convex), so none of the mixture is larger than that of the worst vector, which is what is accounted for. With samples
//! of a fixed size this fails: who was drawn tells about others, and what others keep. The plan refuses it. Where users come by themselves,
//! no chance is accounted for, and their vectors may depend on anything that is theirs or released.
//!
//! Which coordinates are the largest depends on the text. A list of them in the clear tells the server something, as the values beside
//! them do; only the noised sum of all coordinates is released. Where nobody may see a single update, as with secure aggregation, the
//! plan refuses such lists. A mask that all share follows from a public seed and tells nothing; noise is needed on its coordinates
//! alone.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use privacy::rng::{NoiseSource, Purpose, SimulationKey};
use serde::{Deserialize, Serialize};

/// Which part of an update is sent.
#[derive(Debug, Clone, Copy, Default)]
pub enum Upload<'a> {
    /// The whole update.
    #[default]
    Whole,
    /// Some of its coordinates.
    Part(Partial<'a>),
}

/// Some coordinates of an update.
#[derive(Debug, Clone, Copy)]
pub struct Partial<'a> {
    /// Which coordinates are sent.
    pub sends: Sends<'a>,
    /// What becomes of the others; none where they are forgotten.
    pub keeps: Option<Keeping<'a>>,
}

/// Which part of an update real devices send in all rounds of a task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum UploadTerms {
    /// The largest coordinates; how many, the encoding of a step says ([`privacy::encoding::Encoding::few`]). The others are kept.
    Largest {
        /// m: the momentum of what is kept.
        momentum: f32,
        /// The norm that a difference is shortened to before it is added to what is kept; none for any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        local_clip: Option<f32>,
    },
    /// Those of a mask that follows from a public seed.
    Mask {
        /// How many coordinates it has.
        coordinates: u64,
        /// The seed.
        seed: u64,
        /// Whether the others are kept for later rounds.
        keep_rest: bool,
    },
}

impl UploadTerms {
    /// Whether a device keeps something for later rounds.
    #[must_use]
    pub const fn keeps_rest(&self) -> bool {
        match self {
            Self::Largest { .. } => true,
            Self::Mask { keep_rest, .. } => *keep_rest,
        }
    }

    /// Whether what is kept has a momentum.
    #[must_use]
    pub fn keeps_velocity(&self) -> bool {
        matches!(self, Self::Largest { momentum, .. } if *momentum > 0.0)
    }

    /// Bytes of what a device keeps for later rounds of a model with so many parameters.
    #[must_use]
    pub fn kept_bytes(&self, parameters: u64) -> u64 {
        let vectors = u64::from(self.keeps_rest()) + u64::from(self.keeps_velocity());
        (4 * vectors).saturating_mul(parameters)
    }

    /// Bytes that it takes beside training: the coordinates and what is sent of them; and while what is kept is saved ([`crate::unsent`]), that of all tasks as it was, of this
    /// one as it will be, and all of that as it is written. All tasks together have at most so many bytes.
    #[must_use]
    pub fn memory(&self, parameters: u64, unsent_bytes: u64) -> u64 {
        let chosen = match self {
            Self::Largest { .. } => parameters.saturating_mul(8),
            // And what it is drawn in.
            Self::Mask { coordinates, .. } => coordinates.saturating_mul(8).saturating_add(parameters / 4),
        };
        match self.kept_bytes(parameters) {
            0 => chosen,
            kept => chosen.saturating_add(kept).saturating_add(unsent_bytes.saturating_mul(2)),
        }
    }
}

/// The coordinates that all devices of a round send, in ascending order. Anybody can draw them.
#[must_use]
pub fn mask(seed: u64, round: u64, coordinates: usize, parameters: usize) -> Vec<u32> {
    let mut words = NoiseSource::from(SimulationKey::new(seed)).stream(Purpose::Mask, &[round]).chunk(0);
    let mut places = Vec::with_capacity(coordinates.min(parameters));
    places.extend(words.some_of(coordinates as u64, parameters as u64).map(|at| at as u32));
    places
}

/// Which coordinates are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sends<'a> {
    /// So many of the largest; the others are zero in what is clipped and encoded.
    Largest(usize),
    /// These, in ascending order, the same for everybody in the round: nothing else is in the vector.
    Mask(&'a [u32]),
}

/// How coordinates that are not sent are kept for later.
#[derive(Debug, Clone, Copy)]
pub struct Keeping<'a> {
    /// m: the momentum of the coordinates that are kept for later; 0 for none.
    pub momentum: f32,
    /// The norm that a difference is shortened to before it is added to what is kept; none for any.
    pub local_clip: Option<f32>,
    /// What everybody has kept so far; nobody anything on a real device, which has its own beside ([`crate::unsent`]).
    pub rests: &'a Rests,
}

/// The kept coordinates of users, by user number.
pub type Rests = BTreeMap<u64, Rest>;

/// Nobody has kept anything.
pub static NO_RESTS: Rests = BTreeMap::new();

/// The kept coordinates of one user. They are as private as the text.
#[derive(Clone, PartialEq, Default)]
pub struct Rest {
    rest: Vec<f32>,
    velocity: Vec<f32>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rest({} coordinates)", self.rest.len())
    }
}

impl Rest {
    /// Coordinates kept from earlier rounds; `velocity` is empty without momentum.
    #[must_use]
    pub const fn new(rest: Vec<f32>, velocity: Vec<f32>) -> Self {
        Self { rest, velocity }
    }

    /// Nothing is kept, in as many bytes as something.
    #[must_use]
    pub fn nothing(parameters: usize, has_velocity: bool) -> Self {
        Self { rest: vec![0.0; parameters], velocity: vec![0.0; if has_velocity { parameters } else { 0 }] }
    }

    /// Bytes of its numbers.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        4 * (self.rest.len() as u64 + self.velocity.len() as u64)
    }

    /// Zeros where something was sent.
    fn forget(&mut self, places: &[u32]) {
        for at in places.iter().map(|at| *at as usize) {
            self.rest[at] = 0.0;
            if let Some(u) = self.velocity.get_mut(at) {
                *u = 0.0;
            }
        }
    }

    fn is_finite(&self) -> bool {
        self.rest.iter().chain(&self.velocity).all(|v| v.is_finite())
    }

    /// V, and U where there is momentum: for a checkpoint.
    #[must_use]
    pub fn vectors(&self) -> [&[f32]; 2] {
        [&self.rest, &self.velocity]
    }
}

impl<'a> Upload<'a> {
    /// The coordinates a user has kept so far.
    #[must_use]
    pub fn kept_by(&self, user: u64) -> Option<&'a Rest> {
        let Self::Part(Partial { keeps: Some(keeping), .. }) = self else { return None };
        keeping.rests.get(&user)
    }

    /// Divides a difference, and what was kept before, into what is sent and what is kept.
    #[must_use]
    pub fn divide(&self, difference: Vec<f32>, before: Option<&Rest>) -> (Vec<f32>, Option<Rest>) {
        match self {
            Self::Whole => (difference, None),
            Self::Part(partial) => partial.divide(difference, before),
        }
    }

    /// How many numbers are sent of an update of so many parameters.
    #[must_use]
    pub fn length(&self, parameters: usize) -> usize {
        match self {
            Self::Part(Partial { sends: Sends::Mask(mask), .. }) => mask.len(),
            Self::Whole | Self::Part(_) => parameters,
        }
    }
}

impl Partial<'_> {
    fn divide(&self, difference: Vec<f32>, before: Option<&Rest>) -> (Vec<f32>, Option<Rest>) {
        let length = Upload::Part(*self).length(difference.len());
        // Training that diverged counts as nothing, and must not spoil what is kept.
        if !difference.iter().all(|d| d.is_finite()) {
            return (vec![f32::NAN; length], self.keeps.and(before.cloned()));
        }
        let Some(keeping) = self.keeps else {
            return (self.sends.some_of(&difference, &self.sends.places(&difference)), None);
        };
        let mut kept = keeping.added(difference, before);
        // Nor does a sum count that no number holds. What came to it would be in the way of all that is learned later, so it goes.
        if !kept.is_finite() {
            return (vec![f32::NAN; length], Some(Rest::nothing(kept.rest.len(), !kept.velocity.is_empty())));
        }
        let places = self.sends.places(&kept.rest);
        let sent = self.sends.some_of(&kept.rest, &places);
        kept.forget(&places);
        (sent, Some(kept))
    }
}

impl Keeping<'_> {
    /// U <- m U + G; V <- V + U.
    fn added(&self, mut difference: Vec<f32>, before: Option<&Rest>) -> Rest {
        if let Some(most) = self.local_clip {
            shorten(&mut difference, most);
        }
        let none = Rest::default();
        let Rest { rest, velocity } = before.unwrap_or(&none);
        if !velocity.is_empty() {
            difference.iter_mut().zip(velocity).for_each(|(g, u)| *g += self.momentum * u);
        }
        let mut sum = difference.clone();
        sum.iter_mut().zip(rest).for_each(|(v, before)| *v += before);
        let velocity = if self.momentum > 0.0 { difference } else { Vec::new() };
        Rest { rest: sum, velocity }
    }
}

impl Sends<'_> {
    /// The places of what is sent of a vector.
    fn places(&self, vector: &[f32]) -> Cow<'_, [u32]> {
        match self {
            Self::Mask(mask) => Cow::Borrowed(mask),
            Self::Largest(count) => Cow::Owned(largest(vector, *count)),
        }
    }

    /// What is sent of a vector, at these places.
    fn some_of(&self, vector: &[f32], places: &[u32]) -> Vec<f32> {
        let values = places.iter().map(|at| vector[*at as usize]);
        match self {
            Self::Mask(_) => values.collect(),
            Self::Largest(_) => {
                let mut sent = vec![0.0; vector.len()];
                places.iter().zip(values).for_each(|(at, value)| sent[*at as usize] = value);
                sent
            }
        }
    }
}

/// The places of the largest values, by size; of two that are as large the first. In no order.
fn largest(vector: &[f32], count: usize) -> Vec<u32> {
    let mut places: Vec<u32> = (0..vector.len() as u32).collect();
    if count < places.len() {
        if count > 0 {
            places.select_nth_unstable_by(count - 1, |a, b| {
                let [a_size, b_size] = [a, b].map(|at| vector[*at as usize].abs());
                b_size.total_cmp(&a_size).then_with(|| a.cmp(b))
            });
        }
        places.truncate(count);
    }
    places
}

/// Shortens a vector to a norm at most this.
fn shorten(vector: &mut [f32], most: f32) {
    let norm = libm::sqrt(vector.iter().map(|d| f64::from(*d) * f64::from(*d)).sum::<f64>());
    if norm > f64::from(most) {
        let scale = f64::from(most) / norm;
        vector.iter_mut().for_each(|d| *d = (f64::from(*d) * scale) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lin et al. 2017, Algorithm 4, line by line: all coordinates are sorted, and nothing is done at once.
    struct Slow {
        u: Vec<f32>,
        v: Vec<f32>,
    }

    impl Slow {
        fn round(&mut self, gradient: &[f32], momentum: f32, clip: Option<f32>, count: usize) -> Vec<f32> {
            let norm = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            let scale = clip.map_or(1.0, |clip| (f64::from(clip) / norm).min(1.0));
            let mut order: Vec<usize> = (0..gradient.len()).collect();
            for (i, g) in gradient.iter().enumerate() {
                self.u[i] = momentum * self.u[i] + (f64::from(*g) * scale) as f32;
                self.v[i] += self.u[i];
            }
            order.sort_by(|a, b| self.v[*b].abs().partial_cmp(&self.v[*a].abs()).unwrap().then(a.cmp(b)));
            let mut sent = vec![0.0; gradient.len()];
            for place in &order[..count] {
                sent[*place] = self.v[*place];
                self.v[*place] = 0.0;
                self.u[*place] = 0.0;
            }
            sent
        }
    }

    /// Numbers that look drawn, with ties and zeros among them.
    fn gradient(round: u64, len: usize) -> Vec<f32> {
        let mut state = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % 17) as f32 - 8.0
        };
        (0..len).map(|_| next() / 16.0).collect()
    }

    #[test]
    fn deep_gradient_compression_is_the_papers() {
        for (momentum, local_clip) in [(0.9, None), (0.9, Some(1.5)), (0.0, None), (0.5, Some(0.1))] {
            let mut slow = Slow { u: vec![0.0; 40], v: vec![0.0; 40] };
            let mut rests = Rests::new();
            for round in 0..30 {
                let count = if round < 3 { 20 >> round } else { 2 };
                let keeping = Keeping { momentum, local_clip, rests: &rests };
                let upload = Upload::Part(Partial { sends: Sends::Largest(count), keeps: Some(keeping) });
                let given = gradient(round + 1, 40);
                let (sent, kept) = upload.divide(given.clone(), upload.kept_by(7));
                assert_eq!(sent, slow.round(&given, momentum, local_clip, count), "round {round}, momentum {momentum}");
                assert!(sent.iter().filter(|s| **s != 0.0).count() <= count);
                let kept = kept.unwrap();
                assert_eq!(kept.rest, slow.v);
                assert_eq!(kept.velocity, if momentum > 0.0 { slow.u.clone() } else { Vec::new() });
                rests.insert(7, kept);
            }
        }
    }

    /// Without momentum nothing is lost: what was sent and what is kept add up to what was learned. The numbers are multiples of
    /// 1/16, so floats add up exactly.
    #[test]
    fn what_is_not_sent_is_sent_later() {
        let mask: Vec<u32> = (0..40).step_by(3).collect();
        for sends in [Sends::Largest(5), Sends::Mask(&mask)] {
            let (mut all, mut sent_so_far, mut rests) = (vec![0.0; 40], vec![0.0; 40], Rests::new());
            for round in 0..20 {
                let keeping = Keeping { momentum: 0.0, local_clip: None, rests: &rests };
                let upload = Upload::Part(Partial { sends, keeps: Some(keeping) });
                let given = gradient(round + 1, 40);
                all.iter_mut().zip(&given).for_each(|(a, g)| *a += g);
                let (sent, kept) = upload.divide(given, upload.kept_by(0));
                match sends {
                    Sends::Mask(mask) => mask.iter().zip(&sent).for_each(|(at, s)| sent_so_far[*at as usize] += s),
                    Sends::Largest(_) => sent_so_far.iter_mut().zip(&sent).for_each(|(a, s)| *a += s),
                }
                rests.insert(0, kept.unwrap());
            }
            let owed: Vec<f32> = sent_so_far.iter().zip(&rests[&0].rest).map(|(s, r)| s + r).collect();
            assert_eq!(owed, all, "{sends:?}");
        }
    }

    /// Devices in other languages draw the same one: by HKDF, ChaCha20 and Floyd's algorithm as docs/PROTOCOL.md has them, written out in Python.
    #[test]
    fn a_mask_is_drawn_as_the_protocol_says() {
        assert_eq!(mask(7, 3, 8, 1000), [155, 212, 267, 293, 445, 478, 679, 753]);
        assert_eq!(mask(7, 3, 4, 5), [0, 1, 3, 4]);
    }

    #[test]
    fn a_mask_without_a_rest_forgets_what_is_not_sent() {
        let upload = Upload::Part(Partial { sends: Sends::Mask(&[1, 3]), keeps: None });
        assert_eq!(upload.divide(vec![1.0, 2.0, 3.0, 4.0], None), (vec![2.0, 4.0], None));
        assert_eq!((upload.length(4), Upload::Whole.length(4)), (2, 4));
    }

    /// One update that is not a number would be in all later ones.
    #[test]
    fn training_that_ran_away_does_not_spoil_what_is_kept() {
        let rests = Rests::from([(3, Rest::new(vec![1.0, 2.0], vec![0.5, 0.5]))]);
        let keeping = Keeping { momentum: 0.9, local_clip: Some(1.0), rests: &rests };
        let upload = Upload::Part(Partial { sends: Sends::Largest(1), keeps: Some(keeping) });
        let (sent, kept) = upload.divide(vec![f32::NAN, 1.0], upload.kept_by(3));
        assert!(sent.len() == 2 && sent[0].is_nan(), "clipping must see it, to make it zero: {sent:?}");
        let masked = Upload::Part(Partial { sends: Sends::Mask(&[1]), keeps: None });
        assert!(masked.divide(vec![f32::NAN, 1.0], None).0[0].is_nan(), "also where it is outside of the mask");
        assert_eq!(kept.as_ref(), rests.get(&3));
        assert_eq!(upload.kept_by(4), None);
    }

    /// Two finite updates whose sum no number holds made a rest that every later update was lost in, for as long as it was kept.
    #[test]
    fn a_sum_that_ran_away_is_not_kept_and_the_next_round_learns_again() {
        for (momentum, mask) in [(0.0, None), (0.9, None), (0.0, Some([1]))] {
            let sends = mask.as_ref().map_or(Sends::Largest(1), |mask| Sends::Mask(mask));
            let huge = vec![3e38, 3e38, -3e38];
            let before = |rests: &Rests, difference: Vec<f32>| {
                let keeps = Some(Keeping { momentum, local_clip: None, rests });
                let upload = Upload::Part(Partial { sends, keeps });
                upload.divide(difference, upload.kept_by(3))
            };
            let (_, kept) = before(&NO_RESTS, huge.clone());
            let (sent, kept) = before(&Rests::from([(3, kept.unwrap())]), huge);
            let velocity = vec![0.0; if momentum > 0.0 { 3 } else { 0 }];
            assert!(sent.iter().all(|s| s.is_nan()), "clipping must see it, to make it zero: {sent:?}");
            assert_eq!(kept, Some(Rest::new(vec![0.0; 3], velocity)));
            let (sent, kept) = before(&Rests::from([(3, kept.unwrap())]), vec![1.0, 2.0, -1.0]);
            assert!(sent.contains(&2.0) && kept.unwrap().rest == vec![1.0, 0.0, -1.0], "{sent:?}");
            // Also what is kept from before this was looked at.
            let poisoned = Rests::from([(3, Rest::new(vec![f32::INFINITY, 0.0, 0.0], Vec::new()))]);
            assert_eq!(before(&poisoned, vec![1.0; 3]).1.unwrap().rest, vec![0.0; 3]);
        }
    }

    #[test]
    fn what_a_part_takes_is_counted() {
        let largest = |momentum| UploadTerms::Largest { momentum, local_clip: None };
        let mask = |keep_rest| UploadTerms::Mask { coordinates: 10, seed: 0, keep_rest };
        assert_eq!(
            [largest(0.0), largest(0.9), mask(true), mask(false)].map(|u| u.kept_bytes(100)),
            [400, 800, 400, 0]
        );
        assert_eq!(
            [largest(0.0), largest(0.9), mask(true), mask(false)].map(|u| u.memory(100, 1000)),
            [3200, 3600, 2505, 105]
        );
        assert_eq!((Rest::nothing(100, true).bytes(), Rest::nothing(100, false).bytes()), (800, 400));
    }
}
