//! Participants, as pseudonyms in a side file (rules P17 and P18).
//!
//! Limits on participation are part of the guarantee, so who took part must be on record; but a ledger is shown around.
//! So each attempt has a record in a side file that stays with the run: pseudonyms, HMAC-SHA-256 of the user under a
//! secret key, cut to 16 bytes and sorted. The entry carries the digest of that record. The record holds a salt
//! derived from the key, so that the digest shows nothing, not even whether two attempts or none at all took part.
//! When the key is destroyed, pseudonyms still show which participations were the same user's, and no longer whose.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::{
    digest::{Digest, hex, unhex},
    error::LedgerError,
    keys::KeyError,
};
use privacy::units::MinSeparation;

const LABEL: &str = "keyhush participations v1";
/// The length of a pseudonym in bytes.
const PSEUDONYM: usize = 16;

/// The secret key of the pseudonyms of one ledger. It is wiped from memory when dropped; `Debug` shows nothing.
#[derive(Clone)]
pub struct PseudonymKey(Zeroizing<[u8; 32]>);

/// Proof that the pseudonym key of a ledger is destroyed. Only the file store makes one by doing it; anyone else asserts it.
#[derive(Debug)]
pub struct KeyDestroyed(());

impl KeyDestroyed {
    /// Says that every copy of the key is gone, or that there never was one: the word to audit.
    #[must_use]
    pub const fn assertion() -> Self {
        Self(())
    }
}

/// Proof that the noise key of a run and everything its noise could be drawn from are destroyed. Only the file store makes one by
/// doing it; anyone else asserts it.
#[derive(Debug)]
pub struct NoiseDestroyed(());

impl NoiseDestroyed {
    /// Says that every copy is gone, or that there never was a secret one: the word to audit.
    #[must_use]
    pub const fn assertion() -> Self {
        Self(())
    }
}

/// One attempt's participants, ready to be appended to the side file.
#[derive(Clone, PartialEq, Eq)]
pub struct ParticipationRecord {
    content: Content,
    line: String,
}

/// A line of the side file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    stream: String,
    step: u64,
    attempt: u32,
    salt: String,
    /// All pseudonyms, sorted, one after the other.
    pseudonyms: String,
}

impl PseudonymKey {
    /// A new key from the operating system.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    #[cfg(feature = "os-entropy")]
    pub fn generate() -> Result<Self, KeyError> {
        crate::keys::random_seed().map(Self)
    }

    /// The key of these bytes, which are as secret as the key.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// Records who took part in an attempt. Users are named by any bytes that are theirs throughout the run.
    ///
    /// # Errors
    /// When a user is there twice.
    pub fn record<'a>(
        &self,
        stream: &str,
        step: u64,
        attempt: u32,
        users: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<ParticipationRecord, LedgerError> {
        let mut pseudonyms: Vec<[u8; PSEUDONYM]> = users.into_iter().map(|user| self.pseudonym(user)).collect();
        pseudonyms.sort_unstable();
        if pseudonyms.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(LedgerError::TwiceInOneAttempt { attempt: name(stream, step, attempt) });
        }
        // Derived rather than drawn: the same attempt recorded again after a crash is the same record.
        let salt = self.mac("salt", format!("{step} {attempt} {stream}").as_bytes());
        let content = Content {
            stream: stream.to_owned(),
            step,
            attempt,
            salt: hex(&salt),
            pseudonyms: hex(pseudonyms.as_flattened()),
        };
        let line = serde_json::to_string(&content).expect("strings and integers");
        Ok(ParticipationRecord { content, line })
    }

    /// A digest of something that the run must recognise and nobody else may: without the key it shows nothing. The purpose
    /// keeps equal things in different roles apart.
    #[must_use]
    pub fn digest<'a>(&self, purpose: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
        let mut mac = self.keyed("digest");
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        parts.into_iter().for_each(|part| mac.update(part));
        Digest::from_bytes(mac.finalize().into_bytes().into())
    }

    /// The positions of a record's users among these users, in order; none if the record has other users.
    ///
    /// # Errors
    /// What is wrong with the record.
    pub fn recognise<'a>(
        &self,
        record: &ParticipationRecord,
        users: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Option<Vec<usize>>, String> {
        let recorded: BTreeSet<_> = record.pseudonyms()?.into_iter().collect();
        let is_in = |user: &[u8]| recorded.contains(&self.pseudonym(user));
        let found: Vec<usize> =
            users.into_iter().enumerate().filter(|(_, user)| is_in(user)).map(|(place, _)| place).collect();
        Ok((found.len() == recorded.len()).then_some(found))
    }

    fn pseudonym(&self, user: &[u8]) -> [u8; PSEUDONYM] {
        *self.mac("user", user).first_chunk().expect("a digest is longer than a pseudonym")
    }

    fn mac(&self, purpose: &str, bytes: &[u8]) -> [u8; 32] {
        let mut mac = self.keyed(purpose);
        mac.update(bytes);
        mac.finalize().into_bytes().into()
    }

    fn keyed(&self, purpose: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&*self.0).expect("HMAC takes keys of any length");
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        mac
    }

    /// The written form, for the run's secret folder and nothing else.
    #[must_use]
    pub fn to_secret_text(&self) -> Zeroizing<String> {
        crate::keys::secret_text(&self.0)
    }

    /// Reads the written form.
    ///
    /// # Errors
    /// When it is none; the error does not repeat the text.
    pub fn from_secret_text(text: &str) -> Result<Self, KeyError> {
        crate::keys::seed_from_text(text).map(Self)
    }
}

