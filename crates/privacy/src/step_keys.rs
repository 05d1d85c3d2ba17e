//! The noise keys, one per step, so that no two computations share noise (rules P20 and P21).
//!
//! Noise that follows from a run's key and a step alone is drawn again by any copy of the run: two releases of one
//! step with different sums differ by the difference of the sums, without noise. So in a run with secret noise
//!
//! ```text
//! k_t = HMAC-SHA-256(run key; stream, segment, step, link_(t-1), 32 fresh bytes, digest of encoding and sum)
//! ```
//!
//! and all noise that is first used at step t comes from k_t: fresh bytes of the operating system make it new, the run key and
//! the link to the step before keep it secret and bound to this run where those bytes are weak, and the digest makes it another
//! one for another sum even where they repeat. (The digest alone would not do: equal noise would show that sums are equal, and
//! correlated noise that was drawn before a fork would still cancel.) The link is a one-way value of the key before, which can
//! then be erased.
//!
//! A key is durable before its noise is used and is kept no longer than it is needed: for independent noise until the release
//! is recorded, for correlated noise, of which later steps subtract what earlier ones added, until the segment ends.
//!
//! Simulations draw everything from a seed and the position, again and again the same. They are all that a build without the
//! feature `os-entropy` has: there are no fresh bytes in it, so there are no secret steps.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

#[cfg(feature = "os-entropy")]
use crate::rng::{NoiseKey, fill_from_os};
use crate::{
    encoding::EncodingId,
    rng::{NoRandomness, NoiseSource, Purpose, Randomness, SimulationKey, StreamKey},
    workers::{self, Undone, Workers},
};

/// Which step of which mechanism of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepAt {
    /// The mechanism.
    pub stream: u64,
    /// Its segment.
    pub segment: u64,
    /// Its step, from the first segment on.
    pub step: u64,
}

impl fmt::Display for StepAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} of mechanism {}", self.step, self.stream)
    }
}

/// The last step of a run that was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastStep {
    /// The attempt.
    pub at: StepAt,
    /// Whether later steps subtract noise that was added up to it.
    pub needed_again: bool,
}

/// Why a step has no key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StepKeyError {
    /// The operating system gave no randomness.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// A key that was kept is gone.
    #[error("the noise key of {at} is not in secret/; secret/ belongs to another state of the run")]
    Missing {
        /// The step.
        at: StepAt,
    },
    /// A key was drawn, and nothing was recorded of it.
    #[error("a noise key of {at} was drawn before, but its release was not recorded; open the run again")]
    Unrecorded {
        /// The step.
        at: StepAt,
    },
    /// The place where keys are kept failed.
    #[error("noise keys: {0}")]
    Storage(String),
}

/// The key of one step. `Debug` shows nothing, and it is wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct StepKey([u8; 32]);

impl fmt::Debug for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StepKey(secret)")
    }
}

impl StepKey {
    #[cfg(feature = "os-entropy")]
    fn new(run: &NoiseKey, at: StepAt, before: &Link, fresh: &[u8; 32], added_to: &AddedTo) -> Self {
        let mut mac = mac(&run.secret_bytes());
        mac.update(b"keyhush step key v1");
        [at.stream, at.segment, at.step].iter().for_each(|n| mac.update(&n.to_le_bytes()));
        [&before.0, fresh, &added_to.0].iter().for_each(|part| mac.update(*part));
        Self(mac.finalize().into_bytes().into())
    }

    /// The link that the next key is chained to; this key cannot be computed from it.
    #[must_use]
    pub fn link(&self) -> Link {
        let mut mac = mac(&self.0);
        mac.update(b"keyhush step link v1");
        Link(mac.finalize().into_bytes().into())
    }

    /// The key as [`StepKey::secret_bytes`] gave it.
    #[must_use]
    pub fn from_secret_bytes(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(*bytes)
    }

    /// The key itself, for the run's secret folder and nothing else.
    #[must_use]
    pub fn secret_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0)
    }
}

