//! Keys, and the random streams drawn from them (rule P13).
//!
//! A run with secret noise has a 256-bit [`NoiseKey`], drawn from the operating system when the run is created and kept in
//! `secret/` until it ends. It goes into the key of every step's noise ([`crate::step_keys`]) and is never enough to draw
//! any noise again. Whatever else is random is a ChaCha20 stream whose key is derived (HKDF-SHA-256) by purpose and position,
//! so no two purposes ever share a stream. A repeatable experiment uses a [`SimulationKey`], another type, and whatever
//! comes of it is stamped [`Randomness::Simulated`]: there is no way to make a [`NoiseKey`] from a seed.
//!
//! The operating system is asked by the feature `os-entropy`, and by it alone. Without it nothing here draws a key: a caller who has
//! randomness of another kind, such as a browser, gives the bytes ([`NoiseKey::from_secret_bytes`]).

use std::collections::BTreeSet;

use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher},
};
use hkdf::Hkdf;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The origin of a release's randomness; part of the ledger's first entry and of the statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Randomness {
    /// A key drawn from the operating system and kept secret: the guarantee holds.
    Secret,
    /// Exact noise from a seed that someone chose: repeatable, and no guarantee at all.
    Simulated {
        /// The seed.
        seed: u64,
    },
    /// Floating-point noise from a seed that someone chose: fast, repeatable, and no guarantee at all.
    SimulatedFloatingPoint {
        /// The seed.
        seed: u64,
    },
}

/// The operating system gave no randomness; nothing may be released.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the operating system provided no randomness ({0}), so nothing can be released")]
pub struct NoRandomness(String);

/// Fills a buffer from the operating system.
///
/// # Errors
/// When it has none to give.
#[cfg(feature = "os-entropy")]
pub fn fill_from_os(buffer: &mut [u8]) -> Result<(), NoRandomness> {
    getrandom::fill(buffer).map_err(|e| NoRandomness(e.to_string()))
}

/// The secret key of a run. It comes from the operating system, or from the run's own secret file.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct NoiseKey([u8; 32]);

impl NoiseKey {
    /// A fresh key for a new run.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    #[cfg(feature = "os-entropy")]
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut key = Self([0; 32]);
        fill_from_os(&mut key.0)?;
        Ok(key)
    }

    /// The key of a run that is resumed, as [`NoiseKey::secret_bytes`] gave it, or fresh bytes of a machine that has no
    /// operating system to ask. Anyone who knows other bytes passed here knows the noise.
    #[must_use]
    pub fn from_secret_bytes(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(*bytes)
    }

    /// The key itself, for the run's secret file and nothing else.
    #[must_use]
    pub fn secret_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0)
    }
}

impl std::fmt::Debug for NoiseKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NoiseKey(secret)")
    }
}

/// The key of a simulation: everything follows from the seed, and nothing is private.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimulationKey {
    seed: u64,
    floating_point: bool,
}

impl SimulationKey {
    /// Exact noise, repeatable.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, floating_point: false }
    }

    /// Floating-point noise, repeatable and faster.
    #[must_use]
    pub const fn with_floating_point_noise(seed: u64) -> Self {
        Self { seed, floating_point: true }
    }

    pub(crate) const fn is_floating_point(self) -> bool {
        self.floating_point
    }
}

/// The source of a run's randomness.
#[derive(Debug)]
pub enum NoiseSource {
    /// A release: the key is secret.
    Secret(NoiseKey),
    /// A simulation: the seed is known.
    Simulation(SimulationKey),
}

impl From<NoiseKey> for NoiseSource {
    fn from(key: NoiseKey) -> Self {
        Self::Secret(key)
    }
}

impl From<SimulationKey> for NoiseSource {
    fn from(key: SimulationKey) -> Self {
        Self::Simulation(key)
    }
}

/// The purpose of a stream. Streams of different purposes, or of one purpose and different positions, are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Noise of a release.
    Noise,
    /// Rounding of one user's update.
    Rounding,
    /// Noise that one user adds.
    UserNoise,
    /// Sampling of cohorts.
    Cohort,
    /// Who of a cohort is in which group of it.
    Groups,
    /// Who vanishes during a round, in simulations.
    Vanishing,
    /// The signs of the random rotation.
    Rotation,
    /// Which coordinates all devices of a round send; public.
    Mask,
    /// The coins and directions of canaries, in audits.
    Canaries,
}

impl Purpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Noise => b"noise",
            Self::Rounding => b"rounding",
            Self::UserNoise => b"user noise",
            Self::Cohort => b"cohort",
            Self::Groups => b"groups",
            Self::Vanishing => b"vanishing",
            Self::Rotation => b"rotation",
            Self::Mask => b"mask",
            Self::Canaries => b"canaries",
        }
    }
}