impl ParticipationRecord {
    /// Reads a line of the side file, without its line break.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str) -> Result<Self, String> {
        let content: Content = serde_json::from_str(line).map_err(|e| e.to_string())?;
        let record = Self { content, line: line.to_owned() };
        if !record.content.pseudonyms.len().is_multiple_of(2 * PSEUDONYM) {
            return Err("the pseudonyms do not have whole lengths".into());
        }
        Ok(record)
    }

    /// The line of the side file, without a line break.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The digest that the entry contains.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(LABEL, self.line.as_bytes())
    }

    /// Refuses to be recorded with another attempt.
    pub(crate) fn check_is_of(&self, stream: &str, step: u64, attempt: u32) -> Result<(), LedgerError> {
        let (expected, got) = (name(stream, step, attempt), self.name());
        if expected == got { Ok(()) } else { Err(LedgerError::OtherAttempt { expected, got }) }
    }

    fn name(&self) -> String {
        name(&self.content.stream, self.content.step, self.content.attempt)
    }

    fn pseudonyms(&self) -> Result<Vec<[u8; PSEUDONYM]>, String> {
        let chunks = self.content.pseudonyms.as_bytes().chunks(2 * PSEUDONYM);
        chunks.map(|c| str::from_utf8(c).ok().and_then(|t| unhex(t).ok()).ok_or("a bad pseudonym".into())).collect()
    }
}

impl fmt::Debug for PseudonymKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PseudonymKey(secret)")
    }
}

impl fmt::Debug for ParticipationRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParticipationRecord({})", self.name())
    }
}

fn name(stream: &str, step: u64, attempt: u32) -> String {
    format!("attempt {attempt} at step {step} of {stream:?}")
}

/// How often one user took part, and how close together, over all users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Frequency {
    /// The most participations of one user.
    pub max_participations: u64,
    /// The closest that two participations of one user were; none if nobody came twice.
    pub min_separation: Option<MinSeparation>,
}

/// How often and how close together users took part in one stream, as the side file has it (rule P18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Observed {
    /// In what was released. This is what limits on participation promise, and what epsilon is a consequence of.
    #[serde(flatten)]
    pub released: Frequency,
    /// In all attempts, those that failed too, of which inputs may have left their devices (rule P24). Everyone who was asked counts.
    pub with_failed: Frequency,
}

/// Adds up participations, stream by stream.
#[derive(Default)]
pub(crate) struct Observer {
    streams: BTreeMap<String, Counts>,
}

/// Those of one stream: of what was released, and of all attempts.
#[derive(Default)]
struct Counts {
    released: Count,
    with_failed: Count,
}

#[derive(Default)]
struct Count {
    /// For each pseudonym: how often, and at which step last.
    seen: BTreeMap<[u8; PSEUDONYM], (u64, u64)>,
    found: Frequency,
}

impl Observer {
    /// Adds the participants of an attempt; steps of a stream come in order.
    pub(crate) fn add(&mut self, record: &ParticipationRecord, released: bool) -> Result<(), String> {
        let (content, pseudonyms) = (&record.content, record.pseudonyms()?);
        let counts = self.streams.entry(content.stream.clone()).or_default();
        counts.with_failed.add(&pseudonyms, content.step)?;
        if released { counts.released.add(&pseudonyms, content.step) } else { Ok(()) }
    }

    /// How many different users were asked in each stream.
    pub(crate) fn different(&self) -> impl Iterator<Item = (&str, u64)> {
        self.streams.iter().map(|(stream, counts)| (stream.as_str(), counts.with_failed.seen.len() as u64))
    }

    pub(crate) fn finish(self) -> BTreeMap<String, Observed> {
        let observed =
            |counts: Counts| Observed { released: counts.released.found, with_failed: counts.with_failed.found };
        self.streams.into_iter().map(|(stream, counts)| (stream, observed(counts))).collect()
    }
}

impl Count {
    fn add(&mut self, pseudonyms: &[[u8; PSEUDONYM]], step: u64) -> Result<(), String> {
        let found = &mut self.found;
        for pseudonym in pseudonyms {
            let (times, last) = self.seen.entry(*pseudonym).or_insert((0, step));
            if *times > 0 {
                let distance = step.checked_sub(*last).ok_or("a step that goes backwards")?;
                // Two attempts of one step are as close as can be said.
                let separation = MinSeparation::distance(distance.max(1)).map_err(|e| e.to_string())?;
                found.min_separation = Some(found.min_separation.map_or(separation, |s| s.min(separation)));
            }
            (*times, *last) = (*times + 1, step);
            found.max_participations = found.max_participations.max(*times);
        }
        Ok(())
    }
}