fn mac(key: &[u8; 32]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// The link from a step's key to the next one.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Link([u8; 32]);

impl Link {
    /// Before the first step.
    pub const FIRST: Self = Self([0; 32]);

    /// The link as [`Link::secret_bytes`] gave it.
    #[must_use]
    pub fn from_secret_bytes(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(*bytes)
    }

    /// The link itself, for the run's secret folder and nothing else.
    #[must_use]
    pub fn secret_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link(secret)")
    }
}

/// The digest of what noise is added to. It goes into a key and nowhere else (rule P12).
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct AddedTo([u8; 32]);

impl AddedTo {
    /// The digest of what noise is about to be added to: SHA-256 over the encoding and the digests of its pieces, which workers
    /// compute.
    ///
    /// # Errors
    /// When they left something out.
    pub fn of(encoding: EncodingId, values: &[i64], workers: &dyn Workers) -> Result<Self, Undone> {
        let pieces = values.chunks(PIECE);
        let mut digests = Zeroizing::new(vec![[0; 32]; pieces.len()]);
        workers::all(workers, pieces.zip(digests.iter_mut()), |_, (values, digest)| *digest = digest_of(values))?;
        let mut hash = Sha256::new();
        hash.update([WHOLE]);
        hash.update(encoding.as_bytes());
        digests.iter().for_each(|digest| hash.update(digest));
        Ok(Self(hash.finalize().into()))
    }
}

/// Coordinates of a piece.
const PIECE: usize = 1 << 12;
/// What a digest begins with, so that one of a piece is none of the whole.
const OF_PIECE: u8 = 0;
const WHOLE: u8 = 1;

/// The digest of a piece of a sum.
fn digest_of(values: &[i64]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update([OF_PIECE]);
    let mut bytes = Zeroizing::new([0; 4096]);
    for some in values.chunks(512) {
        bytes.as_chunks_mut().0.iter_mut().zip(some).for_each(|(to, v)| *to = v.to_le_bytes());
        hash.update(&bytes[..8 * some.len()]);
    }
    hash.finalize().into()
}

#[cfg(test)]
impl AddedTo {
    pub(crate) const fn bytes(&self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Debug for AddedTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddedTo(secret)")
    }
}

/// The source of the noise that is first used at one step.
#[derive(Debug)]
pub struct StepNoise(Root);

#[derive(Debug)]
enum Root {
    Seeded(SimulationKey),
    #[cfg(feature = "os-entropy")]
    Keyed(StepKey),
}

impl StepNoise {
    /// The stream at a position, such as (segment, level, node).
    pub(crate) fn stream(&self, position: &[u64]) -> StreamKey {
        match &self.0 {
            Root::Seeded(seed) => NoiseSource::from(*seed).stream(Purpose::Noise, position),
            #[cfg(feature = "os-entropy")]
            Root::Keyed(key) => {
                let kdf = hkdf::Hkdf::<Sha256>::new(Some(b"keyhush step noise v1"), &key.0);
                let info: Vec<u8> = position.iter().flat_map(|p| p.to_le_bytes()).collect();
                let mut stream = Zeroizing::new([0; 32]);
                kdf.expand(&info, &mut *stream).expect("32 bytes are within what HKDF-SHA-256 gives");
                StreamKey::from_secret_bytes(stream)
            }
        }
    }

    pub(crate) fn is_floating_point(&self) -> bool {
        matches!(&self.0, Root::Seeded(seed) if seed.is_floating_point())
    }
}

/// Gives every step of a run what its noise is drawn from.
pub trait StepKeys {
    /// What the ledger says of the noise.
    fn randomness(&self) -> Randomness;

    /// For a step that is about to be released: what no other computation has. Durable when this returns.
    ///
    /// # Errors
    /// When there is no randomness, or it cannot be made durable; nothing may be released then.
    fn draw(&mut self, at: StepAt, added_to: &AddedTo) -> Result<StepNoise, StepKeyError>;