impl NoiseSource {
    /// The randomness as the ledger records it.
    #[must_use]
    pub const fn randomness(&self) -> Randomness {
        match self {
            Self::Secret(_) => Randomness::Secret,
            Self::Simulation(SimulationKey { seed, floating_point: false }) => Randomness::Simulated { seed: *seed },
            Self::Simulation(SimulationKey { seed, floating_point: true }) => {
                Randomness::SimulatedFloatingPoint { seed: *seed }
            }
        }
    }

    /// The key of the stream for a purpose at a position, such as (round, attempt) or (segment, level, node).
    #[must_use]
    pub fn stream(&self, purpose: Purpose, position: &[u64]) -> StreamKey {
        let kdf = match self {
            Self::Secret(key) => Hkdf::<Sha256>::new(Some(b"keyhush run key v1"), &key.0),
            Self::Simulation(key) => Hkdf::<Sha256>::new(Some(b"keyhush simulation v1"), &key.seed.to_le_bytes()),
        };
        let mut info = Zeroizing::new(vec![purpose.label().len() as u8]);
        info.extend_from_slice(purpose.label());
        position.iter().for_each(|p| info.extend_from_slice(&p.to_le_bytes()));
        let mut key = StreamKey([0; 32]);
        kdf.expand(&info, &mut key.0).expect("32 bytes are within what HKDF-SHA-256 gives");
        key
    }
}

/// The key of one purpose and position. It opens 2^64 streams, one for each chunk of a vector, so that chunks can be
/// drawn in any order and on any thread.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct StreamKey([u8; 32]);

impl std::fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamKey(secret)")
    }
}

impl StreamKey {
    /// The stream of one chunk.
    #[must_use]
    pub fn chunk(&self, chunk: u64) -> RandomWords {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&chunk.to_le_bytes());
        RandomWords::new(ChaCha20::new(&self.0.into(), &nonce.into()))
    }

    /// The key as another process of the run gave it by [`StreamKey::secret_bytes`].
    #[must_use]
    pub fn from_secret_bytes(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(*bytes)
    }

    /// The key itself, for another process of the same run. It opens this purpose and position and no other.
    #[must_use]
    pub fn secret_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0)
    }

    /// The key itself, for what is public anyway: the seed of a rotation.
    #[must_use]
    pub fn public_seed(&self) -> [u8; 32] {
        self.0
    }
}

/// Keystream words held at a time.
const BUFFERED: usize = 512;

/// Uniform 64-bit words from a ChaCha20 keystream.
pub struct RandomWords {
    cipher: ChaCha20,
    words: Box<[u64; BUFFERED]>,
    used: usize,
}

impl RandomWords {
    fn new(cipher: ChaCha20) -> Self {
        Self { cipher, words: Box::new([0; BUFFERED]), used: BUFFERED }
    }

    /// The next 64 uniform bits.
    #[inline]
    pub fn next_word(&mut self) -> u64 {
        if self.used == BUFFERED {
            self.refill();
        }
        let word = self.words[self.used];
        self.used += 1;
        word
    }

    /// A uniform number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Lemire 2019: the upper half of a product; the few products that would favour small numbers are drawn again.
        loop {
            let product = u128::from(self.next_word()) * u128::from(bound);
            if product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// So many of the numbers below a bound, each set of them equally likely, in ascending order: Floyd's algorithm (Bentley and Floyd 1987).
    /// Less than a quarter of a byte of memory for each number below the bound, however many are drawn.
    pub fn some_of(&mut self, count: u64, bound: u64) -> impl Iterator<Item = u64> + use<> {
        let mut drawn = Drawn::for_some_of(count, bound);
        for last in bound.saturating_sub(count)..bound {
            let one = self.below(last + 1);
            if !drawn.insert(one) {
                drawn.insert(last);
            }
        }
        drawn.in_order()
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) {
        let mut bytes = [0u8; BUFFERED * 8];
        self.cipher.write_keystream(&mut bytes);
        for (word, eight) in self.words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*eight);
        }
        bytes.zeroize();
        self.used = 0;
    }
}

/// The numbers that are drawn. A bit for each below the bound, unless a tree of a few takes less: up to 24 bytes for each of them.
enum Drawn {
    Few(BTreeSet<u64>),
    Many(Vec<u64>),
}

impl Drawn {
    fn for_some_of(count: u64, bound: u64) -> Self {
        match usize::try_from(bound.div_ceil(64)) {
            Ok(words) if count > bound / 128 => Self::Many(vec![0; words]),
            _ => Self::Few(BTreeSet::new()),
        }
    }