    /// The noise of a step whose sum is not there yet, where it follows from the step alone: in simulations. With secret noise there is
    /// none before there is a sum to add it to (rule P21).
    fn foreseen(&self, _at: StepAt) -> Option<StepNoise> {
        None
    }

    /// For a step of this segment that was recorded: its noise again, which later steps subtract.
    ///
    /// # Errors
    /// When its key is not there.
    fn again(&self, at: StepAt) -> Result<StepNoise, StepKeyError>;

    /// Says that the step was recorded. Where no later step needs its noise again, it and all before it are erased.
    ///
    /// # Errors
    /// When they cannot be erased.
    fn recorded(&mut self, at: StepAt, needed_again: bool) -> Result<(), StepKeyError>;
}

impl StepKeys for SimulationKey {
    fn randomness(&self) -> Randomness {
        NoiseSource::from(*self).randomness()
    }

    fn draw(&mut self, _at: StepAt, _added_to: &AddedTo) -> Result<StepNoise, StepKeyError> {
        Ok(StepNoise(Root::Seeded(*self)))
    }

    fn foreseen(&self, _at: StepAt) -> Option<StepNoise> {
        Some(StepNoise(Root::Seeded(*self)))
    }

    fn again(&self, _at: StepAt) -> Result<StepNoise, StepKeyError> {
        Ok(StepNoise(Root::Seeded(*self)))
    }

    fn recorded(&mut self, _at: StepAt, _needed_again: bool) -> Result<(), StepKeyError> {
        Ok(())
    }
}

/// Keeps the keys of a segment.
pub trait KeyShelf {
    /// Keeps a key; it is durable when this returns.
    ///
    /// # Errors
    /// When it is not known to be durable.
    fn keep(&mut self, at: StepAt, key: &StepKey) -> Result<(), StepKeyError>;

    /// A key that is kept.
    fn find(&self, at: StepAt) -> Option<StepKey>;

    /// The step whose key was kept last, if it is still kept.
    fn last(&self) -> Option<StepAt>;

    /// The link to the last step, also where its key is erased.
    fn link(&self) -> Link;

    /// Notes, durably, that the release of the last step is recorded: a ledger that does not have it is an older copy.
    ///
    /// # Errors
    /// When it is not known to be durable.
    fn mark(&mut self) -> Result<(), StepKeyError>;

    /// Erases all keys; the link to the last of them stays.
    ///
    /// # Errors
    /// When they must be taken to be there still.
    fn erase(&mut self) -> Result<(), StepKeyError>;
}

/// The keys of a run whose noise is secret.
#[cfg(feature = "os-entropy")]
#[derive(Debug)]
pub struct SecretSteps<K> {
    run: NoiseKey,
    shelf: K,
    /// The step that was drawn last and is not recorded yet.
    open: Option<StepAt>,
}

#[cfg(feature = "os-entropy")]
impl<K: KeyShelf> SecretSteps<K> {
    /// The keys of the run with this key, kept on this shelf.
    pub const fn new(run: NoiseKey, shelf: K) -> Self {
        Self { run, shelf, open: None }
    }

    /// The storage of the keys.
    pub const fn shelf(&self) -> &K {
        &self.shelf
    }

    fn draw_with(&mut self, fresh: &[u8; 32], at: StepAt, added_to: &AddedTo) -> Result<StepNoise, StepKeyError> {
        let key = StepKey::new(&self.run, at, &self.shelf.link(), fresh, added_to);
        self.open = Some(at);
        self.shelf.keep(at, &key)?;
        Ok(StepNoise(Root::Keyed(key)))
    }
}

#[cfg(feature = "os-entropy")]
impl<K: KeyShelf> StepKeys for SecretSteps<K> {
    fn randomness(&self) -> Randomness {
        Randomness::Secret
    }

    fn draw(&mut self, at: StepAt, added_to: &AddedTo) -> Result<StepNoise, StepKeyError> {
        if let Some(at) = self.open {
            return Err(StepKeyError::Unrecorded { at });
        }
        let mut fresh = Zeroizing::new([0; 32]);
        fill_from_os(&mut *fresh)?;
        self.draw_with(&fresh, at, added_to)
    }

    fn again(&self, at: StepAt) -> Result<StepNoise, StepKeyError> {
        let key = self.shelf.find(at).ok_or(StepKeyError::Missing { at })?;
        Ok(StepNoise(Root::Keyed(key)))
    }

    fn recorded(&mut self, at: StepAt, needed_again: bool) -> Result<(), StepKeyError> {
        if self.shelf.last() != Some(at) {
            return Err(StepKeyError::Missing { at });
        }
        self.shelf.mark()?;
        if !needed_again {
            self.shelf.erase()?;
        }
        self.open = None;
        Ok(())
    }
}

/// Keys that end with the process. No run keeps its keys here, since it could not continue after a crash; it is public because the examples of
/// this crate's documentation release sums without files, and so does a caller who only wants one release.
#[derive(Debug, Clone)]
pub struct MemoryShelf {
    keys: Vec<(StepAt, StepKey)>,
    link: Link,
}

impl Default for MemoryShelf {
    fn default() -> Self {
        Self { keys: Vec::new(), link: Link::FIRST }
    }
}

impl KeyShelf for MemoryShelf {
    fn keep(&mut self, at: StepAt, key: &StepKey) -> Result<(), StepKeyError> {
        self.link = key.link();
        self.keys.push((at, key.clone()));
        Ok(())
    }

    fn find(&self, at: StepAt) -> Option<StepKey> {
        self.keys.iter().find(|(known, _)| *known == at).map(|(_, key)| key.clone())
    }

    fn last(&self) -> Option<StepAt> {
        self.keys.last().map(|(at, _)| *at)
    }

    fn link(&self) -> Link {
        self.link.clone()
    }

    fn mark(&mut self) -> Result<(), StepKeyError> {
        Ok(())
    }