    /// Whether it is new.
    fn insert(&mut self, number: u64) -> bool {
        match self {
            Self::Few(numbers) => numbers.insert(number),
            Self::Many(words) => {
                let (word, bit) = (&mut words[(number / 64) as usize], 1 << (number % 64));
                let is_new = *word & bit == 0;
                *word |= bit;
                is_new
            }
        }
    }

    fn in_order(self) -> Box<dyn Iterator<Item = u64>> {
        match self {
            Self::Few(numbers) => Box::new(numbers.into_iter()),
            Self::Many(words) => {
                Box::new((0..).zip(words).flat_map(|(at, word)| {
                    (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * at + bit)
                }))
            }
        }
    }
}

impl Drop for RandomWords {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

impl std::fmt::Debug for RandomWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RandomWords(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_words(source: &NoiseSource, purpose: Purpose, position: &[u64], chunk: u64) -> [u64; 3] {
        let mut words = source.stream(purpose, position).chunk(chunk);
        [words.next_word(), words.next_word(), words.next_word()]
    }

    #[test]
    fn p13_the_same_key_and_position_draw_the_same_stream_and_no_other_does() {
        let key = NoiseKey::generate().unwrap();
        let again = NoiseKey::from_secret_bytes(key.secret_bytes());
        let (key, again) = (NoiseSource::from(key), NoiseSource::from(again));
        let here = first_words(&key, Purpose::Noise, &[3, 0], 7);
        assert_eq!(here, first_words(&again, Purpose::Noise, &[3, 0], 7));
        let elsewhere = [
            first_words(&key, Purpose::Rounding, &[3, 0], 7),
            first_words(&key, Purpose::Noise, &[0, 3], 7),
            first_words(&key, Purpose::Noise, &[3], 7),
            first_words(&key, Purpose::Noise, &[3, 0], 8),
            first_words(&NoiseKey::generate().unwrap().into(), Purpose::Noise, &[3, 0], 7),
            first_words(&SimulationKey::new(3).into(), Purpose::Noise, &[3, 0], 7),
        ];
        assert!(elsewhere.iter().all(|other| *other != here), "{elsewhere:?}");
    }

    #[test]
    fn p13_simulations_are_marked_and_secrets_are_not_shown() {
        assert_eq!(NoiseSource::from(NoiseKey::generate().unwrap()).randomness(), Randomness::Secret);
        assert_eq!(NoiseSource::from(SimulationKey::new(5)).randomness(), Randomness::Simulated { seed: 5 });
        let fast = SimulationKey::with_floating_point_noise(5);
        assert_eq!(NoiseSource::from(fast).randomness(), Randomness::SimulatedFloatingPoint { seed: 5 });
        let key = NoiseSource::from(NoiseKey::generate().unwrap());
        assert_eq!(format!("{key:?}"), "Secret(NoiseKey(secret))");
        assert_eq!(format!("{:?}", key.stream(Purpose::Noise, &[])), "StreamKey(secret)");
    }

    /// Masks are a part of the protocol, so it is the algorithm that counts, and not what its numbers are kept in.
    #[test]
    fn some_of_the_numbers_are_those_of_floyds_algorithm() {
        let floyd = |words: &mut RandomWords, count: u64, bound: u64| {
            let mut drawn = BTreeSet::new();
            for last in bound.saturating_sub(count)..bound {
                let one = words.below(last + 1);
                drawn.insert(if drawn.contains(&one) { last } else { one });
            }
            drawn
        };
        let words = || NoiseSource::from(SimulationKey::new(5)).stream(Purpose::Mask, &[0]).chunk(0);
        for bound in [0_u64, 1, 5, 64, 65, 1000, 5000] {
            for count in [0, 1, 4, 7, 8, 9, 300, 780, 782, bound / 2, bound.saturating_sub(1), bound, bound + 1] {
                let (drawn, slow) = (words().some_of(count, bound), floyd(&mut words(), count, bound));
                assert!(drawn.eq(slow.iter().copied()), "{count} of {bound}");
                assert_eq!(slow.len() as u64, count.min(bound));
            }
        }
        // In a crowd of any size, without room for all of it.
        assert_eq!(words().some_of(3, u64::MAX).count(), 3);
    }

    #[test]
    fn words_are_the_keystream_of_rfc_8439() {
        // RFC 8439, section 2.3.2 with a zero key, nonce and counter: the first block of its appendix A.1, vector 1.
        let mut words = StreamKey([0; 32]).chunk(0);
        assert_eq!(words.next_word().to_le_bytes(), [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
        (1..8).for_each(|_| _ = words.next_word());
        // Vector 2: the second block.
        assert_eq!(words.next_word().to_le_bytes(), [0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a]);
    }
}