    fn erase(&mut self) -> Result<(), StepKeyError> {
        self.keys.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::Alone;

    const AT: StepAt = StepAt { stream: 1, segment: 2, step: 9 };

    fn sum(values: &[i64]) -> AddedTo {
        AddedTo::of(EncodingId::for_tests(7), values, &Alone).unwrap()
    }

    /// Every part of the formula makes another key.
    #[test]
    fn p21_a_key_depends_on_all_that_it_is_made_of() {
        let run = NoiseKey::generate().unwrap();
        let key = |at, before: &Link, fresh: &[u8; 32], added: &AddedTo| StepKey::new(&run, at, before, fresh, added).0;
        let here = key(AT, &Link::FIRST, &[5; 32], &sum(&[1, 2]));
        let others = [
            key(StepAt { stream: 2, ..AT }, &Link::FIRST, &[5; 32], &sum(&[1, 2])),
            key(StepAt { segment: 3, ..AT }, &Link::FIRST, &[5; 32], &sum(&[1, 2])),
            key(StepAt { step: 8, ..AT }, &Link::FIRST, &[5; 32], &sum(&[1, 2])),
            key(AT, &Link([1; 32]), &[5; 32], &sum(&[1, 2])),
            key(AT, &Link::FIRST, &[6; 32], &sum(&[1, 2])),
            key(AT, &Link::FIRST, &[5; 32], &sum(&[1, 3])),
            key(AT, &Link::FIRST, &[5; 32], &AddedTo::of(EncodingId::for_tests(8), &[1, 2], &Alone).unwrap()),
            StepKey::new(&NoiseKey::generate().unwrap(), AT, &Link::FIRST, &[5; 32], &sum(&[1, 2])).0,
        ];
        assert_eq!(here, key(AT, &Link::FIRST, &[5; 32], &sum(&[1, 2])));
        assert!(others.iter().all(|other| *other != here));
    }

    /// Long sums are digested in pieces: every coordinate counts, in its place.
    #[test]
    fn p21_the_digest_of_a_long_sum_depends_on_every_coordinate() {
        let values: Vec<i64> = (0..3 * PIECE as i64 + 5).collect();
        let whole = sum(&values).0;
        for at in [0, 511, 512, PIECE - 1, PIECE, 2 * PIECE + 7, 3 * PIECE + 4] {
            let mut other = values.clone();
            other[at] += 1;
            assert_ne!(sum(&other).0, whole, "{at}");
        }
        let mut swapped = values.clone();
        swapped.rotate_left(PIECE);
        assert_ne!(sum(&swapped).0, whole);
        assert_ne!(sum(&values[..3 * PIECE]).0, whole);
        assert_eq!(sum(&values).0, whole);
    }

    /// Two copies of a run at the same step, with the same sum: not one word of noise in common.
    #[test]
    fn p21_a_copy_of_a_run_draws_other_noise() {
        let run = NoiseKey::generate().unwrap();
        let copy = NoiseKey::from_secret_bytes(run.secret_bytes());
        let first = |run: NoiseKey| {
            let mut steps = SecretSteps::new(run, MemoryShelf::default());
            let words = |noise: &StepNoise| noise.stream(&[0, 1]).chunk(0).next_word();
            let noise = steps.draw(AT, &sum(&[4])).unwrap();
            assert_eq!(words(&noise), words(&steps.again(AT).unwrap()), "and itself draws it again");
            words(&noise)
        };
        assert_ne!(first(run), first(copy));
    }

    /// Where the operating system's randomness repeats, the chain still makes another key.
    #[test]
    fn p21_a_key_is_chained_to_the_one_before() {
        let run = NoiseKey::generate().unwrap();
        let first = |link: Link| {
            let run = NoiseKey::from_secret_bytes(run.secret_bytes());
            let mut steps = SecretSteps::new(run, MemoryShelf { keys: Vec::new(), link });
            steps.draw_with(&[9; 32], AT, &sum(&[4])).unwrap().stream(&[0]).chunk(0).next_word()
        };
        assert_eq!(first(Link([1; 32])), first(Link([1; 32])));
        assert_ne!(first(Link([1; 32])), first(Link([2; 32])));
    }

    /// What is kept of a key that was erased is not the key; and every position of a step has noise of its own.
    #[test]
    fn p20_a_link_is_not_its_key_and_positions_share_nothing() {
        let key = StepKey([0x5a; 32]);
        assert_ne!(key.link().0, key.0);
        let noise = StepNoise(Root::Keyed(key));
        let words: Vec<u64> = [&[1, 0][..], &[1, 1], &[1], &[0, 1], &[1, 0, 0]]
            .iter()
            .map(|position| noise.stream(position).chunk(0).next_word())
            .collect();
        assert!((1..words.len()).all(|i| !words[..i].contains(&words[i])), "{words:?}");
    }

    #[test]
    fn p20_keys_are_erased_once_no_later_step_needs_them() {
        let mut steps = SecretSteps::new(NoiseKey::generate().unwrap(), MemoryShelf::default());
        let at = |step| StepAt { stream: 0, segment: 0, step };
        for step in 0..3 {
            let _ = steps.draw(at(step), &sum(&[0])).unwrap();
            let twice = steps.draw(at(step), &sum(&[0])).unwrap_err();
            assert_eq!(twice, StepKeyError::Unrecorded { at: at(step) });
            steps.recorded(at(step), step < 2).unwrap();
            assert_eq!(steps.again(at(0)).is_ok(), step < 2);
        }
        let gone = steps.again(at(2)).unwrap_err();
        assert_eq!(gone, StepKeyError::Missing { at: at(2) });
        assert_ne!(steps.shelf().link(), Link::FIRST, "the chain goes on from what was erased");
    }

    #[test]
    fn p13_secrets_are_not_shown() {
        let key = StepKey([0x5a; 32]);
        let shown = format!("{key:?} {:?} {:?} {:?}", key.link(), sum(&[90]), StepNoise(Root::Keyed(key.clone())));
        assert!(!shown.contains("90") && !shown.contains("5a"), "{shown}");
    }
}
